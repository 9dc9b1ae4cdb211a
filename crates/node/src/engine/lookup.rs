//! What only the store knows: the only reads that wait for a disk, on threads of their own.

use super::Refusal;
use super::shared::Shared;
use flume::Receiver;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use tally_core::aggregate::{Need, Stored};
use tally_core::cell::Row;
use tally_core::id::CellKey;
use tally_storage::store::Store;
use tokio::sync::oneshot;

/// Lookups that may wait; connections wait for the rest.
pub(super) const LOOKUPS_MAX: usize = 1024;
pub(super) const LOOKUP_THREADS: usize = 2;

/// Something somebody waits for.
pub(super) struct Lookup {
    pub needs: Vec<Need>,
    pub reply: oneshot::Sender<Result<Found, Refusal>>,
}

/// What the store knows, as of a cut.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// How many cuts the writer knew of when the store was asked. A row can be outdated only if it came into memory,
    /// changed, went into a cut and left again since; then this number has changed, too.
    pub cuts: u64,
    /// In ascending order of needs.
    rows: Vec<(Need, Stored)>,
}

impl Found {
    pub fn read(shared: &Shared, mut needs: Vec<Need>) -> Result<Found, Refusal> {
        needs.sort_unstable();
        needs.dedup();
        let cuts = shared.cuts.load(Ordering::Acquire);
        let get = |need| Ok((need, stored(&*shared.store, need).map_err(|error| Refusal::store(&error))?));
        Ok(Found { cuts, rows: needs.into_iter().map(get).collect::<Result<_, _>>()? })
    }

    pub fn get(&self, need: Need) -> Option<&Stored> {
        self.rows.binary_search_by_key(&need, |(need, _)| *need).ok().map(|index| &self.rows[index].1)
    }

    pub fn needs(&self) -> impl Iterator<Item = Need> {
        self.rows.iter().map(|(need, _)| *need)
    }

    pub fn into_rows(self) -> Vec<(Need, Stored)> {
        self.rows
    }

    /// A counter, unless it has expired.
    pub fn row(&self, key: CellKey, now_ms: u64) -> Option<&Row> {
        let Some(Stored::Cell(Some(row))) = self.get(Need::Cell(key)) else { return None };
        let due = row.expiry.as_ref().is_some_and(|expiry| expiry.at_ms <= now_ms);
        (!due).then_some(row)
    }
}

/// Asks the store.
pub(super) fn stored(store: &dyn Store, need: Need) -> Result<Stored, tally_storage::store::Error> {
    if let Need::Cell(key) = need {
        return Ok(Stored::Cell(store.get(key)?));
    }
    let key = need.ledger_key().expect("everything but cells is in the ledger");
    let row = store.ledger_get(&key.encode())?;
    let damaged = |error| tally_storage::store::Error::Damaged(format!("a row of the ledger: {error}"));
    need.decode(row.as_deref()).map_err(damaged)
}

/// Answers lookups until nobody can ask any more.
pub(super) fn run(shared: &Weak<Shared>, lookups: &Receiver<Lookup>) {
    for lookup in lookups {
        let Some(shared) = shared.upgrade() else { return };
        // Whoever asked may be gone; then nobody minds.
        let _ = lookup.reply.send(Found::read(&shared, lookup.needs));
    }
}
