//! What was added to parts in one stretch of the log.
//!
//! Additions to keys are written one behind the other, into shards by the top bits of the cell: that costs a store into memory that is at
//! hand, where a look at what is there already would cost a trip to memory that is not. A shard is added up when it has grown much since
//! that was done last, and when a cut takes it. **Invariant:** counts of a shard stand in the order in which their parts came first.
//! Additions to counters as a whole are few and hot, and stand at the combination of values that they belong to ([`Tuples`]).

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
use hashbrown::{HashSet, HashTable};
use std::collections::VecDeque;
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
        let of_key = shard.counts().filter(|count| count.cell == cell).copied();
        for (order, Count { tuple, sum, .. }) in (0..).zip(of_key.chain(self.tuples.of_whole(cell))) {
            since.push(&mut told, self.tuples.get(tuple), sum, order);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.tuples.bytes() + self.shards.iter().map(PartShard::bytes).sum::<usize>()
    }

    /// Puts all that was added to the cells of a shard there, by cell.
    fn gather(&self, at: usize, counts: &mut Vec<Count>) {
        counts.clear();
        counts.extend(self.shards[at].counts());
        let wholes = self.tuples.wholes().into_iter().filter(|whole| shard_of(*whole) == at);
        wholes.for_each(|whole| counts.extend(self.tuples.of_whole(whole)));
        merge(counts);
        // In which order those of one cell came stays as it is.
        counts.sort_by_key(|count| count.cell);
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
            shard.counts().for_each(|count| self.push(count.cell, numbers.of(count.tuple), count.sum));
        }
    }
}

impl Rows for PartCounts {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        self.rows_over(&NoRows)
    }

    fn rows_over<'a>(&'a self, stored: &'a dyn StoredRows) -> Box<dyn Iterator<Item = LedgerRow> + 'a> {
        Box::new(PartRows::new(self, stored))
    }
}

/// The rows of all cells as a cut leaves them, made cell by cell.
struct PartRows<'a> {
    counts: &'a PartCounts,
    stored: &'a dyn StoredRows,
    /// The shard that comes next.
    next: usize,
    /// What is left of the one at hand, by cell, from `at` on; and of its cells that were cleared, the last one first.
    gathered: Vec<Count>,
    at: usize,
    cleared: Vec<CellKey>,
    blocks: Blocks<'a>,
    /// The rows of the cell at hand.
    rows: VecDeque<LedgerRow>,
}

impl<'a> PartRows<'a> {
    fn new(counts: &'a PartCounts, stored: &'a dyn StoredRows) -> PartRows<'a> {
        let blocks = Blocks::new(CellKey::NONE, stored, false);
        let (gathered, cleared, rows) = (Vec::new(), Vec::new(), VecDeque::new());
        PartRows { counts, stored, next: 0, gathered, at: 0, cleared, blocks, rows }
    }

    /// Goes on to the next cell, also if it was only cleared. Shards in order are cells in order.
    fn next_cell(&mut self) -> Option<CellKey> {
        loop {
            let counted = self.gathered.get(self.at).map(|count| count.cell);
            if let Some(cell) = counted.into_iter().chain(self.cleared.last().copied()).min() {
                return Some(cell);
            }
            let shard = self.counts.shards.get(self.next)?;
            self.counts.gather(self.next, &mut self.gathered);
            self.cleared.extend(&shard.cleared);
            self.cleared.sort_unstable_by(|a, b| b.cmp(a));
            (self.next, self.at) = (self.next + 1, 0);
        }
    }

    fn work_out(&mut self, cell: CellKey) -> Result<(), DecodeError> {
        let is_cleared = self.cleared.pop_if(|cleared| *cleared == cell).is_some();
        self.blocks.begin(cell, is_cleared);
        let counts = self.gathered[self.at..].iter().take_while(|count| count.cell == cell);
        for Count { sum, tuple, .. } in counts {
            self.at += 1;
            let Combination { split, values, bucket, .. } = self.counts.tuples.get(*tuple);
            self.blocks.add(split, values, bucket, *sum)?;
        }
        let void = if is_cleared { self.stored.keys(&LedgerKey::parts_of(cell)) } else { Vec::new() };
        self.blocks.take_rows(void, &mut self.rows);
        Ok(())
    }
}

impl Iterator for PartRows<'_> {
    type Item = LedgerRow;

    fn next(&mut self) -> Option<LedgerRow> {
        loop {
            if let Some(row) = self.rows.pop_front() {
                return Some(row);
            }
            let cell = self.next_cell()?;
            if let Err(error) = self.work_out(cell) {
                self.stored.damaged(&LedgerKey::parts_of(cell).start, error);
            }
        }
    }
}

#[derive(Clone)]
struct PartShard {
    /// Where the next one goes.
    tail: Vec<Count>,
    /// What is full, each as large as the others: what has grown is not copied.
    full: Vec<Vec<Count>>,
    len: usize,
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
}

const CHUNK: usize = 256;
/// So many of a shard stay in the cache while they are added up. Tests have few, and are to see what was added up.
const DUE: usize = if cfg!(test) { 4 } else { 4096 };
/// A shard grows so many times before it is looked at again, if nothing in it was the same.
const GROWS: usize = 8;

impl Default for PartShard {
    fn default() -> PartShard {
        PartShard { tail: Vec::new(), full: Vec::new(), len: 0, due: DUE, cleared: HashSet::default() }
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
        self.put(Count { cell, sum: delta, tuple });
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
        let tail = std::mem::replace(&mut self.tail, Vec::with_capacity(CHUNK));
        self.full.extend((!tail.is_empty()).then_some(tail));
    }

    fn counts(&self) -> impl Iterator<Item = &Count> {
        self.full.iter().flatten().chain(&self.tail)
    }

    /// Answers how many fewer there are.
    #[cold]
    fn add_up(&mut self) -> usize {
        let mut counts: Vec<Count> = self.counts().copied().collect();
        merge(&mut counts);
        let fewer = if counts.len() < self.len { self.replace(counts) } else { 0 };
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

impl Count {
    /// Cells are hashes already.
    #[inline]
    fn hash(&self) -> u64 {
        self.cell.spread() ^ u64::from(self.tuple).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Makes one of all counts of a part. It stands where the first of them stood.
fn merge(counts: &mut Vec<Count>) {
    let mut known: HashTable<u32> = HashTable::with_capacity(counts.len());
    let mut kept = 0;
    for at in 0..counts.len() {
        let count = counts[at];
        let is_same = |at: &u32| (counts[*at as usize].cell, counts[*at as usize].tuple) == (count.cell, count.tuple);
        match known.find(count.hash(), is_same) {
            Some(first) => {
                let sum = &mut counts[*first as usize].sum;
                *sum = sum.saturating_add(count.sum);
            }
            None => {
                counts[kept] = count;
                known.insert_unique(count.hash(), kept as u32, |at| counts[*at as usize].hash());
                kept += 1;
            }
        }
    }
    counts.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::rollup::{Unit, Zone};
    use crate::ledger::parts::{Role, SplitRollup};
    use crate::record::put_bytes;
    use proptest::prelude::*;

    fn split() -> Arc<Split> {
        let rollup = |number, unit, admits: Option<u64>| {
            let role = if admits.is_some() { Role::Decides } else { Role::Counts };
            SplitRollup { number, dimensions: [0].into(), unit, admits, role }
        };
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
