//! One segment: an open-addressing table of slots that readers may look at while the writer fills it.
//!
//! A slot goes from empty to occupied once and keeps its key for as long as the segment lives. `low` is written last
//! when a slot is filled (Release) and read first (Acquire), so whoever sees the key also sees the value.

use crate::id::CellKey;
use crate::memory::prefetch::prefetch;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The flag bits of a slot, kept below the key's hash bits.
pub(super) mod flag {
    pub const OCCUPIED: u64 = 1;
    /// The counter was deleted; the slot stands for "not there", whatever the store says.
    pub const ABSENT: u64 = 1 << 1;
    /// The counter has an entry in the table of expiries.
    pub const EXPIRES: u64 = 1 << 2;
    /// Used since the segment was last thinned out.
    pub const REFERENCED: u64 = 1 << 3;
    /// Two bits: the era in which the cell last changed, 0 if that is durable in the store.
    pub const ERA_SHIFT: u32 = 4;
    pub const ERA: u64 = 3 << ERA_SHIFT;
    pub const ALL: u64 = (1 << crate::id::CellKey::FLAG_BITS) - 1;
}

/// Beyond this, linear probing gets slow.
const LOAD_PERCENT_MAX: usize = 85;
/// Sizes of small segments come eight to a doubling, those of large ones, which have pages of their own, sixteen: a segment wastes
/// little behind its end, grows by little, and stays near what is used.
const SIZE_STEPS: usize = 8;
const SIZE_STEPS_LARGE: usize = 16;
/// Up to here the allocator puts several into a page.
const LARGE_BYTES: usize = 512 << 10;
const BYTES_MIN: usize = 48 * SIZE_STEPS;

/// At least so many slots ahead another line of the cache begins.
const SLOTS_PER_LINE: usize = 64usize.div_ceil(size_of::<CellSlot>());

/// Slots for so many cells, and some more.
fn capacity_for(cells: usize) -> usize {
    cells * 100 / LOAD_PERCENT_MAX + cells / 32 + 1
}

/// What the smallest segment of at least so many slots takes.
fn bytes_of(capacity: usize) -> usize {
    let bytes = (capacity * size_of::<CellSlot>()).max(BYTES_MIN);
    let steps = if bytes > LARGE_BYTES { SIZE_STEPS_LARGE } else { SIZE_STEPS };
    let step = (bytes / steps + 1).next_power_of_two() / 2;
    bytes.next_multiple_of(step)
}

#[derive(Default)]
pub(super) struct CellSlot {
    low: AtomicU64,
    high: AtomicU64,
    value: AtomicI64,
}

impl CellSlot {
    /// The key's low half together with the flags.
    #[inline]
    pub fn low(&self) -> u64 {
        self.low.load(Ordering::Acquire)
    }

    #[inline]
    pub fn value(&self) -> i64 {
        self.value.load(Ordering::Acquire)
    }

    #[inline]
    pub fn set_value(&self, value: i64) {
        self.value.store(value, Ordering::Release);
    }

    #[inline]
    pub fn set_low(&self, low: u64) {
        self.low.store(low, Ordering::Release);
    }

    /// A reader's hint; the writer may overwrite it, which costs nothing but the hint.
    #[inline]
    pub fn mark_referenced(&self, low: u64) {
        if low & flag::REFERENCED == 0 {
            self.low.fetch_or(flag::REFERENCED, Ordering::Relaxed);
        }
    }

    pub fn key(&self) -> CellKey {
        let high = u128::from(self.high.load(Ordering::Relaxed)) << 64;
        CellKey::from_u128(high | u128::from(self.low() & !flag::ALL))
    }

    fn fill(&self, key: CellKey, value: i64, flags: u64) {
        self.value.store(value, Ordering::Relaxed);
        self.high.store((key.as_u128() >> 64) as u64, Ordering::Relaxed);
        self.low.store(key.as_u128() as u64 | flags | flag::OCCUPIED, Ordering::Release);
    }
}

pub(super) struct Segment {
    slots: Box<[CellSlot]>,
}

