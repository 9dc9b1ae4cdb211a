//! The writer's side of the cells.

mod cuts;
mod residence;

use super::change::{ValueChange, ValueChanges};
use super::cut::{Changes, RowChange};
use super::expiry::Expiries;
use super::mark::Marks;
use super::read::{Cells, SEGMENT_BITS, SEGMENTS, segment_of};
use super::segment::{CellPlace, CellSlot, Segment, flag};
use super::unsettled::Unsettled;
use super::{CellRow, Mark, RowExpiry};
use crate::database::Space;
use crate::id::CellKey;
use crate::limits::UNSETTLED_CELLS_MAX;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use residence::Settled;

/// What one expiring counter costs beside its slot: two map entries and its id.
const EXPIRY_BYTES: usize = 256;

/// What became of an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Value(i64),
    Created(i64),
    Overflow,
    /// Nothing: only the store knows the cell. [`Table::count_blindly`] counts all the same.
    Unknown,
}

pub struct Table {
    cells: Arc<Cells>,
    segments: Vec<Arc<Segment>>,
    /// Occupied slots per segment.
    used: Vec<usize>,
    bytes: usize,
    expiries: Expiries,
    marks: Marks,
    changes: Changes,
    unsettled: Unsettled,
    /// How many want nothing new to be counted blindly.
    blind_held: usize,
    next_to_thin: usize,
    /// What happened since somebody looked; `None` while nobody follows.
    followed: Option<Box<ValueChanges>>,
    /// Cells that end before this do not leave.
    ends_kept_before_ms: u64,
    /// Nor do these.
    kept: BTreeSet<CellKey>,
}

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}

impl Table {
    pub fn new() -> Table {
        let cells = Arc::new(Cells::new());
        let segments: Vec<_> = cells.segments.iter().map(|segment| segment.load_full()).collect();
        Table {
            bytes: segments.iter().map(|segment| segment.bytes()).sum(),
            used: vec![0; SEGMENTS],
            segments,
            cells,
            expiries: Expiries::default(),
            marks: Marks::default(),
            changes: Changes::new(),
            unsettled: Unsettled::default(),
            blind_held: 0,
            next_to_thin: 0,
            followed: None,
            ends_kept_before_ms: 0,
            kept: BTreeSet::new(),
        }
    }

    /// Notes every change of a value from now on, or no more.
    pub fn follow(&mut self, follow: bool) {
        assert!(!follow || self.unsettled.len() == 0, "a follower is told the value behind each change");
        match follow {
            true => drop(self.followed.get_or_insert_default()),
            false => self.followed = None,
        }
    }

    pub fn is_followed(&self) -> bool {
        self.followed.is_some()
    }

    /// What has happened to values since this was asked last; `None` if nobody follows.
    pub fn take_changes(&mut self) -> Option<ValueChanges> {
        self.followed.as_deref_mut().map(std::mem::take)
    }

    /// Memory for changes to come, which are as many as those that were in it.
    pub fn reuse(&mut self, mut spare: ValueChanges) {
        if let Some(followed) = self.followed.as_deref_mut().filter(|followed| followed.is_empty()) {
            spare.clear();
            *followed = spare;
        }
    }

    /// Says which counter a cell is, where the records of the batch do not.
    pub fn name_followed(&mut self, cell: CellKey, id: &[u8]) {
        if let Some(followed) = &mut self.followed {
            followed.named.push((cell, id.into()));
        }
    }

    #[inline]
    fn note(&mut self, cell: CellKey, before: Option<i64>, after: Option<i64>) {
        if let Some(followed) = &mut self.followed {
            followed.changes.push(ValueChange { cell, before, after });
        }
    }

    /// What readers on other threads see.
    pub fn cells(&self) -> &Arc<Cells> {
        &self.cells
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        let extras = self.expiries.len() * EXPIRY_BYTES + self.marks.bytes() + self.unsettled.bytes();
        self.bytes + extras + self.changes.set_aside_bytes()
    }

    /// Cells that changed since the last cut.
    pub fn dirty(&self) -> u64 {
        self.changes.dirty()
    }

    #[inline]
    pub fn prefetch(&self, key: CellKey) {
        self.segments[segment_of(key)].prefetch(key, SEGMENT_BITS);
    }

