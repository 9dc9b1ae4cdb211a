//! What memory knows of cells that it does not have: that the store has none either, or what was counted for them blindly.
//!
//! An entry needs no answer, so it need not wait for the row of a cold cell: it is counted *blindly*, and the cell is
//! unsettled until its row has come. Nobody sees less for it: readers add what is here to what the store says. No cut and
//! no follower sees an unsettled cell.

use super::Cells;
use crate::id::{CellKey, KeyHash};
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use std::sync::atomic::Ordering;

/// What a map entry takes beside the id.
const ENTRY_BYTES: usize = 96;

#[derive(Default)]
pub(super) struct Unsettled {
    /// Keys that were looked up for what is staged: the store has no such row.
    absent: HashSet<CellKey, KeyHash>,
    /// Counters for which something was counted blindly. How much, readers see ([`Cells::unsettled`]).
    ids: HashMap<CellKey, Box<[u8]>, KeyHash>,
    id_bytes: usize,
}

impl Unsettled {
    pub fn is_absent(&self, key: CellKey) -> bool {
        self.absent.contains(&key)
    }

    pub fn note_absent(&mut self, key: CellKey) {
        self.absent.insert(key);
    }

    pub fn forget_absent(&mut self) {
        // Clearing costs what the set could hold, so a large one goes.
        if !self.absent.is_empty() {
            self.absent = HashSet::default();
        }
    }

    /// Counts for a cell of which only the store knows more.
    pub fn count(&mut self, cells: &Cells, key: CellKey, delta: i64, id: impl FnOnce() -> Box<[u8]>) {
        let counted = cells.unsettled.pin();
        let sum = counted.get(&key).copied().unwrap_or(0).saturating_add(delta);
        counted.insert(key, sum);
        if let Entry::Vacant(entry) = self.ids.entry(key) {
            let id = id();
            self.id_bytes += id.len();
            entry.insert(id);
            // For readers it is cold, whether there is a row or not.
            cells.cold.fetch_add(1, Ordering::Release);
        }
    }

    /// What was counted for a cell whose row has come, and its id. Readers see it here until [`Self::settled`].
    pub fn take(&mut self, cells: &Cells, key: CellKey) -> Option<(i64, Box<[u8]>)> {
        let id = self.ids.remove(&key)?;
        self.id_bytes -= id.len();
        let sum = cells.unsettled.pin().get(&key).copied().expect("an unsettled cell has a sum");
        Some((sum, id))
    }

    /// The cell is in memory now.
    pub fn settled(&self, cells: &Cells, key: CellKey) {
        cells.unsettled.pin().remove(&key);
        cells.cold.fetch_sub(1, Ordering::Release);
    }

    pub fn ids(&self) -> impl Iterator<Item = (CellKey, &[u8])> {
        self.ids.iter().map(|(key, id)| (*key, &**id))
    }

    pub fn keys(&self) -> impl Iterator<Item = CellKey> {
        self.ids.keys().copied()
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    pub fn bytes(&self) -> usize {
        self.ids.len() * ENTRY_BYTES + self.id_bytes
    }

    pub fn clear(&mut self, cells: &Cells) {
        cells.unsettled.pin().clear();
        *self = Unsettled::default();
    }
}
