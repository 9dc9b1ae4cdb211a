//! Where corrections are: open proposals in memory, those that were made in memory and, once a checkpoint has them, in the
//! store.
//!
//! Memory is asked first. What a checkpoint takes to the store in between is found there, and what is in both is the same.

use super::super::question::Question;
use super::super::{Engine, Refusal};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tally_core::ledger::{Correction, Delta, LedgerKey, Proposal, Row, read_proposal};
use tally_core::machine::Machine;

/// Numbers that are looked at in one turn: each may be a correction of many deltas, and the writer waits meanwhile.
const TURN_NUMBERS: u64 = 16;

/// What has a number: a proposal that is open, or a correction.
#[derive(Clone, Debug)]
pub enum FoundCorrection {
    Proposed(Proposal),
    Applied { correction: Correction, reverted_by: Option<u64> },
}

/// One of a page, without its deltas.
#[derive(Clone, Debug)]
pub struct ListedCorrection {
    pub found: FoundCorrection,
    /// How many deltas it has.
    pub delta_count: usize,
}

/// Corrections and open proposals, the newest first.
#[derive(Clone, Debug, Default)]
pub struct CorrectionList {
    pub corrections: Vec<ListedCorrection>,
    /// The number before which the next page begins; `None` if this is the last one.
    pub next: Option<u64>,
}

impl FoundCorrection {
    pub fn number(&self) -> u64 {
        match self {
            FoundCorrection::Proposed(proposal) => proposal.number,
            FoundCorrection::Applied { correction, .. } => correction.number,
        }
    }

    pub fn deltas(&self) -> &[Delta] {
        match self {
            FoundCorrection::Proposed(proposal) => &proposal.deltas,
            FoundCorrection::Applied { correction, .. } => &correction.deltas,
        }
    }

    fn listed(mut self) -> ListedCorrection {
        let deltas = match &mut self {
            FoundCorrection::Proposed(proposal) => &mut proposal.deltas,
            FoundCorrection::Applied { correction, .. } => &mut correction.deltas,
        };
        let delta_count = std::mem::take(deltas).len();
        ListedCorrection { found: self, delta_count }
    }
}

impl Engine {
    /// Finds a correction or an open proposal.
    pub async fn correction(&self, number: u64) -> Result<Option<FoundCorrection>, Refusal> {
        let (known, view) = self.view(Numbered(number)).await?;
        if let Some(row) = known.proposal {
            return Ok(Some(FoundCorrection::Proposed(read_proposal(&row))));
        }
        let reverted_by = known.reverted_by;
        let correction = match known.correction {
            None => {
                let row = view.row(LedgerKey::Correction(number).encode()).await?;
                row.map(|row| decode_row(&row)).transpose()?
            }
            in_memory => in_memory,
        };
        Ok(correction.map(|correction| FoundCorrection::Applied { correction, reverted_by }))
    }

    /// Every proposal that is open, with its deltas.
    pub async fn open_proposals(&self) -> Result<Vec<Proposal>, Refusal> {
        let rows = self.ask(Open).await?;
        Ok(rows.iter().map(|row| read_proposal(row)).collect())
    }

    /// A page of up to `limit` corrections and open proposals with numbers below `before`. Numbers have gaps where proposals were
    /// withdrawn, which may be long; so each turn begins where there is something, and there is a `next` only if there is
    /// something left for it.
    pub async fn corrections(&self, before: u64, limit: usize) -> Result<CorrectionList, Refusal> {
        let mut end = before;
        let mut corrections = Vec::new();
        while corrections.len() <= limit
            && let Some(newest) = self.newest_correction_below(end).await?
        {
            let start = (newest + 1).saturating_sub(TURN_NUMBERS).max(1);
            corrections.extend(self.corrections_between(start, newest + 1).await?);
            end = start;
        }
        let has_more = corrections.len() > limit;
        corrections.truncate(limit);
        let next = corrections.last().filter(|_| has_more).map(|last: &ListedCorrection| last.found.number());
        Ok(CorrectionList { corrections, next })
    }

