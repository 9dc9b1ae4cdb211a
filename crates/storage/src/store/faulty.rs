//! A store with faults by a seed: it fails, loses answers, does things late or twice. Its contract holds all the same.

use super::key::Key;
use super::owned::OwnedCut;
use super::{Checkpoint, Cut, Error, Reads, Store, VisitRow};
use crate::chance::{Chance, Fault};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use tally_core::id::CellKey;
use tally_core::memory::cell::CellRow;

pub struct FaultyStore<S> {
    store: S,
    chance: Arc<Chance>,
    /// A cut that is still on its way.
    delayed: Mutex<Option<OwnedCut>>,
}

impl<S: Store> FaultyStore<S> {
    pub fn new(store: S, chance: Arc<Chance>) -> FaultyStore<S> {
        FaultyStore { store, chance, delayed: Mutex::default() }
    }

    /// A read may fail; and whatever is asked, something that was on its way may have arrived before.
    fn read_well(&self) -> Result<&S, Error> {
        self.arrive();
        match self.chance.draw(&[Fault::Fails]) {
            Some(_) => Err(Error::Retry("a fault of the seed".to_owned())),
            None => Ok(&self.store),
        }
    }

    /// Lets what is on its way arrive, or not yet.
    fn arrive(&self) {
        let mut delayed = self.delayed.lock().unwrap_or_else(PoisonError::into_inner);
        if delayed.is_some() && self.chance.toss() {
            let cut = delayed.take().expect("there is one");
            // Nobody waits for it any more. If the store stands elsewhere by now it is refused, which is as well.
            let _ = cut.commit(&self.store);
        }
    }
}

impl<S: Store> Reads for FaultyStore<S> {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        self.read_well()?.checkpoint()
    }

    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.read_well()?.read(keys)
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error> {
        self.read_well()?.rows(from, visit)
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.read_well()?.names(prefix, after, limit)
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.read_well()?.ledger_rows(from, to, visit)
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.read_well()?.ledger_rows_back(from, to, visit)
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        self.arrive();
        let Some(fault) = self.chance.draw(&Fault::ALL) else { return self.store.commit(cut) };
        let cut = OwnedCut::gather(cut)?;
        match fault {
            Fault::Fails => Err(Error::Retry("a fault of the seed".to_owned())),
            Fault::LosesAnswer => cut.commit(&self.store).and(Err(unknown())),
            Fault::Delays => {
                *self.delayed.lock().unwrap_or_else(PoisonError::into_inner) = Some(cut);
                Err(unknown())
            }
            Fault::Repeats => {
                let result = cut.commit(&self.store);
                let _ = cut.commit(&self.store);
                result
            }
        }
    }

    fn snapshot(&self) -> Result<Box<dyn Reads>, Error> {
        self.read_well()?.snapshot()
    }
}

fn unknown() -> Error {
    Error::Unknown("a fault of the seed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Odds;
    use crate::store::memory::MemoryStore;
    use crate::store::patient::Patient;
    use crate::store::suite;

    const SEEDS: u64 = 50;

    /// Through the patience of whoever calls it, a faulty store keeps the whole contract.
    #[test]
    fn a_faulty_store_passes_the_suite_under_every_seed_if_its_errors_are_dealt_with() {
        let mut hit = [0; Fault::ALL.len()];
        for seed in 0..SEEDS {
            let chance = Arc::new(Chance::new(seed, Odds::all(100)));
            let given = chance.clone();
            suite::all(&move || {
                let store = Arc::new(MemoryStore::default());
                let chance = given.clone();
                let faulty = Arc::new(FaultyStore::new(store, chance));
                Box::new(move || Box::new(Patient::new(faulty.clone(), 1000)))
            });
            chance.hit().iter().zip(&mut hit).for_each(|((_, n), hit)| *hit += n);
        }
        assert!(hit.iter().all(|hit| *hit > 100), "{hit:?}");
    }

    #[test]
    fn a_cut_that_arrives_late_changes_nothing_if_the_store_has_moved_on() {
        let chance = Arc::new(Chance::new(1, Odds { delays: 1000, ..Odds::default() }));
        let store = FaultyStore::new(MemoryStore::default(), chance.clone());
        let first = suite::small_cut(&store, None, 1, 10);
        assert!(matches!(first, Err(Error::Unknown(_))), "{first:?}");
        chance.set_odds(Odds::default());
        // Whether it has arrived or not: what comes next is taken once.
        let again = suite::small_cut(&store, None, 1, 10);
        assert!(matches!(again, Ok(()) | Err(Error::Fenced { .. })));
        for _ in 0..20 {
            assert_eq!(suite::small_sum(&store), 10);
        }
    }
}
