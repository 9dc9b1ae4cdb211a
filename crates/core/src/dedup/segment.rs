//! One segment of a window: an open-addressing table from groups to their runs.
//!
//! A slot holds the one run of a group of consecutive seqs itself. The runs of a group with gaps are kept aside, and the slot
//! says where; when the gaps close, the run moves back into the slot. Slots are filled and never emptied: groups leave with
//! their whole window.
//!
//! 24 bytes per slot, at least 60 % of them used: at most 40 bytes per group and window, 80 for a group that is active in
//! both.

use super::runs::{Gaps, Run, Runs};
use crate::id::CellKey;
use crate::prefetch::prefetch;

/// Beyond this, linear probing for a group that is not there gets slow.
const LOAD_PERCENT_MAX: usize = 75;
/// Sizes come four to a doubling, as allocators like them: a segment grows by a quarter at most.
const SIZE_STEPS: usize = 4;
const CAPACITY_MIN: usize = 2 * SIZE_STEPS;

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
}

/// The segment of a group, of so many, and how far into the segment it belongs, as a fraction of 2⁶⁴.
#[inline]
pub(super) fn locate(group: Fingerprint, segments: usize) -> (usize, u64) {
    let product = u128::from(group.high) * segments as u128;
    ((product >> 64) as usize, product as u64)
}

#[derive(Clone, Copy, Default)]
struct Slot {
    high: u64,
    /// The first seq of the run, or where the runs are kept.
    first: u64,
    low: u32,
    /// Seqs in the run, or one of the marks below.
    length: u32,
}

/// The length in a slot that is free.
const FREE: u32 = 0;
/// The length in a slot whose runs are kept aside.
const ASIDE: u32 = u32::MAX;

impl Slot {
    #[inline]
    fn group(&self) -> Fingerprint {
        Fingerprint { high: self.high, low: self.low }
    }

    /// The run, if it is here.
    #[inline]
    fn run(&self) -> Option<Run> {
        debug_assert_ne!(self.length, FREE);
        let last = || self.first + u64::from(self.length - 1);
        (self.length != ASIDE).then(|| Run { first: self.first, last: last() })
    }

    /// Takes a run in, if it is not too long.
    #[inline]
    fn hold(&mut self, run: Run) -> bool {
        let fits = run.last - run.first < u64::from(ASIDE - 1);
        if fits {
            self.first = run.first;
            self.length = (run.last - run.first + 1) as u32;
        }
        fits
    }
}

pub(super) struct Segment {
    slots: Box<[Slot]>,
    used: usize,
    gaps: Option<Box<Gaps>>,
}

/// Where a group is, or where it would go.
pub(super) enum Place {
    Found(usize),
    Free(usize),
}

impl Segment {
    pub fn new() -> Segment {
        Segment { slots: free_slots(CAPACITY_MIN), used: 0, gaps: None }
    }

    pub fn is_full(&self) -> bool {
        self.used * 100 >= self.slots.len() * LOAD_PERCENT_MAX
    }

    /// Memory in use, beside the segment itself.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots) + self.gaps.as_ref().map_or(0, |gaps| gaps.bytes())
    }

    #[inline]
    pub fn place(&self, group: Fingerprint, within: u64) -> Place {
        place(&self.slots, group, within)
    }

    #[inline]
    pub fn prefetch(&self, within: u64) {
        prefetch(&self.slots[home(&self.slots, within)]);
    }

    /// Puts a group with its first seq into a free slot.
    #[inline]
    pub fn fill(&mut self, at: usize, group: Fingerprint, seq: u64) {
        debug_assert_eq!(self.slots[at].length, FREE, "a slot is filled once");
        self.slots[at] = Slot { high: group.high, first: seq, low: group.low, length: 1 };
        self.used += 1;
    }

    #[inline]
    pub fn contains(&self, at: usize, seq: u64) -> bool {
        let slot = &self.slots[at];
        match (slot.run(), &self.gaps) {
            (Some(run), _) => run.contains(seq),
            (None, gaps) => gaps.as_ref().expect("a slot points there").get(slot.first).contains(seq),
        }
    }

    /// Notes a seq of a group that is here and answers whether it was noted before.
    #[inline]
    pub fn note(&mut self, at: usize, seq: u64) -> bool {
        let slot = &mut self.slots[at];
        match slot.run() {
            Some(run) if run.contains(seq) => true,
            Some(run) => {
                if !run.joined(seq).is_some_and(|longer| slot.hold(longer)) {
                    self.set_aside(at, run, seq);
                }
                false
            }
            None => self.note_aside(at, seq),
        }
    }

    /// Moves a run that a slot cannot hold together with one more seq out of the slot.
    #[cold]
    fn set_aside(&mut self, at: usize, run: Run, seq: u64) {
        let mut runs = Runs::of(run);
        runs.note(seq);
        let slot = &mut self.slots[at];
        slot.first = self.gaps.get_or_insert_default().keep(runs);
        slot.length = ASIDE;
    }

    fn note_aside(&mut self, at: usize, seq: u64) -> bool {
        let slot = &mut self.slots[at];
        let gaps = self.gaps.as_mut().expect("a slot points there");
        let kept_at = slot.first;
        let noted_before = gaps.note(kept_at, seq);
        if !noted_before && gaps.get(kept_at).only().is_some_and(|run| slot.hold(run)) {
            gaps.take(kept_at);
        }
        noted_before
    }

    /// Grows to the next size. `segments` says how many share the groups of the window.
    pub fn grow(&mut self, segments: usize) {
        let larger = free_slots(size_after(self.slots.len()));
        let old = std::mem::replace(&mut self.slots, larger);
        old.into_iter().filter(|slot| slot.length != FREE).for_each(|slot| self.put(slot, segments));
    }

    /// Moves the groups into the segments of a larger window.
    pub fn deal_out(mut self, segments: &mut [Segment]) {
        let count = segments.len();
        for mut slot in std::mem::take(&mut self.slots).into_iter().filter(|slot| slot.length != FREE) {
            let target = &mut segments[locate(slot.group(), count).0];
            if slot.length == ASIDE {
                let runs = self.gaps.as_mut().expect("a slot points there").take(slot.first);
                slot.first = target.gaps.get_or_insert_default().keep(runs);
            }
            target.put(slot, count);
            target.used += 1;
            if target.is_full() {
                target.grow(count);
            }
        }
    }

    fn put(&mut self, slot: Slot, segments: usize) {
        let Place::Free(at) = self.place(slot.group(), locate(slot.group(), segments).1) else {
            unreachable!("a group is in a window once");
        };
        self.slots[at] = slot;
    }
}

fn free_slots(capacity: usize) -> Box<[Slot]> {
    vec![Slot::default(); capacity].into_boxed_slice()
}

/// The size that follows this one.
fn size_after(capacity: usize) -> usize {
    let step = (capacity + 1).next_power_of_two() / (2 * SIZE_STEPS);
    capacity + step
}

/// Finds a group by linear probing from its home. There is always a free slot, so the walk ends.
#[inline]
fn place(slots: &[Slot], group: Fingerprint, within: u64) -> Place {
    let mut at = home(slots, within);
    loop {
        let slot = &slots[at];
        if slot.length == FREE {
            return Place::Free(at);
        }
        if slot.high == group.high && slot.low == group.low {
            return Place::Found(at);
        }
        at += 1;
        if at == slots.len() {
            at = 0;
        }
    }
}

/// Groups in ascending order have homes in ascending order, so a segment that grows is read and written from end to end.
#[inline]
fn home(slots: &[Slot], within: u64) -> usize {
    ((u128::from(within) * slots.len() as u128) >> 64) as usize
}
