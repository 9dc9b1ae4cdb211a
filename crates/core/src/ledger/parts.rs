//! Parts: what the values of keys are split into, by dimensions and time ([`crate::counter::rollup`]).
//!
//! Memory has what was *added* since the last cut, and never what a part is worth: an entry counts for its parts without anybody having
//! looked them up. For each key it keeps the finest that any roll-up asks for, in the order in which it came first; whoever writes a
//! cut works out the rows of each roll-up from it and from what the store has ([`Blocks`]), and so does whoever reads. So the two cannot
//! differ, and what a key admits is decided in the order of the log wherever cuts fall.

pub mod block;

use super::LedgerKey;
use super::cut::{Change, Kind, LedgerRow, NoRows, Rows, StoredRows};
use crate::counter::rollup::{Minutes, Unit, Zone};
use crate::id::{CellKey, KeyHash};
use crate::limits::{PARTS_PER_ROW_MAX, ROLLUP_DIMENSIONS_MAX, ROLLUPS_MAX};
use crate::memory::pending::{Overlay, Pending};
use crate::memory::prefetch::prefetch;
use crate::memory::stratum::SHARDS;
use crate::record::{DecodeError, put_bytes, take_bytes};
use block::{Block, OTHER};
use hashbrown::{DefaultHashBuilder, HashSet, HashTable};
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

/// How entries of a counter are split, all its roll-ups together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// All that any roll-up asks for.
    pub dimensions: Box<[Box<str>]>,
    /// The finest that any of them asks for.
    pub unit: Option<Unit>,
    pub zone: Zone,
    /// Those that decide what is admitted come first.
    pub rollups: Box<[SplitRollup]>,
}

/// One roll-up of a [`Split`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitRollup {
    /// Its number on disk, never used for another one of the counter.
    pub number: u16,
    /// Which of the split's dimensions, in its own order.
    pub dimensions: Box<[u8]>,
    pub unit: Option<Unit>,
    /// It decides which values of its only dimension the key admits: so many.
    pub admits: Option<u64>,
}

impl Split {
    pub fn rollup(&self, number: u16) -> Option<&SplitRollup> {
        self.rollups.iter().find(|rollup| rollup.number == number)
    }
}

impl SplitRollup {
    /// Its bucket that one of the split's unit lies in.
    fn bucket(&self, split: &Split, bucket: Minutes) -> Minutes {
        match self.unit {
            None => 0,
            unit if unit == split.unit => bucket,
            Some(unit) => unit.bucket(bucket, &split.zone),
        }
    }
}

/// The values of all dimensions of a split, one by one.
fn texts<'v>(
    split: &Split,
    mut values: &'v [u8],
) -> Result<[&'v [u8]; ROLLUPS_MAX * ROLLUP_DIMENSIONS_MAX], DecodeError> {
    let mut texts = [&b""[..]; ROLLUPS_MAX * ROLLUP_DIMENSIONS_MAX];
    for text in &mut texts[..split.dimensions.len()] {
        *text = take_bytes(&mut values)?;
    }
    Ok(texts)
}

/// So many counts are about as much work as one row of another kind.
const COUNTS_PER_ROW: usize = 4;

/// What was added to the parts of keys since the last cut.
#[derive(Default)]
pub struct Parts {
    counts: Pending<PartCounts>,
}

impl Parts {
    /// Adds to the parts of keys. `values` has one for each dimension of the split, each behind its length; `bucket` is one of its unit.
    #[inline]
    pub fn add(&mut self, cells: &[CellKey], split: &Arc<Split>, values: &[u8], bucket: Minutes, delta: i64) {
        let recent = &mut self.counts.recent;
        let tuple = recent.tuples.number(split, values, bucket);
        cells.iter().for_each(|cell| recent.add(Addition { cell: *cell, tuple, delta }));
    }

    /// A key begins anew: what it had is void, in the store as well.
    pub fn clear_key(&mut self, cell: CellKey) {
        self.counts.recent.catch_up();
        self.counts.recent.shard(cell).clear(cell);
    }

