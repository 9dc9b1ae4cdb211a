//! What was added to parts in one stretch of the log, by key, in the order in which it came first.

use super::blocks::Blocks;
use super::since::PartsSince;
use super::tuples::Tuples;
use crate::id::{CellKey, KeyHash};
use crate::ledger::LedgerKey;
use crate::ledger::cut::{LedgerRow, NoRows, Rows, StoredRows};
use crate::memory::pending::Overlay;
use crate::memory::prefetch::prefetch;
use crate::record::DecodeError;
use hashbrown::HashSet;

/// In many shards by the top bits of the cell: no addition waits for more than one of them to grow, a cut sorts one at a time, and the
/// counts of one cell are found by a look through a few thousand.
#[derive(Clone)]
pub(super) struct PartCounts {
    shards: Box<[PartShard]>,
    pub(super) tuples: Tuples,
    /// Additions whose places are on their way from memory to the cache, a ring.
    ahead: [Addition; AHEAD],
    /// How many there have been.
    added: usize,
    /// Counts in all shards: this is asked for behind every batch.
    pub(super) len: usize,
}

const PART_SHARDS: usize = 1024;

/// How many additions wait for their places: a trip to memory takes as long as so many of them.
const AHEAD: usize = 16;

#[derive(Clone, Copy)]
pub(super) struct Addition {
    pub cell: CellKey,
    pub tuple: u32,
    pub delta: i64,
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
    pub(super) fn shard(&mut self, cell: CellKey) -> &mut PartShard {
        &mut self.shards[shard_of(cell)]
    }

    /// Asks for the place of an addition, and makes one whose place was asked for a while ago.
    #[inline]
    pub(super) fn add(&mut self, addition: Addition) {
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
    pub(super) fn catch_up(&mut self) {
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
    pub(super) fn tell(&self, cell: CellKey, since: &mut PartsSince) {
        let shard = &self.shards[shard_of(cell)];
        if shard.cleared.contains(&cell) {
            *since = PartsSince::cleared();
        }
        let mut counts: Vec<&Count> = shard.living().filter(|count| count.cell == cell).collect();
        counts.sort_unstable_by_key(|count| count.order);
        let ahead =
            self.ahead().filter(|addition| addition.cell == cell).map(|addition| (addition.tuple, addition.delta));
        for (tuple, sum) in counts.into_iter().map(|count| (count.tuple, count.sum)).chain(ahead) {
            let (split, values, bucket) = self.tuples.get(tuple);
            since.push(split, values, bucket, sum);
        }
    }

    pub(super) fn bytes(&self) -> usize {
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
pub(super) struct PartShard {
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
    /// How many of its shard came before it.
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

    pub(super) fn clear(&mut self, cell: CellKey) {
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
