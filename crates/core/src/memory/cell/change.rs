//! What happens to values, for those who follow: every change of a cell, in order. While nobody follows nothing is noted.
//!
//! It is noted where values change, in [`super::Table`], so that no way to change one can be forgotten.

use crate::id::CellKey;

/// A cell had one value and has another; `None` where there is no counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueChange {
    pub cell: CellKey,
    pub before: Option<i64>,
    pub after: Option<i64>,
}

/// The changes of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueChanges {
    /// Before these changes every counter was forgotten.
    pub flushed: bool,
    pub changes: Vec<ValueChange>,
    /// Ids of cells that no record of the batch names.
    pub named: Vec<(CellKey, Box<[u8]>)>,
}

impl ValueChanges {
    pub fn is_empty(&self) -> bool {
        !self.flushed && self.changes.is_empty()
    }

    /// Forgets all of it, and keeps the memory.
    pub(super) fn clear(&mut self) {
        let ValueChanges { flushed, changes, named } = self;
        *flushed = false;
        changes.clear();
        named.clear();
    }

    /// What came before is of no interest any more.
    pub(super) fn flush(&mut self) {
        self.clear();
        self.flushed = true;
    }
}