    /// What was added to the parts of one key.
    pub fn of(&self, cell: CellKey) -> PartsSince {
        let mut since = PartsSince::default();
        self.counts.oldest_first().for_each(|counts| counts.tell(cell, &mut since));
        since
    }
}

impl Kind for Parts {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        self.counts.recent.catch_up();
        self.counts.begin_cut()
    }

    fn finish_cut(&mut self) {
        self.counts.finish_cut();
    }

    fn abort_cut(&mut self) {
        self.counts.recent.catch_up();
        self.counts.abort_cut();
    }

    fn clear(&mut self) {
        *self = Parts::default();
    }

    /// They are small, and many of them are one row.
    fn changed(&self) -> usize {
        self.counts.recent.len / COUNTS_PER_ROW
    }

    fn unsettled_bytes(&self) -> usize {
        self.bytes()
    }

    fn bytes(&self) -> usize {
        self.counts.newest_first().map(PartCounts::bytes).sum()
    }
}

/// In many shards by the top bits of the cell: no addition waits for more than one of them to grow, a cut sorts one at a time, and the
/// counts of one cell are found by a look through a few thousand.
#[derive(Clone)]
struct PartCounts {
    shards: Box<[PartShard]>,
    tuples: Tuples,
    /// Additions whose places are on their way from memory to the cache, a ring.
    ahead: [Addition; AHEAD],
    /// How many there have been.
    added: usize,
    /// Counts in all shards: this is asked for behind every batch.
    len: usize,
}

const PART_SHARDS: usize = 1024;

/// How many additions wait for their places: a trip to memory takes as long as so many of them.
const AHEAD: usize = 16;

#[derive(Clone, Copy)]
struct Addition {
    cell: CellKey,
    tuple: u32,
    delta: i64,
}

impl Addition {
    const NONE: Addition = Addition { cell: CellKey::NONE, tuple: 0, delta: 0 };
}

impl Default for PartCounts {
    fn default() -> PartCounts {
        let shards = std::iter::repeat_with(PartShard::default).take(PART_SHARDS).collect();
        PartCounts { shards, tuples: Tuples::default(), ahead: [Addition::NONE; AHEAD], added: 0, len: 0 }
    }
}

impl PartCounts {
    #[inline]
    fn shard(&mut self, cell: CellKey) -> &mut PartShard {
        &mut self.shards[shard_of(cell)]
    }

    /// Asks for the place of an addition, and makes one whose place was asked for a while ago.
    #[inline]
    fn add(&mut self, addition: Addition) {
        self.shards[shard_of(addition.cell)].prefetch(addition.cell, addition.tuple);
        let due = std::mem::replace(&mut self.ahead[self.added % AHEAD], addition);
        self.added += 1;
        self.make(due);
    }

    #[inline]
    fn make(&mut self, Addition { cell, tuple, delta }: Addition) {
        if cell != CellKey::NONE {
            self.len += usize::from(self.shards[shard_of(cell)].add(cell, tuple, delta));
        }
    }

    /// Makes all additions.
    fn catch_up(&mut self) {
        for _ in 0..AHEAD {
            let due = std::mem::replace(&mut self.ahead[self.added % AHEAD], Addition::NONE);
            self.added += 1;
            self.make(due);
        }
    }

    /// Those that were not made yet, in their order.
    fn ahead(&self) -> impl Iterator<Item = &Addition> {
        (self.added..self.added + AHEAD).map(|at| &self.ahead[at % AHEAD])
    }

    /// Adds what there is of a cell.
    fn tell(&self, cell: CellKey, since: &mut PartsSince) {
        let shard = &self.shards[shard_of(cell)];
        if shard.cleared.contains(&cell) {
            *since = PartsSince { cleared: true, ..PartsSince::default() };
        }
        let mut counts: Vec<&Count> = shard.living().filter(|count| count.cell == cell).collect();
        counts.sort_unstable_by_key(|count| count.order);
        let ahead =
            self.ahead().filter(|addition| addition.cell == cell).map(|addition| (addition.tuple, addition.delta));
        for (tuple, sum) in counts.into_iter().map(|count| (count.tuple, count.sum)).chain(ahead) {
            let (split, values, bucket) = self.tuples.get(tuple);
            let start = since.texts.len();
            since.texts.extend_from_slice(values);
            let (split, end) = (since.split(split), since.texts.len());
            since.counts.push(CountSince { split, start, end, bucket, sum });
        }
    }