    /// Whether memory can answer for this key, be it that there is no such counter.
    pub fn knows(&self, key: CellKey) -> bool {
        matches!(self.place(key), CellPlace::Found(_)) || self.is_absent(key)
    }

    /// Whether it is certain that there is no counter of a key that is in no segment.
    fn is_absent(&self, key: CellKey) -> bool {
        self.cells.cold() == 0 || self.unsettled.is_absent(key)
    }

    pub fn get(&self, key: CellKey) -> Option<i64> {
        let slot = self.live_slot(key)?;
        slot.mark_referenced(slot.low());
        Some(slot.value())
    }

    /// When a counter expires; `None` if it never does or is not there.
    pub fn deadline(&self, key: CellKey) -> Option<u64> {
        let slot = self.live_slot(key)?;
        if slot.low() & flag::EXPIRES == 0 { None } else { Expiries::deadline(&self.cells, key) }
    }

    /// Adds, unless the sum does not fit into 64 bits.
    #[inline]
    pub fn add(&mut self, key: CellKey, delta: i64) -> Added {
        self.add_by(key, delta, i64::checked_add)
    }

    /// Adds what has counted. That is bounded elsewhere; a sum that is beyond 64 bits all the same stays at their end.
    #[inline]
    pub fn count(&mut self, key: CellKey, delta: i64) -> Added {
        self.add_by(key, delta, |value, delta| Some(value.saturating_add(delta)))
    }

    #[inline]
    fn add_by(&mut self, key: CellKey, delta: i64, sum: impl FnOnce(i64, i64) -> Option<i64>) -> Added {
        let segment = segment_of(key);
        let index = match self.segments[segment].place(key, SEGMENT_BITS) {
            CellPlace::Found(index) => index,
            CellPlace::Free(_) if !self.is_absent(key) => return Added::Unknown,
            CellPlace::Free(index) => {
                self.create(segment, index, key, delta);
                return Added::Created(delta);
            }
        };
        let slot = self.segments[segment].slot(index);
        let low = slot.low();
        if low & flag::ABSENT != 0 {
            self.revive(key, segment, index, delta);
            return Added::Created(delta);
        }
        let value = slot.value();
        let Some(sum) = sum(value, delta) else {
            return Added::Overflow;
        };
        if self.changes.is_touched(low) {
            slot.set_value(sum);
        } else {
            self.touch(key, segment, index);
            self.segments[segment].slot(index).set_value(sum);
        }
        self.note(key, Some(value), Some(sum));
        Added::Value(sum)
    }

    /// Counts for a cell that only the store knows; its row is to be looked up soon.
    pub fn count_blindly(&mut self, key: CellKey, delta: i64, id: impl FnOnce() -> Box<[u8]>) {
        assert!(self.followed.is_none(), "a follower is told the value behind each change");
        self.unsettled.count(&self.cells, key, delta, id);
    }

    /// Whether entries may be counted for cells that only the store knows.
    pub fn counts_blindly(&self) -> bool {
        self.blind_held == 0 && self.followed.is_none() && self.unsettled.len() < UNSETTLED_CELLS_MAX
    }

    /// Lets nothing new be counted blindly, so that an end comes in sight; or lets it again.
    pub fn hold_blind(&mut self, hold: bool) {
        if hold {
            self.blind_held += 1;
        } else {
            self.blind_held -= 1;
        }
    }

    /// Cells whose row is to be looked up.
    pub fn unsettled(&self) -> impl Iterator<Item = CellKey> {
        self.unsettled.keys()
    }

    pub fn unsettled_ids(&self) -> impl Iterator<Item = (CellKey, &[u8])> {
        self.unsettled.ids()
    }

    pub fn has_unsettled(&self) -> bool {
        self.unsettled.len() > 0
    }

    /// The most that was counted for a cell whose row is to be looked up; `None` if there is none.
    pub fn most_unsettled(&self) -> Option<i64> {
        if self.has_unsettled() { self.cells.unsettled.pin().values().copied().max() } else { None }
    }

