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
use crate::limits::PARTS_PER_ROW_MAX;
use crate::memory::pending::{Overlay, Pending};
use crate::memory::stratum::{SHARDS, shard_of};
use crate::record::{DecodeError, put_bytes, take_bytes};
use block::{Block, OTHER};
use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};
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

/// What was added to the parts of keys since the last cut.
#[derive(Default)]
pub struct Parts {
    counts: Pending<PartCounts>,
}

impl Parts {
    /// Adds to the parts of a key. `values` has one for each dimension of the split, each behind its length; `bucket` is one of its unit.
    #[inline]
    pub fn add(&mut self, cell: CellKey, split: &Arc<Split>, values: &[u8], bucket: Minutes, delta: i64) {
        self.counts.recent.shard(cell).add(cell, split, values, bucket, delta);
    }

    /// A key begins anew: what it had is void, in the store as well.
    pub fn clear_key(&mut self, cell: CellKey) {
        self.counts.recent.shard(cell).clear(cell);
    }

    /// What was added to the parts of one key.
    pub fn of(&self, cell: CellKey) -> PartsSince {
        let mut since = PartsSince::default();
        for counts in self.counts.oldest_first() {
            counts.shards[shard_of(cell)].tell(cell, &mut since);
        }
        since
    }
}

impl Kind for Parts {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        self.counts.begin_cut()
    }

    fn finish_cut(&mut self) {
        self.counts.finish_cut();
    }

    fn abort_cut(&mut self) {
        self.counts.abort_cut();
    }

    fn clear(&mut self) {
        *self = Parts::default();
    }

    fn changed(&self) -> usize {
        self.counts.recent.shards.iter().map(|shard| shard.counts.len()).sum()
    }

    fn unsettled_bytes(&self) -> usize {
        self.bytes()
    }

    fn bytes(&self) -> usize {
        self.counts.newest_first().flat_map(|counts| &counts.shards).map(PartShard::bytes).sum()
    }
}

/// In shards by the top bits of the cell: no addition waits for more than one of them to grow, and a cut sorts one at a time.
#[derive(Clone)]
struct PartCounts {
    shards: Box<[PartShard]>,
}

impl Default for PartCounts {
    fn default() -> PartCounts {
        PartCounts { shards: std::iter::repeat_with(PartShard::default).take(SHARDS).collect() }
    }
}

impl PartCounts {
    #[inline]
    fn shard(&mut self, cell: CellKey) -> &mut PartShard {
        &mut self.shards[shard_of(cell)]
    }
}

impl Overlay for PartCounts {
    fn overlay(&mut self, newer: PartCounts) {
        for (shard, newer) in self.shards.iter_mut().zip(newer.shards) {
            newer.cleared.iter().for_each(|cell| shard.clear(*cell));
            for count in newer.living() {
                let tuple = newer.tuples[count.tuple as usize];
                let split = &newer.splits[usize::from(tuple.split)];
                shard.add(count.cell, split, newer.values(tuple), count.bucket, count.sum);
            }
        }
    }
}

#[derive(Clone, Default)]
struct PartShard {
    splits: Vec<Arc<Split>>,
    /// Values of all dimensions of a split, each combination once.
    tuples: Vec<Tuple>,
    texts: Vec<u8>,
    tuple_index: HashTable<u32>,
    /// In the order in which they came first.
    counts: Vec<Count>,
    index: HashTable<u32>,
    /// The newest count of each cell; the others hang behind it.
    newest: HashMap<CellKey, u32, KeyHash>,
    /// What the store has of these is void.
    cleared: HashSet<CellKey, KeyHash>,
    hash: DefaultHashBuilder,
}

#[derive(Clone, Copy)]
struct Tuple {
    split: u16,
    start: u32,
    end: u32,
}

#[derive(Clone, Copy)]
struct Count {
    /// [`CellKey::NONE`] if the key was cleared since.
    cell: CellKey,
    sum: i64,
    tuple: u32,
    bucket: Minutes,
    /// The one before of the same cell, or [`NO_COUNT`].
    before: u32,
}