    fn bytes(&self) -> usize {
        self.tuples.bytes() + self.shards.iter().map(PartShard::bytes).sum::<usize>()
    }

    /// The rows of a cell as a cut leaves them.
    fn rows_of(&self, cell: &CellCounts<'_>, stored: &dyn StoredRows) -> Result<Vec<LedgerRow>, DecodeError> {
        let CellCounts { cell, is_cleared, counts } = *cell;
        let mut blocks = Blocks::new(cell, stored, is_cleared);
        for Count { sum, tuple, .. } in counts {
            let (split, values, bucket) = self.tuples.get(*tuple);
            blocks.add(split, values, bucket, *sum)?;
        }
        Ok(blocks.into_rows(if is_cleared { stored.keys(&LedgerKey::parts_of(cell)) } else { Vec::new() }))
    }
}

#[inline]
fn shard_of(cell: CellKey) -> usize {
    (cell.as_u128() >> (u128::BITS - PART_SHARDS.ilog2())) as usize
}

impl Overlay for PartCounts {
    fn overlay(&mut self, newer: PartCounts) {
        let PartCounts { shards, tuples, len, .. } = self;
        for (shard, newer_shard) in shards.iter_mut().zip(&newer.shards) {
            newer_shard.cleared.iter().for_each(|cell| shard.clear(*cell));
            for Count { cell, sum, tuple, .. } in newer_shard.sorted() {
                let (split, values, bucket) = newer.tuples.get(tuple);
                *len += usize::from(shard.add(cell, tuples.number(split, values, bucket), sum));
            }
        }
    }
}

impl Rows for PartCounts {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        self.rows_over(&NoRows)
    }

    fn rows_over<'a>(&'a self, stored: &'a dyn StoredRows) -> Box<dyn Iterator<Item = LedgerRow> + 'a> {
        // Shards in order are cells in order.
        Box::new(self.shards.iter().flat_map(move |shard| {
            let counts = shard.sorted();
            let of_cell = |cell: CellCounts<'_>| {
                self.rows_of(&cell, stored).unwrap_or_else(|error| {
                    stored.damaged(&LedgerKey::parts_of(cell.cell).start, error);
                    Vec::new()
                })
            };
            shard.cells(&counts).flat_map(of_cell).collect::<Vec<_>>()
        }))
    }
}

/// An open table: a count stands at its home or not far behind it.
#[derive(Clone, Default)]
struct PartShard {
    slots: Vec<Count>,
    /// How many of them are taken.
    len: usize,
    /// What the store has of these is void.
    cleared: HashSet<CellKey, KeyHash>,
}

#[derive(Clone, Copy)]
struct Count {
    /// [`CellKey::NONE`] if the slot is free.
    cell: CellKey,
    sum: i64,
    /// [`VOID`] if the key was cleared since.
    tuple: u32,
    /// The how manieth of its shard it is: they come first in the order in which they came.
    order: u32,
}

const VOID: u32 = u32::MAX;

const FREE: Count = Count { cell: CellKey::NONE, sum: 0, tuple: VOID, order: 0 };

/// What there is of one cell, in the order in which it came.
struct CellCounts<'a> {
    cell: CellKey,
    is_cleared: bool,
    counts: &'a [Count],
}

