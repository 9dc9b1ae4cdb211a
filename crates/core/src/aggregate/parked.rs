//! Late entries that wait for their run: claimed, durable, and told as late until then.
//!
//! They are kept as sums, one per cell and hour of their own time, so that a spool of millions that drains late costs what
//! its counters cost. A run becomes a correction ([`crate::ledger::Cause::Late`]) that names every sum it applies; a sum
//! that is gone is not applied again.

use crate::id::CellKey;
use crate::ledger::Delta;
use std::collections::BTreeMap;

/// The bucket of an entry is the hour of its own time.
pub const BUCKET_MS: u64 = 60 * 60 * 1000;

#[derive(Clone, Debug, Default)]
pub struct Parked {
    sums: BTreeMap<(CellKey, u64), ParkedEntry>,
}

/// What waits for one cell and bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedEntry {
    pub id: Box<[u8]>,
    pub delta: i64,
    pub entries: u64,
    /// The log time of its run.
    pub due_ms: u64,
}

impl Parked {
    /// Adds an entry; `false` if the sum does not fit.
    pub(super) fn park(&mut self, cell: CellKey, id: &[u8], time_ms: i64, delta: i64, due_ms: u64) -> bool {
        let bucket_ms = u64::try_from(time_ms).unwrap_or(0) / BUCKET_MS * BUCKET_MS;
        let fresh = || ParkedEntry { id: id.into(), delta: 0, entries: 0, due_ms };
        let entry = self.sums.entry((cell, bucket_ms)).or_insert_with(fresh);
        let Some(sum) = entry.delta.checked_add(delta) else { return false };
        entry.delta = sum;
        entry.entries += 1;
        entry.due_ms = entry.due_ms.min(due_ms);
        true
    }

    /// Takes a sum out, if it is there.
    pub(super) fn take(&mut self, cell: CellKey, bucket_ms: u64) -> Option<ParkedEntry> {
        self.sums.remove(&(cell, bucket_ms))
    }

    pub(super) fn resume(&mut self, cell: CellKey, bucket_ms: u64, entry: ParkedEntry) {
        self.sums.insert((cell, bucket_ms), entry);
    }

    pub(super) fn clear(&mut self) {
        self.sums.clear();
    }

    /// Everything that waits, with cell and bucket.
    pub fn iter(&self) -> impl Iterator<Item = (CellKey, u64, &ParkedEntry)> {
        self.sums.iter().map(|(&(cell, bucket_ms), entry)| (cell, bucket_ms, entry))
    }

    pub fn get(&self, cell: CellKey, bucket_ms: u64) -> Option<&ParkedEntry> {
        self.sums.get(&(cell, bucket_ms))
    }

    /// What waits for one cell, by bucket.
    pub fn of(&self, cell: CellKey) -> impl Iterator<Item = (u64, &ParkedEntry)> {
        self.sums.range((cell, 0)..=(cell, u64::MAX)).map(|(&(_, bucket_ms), entry)| (bucket_ms, entry))
    }

    pub fn len(&self) -> usize {
        self.sums.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// The deltas of a run at this time; all that wait, if there are `max` or more of them.
    pub fn due(&self, now_ms: u64, max: usize) -> Vec<Delta> {
        let all = self.len() >= max;
        let due = self.sums.iter().filter(|(_, entry)| all || entry.due_ms <= now_ms).take(max);
        due.map(|(&(_, bucket_ms), entry)| Delta {
            id: entry.id.to_vec(),
            bucket_ms: Some(bucket_ms),
            delta: entry.delta,
        })
        .collect()
    }

    /// Whether [`Self::due`] would find something; cheap enough to ask often.
    pub fn is_due(&self, now_ms: u64, max: usize) -> bool {
        self.len() >= max || self.sums.values().any(|entry| entry.due_ms <= now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CellHasher;

    #[test]
    fn entries_of_one_cell_and_hour_are_one_sum_and_leave_once() {
        let cell = CellHasher::new(1).key(b"views:a");
        let mut parked = Parked::default();
        for (time_ms, delta) in [(1, 2), (BUCKET_MS as i64 - 1, 3), (BUCKET_MS as i64, 10)] {
            assert!(parked.park(cell, b"views:a", time_ms, delta, 100));
        }
        assert!(!parked.park(cell, b"views:a", 5, i64::MAX, 100), "a sum that does not fit is refused");
        assert_eq!(parked.len(), 2);
        assert!(parked.due(99, 1000).is_empty() && !parked.is_due(99, 1000));
        let due = parked.due(100, 1000);
        assert_eq!(
            due.iter().map(|delta| (delta.bucket_ms, delta.delta)).collect::<Vec<_>>(),
            [(Some(0), 5), (Some(BUCKET_MS), 10)]
        );
        assert_eq!(parked.take(cell, 0).map(|entry| (entry.delta, entry.entries)), Some((5, 2)));
        assert_eq!(parked.take(cell, 0), None);
    }

    #[test]
    fn too_many_do_not_wait_for_their_time() {
        let mut parked = Parked::default();
        for n in 0..3u8 {
            parked.park(CellHasher::new(1).key(&[n]), &[n], 0, 1, 1000);
        }
        assert_eq!(parked.due(0, 4).len(), 0);
        assert_eq!(parked.due(0, 3).len(), 3);
    }
}
