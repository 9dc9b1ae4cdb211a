//! What was added to parts in one stretch of the log.
//!
//! Additions to keys are written one behind the other, into shards by the top bits of the cell: that costs a store into memory that is at
//! hand, where a look at what is there already would cost a trip to memory that is not. A shard is put in order and added up when it
//! has grown much since that was done last, and when a cut takes it; until then only short stretches of it are in order, for whoever
//! reads. Additions to counters as a whole are few and hot, and stand at the combination of values that they belong to ([`Tuples`]).

use super::blocks::Blocks;
use super::since::PartsSince;
use super::split::Split;
use super::tuples::{Combination, Tuples};
use crate::counter::rollup::Minutes;
use crate::id::{CellKey, KeyHash};
use crate::ledger::LedgerKey;
use crate::ledger::cut::{LedgerRow, NoRows, Rows, StoredRows};
use crate::memory::pending::Overlay;
use crate::memory::prefetch::prefetch;
use crate::record::DecodeError;
use hashbrown::HashSet;
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct PartCounts {
    /// In the order of cells.
    shards: Box<[PartShard]>,
    tuples: Tuples,
    /// Counts in all shards: this is asked for behind every batch.
    pub(super) len: usize,
}

/// Few enough for the ends of all of them to stay in the cache.
const PART_SHARDS: usize = 256;

impl Default for PartCounts {
    fn default() -> PartCounts {
        let shards = std::iter::repeat_with(PartShard::default).take(PART_SHARDS).collect();
        PartCounts { shards, tuples: Tuples::default(), len: 0 }
    }
}

impl PartCounts {
    /// Adds to a part of a key, if there is one, and to that of its counter as a whole, if it has that.
    #[inline]
    pub(super) fn add(
        &mut self,
        cell: Option<CellKey>,
        split: &Arc<Split>,
        values: &[u8],
        bucket: Minutes,
        delta: i64,
    ) {
        let tuple = self.tuples.number(split, values, bucket);
        self.tuples.add_to_whole(tuple, delta);
        if let Some(cell) = cell {
            self.push(cell, tuple, delta);
        }
    }

    /// Fetches where the next addition to a key goes.
    #[inline]
    pub(super) fn prefetch(&self, cell: CellKey) {
        if let Some(last) = self.shards[shard_of(cell)].tail.last() {
            prefetch(last);
        }
    }

    #[inline]
    fn push(&mut self, cell: CellKey, tuple: u32, delta: i64) {
        let shard = &mut self.shards[shard_of(cell)];
        if shard.len >= shard.due {
            self.len -= shard.add_up();
        }
        self.len += usize::from(shard.push(cell, tuple, delta));
    }

    /// A key begins anew: what it had is void, in the store as well.
    pub(super) fn clear(&mut self, cell: CellKey) {
        self.len -= self.shards[shard_of(cell)].clear(cell);
    }

    /// Adds what there is of a cell, which may be that of a counter as a whole.
    pub(super) fn tell(&self, cell: CellKey, since: &mut PartsSince) {
        let shard = &self.shards[shard_of(cell)];
        if shard.cleared.contains(&cell) {
            *since = PartsSince::cleared();
        }
        let mut told = since.begin();
        let mut tell = |count: &Count| since.push(&mut told, self.tuples.get(count.tuple), count.sum, count.order);
        shard.of(cell).for_each(&mut tell);
        self.tuples.of_whole(cell).iter().for_each(&mut tell);
    }

    pub(super) fn bytes(&self) -> usize {
        self.tuples.bytes() + self.shards.iter().map(PartShard::bytes).sum::<usize>()
    }

    /// The cells of a shard with all that was added to them.
    fn cells_of(&self, at: usize, wholes: &[CellKey]) -> CellsInOrder {
        let mut counts: Vec<Count> = self.shards[at].counts().copied().collect();
        let wholes = wholes.iter().filter(|whole| shard_of(**whole) == at);
        wholes.for_each(|whole| counts.extend(self.tuples.of_whole(*whole)));
        in_order(&mut counts);
        let mut cleared: Vec<CellKey> = self.shards[at].cleared.iter().copied().collect();
        cleared.sort_unstable();
        CellsInOrder { counts: counts.into_iter().peekable(), cleared: cleared.into_iter().peekable() }
    }

