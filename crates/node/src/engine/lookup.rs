//! Cold cells: the only reads that wait for a disk, on threads of their own.

use super::Refusal;
use super::shared::Shared;
use flume::Receiver;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use tally_core::cell::Row;
use tally_core::id::CellKey;
use tokio::sync::oneshot;

/// Lookups that may wait; connections wait for the rest.
pub(super) const LOOKUPS_MAX: usize = 1024;
pub(super) const LOOKUP_THREADS: usize = 2;

/// Cells somebody waits for.
pub(super) struct Lookup {
    pub keys: Vec<CellKey>,
    pub reply: oneshot::Sender<Result<Found, Refusal>>,
}

/// What the store knows about some cells, as of a cut.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// How many cuts the writer knew of when the store was asked. A row can be outdated only if the cell came into memory,
    /// changed, went into a cut and left again since; then this number has changed, too.
    pub cuts: u64,
    /// In ascending order of keys.
    pub rows: Vec<(CellKey, Option<Row>)>,
}

impl Found {
    pub fn read(shared: &Shared, mut keys: Vec<CellKey>) -> Result<Found, Refusal> {
        keys.sort_unstable();
        keys.dedup();
        let cuts = shared.cuts.load(Ordering::Acquire);
        let get = |key| Ok((key, shared.store.get(key).map_err(|error| Refusal::store(&error))?));
        Ok(Found { cuts, rows: keys.into_iter().map(get).collect::<Result<_, _>>()? })
    }

    pub fn has(&self, key: CellKey) -> bool {
        self.index(key).is_some()
    }

    /// A counter's value, unless it has expired.
    pub fn value(&self, key: CellKey, now_ms: u64) -> Option<i64> {
        let row = self.rows[self.index(key)?].1.as_ref()?;
        let due = row.expiry.as_ref().is_some_and(|expiry| expiry.at_ms <= now_ms);
        (!due).then_some(row.value)
    }

    fn index(&self, key: CellKey) -> Option<usize> {
        self.rows.binary_search_by_key(&key, |(key, _)| *key).ok()
    }
}

/// Answers lookups until nobody can ask any more.
pub(super) fn run(shared: &Weak<Shared>, lookups: &Receiver<Lookup>) {
    for lookup in lookups {
        let Some(shared) = shared.upgrade() else { return };
        // Whoever asked may be gone; then nobody minds.
        let _ = lookup.reply.send(Found::read(&shared, lookup.keys));
    }
}
