//! Corrections as the interface shows them.

use serde::Serialize;
use tally_core::ledger::{Cause, Correction, Delta, Proposal, Purpose};

use crate::counters::{CorrectionList, FoundCorrection, ListedCorrection};
use crate::frontend::http::words::envelope::rfc3339;

/// A correction, or the proposal of one.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Correction)]
pub struct CorrectionView {
    pub number: u64,
    pub state: CorrectionState,
    pub cause: CauseName,
    pub kind: CorrectionKind,
    /// The generation that it made; `null` while it is only proposed.
    pub generation: Option<u64>,
    pub reason: String,
    /// Who proposed it, or made it without a proposal.
    pub author: String,
    /// Who made it visible; left out while it is only proposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_by: Option<String>,
    /// It can be applied only while no counter that it changes was touched by a later generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    pub proposed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    pub applied_at: Option<String>,
    /// The correction that this one undoes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverts: Option<u64>,
    /// The correction that undid this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverted_by: Option<u64>,
    /// How many deltas it has.
    pub delta_count: usize,
    /// What it adds; left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deltas: Option<Vec<DeltaView>>,
    /// A position in the log behind what was just done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "1-0-4711")]
    pub token: Option<String>,
    /// Only when the same `Idempotency-Key` was answered before, and then `true`: nothing has happened again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum CorrectionState {
    /// Nothing has changed yet.
    Proposed,
    Applied,
    /// It was applied, and undone by another one.
    Reverted,
}

/// Where a correction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum CauseName {
    /// Somebody proposed it.
    Proposal,
    /// Late entries.
    Late,
    /// A declared counter was cleared.
    Clear,
    /// It undoes another one.
    Revert,
}

/// What a correction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum CorrectionKind {
    /// It changes what is right, as somebody decided: no recount undoes it.
    Adjust,
    /// It brings a counter to what the log says.
    Restore,
    /// Neither: late entries were let count.
    Count,
}

impl CorrectionKind {
    pub fn of(purpose: Purpose) -> CorrectionKind {
        match purpose {
            Purpose::Adjust => CorrectionKind::Adjust,
            Purpose::Restore => CorrectionKind::Restore,
            Purpose::Count => CorrectionKind::Count,
        }
    }
}

/// What is added to one counter.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeltaView {
    #[schema(example = "views:v42")]
    pub id: String,
    /// The minute that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    pub bucket: Option<String>,
    #[schema(example = -5)]
    pub delta: i64,
}

/// The newest corrections and proposals first.
#[derive(Serialize, utoipa::ToSchema)]
pub struct CorrectionPage {
    pub corrections: Vec<CorrectionView>,
    /// The `before` of the next page; left out on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

impl CorrectionPage {
    pub fn of(CorrectionList { corrections, next }: CorrectionList) -> CorrectionPage {
        let view = |ListedCorrection { found, delta_count }: &ListedCorrection| CorrectionView {
            delta_count: *delta_count,
            deltas: None,
            ..CorrectionView::of(found)
        };
        CorrectionPage { corrections: corrections.iter().map(view).collect(), next }
    }
}

impl CorrectionView {
    pub fn of(found: &FoundCorrection) -> CorrectionView {
        match found {
            FoundCorrection::Proposed(proposal) => CorrectionView::proposed(proposal).with_deltas(&proposal.deltas),
            FoundCorrection::Applied { correction, reverted_by } => {
                CorrectionView::applied(correction).with_deltas(&correction.deltas).reverted(*reverted_by)
            }
        }
    }

    /// Without its deltas.
    pub fn proposed(proposal: &Proposal) -> CorrectionView {
        CorrectionView {
            number: proposal.number,
            state: CorrectionState::Proposed,
            cause: CauseName::Proposal,
            kind: CorrectionKind::of(proposal.purpose),
            generation: None,
            reason: proposal.reason.clone(),
            author: proposal.author.clone(),
            applied_by: None,
            if_generation: proposal.if_generation,
            proposed_at: Some(rfc3339(proposal.at_ms)),
            applied_at: None,
            reverts: None,
            reverted_by: None,
            delta_count: proposal.deltas.len(),
            deltas: None,
            token: None,
            repeated: false,
        }
    }

    /// Without its deltas, and as if nobody had undone it.
    pub fn applied(correction: &Correction) -> CorrectionView {
        CorrectionView {
            number: correction.number,
            state: CorrectionState::Applied,
            cause: CauseName::of(correction.cause),
            kind: CorrectionKind::of(correction.purpose),
            generation: Some(correction.generation),
            reason: correction.reason.clone(),
            author: correction.author.clone(),
            applied_by: Some(correction.applied_by.clone()),
            if_generation: None,
            proposed_at: correction.proposed_ms.map(rfc3339),
            applied_at: Some(rfc3339(correction.at_ms)),
            reverts: reverts(correction.cause),
            reverted_by: None,
            delta_count: correction.deltas.len(),
            deltas: None,
            token: None,
            repeated: false,
        }
    }

    fn reverted(mut self, by: Option<u64>) -> CorrectionView {
        if by.is_some() {
            self.state = CorrectionState::Reverted;
            self.reverted_by = by;
        }
        self
    }

    pub fn with_deltas(self, deltas: &[Delta]) -> CorrectionView {
        CorrectionView { deltas: Some(deltas.iter().map(DeltaView::of).collect()), ..self }
    }
}

impl CauseName {
    pub fn of(cause: Cause) -> CauseName {
        match cause {
            Cause::Proposal(_) => CauseName::Proposal,
            Cause::Late { .. } => CauseName::Late,
            Cause::Clear => CauseName::Clear,
            Cause::Revert(_) => CauseName::Revert,
        }
    }
}

/// The correction that one with this cause undoes.
pub fn reverts(cause: Cause) -> Option<u64> {
    if let Cause::Revert(number) = cause { Some(number) } else { None }
}

impl DeltaView {
    pub fn of(delta: &Delta) -> DeltaView {
        let bucket = delta.bucket_ms.map(rfc3339);
        DeltaView { id: String::from_utf8_lossy(&delta.id).into_owned(), bucket, delta: delta.delta }
    }
}
