//! The store as memory continues it: the one place where what both have is joined.
//!
//! Memory is asked first. What a cut takes to the store in between is found there, and what is in both is the same; so nothing is
//! missed, and what is seen twice is told by its key. After a flush that no cut has told the store yet, the store is void: then
//! memory has everything, and a [`JoinedView`] shows nothing.

use super::lookup::Found;
use super::question::Question;
use super::shared::Shared;
use super::{Engine, Page, Reading, Refusal};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tally_core::database::Space;
use tally_core::id::CellKey;
use tally_core::machine::{Machine, Need};
use tally_storage::store::key::Key;
use tally_storage::store::{self, Reads};

/// Rows of the ledger, with their keys.
pub(super) type LedgerRows = Vec<(Vec<u8>, Vec<u8>)>;

/// What the store has beside what memory has said.
pub(super) struct JoinedView<'a> {
    shared: &'a Arc<Shared>,
    store_is_void: bool,
}

/// A question, and whether the store has anything to add to its answer.
struct Continued<Q>(Q);

impl<Q: Question> Question for Continued<Q> {
    type Answer = (Q::Answer, bool);

    fn answer(self, state: &Machine) -> Self::Answer {
        (self.0.answer(state), state.values.has_everything())
    }
}

impl Engine {
    /// What memory says, and a view of what the store has.
    pub(super) async fn view<Q: Question>(&self, question: Q) -> Result<(Q::Answer, JoinedView<'_>), Refusal> {
        let (answer, store_is_void) = self.ask(Continued(question)).await?;
        Ok((answer, JoinedView { shared: &self.shared, store_is_void }))
    }

    /// Reads a counter from memory or, if it is cold, from the store on another thread.
    pub async fn get(&self, cell: CellKey) -> Result<Option<Reading>, Refusal> {
        loop {
            if let Ok(reading) = self.shared.read(cell) {
                return Ok(reading);
            }
            let found = self.shared.lookup(vec![Need::Cell(cell)]).await?;
            if let Some(reading) = self.shared.join(&found, cell) {
                return Ok(reading);
            }
        }
    }
}

impl JoinedView<'_> {
    /// Up to `limit` rows of a range, newest (highest keys) first if `back`.
    pub async fn rows(&self, range: Range<Vec<u8>>, limit: usize, back: bool) -> Result<LedgerRows, Refusal> {
        if self.store_is_void {
            return Ok(LedgerRows::new());
        }
        self.shared.from_store(move |_, store| ledger_rows(store, &range, limit, back)).await
    }

    /// The row under each key, all as of one checkpoint.
    pub async fn many(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Vec<u8>>>, Refusal> {
        if self.store_is_void || keys.is_empty() {
            return Ok(vec![None; keys.len()]);
        }
        let read = move |_: &Shared, store: &dyn Reads| {
            store.read(&keys.iter().map(|key| Key::Ledger(key)).collect::<Vec<_>>())
        };
        self.shared.from_store(read).await
    }

    /// What memory has, and what the store adds to it as of one checkpoint.
    pub async fn continued<T: Send + 'static>(
        &self,
        known: T,
        read: impl FnOnce(&dyn Reads, T) -> Result<T, store::Error> + Send + 'static,
    ) -> Result<T, Refusal> {
        if self.store_is_void {
            return Ok(known);
        }
        self.shared.from_store(move |_, store| read(store, known)).await
    }

    pub async fn row(&self, key: Vec<u8>) -> Result<Option<Vec<u8>>, Refusal> {
        Ok(self.many(vec![key]).await?.pop().flatten())
    }
}

fn ledger_rows(
    store: &dyn Reads,
    range: &Range<Vec<u8>>,
    limit: usize,
    back: bool,
) -> Result<LedgerRows, store::Error> {
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    match back {
        true => store.ledger_rows_back(&range.start, &range.end, &mut visit)?,
        false => store.ledger_rows(&range.start, &range.end, &mut visit)?,
    }
    Ok(rows)
}

