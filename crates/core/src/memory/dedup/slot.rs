//! One slot of a segment: a group and what it sent in its last two windows.
//!
//! Windows take turns in the two halves of a slot, the even ones in the first and the odd ones in the second. `window` says which
//! one wrote last; a half that is older than one window before the current one counts as empty, whether it has been
//! swept or not.
//!
//! A half holds the one run of consecutive seqs itself. Runs with gaps between them are kept aside, and the half says where.

use super::runs::{Gaps, Run, Runs};
use crate::id::CellKey;

/// What a group is known by: 96 bits of its hash. The high ones also say where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    high: u64,
    low: u32,
}

impl Fingerprint {
    #[inline]
    pub fn of(group: CellKey) -> Fingerprint {
        let hash = group.as_u128();
        // The lowest bits of a key are always zero: not those.
        Fingerprint { high: (hash >> 64) as u64, low: (hash >> 32) as u32 }
    }

    /// The segment of a group, of so many, and how far into the segment it belongs, as a fraction of 2⁶⁴.
    #[inline]
    pub fn locate(self, segments: usize) -> (usize, u64) {
        let product = u128::from(self.high) * segments as u128;
        ((product >> 64) as usize, product as u64)
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct DedupSlot {
    high: u64,
    low: u32,
    /// The window that wrote last, by the low half of its number.
    window: u32,
    /// Per half, the seqs in its run, or one of the marks below.
    lengths: [u32; 2],
    /// Per half, the first seq of its run, or where its runs are kept.
    firsts: [u64; 2],
}

/// The length in a half that has no runs. A slot where both have none is free.
const NONE: u32 = 0;
/// The length in a half whose runs are kept aside.
const ASIDE: u32 = u32::MAX;

/// The half of a window; the window before has the other one.
#[inline]
fn half_of(window: u32) -> usize {
    (window & 1) as usize
}

impl DedupSlot {
    #[inline]
    pub fn new(group: Fingerprint, seq: u64, window: u32) -> DedupSlot {
        let mut slot = DedupSlot { high: group.high, low: group.low, window, ..DedupSlot::default() };
        slot.lengths[half_of(window)] = 1;
        slot.firsts[half_of(window)] = seq;
        slot
    }

    #[inline]
    pub fn is_free(&self) -> bool {
        self.lengths == [NONE, NONE]
    }

    #[inline]
    pub fn is_of(&self, group: Fingerprint) -> bool {
        self.high == group.high && self.low == group.low
    }

    pub fn group(&self) -> Fingerprint {
        Fingerprint { high: self.high, low: self.low }
    }

    /// Whether anything here still counts in a window.
    pub fn is_live(&self, window: u32) -> bool {
        window.wrapping_sub(self.window) <= 1
    }

    /// Notes a seq and answers whether it stood before, in this window or in the one before.
    #[inline]
    pub fn note(&mut self, seq: u64, window: u32, gaps: &mut Gaps) -> bool {
        if self.window != window {
            self.expire(window, gaps);
            self.window = window;
        }
        let half = half_of(window);
        self.note_in(half, seq, gaps) || self.contains(1 - half, seq, gaps)
    }

    /// Whether a seq can be noted without more memory: the group is alive, and in this window it has no seq yet, or this one or one
    /// beside it.
    pub fn has_place(&self, seq: u64, window: u32, gaps: &Gaps) -> bool {
        let half = half_of(window);
        let is_first = self.window != window || self.lengths[half] == NONE;
        let beside = [seq.checked_sub(1), Some(seq), seq.checked_add(1)].into_iter().flatten();
        self.is_live(window) && (is_first || beside.into_iter().any(|seq| self.contains(half, seq, gaps)))
    }

    /// Empties what no longer counts in a window.
    pub fn expire(&mut self, window: u32, gaps: &mut Gaps) {
        match window.wrapping_sub(self.window) {
            0 => {}
            1 => self.empty(half_of(window), gaps),
            _ => {
                self.empty(0, gaps);
                self.empty(1, gaps);
            }
        }
    }

    /// Moves the runs that are kept aside to another store.
    pub fn rehouse(&mut self, from: &mut Gaps, to: &mut Gaps) {
        for half in 0..2 {
            if self.lengths[half] == ASIDE {
                self.firsts[half] = to.keep(from.take(self.firsts[half]));
            }
        }
    }

    /// The slot of the same group, as of the same window, without a run.
    pub fn emptied(&self) -> DedupSlot {
        DedupSlot { lengths: [NONE, NONE], ..*self }
    }

    /// Takes over the runs that another slot has beside a seq, and one in any case, if it has any: that a half has none means
    /// something.
    pub fn take_beside(&mut self, from: &DedupSlot, from_gaps: &Gaps, seq: u64, gaps: &mut Gaps) {
        for half in 0..2 {
            match from.lengths[half] {
                NONE => {}
                ASIDE => {
                    let beside = from_gaps.get(from.firsts[half]).beside(seq);
                    beside.into_iter().flatten().for_each(|run| self.add(half, run, gaps));
                }
                _ => self.add(half, from.run(half), gaps),
            }
        }
    }

    /// Adds a run that neither overlaps nor touches any that is here, unless it is here itself.
    fn add(&mut self, half: usize, run: Run, gaps: &mut Gaps) {
        let length = self.lengths[half];
        if length == ASIDE {
            gaps.add(self.firsts[half], run);
        } else if length == NONE && !self.hold(half, run) {
            self.keep_aside(half, Runs::of(run), gaps);
        } else if self.run(half) != run {
            self.keep_aside(half, Runs::of(self.run(half)), gaps);
            gaps.add(self.firsts[half], run);
        }
    }

    fn empty(&mut self, half: usize, gaps: &mut Gaps) {
        if self.lengths[half] == ASIDE {
            gaps.take(self.firsts[half]);
        }
        self.lengths[half] = NONE;
    }

    #[inline]
    fn contains(&self, half: usize, seq: u64, gaps: &Gaps) -> bool {
        match self.lengths[half] {
            NONE => false,
            ASIDE => gaps.get(self.firsts[half]).contains(seq),
            _ => self.run(half).contains(seq),
        }
    }

    #[inline]
    fn note_in(&mut self, half: usize, seq: u64, gaps: &mut Gaps) -> bool {
        match self.lengths[half] {
            NONE => {
                self.hold(half, Run { first: seq, last: seq });
                false
            }
            ASIDE => self.note_aside(half, seq, gaps),
            _ => {
                let run = self.run(half);
                let noted_before = run.contains(seq);
                if !noted_before && !run.joined(seq).is_some_and(|longer| self.hold(half, longer)) {
                    self.set_aside(half, seq, gaps);
                }
                noted_before
            }
        }
    }

    /// Moves a run out of the slot, which cannot hold it together with one more seq.
    #[cold]
    fn set_aside(&mut self, half: usize, seq: u64, gaps: &mut Gaps) {
        let mut runs = Runs::of(self.run(half));
        runs.note(seq);
        self.keep_aside(half, runs, gaps);
    }

    fn keep_aside(&mut self, half: usize, runs: Runs, gaps: &mut Gaps) {
        self.firsts[half] = gaps.keep(runs);
        self.lengths[half] = ASIDE;
    }

    #[cold]
    fn note_aside(&mut self, half: usize, seq: u64, gaps: &mut Gaps) -> bool {
        let kept_at = self.firsts[half];
        let noted_before = gaps.note(kept_at, seq);
        if !noted_before && gaps.get(kept_at).only().is_some_and(|run| self.hold(half, run)) {
            gaps.take(kept_at);
        }
        noted_before
    }

    /// The run of a half that has one here.
    #[inline]
    fn run(&self, half: usize) -> Run {
        let first = self.firsts[half];
        Run { first, last: first + u64::from(self.lengths[half] - 1) }
    }

    /// Takes a run in, if it is not too long.
    #[inline]
    fn hold(&mut self, half: usize, run: Run) -> bool {
        let fits = run.last - run.first < u64::from(ASIDE - 1);
        if fits {
            self.firsts[half] = run.first;
            self.lengths[half] = (run.last - run.first + 1) as u32;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CellHasher;

    fn slot_with(run: Run) -> DedupSlot {
        let mut slot = DedupSlot::new(Fingerprint::of(CellHasher::new(1).key(b"s")), 0, 2);
        assert!(slot.hold(0, run));
        slot
    }

    #[test]
    fn a_run_too_long_for_a_slot_is_kept_aside_and_stays_exact() {
        let longest = Run { first: 10, last: 10 + u64::from(ASIDE) - 2 };
        let mut gaps = Gaps::default();
        let mut slot = slot_with(longest);
        assert_eq!(slot.run(0), longest);
        for beyond in 1..4 {
            assert!(!slot.note(longest.last + beyond, 2, &mut gaps));
        }
        assert_eq!(slot.lengths[0], ASIDE);
        assert!(!slot.note(9, 2, &mut gaps));
        for seq in [9, 10, longest.last, longest.last + 3] {
            assert!(slot.note(seq, 2, &mut gaps), "{seq}");
        }
        for seq in [8, longest.last + 4] {
            assert!(!slot.contains(0, seq, &gaps), "{seq}");
        }
    }

    #[test]
    fn two_runs_that_meet_and_are_too_long_together_stay_aside() {
        let mut gaps = Gaps::default();
        let mut slot = slot_with(Run { first: 10, last: u64::from(ASIDE) });
        assert!(!slot.note(8, 2, &mut gaps));
        for seq in [9, 7, 6, 5, 4, 3, 2, 1, 0] {
            assert!(!slot.note(seq, 2, &mut gaps), "{seq}");
        }
        assert_eq!(gaps.get(slot.firsts[0]).only(), Some(Run { first: 0, last: u64::from(ASIDE) }));
        assert!(slot.note(0, 3, &mut gaps), "it stood in the window before");
        assert!(!slot.note(1, 4, &mut gaps));
        assert!(gaps.is_empty(), "what expires is not kept aside");
    }
}