const NO_COUNT: u32 = u32::MAX;

impl PartShard {
    #[inline]
    fn add(&mut self, cell: CellKey, split: &Arc<Split>, values: &[u8], bucket: Minutes, delta: i64) {
        let hash = self.hash_count(cell, values, bucket);
        let known = self.index.find(hash, |at| {
            let count = &self.counts[*at as usize];
            let tuple = self.tuples[count.tuple as usize];
            count.cell == cell
                && count.bucket == bucket
                && self.values(tuple) == values
                && Arc::ptr_eq(&self.splits[usize::from(tuple.split)], split)
        });
        match known.copied() {
            Some(at) => {
                let sum = &mut self.counts[at as usize].sum;
                *sum = sum.saturating_add(delta);
            }
            None => self.begin(hash, cell, split, values, bucket, delta),
        }
    }

    #[cold]
    fn begin(&mut self, hash: u64, cell: CellKey, split: &Arc<Split>, values: &[u8], bucket: Minutes, sum: i64) {
        let tuple = self.tuple(split, values);
        let at = self.counts.len() as u32;
        let before = self.newest.insert(cell, at).unwrap_or(NO_COUNT);
        self.counts.push(Count { cell, sum, tuple, bucket, before });
        let PartShard { index, counts, tuples, texts, hash: state, .. } = self;
        index.insert_unique(hash, at, |at| {
            let Count { cell, tuple, bucket, .. } = counts[*at as usize];
            let Tuple { start, end, .. } = tuples[tuple as usize];
            hash_count(state, cell, &texts[start as usize..end as usize], bucket)
        });
    }

    fn hash_count(&self, cell: CellKey, values: &[u8], bucket: Minutes) -> u64 {
        hash_count(&self.hash, cell, values, bucket)
    }

    fn tuple(&mut self, split: &Arc<Split>, values: &[u8]) -> u32 {
        let split = self.split(split);
        let PartShard { tuples, texts, tuple_index, hash, .. } = self;
        let of = |tuple: Tuple| &texts[tuple.start as usize..tuple.end as usize];
        let known = |at: &u32| tuples[*at as usize].split == split && of(tuples[*at as usize]) == values;
        if let Some(at) = tuple_index.find(hash.hash_one(values), known) {
            return *at;
        }
        let start = texts.len() as u32;
        texts.extend_from_slice(values);
        tuples.push(Tuple { split, start, end: texts.len() as u32 });
        let at = tuples.len() as u32 - 1;
        let of = |at: &u32| {
            let Tuple { start, end, .. } = tuples[*at as usize];
            hash.hash_one(&texts[start as usize..end as usize])
        };
        tuple_index.insert_unique(hash.hash_one(values), at, of);
        at
    }

    fn split(&mut self, split: &Arc<Split>) -> u16 {
        let at = self.splits.iter().position(|known| Arc::ptr_eq(known, split)).unwrap_or_else(|| {
            self.splits.push(split.clone());
            self.splits.len() - 1
        });
        u16::try_from(at).expect("there are no more than counters, and one for each configuration since the last cut")
    }

    fn values(&self, tuple: Tuple) -> &[u8] {
        &self.texts[tuple.start as usize..tuple.end as usize]
    }

    fn clear(&mut self, cell: CellKey) {
        let mut at = self.newest.remove(&cell).unwrap_or(NO_COUNT);
        while at != NO_COUNT {
            let count = &mut self.counts[at as usize];
            (count.cell, at) = (CellKey::NONE, count.before);
        }
        self.cleared.insert(cell);
    }

    fn living(&self) -> impl Iterator<Item = &Count> {
        self.counts.iter().filter(|count| count.cell != CellKey::NONE)
    }

