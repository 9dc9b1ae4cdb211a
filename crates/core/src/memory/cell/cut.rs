//! A cut: every change up to one position, picked up while the writer goes on changing cells.
//!
//! Each slot remembers the *era* in which it last changed. A cut ends the era; from then on the writer, before it changes
//! a cell of the ended era that was not collected yet, sets the old row aside. Segments are collected one by one between
//! commits, so no commit waits for more than one segment. Three era numbers suffice: the current one, the one in the cut,
//! and the one before, whose last traces are wiped while the cut passes by.

use super::CellRow;
use super::segment::{CellSlot, flag};
use crate::id::CellKey;

/// A cell as of the cut; `None` if there is no such counter any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    pub key: CellKey,
    pub row: Option<CellRow>,
}

/// The changes of one segment, in ascending order of their keys. Segments come in ascending order, too.
pub type Collected = Vec<RowChange>;

/// Which cells differ from the store, and how far the running cut has come.
pub(super) struct Changes {
    /// 1, 2 or 3.
    era: u64,
    /// Cells that changed in this era.
    dirty: u64,
    /// The era that is on its way to the store, until it is durable there.
    in_flight: Option<u64>,
    collecting: Option<Collecting>,
}

struct Collecting {
    next_segment: usize,
    set_aside: Vec<Vec<RowChange>>,
    set_aside_count: usize,
}

impl Changes {
    pub fn new() -> Changes {
        Changes { era: 1, dirty: 0, in_flight: None, collecting: None }
    }

    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    pub fn in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    pub fn is_collecting(&self) -> bool {
        self.collecting.is_some()
    }

    pub fn set_aside_count(&self) -> usize {
        self.collecting.as_ref().map_or(0, |collecting| collecting.set_aside_count)
    }

    /// The flags of a cell that changed now.
    pub fn flags(&self) -> u64 {
        self.era << flag::ERA_SHIFT | flag::REFERENCED
    }

    pub fn count_new(&mut self) {
        self.dirty += 1;
    }

    /// Whether a slot with these flags needs [`Self::touch`] before it is changed.
    #[inline]
    pub fn is_touched(&self, low: u64) -> bool {
        low & (flag::ERA | flag::REFERENCED) == self.flags()
    }

    /// To be called before a cell changes: sets its row aside if the cut still needs it. Answers the slot's new `low`.
    pub fn touch(&mut self, segment: usize, low: u64, old_row: impl FnOnce() -> RowChange) -> u64 {
        let era = (low & flag::ERA) >> flag::ERA_SHIFT;
        if era != self.era {
            self.dirty += 1;
            if let Some(collecting) = &mut self.collecting
                && self.in_flight == Some(era)
                && segment >= collecting.next_segment
            {
                collecting.set_aside[segment].push(old_row());
                collecting.set_aside_count += 1;
            }
        }
        low & !flag::ERA | self.flags()
    }

    /// Whether the store has this cell as it is, so that memory may forget it.
    pub fn is_clean(&self, low: u64) -> bool {
        let era = (low & flag::ERA) >> flag::ERA_SHIFT;
        era == 0 || era != self.era && self.in_flight != Some(era)
    }

    pub fn begin(&mut self, segments: usize) {
        assert!(self.in_flight.is_none(), "one cut at a time");
        self.in_flight = Some(self.era);
        self.era = self.era % 3 + 1;
        self.dirty = 0;
        self.collecting =
            Some(Collecting { next_segment: 0, set_aside: vec![Vec::new(); segments], set_aside_count: 0 });
    }

    /// Starts the next segment: its number and the rows that were set aside for it. `None` when all are collected.
    pub fn next_segment(&mut self) -> Option<(usize, Vec<RowChange>)> {
        let collecting = self.collecting.as_mut()?;
        let segment = collecting.next_segment;
        let Some(rows) = collecting.set_aside.get_mut(segment).map(std::mem::take) else {
            self.collecting = None;
            return None;
        };
        collecting.next_segment += 1;
        collecting.set_aside_count -= rows.len();
        Some((segment, rows))
    }

    /// Whether a slot belongs into the cut as it stands; wipes the traces of older eras.
    pub fn collects(&self, slot: &CellSlot) -> bool {
        let low = slot.low();
        let era = (low & flag::ERA) >> flag::ERA_SHIFT;
        if self.in_flight == Some(era) {
            return true;
        }
        if era != 0 && era != self.era {
            slot.set_low(low & !flag::ERA);
        }
        false
    }

    /// The cut is durable: its cells are clean.
    pub fn finish(&mut self) {
        assert!(self.collecting.is_none(), "a cut is finished after its last segment");
        self.in_flight = None;
    }

    /// The cut came to nothing. Answers which cells to mark as changed again, as a function of a slot's `low`.
    pub fn abort(&mut self) -> impl Fn(u64) -> Option<u64> + use<> {
        self.collecting = None;
        let (lost, era) = (self.in_flight.take(), self.era);
        move |low| {
            (lost == Some((low & flag::ERA) >> flag::ERA_SHIFT)).then_some(low & !flag::ERA | era << flag::ERA_SHIFT)
        }
    }

    pub fn forget_all(&mut self) {
        self.dirty = 0;
        if self.collecting.take().is_some() {
            self.in_flight = None;
        }
    }

    pub fn recount(&mut self, dirty: u64) {
        self.dirty = dirty;
    }
}
