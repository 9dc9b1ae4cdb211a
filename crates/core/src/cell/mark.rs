//! The other rare extra: counters that a correction has touched.

use super::Mark;
use super::read::Cells;
use crate::id::CellKey;

/// The writer's side; readers see the marks in [`Cells`].
#[derive(Default)]
pub(super) struct Marks {
    len: usize,
}

impl Marks {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, cells: &Cells, key: CellKey) -> Mark {
        if self.len == 0 { Mark::default() } else { cells.mark(key) }
    }

    pub fn set(&mut self, cells: &Cells, key: CellKey, mark: Mark) {
        if mark != Mark::default() && cells.marks.pin().insert(key, mark).is_none() {
            self.len += 1;
        }
    }

    pub fn clear(&mut self, cells: &Cells, key: CellKey) {
        if self.len > 0 && cells.marks.pin().remove(&key).is_some() {
            self.len -= 1;
        }
    }

    pub fn clear_all(&mut self, cells: &Cells) {
        cells.marks.pin().clear();
        self.len = 0;
    }
}