    /// Adds what there is of a cell.
    fn tell(&self, cell: CellKey, since: &mut PartsSince) {
        if self.cleared.contains(&cell) {
            *since = PartsSince { cleared: true, ..PartsSince::default() };
        }
        let begun = since.counts.len();
        let mut at = self.newest.get(&cell).copied().unwrap_or(NO_COUNT);
        while at != NO_COUNT {
            let Count { sum, tuple, bucket, before, .. } = self.counts[at as usize];
            let tuple = self.tuples[tuple as usize];
            let start = since.texts.len();
            since.texts.extend_from_slice(self.values(tuple));
            let split = since.split(&self.splits[usize::from(tuple.split)]);
            since.counts.push(CountSince { split, start, end: since.texts.len(), bucket, sum });
            at = before;
        }
        since.counts[begun..].reverse();
    }

    fn bytes(&self) -> usize {
        self.texts.capacity()
            + self.tuples.capacity() * size_of::<Tuple>()
            + self.counts.capacity() * size_of::<Count>()
            + self.tuple_index.allocation_size()
            + self.index.allocation_size()
            + self.newest.allocation_size()
            + self.cleared.allocation_size()
    }

    /// Its cells in order, each with its counts in theirs; also those that were only cleared.
    fn cells(&self) -> Vec<(CellKey, Vec<u32>)> {
        let mut cells: Vec<CellKey> = self.newest.keys().chain(&self.cleared).copied().collect();
        cells.sort_unstable();
        cells.dedup();
        let mut order: Vec<u32> = (0..self.counts.len() as u32).collect();
        order.retain(|at| self.counts[*at as usize].cell != CellKey::NONE);
        order.sort_by_key(|at| self.counts[*at as usize].cell);
        let mut order = order.into_iter().peekable();
        let mut of = |cell| {
            let mut counts = Vec::new();
            while let Some(at) = order.next_if(|at| self.counts[*at as usize].cell == cell) {
                counts.push(at);
            }
            counts
        };
        cells.into_iter().map(|cell| (cell, of(cell))).collect()
    }

    /// The rows of a cell as a cut leaves them.
    fn rows_of(&self, cell: CellKey, counts: &[u32], stored: &dyn StoredRows) -> Result<Vec<LedgerRow>, DecodeError> {
        let is_cleared = self.cleared.contains(&cell);
        let mut blocks = Blocks::new(cell, stored, is_cleared);
        for at in counts {
            let Count { sum, tuple, bucket, .. } = self.counts[*at as usize];
            let tuple = self.tuples[tuple as usize];
            blocks.add(&self.splits[usize::from(tuple.split)], self.values(tuple), bucket, sum)?;
        }
        Ok(blocks.into_rows(if is_cleared { stored.keys(&LedgerKey::parts_of(cell)) } else { Vec::new() }))
    }
}

fn hash_count(state: &DefaultHashBuilder, cell: CellKey, values: &[u8], bucket: Minutes) -> u64 {
    state.hash_one((cell.as_u128() as u64, bucket, values))
}

impl Rows for PartCounts {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        self.rows_over(&NoRows)
    }

    fn rows_over<'a>(&'a self, stored: &'a dyn StoredRows) -> Box<dyn Iterator<Item = LedgerRow> + 'a> {
        let cells = self.shards.iter().flat_map(|shard| shard.cells().into_iter().map(move |cell| (shard, cell)));
        Box::new(cells.flat_map(|(shard, (cell, counts))| {
            shard.rows_of(cell, &counts, stored).unwrap_or_else(|error| {
                stored.damaged(&LedgerKey::parts_of(cell).start, error);
                Vec::new()
            })
        }))
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
        let mut texts = Vec::with_capacity(split.dimensions.len());
        let mut rest = values;
        while !rest.is_empty() {
            texts.push(take_bytes(&mut rest)?);
        }
        for rollup in &split.rollups {
            if rollup.admits.is_none() && self.only.is_some_and(|only| only != rollup.number) {
                continue;
            }
            self.values.clear();
            for dimension in &rollup.dimensions {
                put_bytes(&mut self.values, texts[usize::from(*dimension)]);
            }
            let bucket = rollup.unit.map_or(0, |unit| unit.bucket(bucket, &split.zone));
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
