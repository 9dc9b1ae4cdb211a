//! What keys came to in the running minute: exactly, while there are not too many of them.
//!
//! When there is no room for another, the median of what they came to is taken off each, and those of which nothing remains go: the
//! larger half stays, and each key came to no more than what it has and [`Counts::bound`] together. That is the summary of Misra and
//! Gries, in large steps, so that room is made seldom.

use crate::id::{CellKey, KeyHash};
use crate::limits::{ANOMALY_ID_BYTES_MAX, ANOMALY_KEYS_MAX};
use hashbrown::HashMap;

#[derive(Debug, Default)]
pub(super) struct Counts {
    keys: HashMap<CellKey, Counted, KeyHash>,
    id_bytes: usize,
    /// What was taken off.
    bound: u64,
}

/// A key in the running minute.
#[derive(Debug)]
pub(super) struct Counted {
    pub id: Box<[u8]>,
    /// It came to so much at least.
    pub amount: u64,
    /// In so many commits.
    pub commits: u32,
    last_commit: u32,
}

impl Counts {
    #[inline]
    pub fn add(&mut self, cell: CellKey, id: &[u8], amount: u64, commit: u32) {
        if let Some(counted) = self.keys.get_mut(&cell) {
            counted.amount = counted.amount.saturating_add(amount);
            counted.commits += u32::from(counted.last_commit != commit);
            counted.last_commit = commit;
            return;
        }
        if self.keys.len() >= ANOMALY_KEYS_MAX || self.id_bytes + id.len() > ANOMALY_ID_BYTES_MAX {
            self.make_room();
        }
        self.id_bytes += id.len();
        self.keys.insert(cell, Counted { id: id.into(), amount, commits: 1, last_commit: commit });
    }

    #[cold]
    fn make_room(&mut self) {
        let mut amounts: Vec<u64> = self.keys.values().map(|counted| counted.amount).collect();
        let middle = amounts.len() / 2;
        let (_, median, _) = amounts.select_nth_unstable(middle);
        let median = *median;
        self.bound = self.bound.saturating_add(median);
        self.keys.retain(|_, counted| {
            counted.amount -= counted.amount.min(median);
            counted.amount > 0
        });
        self.id_bytes = self.keys.values().map(|counted| counted.id.len()).sum();
    }

    /// A key came to no more than this beyond what it has, if it has anything.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    pub fn take(&mut self, cell: CellKey) -> Option<Counted> {
        self.keys.remove(&cell)
    }

    /// All that are left; the next minute begins.
    pub fn finish(&mut self) -> impl Iterator<Item = (CellKey, Counted)> {
        (self.id_bytes, self.bound) = (0, 0);
        std::mem::take(&mut self.keys).into_iter()
    }

    #[cfg(test)]
    pub fn room(&self) -> (usize, usize) {
        (self.keys.len(), self.id_bytes)
    }
}
