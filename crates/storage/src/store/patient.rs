//! A store that tries again what another says is worth trying again: how errors are to be dealt with, as code.
//!
//! What it wraps may fail and lose answers; what it is, is a store without faults, slower.

use super::key::Key;
use super::owned::OwnedCut;
use super::{Checkpoint, Cut, Error, Reads, Store, VisitRow, certain};
use std::ops::ControlFlow;
use tally_core::id::CellKey;
use tally_core::memory::cell::CellRow;

pub struct Patient<S> {
    store: S,
    tries_max: usize,
}

impl<S> Patient<S> {
    pub fn new(store: S, tries_max: usize) -> Patient<S> {
        Patient { store, tries_max }
    }

    fn again<T>(&self, mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let mut tried = 1;
        loop {
            match call() {
                Err(Error::Retry(_)) if tried < self.tries_max => tried += 1,
                result => return result,
            }
        }
    }
}

impl<S: Store> Patient<S> {
    /// A visit that fails in the middle goes on where it was, so that nothing is visited twice.
    fn visit<K: Clone>(
        &self,
        from: K,
        mut visit: impl FnMut(&S, &K, &mut Option<K>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut from = from;
        self.again(|| {
            let mut reached = None;
            let visited = visit(&self.store, &from, &mut reached);
            from = reached.unwrap_or_else(|| from.clone());
            visited
        })
    }
}

/// The first key behind another.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn behind_cell(key: CellKey) -> CellKey {
    CellKey::from_bytes(key.as_u128().saturating_add(1).to_be_bytes())
}

impl<S: Store> Reads for Patient<S> {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        self.again(|| self.store.checkpoint())
    }

    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.again(|| self.store.read(keys))
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error> {
        self.visit(from, |store, from, reached| {
            store.rows(*from, &mut |key, row| {
                *reached = Some(behind_cell(key));
                visit(key, row)
            })
        })
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.again(|| self.store.names(prefix, after, limit))
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.visit(from.to_vec(), |store, from, reached| {
            store.ledger_rows(from, to, &mut |key, value| {
                *reached = Some(behind(key));
                visit(key, value)
            })
        })
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.visit(to.to_vec(), |store, to, reached| {
            store.ledger_rows_back(from, to, &mut |key, value| {
                *reached = Some(key.to_vec());
                visit(key, value)
            })
        })
    }
}

impl<S: Store> Store for Patient<S> {
    /// A cut that came through at last is made once, however often it was tried.
    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        let cut = OwnedCut::gather(cut)?;
        let mut is_first = true;
        self.again(|| {
            let result = cut.commit(&self.store);
            // Who finds the store moved before he has tried to is fenced by somebody else.
            if std::mem::take(&mut is_first) && matches!(result, Err(Error::Fenced { .. })) {
                return result;
            }
            self.again(|| certain(&self.store, cut.to(), result.clone()))
        })
    }

    fn snapshot(&self) -> Result<Box<dyn Reads>, Error> {
        self.again(|| self.store.snapshot())
    }
}
