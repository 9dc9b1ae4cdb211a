//! The rare extra: counters that expire, by key for those who ask and by time for whoever lets them go.

use super::RowExpiry;
use super::read::Cells;
use crate::database::Space;
use crate::id::CellKey;
use std::collections::BTreeMap;

/// The writer's side; readers see the deadlines in [`Cells`].
#[derive(Default)]
pub(super) struct Expiries {
    by_time: BTreeMap<(u64, CellKey), Box<[u8]>>,
    by_space: BTreeMap<Space, u64>,
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
        *self.by_space.entry(Space::split(&expiry.id).0).or_default() += 1;
        self.by_time.insert((expiry.at_ms, key), expiry.id);
    }

    pub fn clear(&mut self, cells: &Cells, key: CellKey) {
        if let Some(at_ms) = cells.deadlines.pin().remove(&key).copied() {
            let id = self.by_time.remove(&(at_ms, key)).expect("both sides know the same deadlines");
            self.leave(Space::split(&id).0);
        }
    }

    fn leave(&mut self, space: Space) {
        let counters = self.by_space.get_mut(&space).expect("a space has the counters that are in it");
        *counters -= 1;
        if *counters == 0 {
            self.by_space.remove(&space);
        }
    }

    /// How many there are in a space.
    pub fn within(&self, space: Space) -> u64 {
        self.by_space.get(&space).copied().unwrap_or(0)
    }

    pub fn clear_all(&mut self, cells: &Cells) {
        cells.deadlines.pin().clear();
        self.by_time.clear();
        self.by_space.clear();
    }

    /// The earliest deadline and whose it is.
    pub fn first(&self) -> Option<(u64, CellKey, &[u8])> {
        self.by_time.first_key_value().map(|(&(at_ms, key), id)| (at_ms, key, &**id))
    }
}
