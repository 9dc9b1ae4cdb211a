//! The life of a cut of the cells.

use super::Table;
use crate::limits::COLLECT_SLOTS;
use crate::memory::cell::cut::Collected;
use crate::memory::cell::read::SEGMENTS;

/// What it costs to look at a segment, however small, in slots.
pub(super) const SEGMENT_SLOTS: usize = 256;

impl Table {
    /// Ends the era: what changed until now is what [`Self::collect`] will hand out.
    pub fn begin_cut(&mut self) {
        assert!(!self.has_unsettled(), "a cut has every cell as it is");
        self.changes.begin(SEGMENTS);
    }

    /// The changes of the next segments, of one or of as many as have [`COLLECT_SLOTS`]; `None` once all segments are through.
    pub fn collect(&mut self) -> Option<Collected> {
        let (mut segment, mut rows) = self.changes.next_segment()?;
        let mut looked_at = 0;
        loop {
            for slot in self.segments[segment].occupied() {
                if self.changes.collects(slot) {
                    rows.push(self.row_change(slot.key(), slot));
                }
            }
            looked_at += self.segments[segment].slots() + SEGMENT_SLOTS;
            if looked_at >= COLLECT_SLOTS {
                return Some(rows);
            }
            let Some((next, set_aside)) = self.changes.next_segment() else { return Some(rows) };
            segment = next;
            rows.append(set_aside);
        }
    }

    /// How many segments the running cut is through with.
    pub fn collected(&self) -> usize {
        self.changes.collected()
    }

    /// The store has the cut.
    pub fn finish_cut(&mut self) {
        self.changes.finish();
    }

    /// The store does not have the cut: what was in it counts as changed again.
    pub fn abort_cut(&mut self) {
        let again = self.changes.abort();
        for segment in &self.segments {
            for slot in segment.occupied() {
                if let Some(low) = again(slot.low()) {
                    slot.set_low(low);
                }
            }
        }
        let dirty = self.segments.iter().flat_map(|segment| segment.occupied());
        let dirty = dirty.filter(|slot| !self.changes.is_clean(slot.low())).count();
        self.changes.recount(dirty as u64);
    }

    pub fn is_cutting(&self) -> bool {
        self.changes.in_flight()
    }

    pub fn is_collecting(&self) -> bool {
        self.changes.is_collecting()
    }
}
