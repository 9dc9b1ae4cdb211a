//! Corrections on their way: proposed and withdrawn like any write, applied alone in a commit of their own.

use super::shared::Message;
use super::thread::Desk;
use super::{Engine, Refusal};
use std::borrow::Cow;
pub use tally_core::aggregate::{CorrectionRequest, Reverted};
use tally_core::aggregate::{State, Unfit};
use tally_core::id::CellKey;
use tally_core::ledger::{Cause, Correction, Proposal, Row};
use tally_core::limits::PARKED_MAX;
use tally_core::op::{Answer, OpKind, Submission};
use tally_core::record::Record;
use tally_storage::log::Log;
use tokio::sync::oneshot;

/// Why a correction was not made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CorrectionError {
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Engine {
    /// Writes a proposal down. Nothing changes until it is applied.
    pub async fn propose(&self, proposal: Proposal) -> Result<u64, CorrectionError> {
        self.visit(|state| state.corrections.check_room()).await??;
        let (author, counters) = (proposal.author.clone(), proposal.deltas.len());
        let mut submission = Submission::default();
        submission.record_op(OpKind::Propose, CellKey::NONE, 0, &Record::Propose(&proposal.to_bytes()));
        match self.submit(submission).await?.answers[..] {
            [Answer::Value(number)] => {
                tracing::info!(number, author, counters, "a correction was proposed");
                Ok(number as u64)
            }
            ref other => unreachable!("{other:?} does not answer a proposal"),
        }
    }

    /// Takes a proposal back; `false` if it is not open.
    pub async fn withdraw(&self, number: u64) -> Result<bool, Refusal> {
        let mut submission = Submission::default();
        submission.record_op(OpKind::Withdraw, CellKey::NONE, 0, &Record::Withdraw { number });
        let withdrawn = self.submit(submission).await?.answers == [Answer::Yes];
        if withdrawn {
            tracing::info!(number, "a proposed correction was withdrawn");
        }
        Ok(withdrawn)
    }

    /// Makes a correction and waits until every reader sees it.
    pub async fn correct(&self, request: CorrectionRequest) -> Result<Correction, CorrectionError> {
        self.health()?;
        let (reply, answer) = oneshot::channel();
        self.shared.send(Message::Correct { request, reply }).await?;
        answer.await.unwrap_or(Err(Refusal::ShuttingDown.into()))
    }
}

impl<L: Log + 'static> Desk<L> {
    /// Looks up what the correction touches, then commits it alone.
    pub(super) async fn correct(&self, request: CorrectionRequest) -> Result<Correction, CorrectionError> {
        let found = self.find(|| Cow::Owned(touched(self.writer.borrow().state(), &request))).await?;
        self.writer.borrow_mut().correct(&request, found, self.shared.clock.now_ms())
    }

    /// Lets late entries count whose run has come.
    pub(super) async fn run_late(&self) {
        let now_ms = self.shared.clock.now_ms();
        let due = |state: &State| state.contracts.parked.due(now_ms, PARKED_MAX);
        let deltas = due(self.writer.borrow().state());
        if deltas.is_empty() {
            return;
        }
        let run = self.writer.borrow().state().corrections.generation + 1;
        let request = CorrectionRequest::new(Cause::Late { run }, "late entries", "tally", deltas);
        if let Err(error) = self.correct(request).await {
            tracing::warn!(%error, "late entries cannot be applied yet; it will be tried again");
        }
    }
}

/// Reads of the cells that a correction changes.
fn touched(state: &State, request: &CorrectionRequest) -> Submission {
    let deltas = match request.cause {
        Cause::Proposal(number) => state.corrections.open().get(&number).map_or(&[][..], |open| &open.deltas),
        _ => &request.deltas,
    };
    let mut touched = Submission::default();
    for delta in deltas {
        touched.get(state.hasher().key(&delta.id));
    }
    touched
}