impl Shared {
    /// What the store said of a counter that memory did not have, together with what was counted since without knowing it
    /// (no cut has any of that: ADR 16). `None` if a cut has ended meanwhile: then one of the two may be outdated.
    fn join(&self, found: &Found, cell: CellKey) -> Option<Option<Reading>> {
        let counted = self.cells.unsettled(cell);
        if found.cuts != self.cuts.load(Ordering::Acquire) {
            return None;
        }
        let stored = found.reading(cell, self.clock.now_ms());
        let Some(counted) = counted else {
            // Its row may have come in since.
            return Some(self.read(cell).unwrap_or(stored));
        };
        let Reading { value, generation } = stored.unwrap_or(Reading { value: 0, generation: 0 });
        Some(Some(Reading { value: value.saturating_add(counted), generation }))
    }

    /// Reads what the store has, as of one commit, on a thread that may wait for a disk.
    pub async fn from_store<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Shared, &dyn Reads) -> Result<T, store::Error> + Send + 'static,
    ) -> Result<T, Refusal> {
        let shared = self.clone();
        let read = self.blocking(move || {
            let snapshot = shared.store.snapshot()?;
            read(&shared, &*snapshot)
        });
        read.await?.map_err(|error| Refusal::store(&error))
    }

    /// A page of live counters. Blocks on the store.
    pub fn page(
        &self,
        store: &dyn Reads,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, store::Error> {
        let ids = names(store, space, prefix, after, limit)?;
        let key = |id: &[u8]| Space::split(id).1.to_vec();
        let next = (ids.len() == limit).then(|| ids.last().map(|id| key(id))).flatten();
        let readings = self.readings(&ids.iter().map(|id| self.hasher.key(id)).collect::<Vec<_>>())?;
        let counters = ids.iter().zip(readings).filter_map(|(id, reading)| Some((key(id), reading?)));
        Ok(Page { counters: counters.collect(), next })
    }

    /// Counters from memory and, for those that are cold, from the store in one call. Blocks on the store.
    fn readings(&self, cells: &[CellKey]) -> Result<Vec<Option<Reading>>, store::Error> {
        let mut readings: Vec<_> = cells.iter().map(|cell| self.read(*cell).ok()).collect();
        loop {
            let cold = cells.iter().zip(&readings).filter(|(_, reading)| reading.is_none());
            let needs: Vec<_> = cold.map(|(cell, _)| Need::Cell(*cell)).collect();
            if needs.is_empty() {
                return Ok(readings.into_iter().map(Option::flatten).collect());
            }
            // As the store is now: a cell that left memory a moment ago is in it.
            let found = Found::in_store(&*self.store, self.cuts.load(Ordering::Acquire), needs)?;
            for (cell, reading) in cells.iter().zip(&mut readings).filter(|(_, reading)| reading.is_none()) {
                *reading = self.read(*cell).ok().or_else(|| self.join(&found, *cell));
            }
        }
    }
}

impl Found {
    pub fn reading(&self, key: CellKey, now_ms: u64) -> Option<Reading> {
        self.row(key, now_ms).map(|row| Reading { value: row.value, generation: row.mark.generation })
    }
}

/// Ids of one space.
fn names(
    store: &dyn Reads,
    space: Space,
    prefix: &[u8],
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Vec<u8>>, store::Error> {
    let (prefix, after) = (space.ids_from(prefix), after.map(|key| space.id(key)));
    let mut ids = store.names(&prefix, after.as_deref(), limit)?;
    // Those of other databases stand among those of database 0, all together.
    if let Some(first) = ids.iter().position(|id| Space::split(id).0 != space) {
        ids.truncate(first);
        ids.extend(store.names(&prefix, Some(&Space::behind_all()), limit - first)?);
    }
    Ok(ids)
}
