//! The other rare extra: counters that a correction has touched.

use super::Mark;
use super::read::Cells;
use crate::id::CellKey;

/// The writer's side; readers see the marks in [`Cells`].
#[derive(Default)]
pub(super) struct Marks {
    len: usize,
    /// What the spans of all of them take.
    span_bytes: usize,
}

/// What a mark takes in a concurrent map, beside its spans, about.
const MARK_BYTES: usize = 96;

impl Marks {
    /// Memory in use, about.
    pub fn bytes(&self) -> usize {
        self.len * MARK_BYTES + self.span_bytes
    }

    pub fn get(&self, cells: &Cells, key: CellKey) -> Mark {
        if self.len == 0 { Mark::default() } else { cells.mark(key) }
    }

    pub fn set(&mut self, cells: &Cells, key: CellKey, mark: Mark) {
        if mark == Mark::default() {
            return;
        }
        self.span_bytes += mark.spans.bytes();
        match cells.marks.pin().insert(key, mark) {
            Some(old) => self.span_bytes -= old.spans.bytes(),
            None => self.len += 1,
        }
    }

    pub fn clear(&mut self, cells: &Cells, key: CellKey) {
        if self.len > 0
            && let Some(old) = cells.marks.pin().remove(&key)
        {
            self.len -= 1;
            self.span_bytes -= old.spans.bytes();
        }
    }

    pub fn clear_all(&mut self, cells: &Cells) {
        cells.marks.pin().clear();
        *self = Marks::default();
    }
}
