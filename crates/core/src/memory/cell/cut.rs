//! A cut: every change up to one position, picked up while the writer goes on changing cells.
//!
//! Each slot remembers the *era* in which it last changed. A cut ends the era; from then on the writer, before it changes
//! a cell of the ended era that was not collected yet, sets the old row aside. Segments are collected a few at a time between
//! commits, so no commit waits for long; whoever writes the rows puts them in order. Three era numbers suffice: the current one, the one in the cut,
//! and the one before, whose last traces are wiped while the cut passes by.

use super::segment::{CellSlot, flag};
use super::{CellRow, Mark};
use crate::id::CellKey;

/// A cell as of the cut; `None` if there is no such counter any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    pub key: CellKey,
    pub row: Option<CellRow>,
}

/// The changes of some segments, as they were found. All of one have lower keys than all of the next.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    plain: Vec<PlainRow>,
    /// What is more than a value, or gone.
    rare: Vec<RowChange>,
}

/// A counter that was never corrected and never expires, as most are: no more than its slot.
#[derive(Clone, Copy, Debug)]
struct PlainRow {
    high: u64,
    low: u64,
    value: i64,
}

impl PlainRow {
    fn new(key: CellKey, value: i64) -> PlainRow {
        let key = key.as_u128();
        PlainRow { high: (key >> 64) as u64, low: key as u64, value }
    }

    fn key(&self) -> CellKey {
        CellKey::from_u128(u128::from(self.high) << 64 | u128::from(self.low))
    }
}

impl From<PlainRow> for RowChange {
    fn from(plain: PlainRow) -> RowChange {
        RowChange { key: plain.key(), row: Some(CellRow::plain(plain.value)) }
    }
}

impl Collected {
    pub fn push(&mut self, change: RowChange) {
        match change.row {
            Some(CellRow { value, mark, expiry: None }) if mark == Mark::default() => {
                self.plain.push(PlainRow::new(change.key, value));
            }
            _ => self.rare.push(change),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.rare.is_empty()
    }

    /// Memory in use, without what rare rows hold beside themselves.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.plain) + size_of_val(&*self.rare)
    }

    /// All of them in ascending order of their keys.
    pub fn sorted(mut self) -> impl Iterator<Item = RowChange> {
        self.plain.sort_unstable_by_key(|row| (row.high, row.low));
        self.rare.sort_unstable_by_key(|change| change.key);
        let (mut plain, mut rare) = (self.plain.into_iter().peekable(), self.rare.into_iter().peekable());
        std::iter::from_fn(move || match (plain.peek(), rare.peek()) {
            (Some(row), Some(change)) if change.key < row.key() => rare.next(),
            (None, _) => rare.next(),
            _ => plain.next().map(RowChange::from),
        })
    }

    pub(super) fn append(&mut self, mut other: Collected) {
        self.plain.append(&mut other.plain);
        self.rare.append(&mut other.rare);
    }
}

impl FromIterator<RowChange> for Collected {
    fn from_iter<I: IntoIterator<Item = RowChange>>(changes: I) -> Collected {
        let mut collected = Collected::default();
        changes.into_iter().for_each(|change| collected.push(change));
        collected
    }
}

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
    /// By segment.
    set_aside: Vec<Collected>,
    set_aside_bytes: usize,
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

    pub fn set_aside_bytes(&self) -> usize {
        self.collecting.as_ref().map_or(0, |collecting| collecting.set_aside_bytes)
    }

    /// How many segments are collected.
    pub fn collected(&self) -> usize {
        self.collecting.as_ref().map_or(0, |collecting| collecting.next_segment)
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
                let rows = &mut collecting.set_aside[segment];
                collecting.set_aside_bytes -= rows.bytes();
                rows.push(old_row());
                collecting.set_aside_bytes += rows.bytes();
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
            Some(Collecting { next_segment: 0, set_aside: vec![Collected::default(); segments], set_aside_bytes: 0 });
    }

    /// Starts the next segment: its number and the rows that were set aside for it. `None` when all are collected.
    pub fn next_segment(&mut self) -> Option<(usize, Collected)> {
        let collecting = self.collecting.as_mut()?;
        let segment = collecting.next_segment;
        let Some(rows) = collecting.set_aside.get_mut(segment).map(std::mem::take) else {
            self.collecting = None;
            return None;
        };
        collecting.next_segment += 1;
        collecting.set_aside_bytes -= rows.bytes();
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
