//! The display rule: an entry is a repeat if the same (group, seq) stood earlier in the current or the previous tumbling
//! window of log time, whatever became of it.
//!
//! A group is the hash of a counter and a session, or of whatever else a declaration's `dedup.by` names. Each window
//! keeps, per group, the runs of seqs that it saw: a session of consecutive seqs costs one run, however many events it
//! sends and in whatever order they come. Only two windows exist. When log time enters a new one, the older is forgotten
//! as a whole, so nothing is ever searched for what has expired.
//!
//! Invariant: what is remembered is a function of the entries of the last two windows of the log. So it is no part of a
//! cut: a replay from [`needed_from_ms`] on rebuilds it.
//!
//! `apply` asks here for each entry of a `display` counter, before anything else decides about the entry.

mod runs;
mod segment;
#[cfg(test)]
mod tests;
mod window;

use crate::id::CellKey;
use segment::{Fingerprint, Segment};
use window::{Noted, Window};

/// Which (group, seq) stood in the current or the previous tumbling window of log time.
///
/// Exact up to the 96 bits by which groups are told apart: with 10⁷ groups in a window, two of them are taken for one with
/// a probability of about 10⁻¹⁵.
pub struct Dedup {
    window_ms: u64,
    /// The number of the current window: log time / `window_ms`.
    number: u64,
    /// When the current window ends. It spares the division for each entry.
    end_ms: u64,
    current: Window,
    previous: Window,
    /// Groups that are in both windows.
    in_both: usize,
    /// What has expired and is not given back yet. That may be hundreds of megabytes, too much for one call.
    expired: Vec<Segment>,
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
        Dedup {
            window_ms,
            number: 0,
            end_ms: window_ms,
            current: Window::default(),
            previous: Window::default(),
            in_both: 0,
            expired: Vec::new(),
        }
    }

    pub fn window_ms(&self) -> u64 {
        self.window_ms
    }

    /// Notes (group, seq) in the window of this log time and answers whether it stood before, in this window or in the one
    /// before. A repeat is noted again. Log time never runs backwards.
    #[inline]
    pub fn is_repeat(&mut self, group: CellKey, seq: u64, log_time_ms: u64) -> bool {
        if log_time_ms >= self.end_ms {
            self.enter(log_time_ms);
        }
        debug_assert_eq!(log_time_ms / self.window_ms, self.number, "log time never runs backwards");
        let group = Fingerprint::of(group);
        match self.current.note(group, seq) {
            Noted::Again => true,
            Noted::NewSeq => self.previous.contains(group, seq).unwrap_or(false),
            Noted::NewGroup => {
                self.release();
                let before = self.previous.contains(group, seq);
                self.in_both += usize::from(before.is_some());
                before.unwrap_or(false)
            }
        }
    }

    /// Lets log time pass without an entry and gives back a part of what has expired. For a counter that nobody feeds any more:
    /// one that is fed needs no such call.
    pub fn advance(&mut self, log_time_ms: u64) {
        if log_time_ms >= self.end_ms {
            self.enter(log_time_ms);
        }
        self.release();
    }

    /// Asks for the memory of a group, so that a call a little later need not wait for it.
    #[inline]
    pub fn prefetch(&self, group: CellKey) {
        let group = Fingerprint::of(group);
        self.current.prefetch(group);
        self.previous.prefetch(group);
    }

    /// Groups remembered as of the last call. What has expired since then still counts; what had expired by then does not.
    pub fn groups(&self) -> usize {
        self.current.groups() + self.previous.groups() - self.in_both
    }

    /// Memory in use, with what has expired and is not given back yet.
    pub fn bytes(&self) -> usize {
        let expired: usize = self.expired.iter().map(Segment::bytes).sum();
        let list = self.expired.capacity() * size_of::<Segment>();
        size_of::<Dedup>() + self.current.bytes() + self.previous.bytes() + expired + list
    }

    /// Enters the window of this log time, unless it is still the current one.
    #[cold]
    fn enter(&mut self, log_time_ms: u64) {
        let number = log_time_ms / self.window_ms;
        if number == self.number {
            return;
        }
        let ended = std::mem::take(&mut self.current);
        let older = std::mem::replace(&mut self.previous, ended);
        self.expired.extend(older.into_segments());
        if number - self.number > 1 {
            self.expired.extend(std::mem::take(&mut self.previous).into_segments());
        }
        self.in_both = 0;
        self.number = number;
        self.end_ms = (number + 1).saturating_mul(self.window_ms);
    }

    /// Gives one expired segment back. Each new group does: a window has fewer segments than groups, so expired ones never pile
    /// up.
    #[inline]
    fn release(&mut self) {
        if self.expired.pop().is_some() && self.expired.is_empty() {
            self.expired = Vec::new();
        }
    }
}
