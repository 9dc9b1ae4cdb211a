//! Where corrections are: open proposals in memory, those that were made in memory and, once a checkpoint has them, in the
//! store.
//!
//! Memory is asked first. What a checkpoint takes to the store in between is found there, and what is in both is the same.

use std::collections::BTreeMap;

use tally_core::aggregate::State;
use tally_core::ledger::{Correction, LedgerKey, Proposal, Row, read_proposal};

use super::view::{CorrectionPage, CorrectionView};
use crate::engine::{Engine, Refusal};
use crate::frontend::http::words::parameters::Paging;

/// Numbers that are looked at in one turn: each may be a correction of many deltas, and the writer waits meanwhile.
const TURN_NUMBERS: u64 = 16;

pub enum Found {
    Proposed(Proposal),
    Applied { correction: Correction, reverted_by: Option<u64> },
}

impl Found {
    pub fn view(&self) -> CorrectionView {
        match self {
            Found::Proposed(proposal) => CorrectionView::proposed(proposal).with_deltas(&proposal.deltas),
            Found::Applied { correction, reverted_by } => {
                CorrectionView::applied(correction).with_deltas(&correction.deltas).reverted(*reverted_by)
            }
        }
    }
}

/// Finds a correction or an open proposal.
pub async fn find(engine: &Engine, number: u64) -> Result<Option<Found>, Refusal> {
    let look = move |state: &mut State| {
        let proposal = state.values.proposals.row(number);
        let correction = state.values.corrections.get(number);
        (proposal, correction, state.values.generations.reverted_by(number), state.values.store_is_void)
    };
    let (proposal, correction, reverted_by, store_is_void) = engine.visit(look).await?;
    if let Some(row) = proposal {
        return Ok(Some(Found::Proposed(read_proposal(&row))));
    }
    let correction = match correction {
        None if !store_is_void => stored(engine, number).await?,
        in_memory => in_memory,
    };
    Ok(correction.map(|correction| Found::Applied { correction, reverted_by }))
}

/// A correction that a checkpoint has.
pub async fn stored(engine: &Engine, number: u64) -> Result<Option<Correction>, Refusal> {
    let row = engine.ledger_row(LedgerKey::Correction(number).encode()).await?;
    row.map(|row| decode(&row)).transpose()
}

/// A row of the ledger.
pub fn decode<T: Row>(row: &[u8]) -> Result<T, Refusal> {
    T::decode(row).map_err(|error| Refusal::StoreFailed(format!("a row of the ledger is damaged: {error}").into()))
}

/// A page of corrections and open proposals. Numbers have gaps where proposals were withdrawn, which may be long; so each turn
/// begins where there is something, and there is a `next` only if there is something left for it.
pub async fn page(engine: &Engine, paging: Paging) -> Result<CorrectionPage, Refusal> {
    let mut end = paging.before;
    let mut corrections = Vec::new();
    while corrections.len() <= paging.limit
        && let Some(newest) = newest_below(engine, end).await?
    {
        let start = (newest + 1).saturating_sub(TURN_NUMBERS).max(1);
        corrections.extend(turn(engine, start, newest + 1).await?);
        end = start;
    }
    let has_more = corrections.len() > paging.limit;
    corrections.truncate(paging.limit);
    let next = corrections.last().filter(|_| has_more).map(|last: &CorrectionView| last.number);
    Ok(CorrectionPage { corrections, next })
}

/// The greatest number below `end` that a correction or an open proposal has.
async fn newest_below(engine: &Engine, end: u64) -> Result<Option<u64>, Refusal> {
    let look = move |state: &mut State| {
        let open = state.values.proposals.last_below(end);
        (open.max(state.values.corrections.last_below(end)), state.values.store_is_void)
    };
    let (newest, store_is_void) = engine.visit(look).await?;
    if store_is_void {
        return Ok(newest);
    }
    let range = LedgerKey::Correction(0).encode()..LedgerKey::Correction(end).encode();
    let stored = engine.ledger_rows(range, 1, true).await?;
    let stored = stored.first().map(|(_, row)| decode::<Correction>(row)).transpose()?;
    Ok(newest.max(stored.map(|correction| correction.number)))
}

/// The corrections with `start` ≤ number < `end`, newest first.
async fn turn(engine: &Engine, start: u64, end: u64) -> Result<Vec<CorrectionView>, Refusal> {
    let look = move |state: &mut State| {
        let open: Vec<_> = state.values.proposals.rows(start..end).cloned().collect();
        let made =
            state.values.corrections.range(start..end).map(|(number, made)| (number, CorrectionView::applied(&made)));
        (open, made.collect::<BTreeMap<_, _>>(), state.values.store_is_void)
    };
    let (open, mut found, store_is_void) = engine.visit(look).await?;
    for proposal in open.iter().map(|row| read_proposal(row)) {
        found.insert(proposal.number, CorrectionView::proposed(&proposal));
    }
    if !store_is_void {
        let range = LedgerKey::Correction(start).encode()..LedgerKey::Correction(end).encode();
        for (_, row) in engine.ledger_rows(range, TURN_NUMBERS as usize, false).await? {
            let made: Correction = decode(&row)?;
            found.insert(made.number, CorrectionView::applied(&made));
        }
    }
    let numbers: Vec<_> = found.keys().copied().collect();
    let reverted =
        move |state: &mut State| numbers.iter().map(|number| state.values.generations.reverted_by(*number)).collect();
    let reverted: Vec<_> = engine.visit(reverted).await?;
    Ok(found.into_values().zip(reverted).map(|(view, by)| view.reverted(by)).rev().collect())
}
