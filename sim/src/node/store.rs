//! The store of a simulated node: in memory, so that a cut is there as a whole or not at all. It refuses cuts, or does not say
//! that it has taken one, when told to.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, Ordering};
use tally_core::id::CellKey;
use tally_core::memory::cell::CellRow;
use tally_storage::store::key::Key;
use tally_storage::store::memory::MemoryStore;
use tally_storage::store::{Checkpoint, Cut, Error, Reads, Store, VisitRow};

#[derive(Default)]
pub struct FaultyStore {
    inner: MemoryStore,
    mood: AtomicU8,
}

/// What it does with the next cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mood {
    Well = 0,
    Refuses = 1,
    /// It takes them, and the answer is lost.
    Silent = 2,
}

impl FaultyStore {
    pub fn set(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::Release);
    }
}

impl Reads for FaultyStore {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        self.inner.checkpoint()
    }

    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.inner.read(keys)
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error> {
        self.inner.rows(from, visit)
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.inner.names(prefix, after, limit)
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.inner.ledger_rows(from, to, visit)
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.inner.ledger_rows_back(from, to, visit)
    }
}

impl Store for FaultyStore {
    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        match self.mood.load(Ordering::Acquire) {
            1 => Err(Error::Retry("it refuses".to_owned())),
            2 => self.inner.commit(cut).and(Err(Error::Unknown("its answer is lost".to_owned()))),
            _ => self.inner.commit(cut),
        }
    }

    fn snapshot(&self) -> Result<Box<dyn Reads>, Error> {
        self.inner.snapshot()
    }
}