    /// Sets a value and answers the one before. The expiry stays as it is.
    pub fn set(&mut self, key: CellKey, value: i64) -> Option<i64> {
        let segment = segment_of(key);
        match self.place(key) {
            CellPlace::Free(index) => {
                assert!(self.is_absent(key), "everything that is changed is known");
                self.create(segment, index, key, value);
            }
            CellPlace::Found(index) if self.segments[segment].slot(index).low() & flag::ABSENT != 0 => {
                self.revive(key, segment, index, value);
            }
            CellPlace::Found(index) => {
                self.touch(key, segment, index);
                let slot = self.segments[segment].slot(index);
                let previous = slot.value();
                slot.set_value(value);
                self.note(key, Some(previous), Some(value));
                return Some(previous);
            }
        }
        None
    }

    /// Deletes a counter and answers its value.
    pub fn delete(&mut self, key: CellKey) -> Option<i64> {
        let previous = self.live_slot(key)?.value();
        let (segment, index) = self.found(key)?;
        let low = self.touch(key, segment, index);
        self.segments[segment].slot(index).set_low(low & !flag::EXPIRES | flag::ABSENT);
        self.note(key, Some(previous), None);
        if low & flag::EXPIRES != 0 {
            if let Some(followed) = &mut self.followed {
                // It may be time that deletes it, and time names nobody.
                followed.named.extend(self.expiries.row(&self.cells, key).map(|expiry| (key, expiry.id)));
            }
            // Behind the flags: a reader that misses the deadline looks at them again.
            self.expiries.clear(&self.cells, key);
        }
        self.marks.clear(&self.cells, key);
        self.cells.live.fetch_sub(1, Ordering::Release);
        Some(previous)
    }

    /// What corrections have done to a counter.
    pub fn mark(&self, key: CellKey) -> Mark {
        self.marks.get(&self.cells, key)
    }

    /// Notes what a correction has done to a counter, which must be there.
    pub fn set_mark(&mut self, key: CellKey, mark: Mark) {
        let (segment, index) = self.found(key).expect("the caller has just changed the counter");
        self.touch(key, segment, index);
        self.marks.set(&self.cells, key, mark);
    }

    /// Notes that late entries wait for a counter, or that they no longer do.
    pub fn add_pending(&mut self, key: CellKey, entries: i64) {
        let pending = self.cells.pending.pin();
        match pending.get(&key).copied().unwrap_or(0).saturating_add_signed(entries) {
            0 => pending.remove(&key),
            left => pending.insert(key, left),
        };
    }

    /// Gives a counter a deadline, or takes it away. The counter must be there.
    pub fn set_expiry(&mut self, key: CellKey, expiry: Option<RowExpiry>) {
        let (segment, index) = self.found(key).expect("the caller has just seen the counter");
        let low = self.touch(key, segment, index);
        let slot = self.segments[segment].slot(index);
        match expiry {
            Some(expiry) => {
                self.expiries.set(&self.cells, key, expiry);
                slot.set_low(low | flag::EXPIRES);
            }
            None => {
                slot.set_low(low & !flag::EXPIRES);
                self.expiries.clear(&self.cells, key);
            }
        }
    }

    /// How many counters of a space expire, as far as memory knows.
    pub fn expiring(&self, space: Space) -> u64 {
        self.expiries.within(space)
    }

    /// All cells that end before this are in memory, and stay there.
    pub fn ends_kept_before_ms(&self) -> u64 {
        self.ends_kept_before_ms
    }

    /// Those that end before a moment have been loaded.
    pub fn keep_ends_before(&mut self, moment_ms: u64) {
        self.ends_kept_before_ms = moment_ms;
    }

    fn ends_soon(&self, key: CellKey) -> bool {
        Expiries::deadline(&self.cells, key).is_some_and(|at_ms| at_ms < self.ends_kept_before_ms)
    }

    /// The next counter to expire.
    pub fn first_deadline(&self) -> Option<(u64, CellKey, &[u8])> {
        self.expiries.first()
    }

    /// Forgets every counter, in memory and in the store.
    pub fn clear(&mut self) {
        if let Some(followed) = &mut self.followed {
            followed.flush();
        }
        self.changes.forget_all();
        self.kept.clear();
        self.unsettled.clear(&self.cells);
        self.cells.cold.store(0, Ordering::Release);
        for segment in 0..SEGMENTS {
            self.used[segment] = 0;
            self.swap(segment, Arc::new(Segment::with_capacity(0)));
        }
        self.expiries.clear_all(&self.cells);
        self.marks.clear_all(&self.cells);
        self.cells.pending.pin().clear();
        self.cells.live.store(0, Ordering::Release);
    }