/// Where a key is, or where it would go.
pub(super) enum CellPlace {
    Found(usize),
    Free(usize),
}

impl Segment {
    /// The smallest segment of at least so many slots.
    pub fn with_capacity(capacity: usize) -> Segment {
        let capacity = bytes_of(capacity) / size_of::<CellSlot>();
        Segment { slots: std::iter::repeat_with(CellSlot::default).take(capacity).collect() }
    }

    /// A segment that holds `cells` and some more.
    pub fn for_cells(cells: usize) -> Segment {
        Segment::with_capacity(capacity_for(cells))
    }

    /// Up to so many cells whose segment takes at most so many bytes.
    pub fn cells_within(bytes: usize, cells_max: usize) -> usize {
        let mut cells = cells_max.min(bytes / size_of::<CellSlot>());
        while cells > 0 && bytes_of(capacity_for(cells)) > bytes {
            cells -= (cells / 64).max(1);
        }
        cells
    }

    /// A segment of the next size.
    pub fn larger(&self) -> Segment {
        Segment::with_capacity(self.slots.len() + self.slots.len() / (2 * SIZE_STEPS_LARGE) + 1)
    }

    pub fn is_full(&self, used: usize) -> bool {
        used * 100 >= self.slots.len() * LOAD_PERCENT_MAX
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<CellSlot>()
    }

    #[inline]
    pub fn slot(&self, index: usize) -> &CellSlot {
        &self.slots[index]
    }

    pub fn occupied(&self) -> impl Iterator<Item = &CellSlot> {
        self.slots.iter().filter(|slot| slot.low() != 0)
    }

    /// Finds a key by linear probing from its home. There is always a free slot, so the walk ends.
    #[inline]
    pub fn place(&self, key: CellKey, segment_bits: u32) -> CellPlace {
        let low = key.as_u128() as u64;
        let high = (key.as_u128() >> 64) as u64;
        let mut index = self.home(key, segment_bits);
        loop {
            let slot = &self.slots[index];
            let found = slot.low();
            if found == 0 {
                return CellPlace::Free(index);
            }
            if (found ^ low) & !flag::ALL == 0 && slot.high.load(Ordering::Relaxed) == high {
                return CellPlace::Found(index);
            }
            index += 1;
            if index == self.slots.len() {
                index = 0;
            }
        }
    }

    /// Fills a free slot.
    pub fn fill(&self, index: usize, key: CellKey, value: i64, flags: u64) {
        debug_assert_eq!(self.slots[index].low(), 0, "a slot is filled once");
        self.slots[index].fill(key, value, flags);
    }

    /// Copies a slot of another segment into this one, with other flags.
    pub fn adopt(&self, slot: &CellSlot, low: u64, segment_bits: u32) {
        let CellPlace::Free(index) = self.place(slot.key(), segment_bits) else {
            unreachable!("a key is in a segment once");
        };
        self.slots[index].fill(slot.key(), slot.value(), low & flag::ALL);
    }

    /// Brings the home slot of a key into the cache, so that the walk that follows soon does not wait for it.
    #[inline]
    pub fn prefetch(&self, key: CellKey, segment_bits: u32) {
        let home = self.home(key, segment_bits);
        prefetch(&self.slots[home]);
        // At the load that a segment has, every other walk goes on in the next line of the cache.
        prefetch(&self.slots[(home + SLOTS_PER_LINE).min(self.slots.len() - 1)]);
    }

    #[cfg(test)]
    pub fn walks(&self, segment_bits: u32) -> impl Iterator<Item = usize> {
        let occupied = self.slots.iter().enumerate().filter(|(_, slot)| slot.low() != 0);
        occupied.map(move |(index, slot)| {
            let home = self.home(slot.key(), segment_bits);
            (index + self.slots.len() - home) % self.slots.len()
        })
    }

    /// Keys in ascending order have homes in ascending order.
    #[inline]
    fn home(&self, key: CellKey, segment_bits: u32) -> usize {
        let within = (key.as_u128() >> 64) as u64;
        ((u128::from(within << segment_bits) * self.slots.len() as u128) >> 64) as usize
    }
}
