//! Which cells are in memory: what was looked up comes, and what nobody uses leaves.

use super::Table;
use super::cuts::SEGMENT_SLOTS;
use crate::id::CellKey;
use crate::memory::cell::CellRow;
use crate::memory::cell::read::{SEGMENT_BITS, SEGMENTS, segment_of, segment_parts};
use crate::memory::cell::segment::{CellPlace, CellSlot, Segment, flag};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A cell whose row has come, for which something was counted blindly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    pub id: Box<[u8]>,
    /// All of it together.
    pub value: i64,
    /// There was no row: the counter is new.
    pub is_new: bool,
}

impl Table {
    /// Takes in what the store has, be it nothing, unless memory knows better: it has the cell, or nothing is cold, since a flush
    /// for one. What was counted blindly is settled; answers what came of that.
    pub fn load(&mut self, key: CellKey, row: Option<CellRow>) -> Option<Settled> {
        let CellPlace::Free(index) = self.place(key) else {
            return None;
        };
        let counted = self.unsettled.take(&self.cells, key);
        let sum = counted.as_ref().map(|(sum, _)| *sum);
        let (value, is_new) = match row {
            Some(row) if self.cells.cold() > 0 => (self.load_row(index, key, row, sum), false),
            _ if sum.is_some() => {
                let value = sum.unwrap_or(0);
                self.create(segment_of(key), index, key, value);
                (value, true)
            }
            _ => {
                self.unsettled.note_absent(key);
                return None;
            }
        };
        let (_, id) = counted?;
        // Behind the cell: a reader that finds neither looks again.
        self.unsettled.settled(&self.cells, key);
        Some(Settled { id, value, is_new })
    }

    /// Answers what the counter is worth.
    fn load_row(&mut self, index: usize, key: CellKey, row: CellRow, counted: Option<i64>) -> i64 {
        let mut flags = if row.expiry.is_some() { flag::EXPIRES } else { 0 };
        if let Some(expiry) = row.expiry {
            self.expiries.set(&self.cells, key, expiry);
        }
        self.marks.set(&self.cells, key, row.mark);
        flags |= match counted {
            Some(_) => {
                self.changes.count_new();
                self.changes.flags()
            }
            None => flag::REFERENCED,
        };
        // At once, so that no reader sees less than before.
        let value = row.value.saturating_add(counted.unwrap_or(0));
        self.insert(segment_of(key), index, key, value, flags);
        self.cells.cold.fetch_sub(1, Ordering::Release);
        value
    }

    /// From now on a cell that is in memory stays there.
    pub fn keep(&mut self, key: CellKey) {
        self.kept.insert(key);
    }

    /// It may leave again.
    pub fn let_go(&mut self, key: CellKey) {
        self.kept.remove(&key);
    }

    /// Those of a segment that stay are in use.
    fn use_kept(&self, segment: usize) {
        let keys = segment_parts(segment, 1).next().expect("a segment is one part of itself");
        for key in self.kept.range(keys) {
            if let Some((_, index)) = self.found(*key) {
                let slot = self.segments[segment].slot(index);
                slot.mark_referenced(slot.low());
            }
        }
    }

    /// Nothing is staged: of what was looked up it may be forgotten that there is nothing.
    pub fn forget_absent(&mut self) {
        self.unsettled.forget_absent();
    }

    /// Tells how many live counters only the store knows.
    pub fn set_cold(&mut self, cold: u64) {
        self.cells.cold.store(cold, Ordering::Release);
    }

    /// Makes room for so many cells at once, before many are loaded, or for as many as so many bytes hold. Answers how many each
    /// segment should get: if all fit, however many it has.
    pub fn reserve(&mut self, cells: usize, bytes: usize) -> usize {
        // Segments differ by a little; the smaller ones by more.
        let wanted = cells / SEGMENTS + cells / SEGMENTS / 32;
        let share = Segment::cells_within(bytes / SEGMENTS, wanted);
        for segment in 0..SEGMENTS {
            if self.used[segment] == 0 {
                self.swap(segment, Arc::new(Segment::for_cells(share)));
            }
        }
        if share == wanted { usize::MAX } else { share }
    }

    /// Thins out the next segments that have cells, of one or of as many as have so many slots, until all of them fit into so
    /// many bytes. Answers how many segments it has been through.
    pub fn thin_out(&mut self, slots: usize, bytes_max: usize) -> usize {
        let (mut looked_at, mut segments) = (0, 0);
        while looked_at < slots && segments < SEGMENTS && self.bytes() > bytes_max {
            let segment = self.next_to_thin;
            self.next_to_thin = (segment + 1) % SEGMENTS;
            segments += 1;
            if self.used[segment] > 0 {
                looked_at += self.segments[segment].slots() + SEGMENT_SLOTS;
                self.thin_out_segment(segment);
            }
        }
        segments
    }

    /// Clean cells that were not used lately leave.
    fn thin_out_segment(&mut self, segment: usize) {
        self.use_kept(segment);
        let old = self.segments[segment].clone();
        let may_leave = |slot: &CellSlot, low: u64| {
            self.changes.is_clean(low)
                && low & (flag::ABSENT | flag::REFERENCED) == 0
                && (low & flag::EXPIRES == 0 || !self.ends_soon(slot.key()))
        };
        let candidates = old.occupied().filter(|slot| may_leave(slot, slot.low())).count();
        let quota = self.used[segment].div_ceil(8).min(candidates);
        let mut share = 0;
        let mut leaving = Vec::with_capacity(quota);
        let mut keep: Vec<(&CellSlot, u64)> = Vec::with_capacity(self.used[segment]);
        for slot in old.occupied() {
            let low = slot.low();
            if may_leave(slot, low) {
                // Every so-many-th, since homes follow the keys: where all left, the rest would crowd together.
                share += quota;
                if share >= candidates {
                    share -= candidates;
                    leaving.push((slot.key(), low));
                    continue;
                }
            }
            let is_gone_everywhere = low & flag::ABSENT != 0 && self.changes.is_clean(low);
            if !is_gone_everywhere {
                keep.push((slot, low & !flag::REFERENCED));
            }
        }
        let thin = Segment::for_cells(keep.len());
        for (slot, low) in &keep {
            thin.adopt(slot, *low, SEGMENT_BITS);
        }
        let left = leaving.len();
        // In this order: a reader that has seen the second has seen the first.
        self.cells.cold.fetch_add(left as u64, Ordering::Release);
        self.cells.evictions.fetch_add(left as u64, Ordering::Release);
        self.used[segment] = keep.len();
        drop(keep);
        self.swap(segment, Arc::new(thin));
        self.cells.live.fetch_sub(left as u64, Ordering::Release);
        for (key, low) in leaving {
            if low & flag::EXPIRES != 0 {
                self.expiries.clear(&self.cells, key);
            }
            self.marks.clear(&self.cells, key);
        }
    }
}