    /// The rows of a cell as a cut leaves them.
    fn rows_of(&self, cell: &CellCounts, stored: &dyn StoredRows) -> Result<Vec<LedgerRow>, DecodeError> {
        let CellCounts { cell, is_cleared, ref counts } = *cell;
        let mut blocks = Blocks::new(cell, stored, is_cleared);
        for Count { sum, tuple, .. } in counts {
            let Combination { split, values, bucket, .. } = self.tuples.get(*tuple);
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
        let cleared = newer.shards.iter().flat_map(|shard| &shard.cleared);
        cleared.for_each(|cell| self.clear(*cell));
        // Once for each combination, and not for each count of it.
        let numbers = self.tuples.take_in(&newer.tuples);
        for shard in &newer.shards {
            let mut counts: Vec<&Count> = shard.counts().collect();
            counts.sort_unstable_by_key(|count| count.order);
            counts.iter().for_each(|count| self.push(count.cell, numbers.of(count.tuple), count.sum));
        }
    }
}

impl Rows for PartCounts {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        self.rows_over(&NoRows)
    }

    fn rows_over<'a>(&'a self, stored: &'a dyn StoredRows) -> Box<dyn Iterator<Item = LedgerRow> + 'a> {
        let wholes = self.tuples.wholes();
        // Shards in order are cells in order.
        Box::new((0..PART_SHARDS).flat_map(move |at| self.cells_of(at, &wholes)).flat_map(move |cell| {
            self.rows_of(&cell, stored).unwrap_or_else(|error| {
                stored.damaged(&LedgerKey::parts_of(cell.cell).start, error);
                Vec::new()
            })
        }))
    }
}

#[derive(Clone)]
struct PartShard {
    /// Where the next one goes.
    tail: Vec<Count>,
    /// What is full, each as large as the others: what has grown is not copied. Each is in the order of cells, so that whoever asks for
    /// one of them does not look at all others.
    full: Vec<Vec<Count>>,
    len: usize,
    /// How many there have been.
    added: u32,
    /// When there are so many they are added up: often where that brought much, seldom where each was another.
    due: usize,
    /// What the store has of these is void.
    cleared: HashSet<CellKey, KeyHash>,
}

/// What was added to one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub cell: CellKey,
    pub sum: i64,
    pub tuple: u32,
    /// How many of its shard came before it.
    pub order: u32,
}

/// Tests have few, and are to see what is full and what was added up.
const CHUNK: usize = if cfg!(test) { 3 } else { 256 };
/// So many of a shard stay in the cache while they are put in order.
const DUE: usize = if cfg!(test) { 4 } else { 4096 };
/// A shard grows so many times before it is looked at again, if nothing in it was the same.
const GROWS: usize = 8;

/// The cells of a shard in order, also those that were only cleared.
struct CellsInOrder {
    counts: std::iter::Peekable<std::vec::IntoIter<Count>>,
    cleared: std::iter::Peekable<std::vec::IntoIter<CellKey>>,
}

/// What there is of one cell, in the order in which it came.
struct CellCounts {
    cell: CellKey,
    is_cleared: bool,
    counts: Vec<Count>,
}

impl Iterator for CellsInOrder {
    type Item = CellCounts;

    fn next(&mut self) -> Option<CellCounts> {
        let CellsInOrder { counts, cleared } = self;
        let counted = counts.peek().map(|count| count.cell);
        let cell = counted.into_iter().chain(cleared.peek().copied()).min()?;
        let is_cleared = cleared.next_if_eq(&cell).is_some();
        let counts = std::iter::from_fn(|| counts.next_if(|count| count.cell == cell)).collect();
        Some(CellCounts { cell, is_cleared, counts })
    }
}

impl Default for PartShard {
    fn default() -> PartShard {
        PartShard { tail: Vec::new(), full: Vec::new(), len: 0, added: 0, due: DUE, cleared: HashSet::default() }
    }
}

impl PartShard {
    /// Answers whether there is one more.
    #[inline]
    fn push(&mut self, cell: CellKey, tuple: u32, delta: i64) -> bool {
        if let Some(last) = self.tail.last_mut()
            && last.cell == cell
            && last.tuple == tuple
        {
            last.sum = last.sum.saturating_add(delta);
            return false;
        }
        self.put(Count { cell, sum: delta, tuple, order: self.added });
        self.added += 1;
        true
    }

