//! A cut as a whole, for those who make it more than once.

use super::{Checkpoint, Cut, Error, LedgerRow, Store};
use tally_core::memory::cell::Collected;
use tally_core::memory::names::Names;
use tally_core::position::Position;

#[derive(Clone)]
pub(super) struct OwnedCut {
    from: Option<Position>,
    to: Checkpoint,
    replace: bool,
    names: Names,
    rows: Vec<Collected>,
    ledger: Vec<LedgerRow>,
}

impl OwnedCut {
    pub fn gather(cut: Cut<'_>) -> Result<OwnedCut, Error> {
        let mut rows = Vec::new();
        while let Some(chunk) = (cut.rows)().map_err(|_| Error::Abandoned)? {
            rows.push(chunk);
        }
        let (to, names, ledger) = (cut.to.clone(), cut.names.clone(), cut.ledger.collect::<Result<_, _>>()?);
        Ok(OwnedCut { from: cut.from, to, replace: cut.replace, names, rows, ledger })
    }

    pub fn to(&self) -> Position {
        self.to.position
    }

    pub fn commit(&self, store: &dyn Store) -> Result<(), Error> {
        let mut chunks = self.rows.iter().cloned();
        store.commit(Cut {
            from: self.from,
            to: &self.to,
            replace: self.replace,
            names: &self.names,
            rows: &mut || Ok(chunks.next()),
            ledger: &mut self.ledger.iter().cloned().map(Ok),
        })
    }
}
