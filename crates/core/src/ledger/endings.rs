//! When counters end, in the order of time: how those that only the store has are found before their time has come.
//!
//! A row for each counter that ends, put when it is given its deadline and deleted when it has another one, or none, or is gone. So what
//! is in memory need not be all that ends: [`crate::memory::cell::Table`] keeps those that end before a moment, and whoever lets
//! time pass looks up more of them first.

use super::LedgerKey;
use super::cut::{Change, Kind, LedgerRow, Rows};
use crate::id::CellKey;
use crate::memory::pending::{Overlay, Pending};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A deadline, and whose it is.
pub type Ending = (u64, CellKey);

/// Whether a row is there.
type EndingChanges = BTreeMap<Ending, bool>;

impl Overlay for EndingChanges {
    fn overlay(&mut self, newer: EndingChanges) {
        self.extend(newer);
    }
}

/// What a change takes in memory, about: nodes of a B-tree are two thirds full.
const CHANGE_BYTES: usize = size_of::<(Ending, bool)>() * 3 / 2;

#[derive(Default)]
pub struct Endings {
    changes: Pending<EndingChanges>,
}

impl Endings {
    pub fn insert(&mut self, ending: Ending) {
        self.changes.recent.insert(ending, true);
    }

    pub fn remove(&mut self, ending: Ending) {
        self.changes.recent.insert(ending, false);
    }

    /// Those of a stretch of time that the store may not have; some may be over.
    pub fn unwritten(&self, times: &Range<u64>) -> Vec<Ending> {
        let range = (times.start, CellKey::NONE)..(times.end, CellKey::NONE);
        let changes = self.changes.newest_first().flat_map(|page| page.range(range.clone()));
        changes.filter(|(_, is_there)| **is_there).map(|(ending, _)| *ending).collect()
    }
}

impl Kind for Endings {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        self.changes.begin_cut()
    }

    fn finish_cut(&mut self) {
        self.changes.finish_cut();
    }

    fn abort_cut(&mut self) {
        self.changes.abort_cut();
    }

    fn clear(&mut self) {
        self.changes = Pending::default();
    }

    fn changed(&self) -> usize {
        self.changes.recent.len()
    }

    fn unsettled_bytes(&self) -> usize {
        self.changes.newest_first().map(BTreeMap::len).sum::<usize>() * CHANGE_BYTES
    }

    fn bytes(&self) -> usize {
        self.unsettled_bytes()
    }
}

impl Rows for EndingChanges {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        Box::new(self.iter().map(|((at_ms, cell), is_there)| {
            let change = if *is_there { Change::Put(Vec::new()) } else { Change::Delete };
            LedgerRow::new(LedgerKey::Ending(*at_ms, *cell), change)
        }))
    }
}