    /// How many slots lie between each key and its home.
    #[cfg(test)]
    pub(super) fn walks(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().flat_map(|segment| segment.walks(SEGMENT_BITS))
    }

    fn place(&self, key: CellKey) -> CellPlace {
        self.segments[segment_of(key)].place(key, SEGMENT_BITS)
    }

    fn found(&self, key: CellKey) -> Option<(usize, usize)> {
        match self.place(key) {
            CellPlace::Found(index) => Some((segment_of(key), index)),
            CellPlace::Free(_) => None,
        }
    }

    /// The slot of a cell that is known, if there is such a counter.
    fn live_slot(&self, key: CellKey) -> Option<&CellSlot> {
        let Some((segment, index)) = self.found(key) else {
            assert!(self.is_absent(key), "everything that is asked for is known");
            return None;
        };
        let slot = self.segments[segment].slot(index);
        (slot.low() & flag::ABSENT == 0).then_some(slot)
    }

    #[cold]
    fn touch(&mut self, key: CellKey, segment: usize, index: usize) -> u64 {
        let slot = self.segments[segment].slot(index);
        let (expiries, marks, cells) = (&self.expiries, &self.marks, &self.cells);
        let low = self.changes.touch(segment, slot.low(), || row_change(expiries, marks, cells, key, slot));
        slot.set_low(low);
        low
    }

    fn row_change(&self, key: CellKey, slot: &CellSlot) -> RowChange {
        row_change(&self.expiries, &self.marks, &self.cells, key, slot)
    }

    fn create(&mut self, segment: usize, index: usize, key: CellKey, value: i64) {
        self.changes.count_new();
        self.note(key, None, Some(value));
        self.insert(segment, index, key, value, self.changes.flags());
    }

    fn revive(&mut self, key: CellKey, segment: usize, index: usize, value: i64) {
        let low = self.touch(key, segment, index);
        let slot = self.segments[segment].slot(index);
        slot.set_value(value);
        slot.set_low(low & !flag::ABSENT);
        self.note(key, None, Some(value));
        self.cells.live.fetch_add(1, Ordering::Release);
    }

    fn insert(&mut self, segment: usize, mut index: usize, key: CellKey, value: i64, flags: u64) {
        if self.segments[segment].is_full(self.used[segment] + 1) {
            self.grow(segment);
            let CellPlace::Free(free) = self.place(key) else {
                unreachable!("the key was not there a moment ago");
            };
            index = free;
        }
        self.segments[segment].fill(index, key, value, flags);
        self.used[segment] += 1;
        self.cells.live.fetch_add(1, Ordering::Release);
    }

    fn grow(&mut self, segment: usize) {
        let old = self.segments[segment].clone();
        let grown = old.larger();
        let mut used = 0;
        for slot in old.occupied() {
            let low = slot.low();
            if low & flag::ABSENT != 0 && self.changes.is_clean(low) {
                // Something staged may rely on it.
                self.unsettled.note_absent(slot.key());
                continue;
            }
            grown.adopt(slot, low, SEGMENT_BITS);
            used += 1;
        }
        self.used[segment] = used;
        self.swap(segment, Arc::new(grown));
    }

    fn swap(&mut self, segment: usize, new: Arc<Segment>) {
        self.bytes = self.bytes - self.segments[segment].bytes() + new.bytes();
        self.cells.segments[segment].store(new.clone());
        self.segments[segment] = new;
    }
}

fn row_change(expiries: &Expiries, marks: &Marks, cells: &Cells, key: CellKey, slot: &CellSlot) -> RowChange {
    let low = slot.low();
    if low & flag::ABSENT != 0 {
        return RowChange { key, row: None };
    }
    let expiry = if low & flag::EXPIRES != 0 { expiries.row(cells, key) } else { None };
    RowChange { key, row: Some(CellRow { value: slot.value(), mark: marks.get(cells, key), expiry }) }
}
