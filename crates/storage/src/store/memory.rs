//! A store in memory, for tests: the contract and nothing else.

use super::{Checkpoint, Cut, Error, Snapshot, Store, VisitLedger, settle};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{PoisonError, RwLock};
use tally_core::cell::Row;
use tally_core::id::CellKey;

#[derive(Default)]
pub struct MemoryStore {
    state: RwLock<State>,
}

#[derive(Clone, Default)]
struct State {
    checkpoint: Option<Checkpoint>,
    rows: BTreeMap<CellKey, Row>,
    names: BTreeSet<Vec<u8>>,
    ledger: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl State {
    fn ledger_range(&self, from: &[u8], to: &[u8]) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.ledger.range(from.to_vec()..to.max(from).to_vec())
    }
}

impl Clone for MemoryStore {
    /// A store of its own with the same contents.
    fn clone(&self) -> MemoryStore {
        MemoryStore { state: RwLock::new(self.read().clone()) }
    }
}

impl MemoryStore {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Snapshot for MemoryStore {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        Store::checkpoint(self)
    }

    fn get(&self, key: CellKey) -> Result<Option<Row>, Error> {
        Store::get(self, key)
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        Store::names(self, prefix, after, limit)
    }
}

impl Store for MemoryStore {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        Ok(self.read().checkpoint.clone())
    }

    fn get(&self, key: CellKey) -> Result<Option<Row>, Error> {
        Ok(self.read().rows.get(&key).cloned())
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, Row) -> ControlFlow<()>) -> Result<(), Error> {
        for (key, row) in self.read().rows.range(from..) {
            if visit(*key, row.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let state = self.read();
        let from_prefix = state.names.range(prefix.to_vec()..).take_while(|id| id.starts_with(prefix));
        let behind = from_prefix.filter(|id| after.is_none_or(|after| id.as_slice() > after));
        Ok(behind.take(limit).cloned().collect())
    }

    fn counters(
        &self,
        prefix: &[u8],
        cell_of: &dyn Fn(&[u8]) -> Option<CellKey>,
        visit: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Result<Option<Checkpoint>, Error> {
        let state = self.read().clone();
        let ids = state.names.range(prefix.to_vec()..).take_while(|id| id.starts_with(prefix));
        let rows = ids.filter_map(|id| cell_of(id)).filter_map(|cell| state.rows.get(&cell));
        let _ = rows.cloned().try_for_each(visit);
        Ok(state.checkpoint)
    }

    fn ledger_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.read().ledger.get(key).cloned())
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitLedger<'_>) -> Result<(), Error> {
        let _ = self.read().ledger_range(from, to).try_for_each(|(key, value)| visit(key, value));
        Ok(())
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitLedger<'_>) -> Result<(), Error> {
        let _ = self.read().ledger_range(from, to).rev().try_for_each(|(key, value)| visit(key, value));
        Ok(())
    }

    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        let mut next = self.read().clone();
        let found = next.checkpoint.as_ref().map(|checkpoint| checkpoint.position);
        if found != cut.from {
            return Err(Error::Fenced { expected: cut.from, found });
        }
        if cut.replace {
            next = State::default();
        }
        while let Some(chunk) = (cut.rows)().map_err(|_| Error::Abandoned)? {
            for change in chunk {
                match change.row {
                    Some(row) => next.rows.insert(change.key, row),
                    None => next.rows.remove(&change.key),
                };
            }
        }
        for (id, exists) in cut.names.sorted() {
            if exists {
                next.names.insert(id.to_vec())
            } else {
                next.names.remove(id)
            };
        }
        let mut last = None;
        for row in cut.ledger {
            assert!(last.as_ref() < Some(&row.key), "ledger rows of a cut ascend");
            last = Some(row.key.clone());
            match settle(row, cut.merge, |key| Ok(next.ledger.get(key).cloned()))? {
                (key, Some(value)) => next.ledger.insert(key, value),
                (key, None) => next.ledger.remove(&key),
            };
        }
        next.checkpoint = Some(cut.to.clone());
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}
