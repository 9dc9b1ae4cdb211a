//! The rare extra: counters that expire, by key for those who ask and by time for whoever lets them go.

use super::RowExpiry;
use super::read::Cells;
use crate::id::CellKey;
use std::collections::BTreeMap;

/// The writer's side; readers see the deadlines in [`Cells`].
#[derive(Default)]
pub(super) struct Expiries {
    by_time: BTreeMap<(u64, CellKey), Box<[u8]>>,
}

impl Expiries {
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    pub fn deadline(cells: &Cells, key: CellKey) -> Option<u64> {
        cells.deadlines.pin().get(&key).copied()
    }

    pub fn row(&self, cells: &Cells, key: CellKey) -> Option<RowExpiry> {
        let at_ms = Self::deadline(cells, key)?;
        let id = self.by_time.get(&(at_ms, key)).expect("both sides know the same deadlines").clone();
        Some(RowExpiry { at_ms, id })
    }

    pub fn set(&mut self, cells: &Cells, key: CellKey, expiry: RowExpiry) {
        self.clear(cells, key);
        cells.deadlines.pin().insert(key, expiry.at_ms);
        self.by_time.insert((expiry.at_ms, key), expiry.id);
    }

    pub fn clear(&mut self, cells: &Cells, key: CellKey) {
        if let Some(at_ms) = cells.deadlines.pin().remove(&key).copied() {
            self.by_time.remove(&(at_ms, key));
        }
    }

    pub fn clear_all(&mut self, cells: &Cells) {
        cells.deadlines.pin().clear();
        self.by_time.clear();
    }

    /// The earliest deadline and whose it is.
    pub fn first(&self) -> Option<(u64, CellKey, &[u8])> {
        self.by_time.first_key_value().map(|(&(at_ms, key), id)| (at_ms, key, &**id))
    }
}
