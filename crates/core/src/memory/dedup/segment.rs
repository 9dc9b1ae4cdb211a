//! One segment of the table: open addressing over slots.
//!
//! A segment that is full is rebuilt with what is still alive, larger if that needs it; a sweep does the same for one with
//! many dead. Between two rebuilds a slot keeps its place.
//!
//! 40 bytes per slot, and behind a rebuild at least half of them alive: at most 80 bytes per group, in one window or in both.

use super::runs::Gaps;
use super::slot::{DedupSlot, Fingerprint};
use crate::memory::prefetch::prefetch;

/// Beyond this, linear probing gets slow.
const LOAD_PERCENT_MAX: usize = 70;
/// A rebuilt segment is at most as full as this, so that the next rebuild is some way off.
const LOAD_PERCENT_REBUILT: usize = 63;
/// Sizes come four to a doubling, as allocators like them: each is at most a quarter larger than the one before.
const SIZE_STEPS: usize = 4;
const CAPACITY_MIN: usize = 2 * SIZE_STEPS;
/// A sweep leaves a segment as it is if no more than one in so many is dead.
const DEAD_PARTS: usize = 8;

pub(super) struct DedupSegment {
    slots: Box<[DedupSlot]>,
    used: usize,
    gaps: Box<Gaps>,
}

/// Where a group is, or where it would go.
pub(super) enum DedupPlace {
    Found(usize),
    Free(usize),
}

impl DedupSegment {
    pub fn new() -> DedupSegment {
        DedupSegment { slots: free_slots(CAPACITY_MIN), used: 0, gaps: Box::default() }
    }

    /// Groups that are here, alive or not.
    pub fn groups(&self) -> usize {
        self.used
    }

    pub fn is_full(&self) -> bool {
        self.used * 100 >= self.slots.len() * LOAD_PERCENT_MAX
    }

    /// Memory in use, beside the segment itself.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of::<Gaps>() + self.gaps.bytes()
    }

    /// Finds a group by linear probing from its home. There is always a free slot, so the walk ends.
    #[inline]
    pub fn place(&self, group: Fingerprint, within: u64) -> DedupPlace {
        let mut at = self.home(within);
        loop {
            let slot = &self.slots[at];
            if slot.is_of(group) && !slot.is_free() {
                return DedupPlace::Found(at);
            }
            if slot.is_free() {
                return DedupPlace::Free(at);
            }
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
    }

    #[inline]
    pub fn prefetch(&self, within: u64) {
        prefetch(&self.slots[self.home(within)]);
    }

    /// Puts a group with its first seq into a free slot.
    #[inline]
    pub fn fill(&mut self, at: usize, group: Fingerprint, seq: u64, window: u32) {
        debug_assert!(self.slots[at].is_free());
        self.slots[at] = DedupSlot::new(group, seq, window);
        self.used += 1;
    }

    /// Notes a seq of a group that is here and answers whether it stood before, in this window or in the one before.
    #[inline]
    pub fn note(&mut self, at: usize, seq: u64, window: u32) -> bool {
        self.slots[at].note(seq, window, &mut self.gaps)
    }

    /// Whether a seq of a group that is here can be noted without more memory.
    pub fn has_place(&self, at: usize, seq: u64, window: u32) -> bool {
        self.slots[at].has_place(seq, window, &self.gaps)
    }

    /// Takes over what slot `at` of another segment has beside a seq. `within` says where its group belongs here.
    pub fn copy_beside(&mut self, from: &DedupSegment, at: usize, within: u64, seq: u64) {
        let slot = &from.slots[at];
        match self.place(slot.group(), within) {
            DedupPlace::Found(here) => self.slots[here].take_beside(slot, &from.gaps, seq, &mut self.gaps),
            DedupPlace::Free(here) => {
                self.slots[here] = slot.emptied();
                self.slots[here].take_beside(slot, &from.gaps, seq, &mut self.gaps);
                self.used += 1;
            }
        }
    }

    /// Drops what has expired. `segments` says how many share the groups of the table.
    pub fn sweep(&mut self, window: u32, segments: usize) {
        let live = self.live(window);
        if self.used - live > self.used / DEAD_PARTS {
            return self.rebuild(live, window, segments);
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.is_live(window)) {
            slot.expire(window, &mut self.gaps);
        }
        self.gaps.trim();
    }

    /// Makes a full segment one that is not.
    pub fn make_room(&mut self, window: u32, segments: usize) {
        self.rebuild(self.live(window), window, segments);
    }

    /// Moves the groups into the segments of a larger table.
    pub fn deal_out(self, segments: &mut [DedupSegment], window: u32) {
        let DedupSegment { slots, mut gaps, .. } = self;
        let count = segments.len();
        for mut slot in slots.into_iter().filter(|slot| !slot.is_free()) {
            let target = &mut segments[slot.group().locate(count).0];
            slot.rehouse(&mut gaps, &mut target.gaps);
            target.put(slot, count);
            if target.is_full() {
                target.make_room(window, count);
            }
        }
    }

    fn live(&self, window: u32) -> usize {
        self.slots.iter().filter(|slot| !slot.is_free() && slot.is_live(window)).count()
    }

    fn rebuild(&mut self, live: usize, window: u32, segments: usize) {
        let old = std::mem::replace(&mut self.slots, free_slots(capacity_for(live)));
        self.used = 0;
        for mut slot in old.into_iter().filter(|slot| !slot.is_free()) {
            slot.expire(window, &mut self.gaps);
            if slot.is_live(window) {
                self.put(slot, segments);
            }
        }
        self.gaps.trim();
    }

    fn put(&mut self, slot: DedupSlot, segments: usize) {
        let DedupPlace::Free(at) = self.place(slot.group(), slot.group().locate(segments).1) else {
            unreachable!("a group is in a segment once");
        };
        self.slots[at] = slot;
        self.used += 1;
    }

    /// Groups in ascending order have homes in ascending order, so a rebuild reads and writes from end to end.
    #[inline]
    fn home(&self, within: u64) -> usize {
        ((u128::from(within) * self.slots.len() as u128) >> 64) as usize
    }
}

fn free_slots(capacity: usize) -> Box<[DedupSlot]> {
    vec![DedupSlot::default(); capacity].into_boxed_slice()
}

/// The smallest size for so many groups.
fn capacity_for(groups: usize) -> usize {
    let capacity = (groups * 100).div_ceil(LOAD_PERCENT_REBUILT).max(CAPACITY_MIN);
    let step = (capacity / SIZE_STEPS + 1).next_power_of_two() / 2;
    capacity.next_multiple_of(step)
}
