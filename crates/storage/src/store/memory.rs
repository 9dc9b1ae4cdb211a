//! A store in memory, for tests: the contract and nothing else.

use super::key::Key;
use super::{Checkpoint, Cut, Error, Reads, Store, VisitRow, settle};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{PoisonError, RwLock};
use tally_core::id::CellKey;
use tally_core::memory::cell::CellRow;

#[derive(Default)]
pub struct MemoryStore {
    state: RwLock<MemoryState>,
}

#[derive(Clone, Default)]
struct MemoryState {
    checkpoint: Option<Checkpoint>,
    rows: BTreeMap<CellKey, CellRow>,
    names: BTreeSet<Vec<u8>>,
    ledger: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryState {
    fn value(&self, key: &Key<'_>) -> Option<Vec<u8>> {
        match key {
            Key::Checkpoint => self.checkpoint.as_ref().map(Checkpoint::encode),
            Key::Identity => None,
            Key::Cell(key) => self.rows.get(key).map(|row| {
                let mut bytes = Vec::new();
                row.encode(&mut bytes);
                bytes
            }),
            Key::Name(id) => self.names.contains(*id).then(Vec::new),
            Key::Ledger(key) => self.ledger.get(*key).cloned(),
        }
    }

    fn ledger_range(&self, from: &[u8], to: &[u8]) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.ledger.range(from.to_vec()..to.max(from).to_vec())
    }
}

impl Clone for MemoryStore {
    /// A store of its own with the same contents.
    fn clone(&self) -> MemoryStore {
        MemoryStore { state: RwLock::new(self.read_state().clone()) }
    }
}

impl MemoryStore {
    fn read_state(&self) -> std::sync::RwLockReadGuard<'_, MemoryState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reads for MemoryStore {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        Ok(self.read_state().checkpoint.clone())
    }

    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let state = self.read_state();
        Ok(keys.iter().map(|key| state.value(key)).collect())
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error> {
        for (key, row) in self.read_state().rows.range(from..) {
            if visit(*key, row.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let state = self.read_state();
        let from_prefix = state.names.range(prefix.to_vec()..).take_while(|id| id.starts_with(prefix));
        let behind = from_prefix.filter(|id| after.is_none_or(|after| id.as_slice() > after));
        Ok(behind.take(limit).cloned().collect())
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        let _ = self.read_state().ledger_range(from, to).try_for_each(|(key, value)| visit(key, value));
        Ok(())
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        let _ = self.read_state().ledger_range(from, to).rev().try_for_each(|(key, value)| visit(key, value));
        Ok(())
    }
}

impl Store for MemoryStore {
    fn snapshot(&self) -> Result<Box<dyn Reads>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        let mut next = self.read_state().clone();
        let found = next.checkpoint.as_ref().map(|checkpoint| checkpoint.position);
        if found != cut.from {
            return Err(Error::Fenced { expected: cut.from, found });
        }
        if cut.replace {
            next = MemoryState::default();
        }
        while let Some(chunk) = (cut.rows)().map_err(|_| Error::Abandoned)? {
            for change in chunk.sorted() {
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
            let row = row?;
            assert!(last.as_ref() < Some(&row.key), "ledger rows of a cut ascend");
            last = Some(row.key.clone());
            match settle(row, |key| Ok(next.ledger.get(key).cloned()))? {
                (key, Some(value)) => next.ledger.insert(key, value),
                (key, None) => next.ledger.remove(&key),
            };
        }
        next.checkpoint = Some(cut.to.clone());
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::suite;
    use std::sync::Arc;

    suite::tests!(&|| {
        let store = Arc::new(MemoryStore::default());
        Box::new(move || Box::new(store.clone()))
    });
}
