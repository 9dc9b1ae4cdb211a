//! What only the store knows: the only reads that wait for a disk, on threads of their own.

use super::Refusal;
use super::shared::Shared;
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use flume::Receiver;
use std::ops::ControlFlow;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use tally_core::id::CellKey;
use tally_core::machine::{Need, Stored};
use tally_core::memory::cell::CellRow;
use tally_storage::store::key::Key;
use tally_storage::store::{Error, Store};
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

/// Finds out everything that somebody needs to know. `missing` says what that is beside what was found, and looks again when that
/// has come: one thing may lead to another. `ask` asks the store. When nothing is missing this is ready at once, so that nothing
/// happens between the last look and what the caller does with it.
///
/// That the store has no such row is an answer, too. Each turn finds more, or asks again behind a later cut: so it ends.
pub(super) async fn find<E>(
    mut missing: impl AsyncFnMut(&Found) -> Result<Vec<Need>, E>,
    mut ask: impl AsyncFnMut(Vec<Need>) -> Result<Found, E>,
) -> Result<Found, E> {
    let mut found = Found::default();
    loop {
        let missing = missing(&found).await?;
        if missing.is_empty() {
            return Ok(found);
        }
        // What was found before is asked again: it may have come from an older cut.
        let more = ask(found.needs().chain(missing).collect()).await?;
        assert!(more.cuts > found.cuts || more.rows.len() > found.rows.len(), "every turn finds out something");
        found = more;
    }
}

impl Found {
    pub fn read(shared: &Shared, needs: Vec<Need>) -> Result<Found, Refusal> {
        let cuts = shared.cuts.load(Ordering::Acquire);
        Found::in_store(&*shared.store, cuts, needs).map_err(|error| Refusal::store(&error))
    }

    /// What the store says, as of so many cuts.
    pub fn in_store(store: &dyn Store, cuts: u64, mut needs: Vec<Need>) -> Result<Found, Error> {
        needs.sort_unstable();
        needs.dedup();
        let keys: Vec<_> = needs.iter().map(|need| need.ledger_key().map(|key| key.encode())).collect();
        let keys: Vec<_> = needs.iter().zip(&keys).map(|(need, key)| store_key(*need, key.as_deref())).collect();
        let rows = needs.iter().zip(store.read(&keys)?).map(|(need, row)| {
            let damaged = |error| Error::Damaged(format!("a row that was looked up: {error}"));
            Ok((*need, need.decode(row.as_deref()).map_err(damaged)?))
        });
        Ok(Found { cuts, rows: rows.collect::<Result<_, Error>>()? })
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
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
    pub fn row(&self, key: CellKey, now_ms: u64) -> Option<&CellRow> {
        let Some(Stored::Cell(Some(row))) = self.get(Need::Cell(key)) else { return None };
        let due = row.expiry.as_ref().is_some_and(|expiry| expiry.at_ms <= now_ms);
        (!due).then_some(row)
    }
}

/// Where the store has it: a cell has a place of its own, everything else is in the ledger.
fn store_key(need: Need, ledger: Option<&[u8]>) -> Key<'_> {
    match (need, ledger) {
        (_, Some(key)) => Key::Ledger(key),
        (Need::Cell(key), None) => Key::Cell(key),
        (need, None) => unreachable!("{need:?} is in the ledger"),
    }
}

/// Answers lookups until nobody can ask any more.
pub(super) struct RowReader {
    shared: Weak<Shared>,
    lookups: Receiver<Lookup>,
    next: Option<Lookup>,
}

impl RowReader {
    /// Whoever asked is told of an error, and the next one has nothing to do with it.
    pub fn spec(number: usize) -> Spec {
        let does = "reads from the store what memory does not know";
        Spec::new(format!("lookup-{number}"), does, Retry::NEVER).waits_for("somebody who asks")
    }

    pub fn new(shared: Weak<Shared>, lookups: Receiver<Lookup>) -> RowReader {
        RowReader { shared, lookups, next: None }
    }
}

impl Work for RowReader {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let (Some(lookup), Some(shared)) = (self.next.take(), self.shared.upgrade()) else {
            return Ok(Next::WhenWoken);
        };
        context.queue(self.lookups.len());
        let found = Found::read(&shared, lookup.needs);
        let error = found.as_ref().err().cloned();
        // Whoever asked may be gone; then nobody minds.
        let _ = lookup.reply.send(found);
        error.map_or(Ok(Next::WhenWoken), |error| Err(error.into()))
    }

    async fn wait(&mut self) -> ControlFlow<()> {
        match self.lookups.recv_async().await {
            Ok(lookup) => {
                self.next = Some(lookup);
                ControlFlow::Continue(())
            }
            Err(_) => ControlFlow::Break(()),
        }
    }
}
