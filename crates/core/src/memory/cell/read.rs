//! The readers' side of the table.

use super::segment::{CellPlace, CellSlot, Segment, flag};
use super::{Hot, Mark};
use crate::id::CellKey;
use arc_swap::ArcSwap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const SEGMENT_BITS: u32 = 8;
/// How many segments the cells live in: so many that what is done with one of them takes less than a millisecond while there are
/// twenty million cells, and so few that ten million have segments large enough for the allocator to waste nothing on them.
pub const SEGMENTS: usize = 1 << SEGMENT_BITS;

/// What readers on any thread may look at.
pub struct Cells {
    pub(super) segments: Box<[ArcSwap<Segment>]>,
    pub(super) deadlines: papaya::HashMap<CellKey, u64>,
    pub(super) marks: papaya::HashMap<CellKey, Mark>,
    /// Counters for which late entries wait, and how many.
    pub(super) pending: papaya::HashMap<CellKey, u64>,
    /// What was counted for counters whose row has not come from the store yet.
    pub(super) unsettled: papaya::HashMap<CellKey, i64>,
    /// Live counters that are in the store only.
    pub(super) cold: AtomicU64,
    /// How many cells ever left memory; it changes before a cell leaves.
    pub(super) evictions: AtomicU64,
    /// Live counters in memory.
    pub(super) live: AtomicU64,
}

impl Cells {
    pub(super) fn new() -> Cells {
        let empty = || ArcSwap::from_pointee(Segment::with_capacity(0));
        Cells {
            segments: std::iter::repeat_with(empty).take(SEGMENTS).collect(),
            deadlines: papaya::HashMap::new(),
            marks: papaya::HashMap::new(),
            pending: papaya::HashMap::new(),
            unsettled: papaya::HashMap::new(),
            cold: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            live: AtomicU64::new(0),
        }
    }

    /// What memory knows about a counter now; the time is asked for only if the counter expires.
    pub fn read(&self, key: CellKey, now_ms: impl FnOnce() -> u64) -> Hot {
        let evictions = self.evictions.load(Ordering::Acquire);
        let all_in_memory = self.cold.load(Ordering::Acquire) == 0;
        if let Some(hot) = self.find(key, now_ms) {
            return hot;
        }
        // The cell may have left, or come in from the store, while we looked: only if neither could happen is it absent.
        if all_in_memory && evictions == self.evictions.load(Ordering::Acquire) { Hot::Absent } else { Hot::Cold }
    }

    /// What corrections have done to a counter that is in memory.
    pub fn mark(&self, key: CellKey) -> Mark {
        self.marks.pin().get(&key).cloned().unwrap_or_default()
    }

    /// The last generation that touched a counter that is in memory.
    pub fn generation(&self, key: CellKey) -> u64 {
        self.marks.pin().get(&key).map_or(0, |mark| mark.generation)
    }

    /// How many late entries wait for a counter, whether it is in memory or not.
    pub fn pending(&self, key: CellKey) -> u64 {
        self.pending.pin().get(&key).copied().unwrap_or(0)
    }

    /// What is to be added to the row that the store has of a counter that is not in memory. Whoever has read the row asks
    /// this behind it, and if it is `None` looks at memory again: the row may have come in meanwhile.
    pub fn unsettled(&self, key: CellKey) -> Option<i64> {
        self.unsettled.pin().get(&key).copied()
    }

    /// Asks for the memory of a counter, so that a read a little later need not wait for it.
    #[inline]
    pub fn prefetch(&self, key: CellKey) {
        self.segments[segment_of(key)].load().prefetch(key, SEGMENT_BITS);
    }

    /// How many counters there are, in memory and in the store.
    pub fn len(&self) -> u64 {
        self.live.load(Ordering::Acquire) + self.cold.load(Ordering::Acquire)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn cold(&self) -> u64 {
        self.cold.load(Ordering::Acquire)
    }

    fn find(&self, key: CellKey, now_ms: impl FnOnce() -> u64) -> Option<Hot> {
        let segment = self.segments[segment_of(key)].load();
        let CellPlace::Found(index) = segment.place(key, SEGMENT_BITS) else {
            return None;
        };
        let slot = segment.slot(index);
        let low = slot.low();
        let value = slot.value();
        slot.mark_referenced(low);
        let gone = match low & flag::EXPIRES != 0 {
            true => self.is_gone(key, slot, now_ms())?,
            false => low & flag::ABSENT != 0,
        };
        Some(if gone { Hot::Absent } else { Hot::Value(value) })
    }

    /// Whether a counter that expires has done so; `None` if it has left memory while we looked.
    fn is_gone(&self, key: CellKey, slot: &CellSlot, now_ms: u64) -> Option<bool> {
        if let Some(at_ms) = self.deadlines.pin().get(&key) {
            return Some(*at_ms <= now_ms);
        }
        let low = slot.low();
        (low & flag::EXPIRES == 0).then_some(low & flag::ABSENT != 0)
    }
}

#[inline]
pub(super) fn segment_of(key: CellKey) -> usize {
    (key.as_u128() >> (128 - SEGMENT_BITS)) as usize
}

/// The keys of a segment, in so many ranges of one size.
pub fn segment_parts(segment: usize, parts: usize) -> impl Iterator<Item = RangeInclusive<CellKey>> {
    let first = (segment as u128) << (128 - SEGMENT_BITS);
    let last = first | (u128::MAX >> SEGMENT_BITS);
    let width = (u128::MAX >> SEGMENT_BITS) / parts as u128 + 1;
    (0..parts as u128).map(move |part| {
        let begin = first + part * width;
        CellKey::from_u128(begin)..=CellKey::from_u128(last.min(begin.saturating_add(width - 1)))
    })
}