impl PartShard {
    /// Where the walk for a count begins.
    #[inline]
    fn home(&self, cell: CellKey, tuple: u32) -> usize {
        // The cell is a hash already; tuples are few, and told apart by the upper bits of a product.
        let hash = (cell.as_u128() as u64 ^ u64::from(tuple).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32;
        ((hash * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn prefetch(&self, cell: CellKey, tuple: u32) {
        if let Some(slot) = self.slots.get(self.home(cell, tuple)) {
            prefetch(slot);
        }
    }

    /// Answers whether it is the first.
    #[inline]
    fn add(&mut self, cell: CellKey, tuple: u32, delta: i64) -> bool {
        // A quarter stays free, so that walks are short.
        if 4 * self.len >= 3 * self.slots.len() {
            self.grow();
        }
        let home = self.home(cell, tuple);
        let at = self.walk(home, |slot| slot.cell == CellKey::NONE || slot.cell == cell && slot.tuple == tuple);
        let slot = &mut self.slots[at];
        let is_first = slot.cell == CellKey::NONE;
        if is_first {
            *slot = Count { cell, sum: delta, tuple, order: self.len as u32 };
            self.len += 1;
        } else {
            slot.sum = slot.sum.saturating_add(delta);
        }
        is_first
    }

    /// The first slot from here on that is what is looked for; there is always a free one.
    #[inline]
    fn walk(&self, from: usize, is_it: impl Fn(&Count) -> bool) -> usize {
        let mut at = from;
        while !is_it(&self.slots[at]) {
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        at
    }

    #[cold]
    fn grow(&mut self) {
        let room = (self.slots.len() * 3 / 2).max(16);
        let taken = std::mem::replace(&mut self.slots, vec![FREE; room]);
        for count in taken.into_iter().filter(|count| count.cell != CellKey::NONE) {
            let at = self.walk(self.home(count.cell, count.tuple), |slot| slot.cell == CellKey::NONE);
            self.slots[at] = count;
        }
    }

    fn clear(&mut self, cell: CellKey) {
        for count in self.slots.iter_mut().filter(|count| count.cell == cell) {
            count.tuple = VOID;
        }
        self.cleared.insert(cell);
    }

    fn living(&self) -> impl Iterator<Item = &Count> {
        self.slots.iter().filter(|count| count.tuple != VOID)
    }

    /// By cell, and of each in the order in which they came.
    fn sorted(&self) -> Vec<Count> {
        let mut sorted: Vec<Count> = self.living().copied().collect();
        sorted.sort_unstable_by_key(|count| (count.cell, count.order));
        sorted
    }

    /// Its cells in order, also those that were only cleared.
    fn cells<'a>(&'a self, sorted: &'a [Count]) -> impl Iterator<Item = CellCounts<'a>> {
        let mut cells: Vec<CellKey> =
            sorted.iter().map(|count| count.cell).chain(self.cleared.iter().copied()).collect();
        cells.sort_unstable();
        cells.dedup();
        let mut rest = sorted;
        cells.into_iter().map(move |cell| {
            let (counts, behind) = rest.split_at(rest.partition_point(|count| count.cell <= cell));
            rest = behind;
            CellCounts { cell, is_cleared: self.cleared.contains(&cell), counts }
        })
    }

    fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Count>() + self.cleared.allocation_size()
    }
}

/// Values of all dimensions of a split and buckets, each combination once and known by a number.
#[derive(Clone)]
struct Tuples {
    splits: Vec<Arc<Split>>,
    /// By hash, so that none waits for more than one to grow.
    shards: Box<[TupleShard]>,
    hash: DefaultHashBuilder,
}

#[derive(Clone, Default)]
struct TupleShard {
    tuples: Vec<Tuple>,
    texts: Vec<u8>,
    index: HashTable<u32>,
}

#[derive(Clone, Copy)]
struct Tuple {
    start: u32,
    end: u32,
    bucket: Minutes,
    split: u16,
}

impl Default for Tuples {
    fn default() -> Tuples {
        let shards = std::iter::repeat_with(TupleShard::default).take(SHARDS).collect();
        Tuples { splits: Vec::new(), shards, hash: DefaultHashBuilder::default() }
    }
}

impl Tuples {
    #[inline]
    fn number(&mut self, split: &Arc<Split>, values: &[u8], bucket: Minutes) -> u32 {
        let hashed = self.hash.hash_one((bucket, values));
        let shard = hashed as usize % SHARDS;
        let TupleShard { tuples, texts, index } = &self.shards[shard];
        let is_it = |at: &u32| {
            let tuple = tuples[*at as usize];
            tuple.bucket == bucket
                && &texts[tuple.start as usize..tuple.end as usize] == values
                && Arc::ptr_eq(&self.splits[usize::from(tuple.split)], split)
        };
        // The table looks at other bits of the hash than these.
        match index.find(hashed.rotate_left(32), is_it) {
            Some(at) => *at * SHARDS as u32 + shard as u32,
            None => self.begin(split, values, bucket, hashed),
        }
    }

    #[cold]
    fn begin(&mut self, split: &Arc<Split>, values: &[u8], bucket: Minutes, hashed: u64) -> u32 {
        let known = self.splits.iter().position(|known| Arc::ptr_eq(known, split));
        let split = known.unwrap_or_else(|| {
            self.splits.push(split.clone());
            self.splits.len() - 1
        });
        let split = u16::try_from(split).expect("there is one for each counter and configuration since the last cut");
        let Tuples { shards, hash, .. } = self;
        let shard = hashed as usize % SHARDS;
        let TupleShard { tuples, texts, index } = &mut shards[shard];
        let start = texts.len() as u32;
        texts.extend_from_slice(values);
        tuples.push(Tuple { start, end: texts.len() as u32, bucket, split });
        let at = tuples.len() as u32 - 1;
        index.insert_unique(hashed.rotate_left(32), at, |at| {
            let Tuple { start, end, bucket, .. } = tuples[*at as usize];
            hash.hash_one((bucket, &texts[start as usize..end as usize])).rotate_left(32)
        });
        at * SHARDS as u32 + shard as u32
    }

    fn get(&self, number: u32) -> (&Arc<Split>, &[u8], Minutes) {
        let TupleShard { tuples, texts, .. } = &self.shards[number as usize % SHARDS];
        let Tuple { split, start, end, bucket } = tuples[number as usize / SHARDS];
        (&self.splits[usize::from(split)], &texts[start as usize..end as usize], bucket)
    }

    fn bytes(&self) -> usize {
        let bytes = |shard: &TupleShard| {
            shard.texts.capacity() + shard.tuples.capacity() * size_of::<Tuple>() + shard.index.allocation_size()
        };
        self.shards.iter().map(bytes).sum()
    }
}

/// What was added to the parts of a key that only memory knows of.
#[derive(Default)]
pub struct PartsSince {
    splits: Vec<Arc<Split>>,
    texts: Vec<u8>,
    counts: Vec<CountSince>,
    /// What the store has is void.
    pub cleared: bool,
}

struct CountSince {
    split: usize,
    start: usize,
    end: usize,
    bucket: Minutes,
    sum: i64,
}

impl PartsSince {
    fn split(&mut self, split: &Arc<Split>) -> usize {
        self.splits.iter().position(|known| Arc::ptr_eq(known, split)).unwrap_or_else(|| {
            self.splits.push(split.clone());
            self.splits.len() - 1
        })
    }

    /// How many parts it may bring to a row, at most.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Tells what was added to a roll-up whose key admits everything: bucket, values and sum of each.
    pub fn of_rollup(&self, number: u16, mut tell: impl FnMut(Minutes, &[u8], i64)) -> Result<(), DecodeError> {
        let mut projected = Vec::new();
        for CountSince { split, start, end, bucket, sum } in &self.counts {
            let split = &*self.splits[*split];
            let Some(rollup) = split.rollup(number) else { continue };
            let texts = texts(split, &self.texts[*start..*end])?;
            projected.clear();
            rollup.dimensions.iter().for_each(|at| put_bytes(&mut projected, texts[usize::from(*at)]));
            tell(rollup.bucket(split, *bucket), &projected, *sum);
        }
        Ok(())
    }

    /// Lays it over rows of a key: those of the roll-up that matters and of what decides about its values.
    pub fn lay_over(&self, blocks: &mut Blocks<'_>) -> Result<(), DecodeError> {
        for CountSince { split, start, end, bucket, sum } in &self.counts {
            blocks.add(&self.splits[*split], &self.texts[*start..*end], *bucket, *sum)?;
        }
        Ok(())
    }
}

/// The rows of one key that are changed.
pub struct Blocks<'a> {
    cell: CellKey,
    stored: &'a dyn StoredRows,
    is_cleared: bool,
    /// Only this roll-up is of interest, and what decides about its values.
    only: Option<u16>,
    blocks: BTreeMap<(u16, Minutes), Block>,
    /// Values of the part at hand, and those that are put in their place.
    values: Vec<u8>,
}

impl<'a> Blocks<'a> {
    pub fn new(cell: CellKey, stored: &'a dyn StoredRows, is_cleared: bool) -> Blocks<'a> {
        Blocks { cell, stored, is_cleared, only: None, blocks: BTreeMap::new(), values: Vec::new() }
    }

    /// Leaves the other roll-ups out.
    pub fn only(mut self, number: u16) -> Blocks<'a> {
        self.only = Some(number);
        self
    }

    /// A row as it stands now, if anything was added to it.
    pub fn get(&self, number: u16, bucket: Minutes) -> Option<&Block> {
        self.blocks.get(&(number, bucket))
    }

    /// The rows of a roll-up that something was added to.
    pub fn of(&self, number: u16) -> impl Iterator<Item = (Minutes, &Block)> {
        self.blocks.range((number, 0)..=(number, Minutes::MAX)).map(|(&(_, bucket), block)| (bucket, block))
    }

    fn add(&mut self, split: &Split, values: &[u8], bucket: Minutes, delta: i64) -> Result<(), DecodeError> {
        let mut texts = texts(split, values)?;
        for rollup in &split.rollups {
            if rollup.admits.is_none() && self.only.is_some_and(|only| only != rollup.number) {
                continue;
            }
            self.values.clear();
            for dimension in &rollup.dimensions {
                put_bytes(&mut self.values, texts[usize::from(*dimension)]);
            }
            let bucket = rollup.bucket(split, bucket);
            let most = rollup.admits.map_or(PARTS_PER_ROW_MAX, |most| PARTS_PER_ROW_MAX.min(most as usize));
            let values = std::mem::take(&mut self.values);
            let is_admitted = self.block(rollup, bucket)?.add(&values, delta, most);
            self.values = values;
            if rollup.admits.is_some() && !is_admitted {
                texts[usize::from(rollup.dimensions[0])] = OTHER.as_bytes();
            }
        }
        Ok(())
    }

    fn block(&mut self, rollup: &SplitRollup, bucket: Minutes) -> Result<&mut Block, DecodeError> {
        use std::collections::btree_map::Entry;
        Ok(match self.blocks.entry((rollup.number, bucket)) {
            Entry::Occupied(block) => block.into_mut(),
            Entry::Vacant(vacant) => {
                let key = LedgerKey::Part(self.cell, rollup.number, bucket);
                let row = if self.is_cleared { None } else { self.stored.row(&key.encode()) };
                let new = || Ok(Block::new(rollup.dimensions.len() as u8));
                vacant.insert(row.map_or_else(new, |row| Block::decode(&row))?)
            }
        })
    }

    /// The rows as they are to be written, in the order of their keys. Those of `void` that are not among them go.
    fn into_rows(self, void: Vec<Vec<u8>>) -> Vec<LedgerRow> {
        let cell = self.cell;
        let gone = void.into_iter().map(|key| (key, Change::Delete));
        let rows = self.blocks.into_iter();
        let rows = rows.map(|((number, bucket), block)| {
            (LedgerKey::Part(cell, number, bucket).encode(), Change::Put(block.encode()))
        });
        let all: BTreeMap<Vec<u8>, Change> = gone.chain(rows).collect();
        all.into_iter().map(|(key, change)| LedgerRow { key, change }).collect()
    }
}