    /// The greatest number below `end` that a correction or an open proposal has.
    async fn newest_correction_below(&self, end: u64) -> Result<Option<u64>, Refusal> {
        let (newest, view) = self.view(NewestBelow(end)).await?;
        let range = LedgerKey::Correction(0).encode()..LedgerKey::Correction(end).encode();
        let stored = view.rows(range, 1, true).await?;
        let stored = stored.first().map(|(_, row)| decode_row::<Correction>(row)).transpose()?;
        Ok(newest.max(stored.map(|correction| correction.number)))
    }

    /// The corrections with `start` ≤ number < `end`, newest first.
    async fn corrections_between(&self, start: u64, end: u64) -> Result<Vec<ListedCorrection>, Refusal> {
        let ((open, mut found), view) = self.view(Between(start..end)).await?;
        for proposal in open.iter().map(|row| read_proposal(row)) {
            found.insert(proposal.number, FoundCorrection::Proposed(proposal).listed());
        }
        let range = LedgerKey::Correction(start).encode()..LedgerKey::Correction(end).encode();
        for (_, row) in view.rows(range, TURN_NUMBERS as usize, false).await? {
            let made: Correction = decode_row(&row)?;
            found.insert(made.number, applied(made));
        }
        let reverted = self.ask(RevertedBy(found.keys().copied().collect())).await?;
        let mut listed: Vec<_> = found.into_values().collect();
        for (listed, by) in listed.iter_mut().zip(reverted) {
            if let FoundCorrection::Applied { reverted_by, .. } = &mut listed.found {
                *reverted_by = by;
            }
        }
        listed.reverse();
        Ok(listed)
    }
}

/// What memory has under a number.
struct Numbered(u64);

struct InMemory {
    /// The row of an open proposal.
    proposal: Option<Arc<[u8]>>,
    correction: Option<Correction>,
    reverted_by: Option<u64>,
}

impl Question for Numbered {
    type Answer = InMemory;

    fn answer(self, state: &Machine) -> InMemory {
        InMemory {
            proposal: state.values.facts.proposals.row(self.0),
            correction: state.values.facts.corrections.get(self.0),
            reverted_by: state.values.generations.reverted_by(self.0),
        }
    }
}

struct Open;

impl Question for Open {
    type Answer = Vec<Arc<[u8]>>;

    fn answer(self, state: &Machine) -> Self::Answer {
        state.values.facts.proposals.rows(0..u64::MAX).cloned().collect()
    }
}

struct NewestBelow(u64);

impl Question for NewestBelow {
    type Answer = Option<u64>;

    fn answer(self, state: &Machine) -> Option<u64> {
        state.values.facts.proposals.last_below(self.0).max(state.values.facts.corrections.last_below(self.0))
    }
}

/// Rows of open proposals, and what was made, with numbers in a range.
struct Between(Range<u64>);

impl Question for Between {
    type Answer = (Vec<Arc<[u8]>>, BTreeMap<u64, ListedCorrection>);

    fn answer(self, state: &Machine) -> Self::Answer {
        let open = state.values.facts.proposals.rows(self.0.clone()).cloned().collect();
        let made = state.values.facts.corrections.range(self.0).map(|(number, made)| (number, applied(made)));
        (open, made.collect())
    }
}

struct RevertedBy(Vec<u64>);

impl Question for RevertedBy {
    type Answer = Vec<Option<u64>>;

    fn answer(self, state: &Machine) -> Self::Answer {
        self.0.iter().map(|number| state.values.generations.reverted_by(*number)).collect()
    }
}

/// As if nobody had undone it.
fn applied(correction: Correction) -> ListedCorrection {
    FoundCorrection::Applied { correction, reverted_by: None }.listed()
}

/// A row of the ledger.
pub(crate) fn decode_row<T: Row>(row: &[u8]) -> Result<T, Refusal> {
    T::decode(row).map_err(|error| Refusal::StoreFailed(format!("a row of the ledger is damaged: {error}").into()))
}
