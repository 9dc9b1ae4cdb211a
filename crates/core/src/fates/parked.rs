//! Late entries that wait for their run: claimed, durable, and told as late until then.
//!
//! They are kept as sums, one per cell and hour of their own time, so that a spool of millions that drains late costs what
//! its counters cost. A run ([`crate::ledger::Remedy::Late`]) says what it takes, by time and number; which sums those are follows from
//! what waits at its place in the log.

use crate::id::CellKey;
use crate::ledger::{CountedAs, Delta, LateRun};
use crate::limits::{LATE_RUN_BYTES_MAX, PARKED_BYTES_MAX, PARKED_MAX};
use std::collections::BTreeMap;

/// The bucket of an entry is the hour of its own time.
pub const BUCKET_MS: u64 = 60 * 60 * 1000;

/// What one sum takes in a run beside its id, at most.
const SUM_BYTES: usize = 32;

#[derive(Clone, Debug, Default)]
pub struct Parked {
    sums: BTreeMap<(CellKey, u64), ParkedEntry>,
    /// Bytes of their ids and parts.
    id_bytes: usize,
}

/// When a run comes early, and how much it applies.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// So many sums do not wait for their time.
    pub sums_max: usize,
    /// Nor do so many bytes of ids.
    pub id_bytes_max: usize,
    /// What one run applies; the next one follows at once.
    pub run_bytes_max: usize,
}

impl Default for RunLimits {
    fn default() -> RunLimits {
        RunLimits { sums_max: PARKED_MAX, id_bytes_max: PARKED_BYTES_MAX, run_bytes_max: LATE_RUN_BYTES_MAX }
    }
}

/// What waits for one cell and bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedEntry {
    pub id: Box<[u8]>,
    pub delta: i64,
    pub entries: u64,
    /// The log time of its run, and the one at which the first of them came.
    pub due_ms: u64,
    pub first_ms: u64,
    /// The same sum by what entries say of their parts; nothing if the counter has none.
    pub parts: BTreeMap<CountedAs, i64>,
}

/// One that is late.
#[derive(Clone, Copy)]
pub(crate) struct LateEntry<'a> {
    /// When it happened.
    pub time_ms: i64,
    pub delta: i64,
    /// What it says of its parts.
    pub parts: &'a [Vec<u8>],
    pub due_ms: u64,
    /// The log time.
    pub now_ms: u64,
}

impl ParkedEntry {
    /// What it takes beside its numbers.
    fn text_bytes(&self) -> usize {
        self.id.len() + self.parts.keys().map(|part| part.as_bytes().len() + SUM_BYTES).sum::<usize>()
    }
}

impl Parked {
    /// Adds an entry. No number of them carries a sum beyond 64 bits that anybody could send ([`EVENT_DELTA_MAX`](crate::limits::EVENT_DELTA_MAX)).
    pub(crate) fn park(&mut self, cell: CellKey, id: &[u8], entry: LateEntry<'_>) {
        let LateEntry { time_ms, delta, parts, due_ms, now_ms } = entry;
        let bucket_ms = u64::try_from(time_ms).unwrap_or(0) / BUCKET_MS * BUCKET_MS;
        let entry = self.sums.entry((cell, bucket_ms)).or_insert_with(|| {
            self.id_bytes += id.len();
            ParkedEntry { id: id.into(), delta: 0, entries: 0, due_ms, first_ms: now_ms, parts: BTreeMap::new() }
        });
        if !parts.is_empty() {
            let part = entry.parts.entry(CountedAs::new(b"", parts)).or_insert_with_key(|part| {
                self.id_bytes += part.as_bytes().len() + SUM_BYTES;
                0
            });
            *part = part.saturating_add(delta);
        }
        entry.delta = entry.delta.saturating_add(delta);
        entry.entries += 1;
        entry.due_ms = entry.due_ms.min(due_ms);
    }

    /// Takes a sum out, if it is there.
    pub(crate) fn take(&mut self, cell: CellKey, bucket_ms: u64) -> Option<ParkedEntry> {
        let entry = self.sums.remove(&(cell, bucket_ms))?;
        self.id_bytes -= entry.text_bytes();
        Some(entry)
    }