    #[inline]
    fn put(&mut self, count: Count) {
        if self.tail.len() == self.tail.capacity() {
            self.begin_chunk();
        }
        self.len += 1;
        self.tail.push(count);
    }

    #[cold]
    fn begin_chunk(&mut self) {
        let mut tail = std::mem::replace(&mut self.tail, Vec::with_capacity(CHUNK));
        tail.sort_unstable_by_key(|count| count.cell);
        self.full.extend((!tail.is_empty()).then_some(tail));
    }

    fn counts(&self) -> impl Iterator<Item = &Count> {
        self.full.iter().flatten().chain(&self.tail)
    }

    /// What there is of a cell.
    fn of(&self, cell: CellKey) -> impl Iterator<Item = &Count> {
        let full = self.full.iter().flat_map(move |chunk| {
            let first = chunk.partition_point(|count| count.cell < cell);
            chunk[first..].iter().take_while(move |count| count.cell == cell)
        });
        full.chain(self.tail.iter().filter(move |count| count.cell == cell))
    }

    /// Answers how many fewer there are.
    #[cold]
    fn add_up(&mut self) -> usize {
        let mut counts: Vec<Count> = self.counts().copied().collect();
        merge(&mut counts);
        let fewer = self.replace(counts);
        let grows = if fewer >= self.len { 2 } else { GROWS };
        self.due = DUE.max(grows * self.len);
        fewer
    }

    /// Answers how many fewer there are.
    fn replace(&mut self, counts: Vec<Count>) -> usize {
        let before = std::mem::take(&mut self.len);
        self.full.clear();
        self.tail.clear();
        counts.into_iter().for_each(|count| self.put(count));
        before - self.len
    }

    /// Answers how many fewer there are.
    fn clear(&mut self, cell: CellKey) -> usize {
        self.cleared.insert(cell);
        let others = self.counts().filter(|count| count.cell != cell).copied().collect();
        self.replace(others)
    }

    fn bytes(&self) -> usize {
        (self.full.len() * CHUNK + self.tail.capacity()) * size_of::<Count>() + self.cleared.allocation_size()
    }
}

/// Makes one of all counts of a part. It stands where the first of them stood.
fn merge(counts: &mut Vec<Count>) {
    counts.sort_unstable_by_key(|count| (count.cell, count.tuple, count.order));
    counts.dedup_by(|later, first| {
        let is_same = (later.cell, later.tuple) == (first.cell, first.tuple);
        if is_same {
            first.sum = first.sum.saturating_add(later.sum);
        }
        is_same
    });
}

/// By cell, and of each one for every part, in the order in which they came first.
fn in_order(counts: &mut Vec<Count>) {
    merge(counts);
    for of_cell in counts.chunk_by_mut(|a, b| a.cell == b.cell) {
        of_cell.sort_unstable_by_key(|count| count.order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::rollup::{Unit, Zone};
    use crate::ledger::parts::SplitRollup;
    use crate::record::put_bytes;
    use proptest::prelude::*;

    fn split() -> Arc<Split> {
        let rollup = |number, unit, admits| SplitRollup { number, dimensions: [0].into(), unit, admits };
        Arc::new(Split {
            dimensions: ["country".into()].into(),
            unit: Some(Unit::Hour),
            zone: Zone::default(),
            whole: Some(CellKey::from_u128(7 << 100)),
            rollups: [rollup(0, None, Some(3)), rollup(1, Some(Unit::Hour), None)].into(),
        })
    }

    proptest! {
        #[test]
        fn a_failed_cut_leaves_what_was_added_as_if_there_had_been_none(
            added in prop::collection::vec((1u128..3, "[a-e]", 0u32..2, -2i64..5), 0..40),
            cut_behind in 0usize..40,
        ) {
            let split = split();
            let (mut all, mut older, mut newer) = (PartCounts::default(), PartCounts::default(), PartCounts::default());
            for (n, (cell, text, hour, delta)) in added.iter().enumerate() {
                let mut values = Vec::new();
                put_bytes(&mut values, text.as_bytes());
                let later = if n < cut_behind { &mut older } else { &mut newer };
                for counts in [&mut all, later] {
                    counts.add(Some(CellKey::from_u128(cell << 120)), &split, &values, hour * 60, *delta);
                }
            }
            older.overlay(newer);
            let rows = |counts: &PartCounts| counts.rows().collect::<Vec<_>>();
            prop_assert_eq!(rows(&older), rows(&all));
        }
    }
}
