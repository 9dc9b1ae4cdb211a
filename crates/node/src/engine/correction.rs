//! Corrections on their way: proposed and withdrawn like any write, applied alone in a commit of their own.

mod find;
mod keys;
mod preview;

use super::shared::Message;
use super::thread::Desk;
use super::{Engine, Refusal};
use crate::worker::{Context, Failure, Next, Retry, Spec, Wake, Work};
use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;
pub use tally_core::aggregate::{CorrectionRequest, Reverted};
use tally_core::aggregate::{State, Unfit};
use tally_core::fact::Request;
use tally_core::fates::RunLimits;
use tally_core::id::CellKey;
use tally_core::ledger::{Cause, Correction, Proposal};
use tally_core::limits::LATE_RUN_BYTES_MAX;
use tally_core::op::{Answer, OpKind, Stamp, Submission};
use tally_core::record::Record;
use tally_storage::log::Log;
use tokio::sync::oneshot;

pub(crate) use find::decode_row;
pub use find::{CorrectionList, FoundCorrection, ListedCorrection};
pub use preview::{CounterEffect, Effects, PreviewPart};

/// How often late entries are looked for whose run has come.
const LATE_EVERY: Duration = Duration::from_secs(1);
const LATE_RETRY: Retry = Retry { first: LATE_EVERY, most: Duration::from_secs(30) };

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
    pub async fn propose(&self, proposal: Proposal, once: Option<Request>) -> Result<u64, CorrectionError> {
        self.health()?;
        let (reply, answer) = oneshot::channel();
        let (author, counters) = (proposal.author.clone(), proposal.deltas.len());
        self.shared.send(Message::Propose { proposal, once, reply }).await?;
        let proposed = answer.await.unwrap_or(Err(Refusal::ShuttingDown.into()));
        if let Ok(number) = proposed {
            tracing::info!(number, author, counters, "a correction was proposed");
        }
        proposed
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
    /// Commits a proposal by itself, once everything is known that it depends on.
    pub(super) async fn propose(&self, proposal: &Proposal, once: Option<&Request>) -> Result<u64, CorrectionError> {
        let mut touched = Submission::default();
        if proposal.if_generation.is_some() {
            proposal.deltas.iter().for_each(|delta| touched.get(self.shared.hasher.key(&delta.id)));
        }
        ask_for(once, &mut touched);
        let found = self.find(|| Cow::Borrowed(&touched)).await?;
        self.writer.borrow_mut().propose(proposal, once, found, self.shared.clock.now_ms())
    }

    /// Looks up what the correction touches, then commits it alone.
    pub(super) async fn correct(&self, request: CorrectionRequest) -> Result<Correction, CorrectionError> {
        let found = self.find(|| Cow::Owned(touched(self.writer.borrow().state(), &request))).await?;
        self.writer.borrow_mut().correct(&request, found, self.shared.clock.now_ms())
    }

    /// The next run of late entries: of bounded size, and of nothing if none is due.
    fn draft_late(&self) -> CorrectionRequest {
        let writer = self.writer.borrow();
        let run_bytes_max = LATE_RUN_BYTES_MAX.min(writer.batch_bytes_max() / 2);
        let limits = RunLimits { run_bytes_max, ..RunLimits::default() };
        let deltas = writer.state().fates.contracts.parked.due(self.shared.clock.now_ms(), limits);
        let run = writer.state().values.generations.current + 1;
        CorrectionRequest::new(Cause::Late { run }, "late entries", "tally", deltas)
    }
}

/// Lets late entries count whose run has come: run after run, as long as there are any.
pub(super) struct LateRuns<L: Log> {
    pub desk: Rc<Desk<L>>,
}

impl<L: Log> LateRuns<L> {
    pub fn spec(wake: &Wake) -> Spec {
        Spec::new("late", "lets late entries count when their run has come", LATE_RETRY)
            .waits_for("the next round, or more late entries than are kept")
            .woken_by(wake)
            .vital()
    }
}

impl<L: Log + 'static> Work for LateRuns<L> {
    async fn work(&mut self, context: &Context) -> Result<Next, Failure> {
        let request = self.desk.draft_late();
        if request.deltas.is_empty() {
            return Ok(Next::After(LATE_EVERY));
        }
        context.progress(format!("a run of {} counters", request.deltas.len()));
        self.desk.correct(request).await?;
        Ok(Next::Again)
    }
}

/// Reads of the cells that a correction changes.
fn touched(state: &State, request: &CorrectionRequest) -> Submission {
    let proposal = match request.cause {
        Cause::Proposal(number) => state.values.proposals.get(number),
        _ => None,
    };
    let deltas = proposal.as_ref().map_or(&request.deltas, |proposal| &proposal.deltas);
    let mut touched = Submission::default();
    for delta in deltas {
        touched.get(state.hasher().key(&delta.id));
    }
    ask_for(request.once.as_ref(), &mut touched);
    touched
}

/// What was asked for under an id before has to be known.
fn ask_for(once: Option<&Request>, out: &mut Submission) {
    if let Some(once) = once {
        out.op(OpKind::Once, CellKey::NONE, 0, 0);
        out.stamps.push(Stamp::of_key(once.key));
    }
}