    /// Takes out every sum that is due by a time.
    pub(crate) fn take_due(&mut self, due_by_ms: u64) -> Vec<(CellKey, ParkedEntry)> {
        let due = self.sums.extract_if(.., |_, entry| entry.due_ms <= due_by_ms);
        let due: Vec<_> = due.map(|((cell, _), entry)| (cell, entry)).collect();
        self.id_bytes -= due.iter().map(|(_, entry)| entry.text_bytes()).sum::<usize>();
        due
    }

    pub(crate) fn resume(&mut self, cell: CellKey, bucket_ms: u64, entry: ParkedEntry) {
        self.id_bytes += entry.text_bytes();
        let before = self.sums.insert((cell, bucket_ms), entry);
        assert!(before.is_none(), "a sum is parked once");
    }

    pub(crate) fn clear(&mut self) {
        *self = Parked::default();
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

    /// Whether so much waits that its run comes early.
    pub fn is_crowded(&self, limits: RunLimits) -> bool {
        self.len() >= limits.sums_max || self.id_bytes >= limits.id_bytes_max
    }

    /// The run at this time: of all that wait if they are too many.
    pub fn plan(&self, now_ms: u64, limits: RunLimits) -> LateRun {
        let due_by_ms = if self.is_crowded(limits) { u64::MAX } else { now_ms };
        LateRun { due_by_ms, sums_max: limits.sums_max as u64, bytes_max: limits.run_bytes_max as u64 }
    }

    /// The deltas of a run: the first that are due, in the order of their cells, and one in any case.
    pub fn due(&self, run: LateRun) -> Vec<Delta> {
        let mut bytes = 0;
        let due = self.sums.iter().filter(|(_, entry)| entry.due_ms <= run.due_by_ms).take_while(|(_, entry)| {
            let is_first = bytes == 0;
            bytes += (entry.id.len() + SUM_BYTES) as u64;
            is_first || bytes <= run.bytes_max
        });
        due.take(usize::try_from(run.sums_max).unwrap_or(usize::MAX))
            .map(|(&(_, bucket_ms), entry)| Delta {
                id: entry.id.to_vec(),
                bucket_ms: Some(bucket_ms),
                delta: entry.delta,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CellHasher;

    fn late(due_ms: u64) -> LateEntry<'static> {
        LateEntry { time_ms: 0, delta: 1, parts: &[], due_ms, now_ms: 0 }
    }

    #[test]
    fn entries_of_one_cell_and_hour_are_one_sum_and_leave_once() {
        let cell = CellHasher::new(1).key(b"views:a");
        let mut parked = Parked::default();
        for (time_ms, delta) in [(1, 2), (BUCKET_MS as i64 - 1, 3), (BUCKET_MS as i64, 10)] {
            parked.park(cell, b"views:a", LateEntry { time_ms, delta, parts: &[], due_ms: 100, now_ms: 7 });
        }
        assert_eq!(parked.len(), 2);
        assert!(parked.due(LateRun::due_by(99)).is_empty());
        let due = parked.due(LateRun::due_by(100));
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
            parked.park(CellHasher::new(1).key(&[n]), &[n], late(1000));
        }
        let due = |limits| parked.due(parked.plan(0, limits)).len();
        let limits = RunLimits::default();
        assert_eq!(due(RunLimits { sums_max: 4, ..limits }), 0);
        assert_eq!(due(RunLimits { sums_max: 3, ..limits }), 3);
        assert_eq!(due(RunLimits { id_bytes_max: 4, ..limits }), 0);
        assert_eq!(due(RunLimits { id_bytes_max: 3, ..limits }), 3);
    }

    #[test]
    fn a_run_is_bounded_in_bytes_and_always_applies_something() {
        let mut parked = Parked::default();
        for n in 0..10u8 {
            parked.park(CellHasher::new(1).key(&[n]), &[n; 1000], late(0));
        }
        let due = |parked: &Parked, bytes_max| parked.due(LateRun { bytes_max, ..LateRun::due_by(0) });
        assert_eq!(due(&parked, 4 * (1000 + SUM_BYTES as u64)).len(), 4);
        assert_eq!(due(&parked, 1).len(), 1);
        let mut runs = 0;
        while !parked.is_empty() {
            for delta in due(&parked, 3 * (1000 + SUM_BYTES as u64)) {
                parked.take(CellHasher::new(1).key(&delta.id[..1]), 0).expect("it waits");
            }
            runs += 1;
        }
        assert_eq!((runs, parked.id_bytes), (4, 0));
    }
}
