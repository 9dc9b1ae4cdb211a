//! The display rule: an entry is a repeat if the same (group, seq) stood earlier in the current or the previous tumbling
//! window of log time. One that is rejected is not noted, so it never stood.
//!
//! A group is the hash of a counter and a session, or of whatever else a declaration's `dedup.by` names. Per group and window
//! the seqs are kept as runs: a session of consecutive seqs costs one run, however many events it sends and in whatever
//! order they come. What is older than two windows no longer counts at once, and leaves memory little by little.
//!
//! Invariant: the answers are a function of the entries of the last two windows of the log. So this state is no part of a
//! cut: a replay from [`needed_from_ms`] on rebuilds it.
//!
//! `apply` asks here for each entry of a `display` counter, before anything else decides about the entry.

mod runs;
mod segment;
mod slot;
mod table;
#[cfg(test)]
mod tests;

use crate::id::CellKey;
use slot::Fingerprint;
use table::DedupTable;

/// Calls between two segments that are swept, so that a large table is swept in many small steps.
const CALLS_PER_SWEEP: u32 = 256;

/// Which (group, seq) stood in the current or the previous tumbling window of log time.
///
/// Exact up to the 96 bits by which groups are told apart: among 10⁷ of them, two are taken for one with a probability of about
/// 10⁻¹⁵.
pub struct Dedup {
    window_ms: u64,
    /// The number of the window of the last entry: its log time / `window_ms`.
    number: u64,
    /// When that window ends. It spares the division for each entry.
    end_ms: u64,
    table: DedupTable,
    /// Segments to sweep in this window, and the calls until the next of them.
    unswept: usize,
    calls_to_sweep: u32,
}

/// The first log time that still matters for a window of this length at this log time: the beginning of the previous
/// window.
pub fn needed_from_ms(window_ms: u64, log_time_ms: u64) -> u64 {
    (log_time_ms / window_ms).saturating_sub(1) * window_ms
}

impl Dedup {
    /// Nothing is allocated before the first entry.
    pub fn new(window_ms: u64) -> Dedup {
        assert!(window_ms > 0, "a window of dedup has a length");
        Dedup { window_ms, number: 0, end_ms: window_ms, table: DedupTable::default(), unswept: 0, calls_to_sweep: 0 }
    }

    /// One that stands in the same window and remembers nothing.
    pub fn without_groups(&self) -> Dedup {
        Dedup { number: self.number, end_ms: self.end_ms, ..Dedup::new(self.window_ms) }
    }

    /// Takes over from another one in the same window what decides about (group, seq): whether it stood, and whether it has a
    /// place. Of a group with many gaps only what is beside it.
    pub fn copy_beside(&mut self, from: &Dedup, group: CellKey, seq: u64) {
        self.table.copy_beside(&from.table, Fingerprint::of(group), seq, self.number as u32);
    }

    pub fn window_ms(&self) -> u64 {
        self.window_ms
    }

    /// Notes (group, seq) in the window of this log time and answers whether it stood before, in this window or in the one
    /// before. A repeat is noted again. Log time never runs backwards.
    #[inline]
    pub fn is_repeat(&mut self, group: CellKey, seq: u64, log_time_ms: u64) -> bool {
        if log_time_ms >= self.end_ms {
            self.enter(log_time_ms / self.window_ms);
        }
        debug_assert_eq!(log_time_ms / self.window_ms, self.number, "log time never runs backwards");
        if self.unswept > 0 {
            self.sweep_in_passing();
        }
        self.table.note(Fingerprint::of(group), seq, self.number as u32)
    }

    /// Whether (group, seq) can be noted without more memory: its group stood in this window or in the one before, and it is the
    /// first of its group in this window, or stands in or beside a run there. Like all answers, a function of the last two windows
    /// of the log.
    #[cold]
    pub fn has_place(&self, group: CellKey, seq: u64, log_time_ms: u64) -> bool {
        self.table.has_place(Fingerprint::of(group), seq, (log_time_ms / self.window_ms) as u32)
    }

    /// Lets log time pass without an entry. Once all that is remembered has expired, its memory is given back; before that,
    /// [`Self::sweep`] does so bit by bit.
    pub fn advance(&mut self, log_time_ms: u64) {
        if log_time_ms >= self.end_ms {
            self.enter(log_time_ms / self.window_ms);
        }
    }

    /// The log time from which on less is remembered; `None` if nothing is.
    pub fn forgets_at_ms(&self) -> Option<u64> {
        (self.table.segments() > 0).then_some(self.end_ms)
    }

    /// Sweeps up to so many segments that have not been swept in this window, for a counter that is not fed enough to sweep them
    /// in passing.
    pub fn sweep(&mut self, segments: usize) {
        for _ in 0..segments.min(self.unswept) {
            self.table.sweep_next(self.number as u32);
            self.unswept -= 1;
        }
    }

    /// Asks for the memory of a group, so that a call a little later need not wait for it.
    #[inline]
    pub fn prefetch(&self, group: CellKey) {
        self.table.prefetch(Fingerprint::of(group));
    }

    /// Groups in memory. Some of them may have expired and not been swept yet.
    pub fn groups(&self) -> usize {
        self.table.groups()
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        size_of::<Dedup>() + self.table.bytes()
    }

    /// Enters the window of this number, unless it is the one of the last entry.
    #[cold]
    fn enter(&mut self, number: u64) {
        match number - self.number {
            0 => return,
            1 => {
                self.unswept = self.table.segments();
                // At least one per window: no slot stays so long that the low half of its window's number comes again.
                self.calls_to_sweep = 1;
            }
            _ => self.forget(),
        }
        self.number = number;
        self.end_ms = number.saturating_add(1).saturating_mul(self.window_ms);
    }

    fn forget(&mut self) {
        self.table = DedupTable::default();
        self.unswept = 0;
    }

    #[inline]
    fn sweep_in_passing(&mut self) {
        self.calls_to_sweep -= 1;
        if self.calls_to_sweep == 0 {
            self.table.sweep_next(self.number as u32);
            self.unswept -= 1;
            self.calls_to_sweep = CALLS_PER_SWEEP;
        }
    }
}
