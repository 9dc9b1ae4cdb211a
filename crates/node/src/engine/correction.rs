//! Corrections on their way: proposed and withdrawn like any write, applied alone in a commit of their own.

mod clear;
mod find;
mod preview;

use super::shared::Message;
use super::thread::Desk;
use super::{Engine, Refusal};
use crate::worker::{Context, Next, Retry, Spec, Wake, Work, WorkFailure};
use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;
use tally_core::fact::Request;
use tally_core::fates::RunLimits;
use tally_core::id::CellKey;
use tally_core::ledger::{Correction, LateRun, Proposal, Remedy};
use tally_core::machine::Unfit;
pub use tally_core::machine::{CorrectionRequest, RemedyOutcome};
use tally_core::op::{Answer, OpKind, Submission};
use tally_core::record::Record;
use tally_storage::log::Log;
use tokio::sync::oneshot;

pub use clear::{ClearRequest, Cleared};
pub(crate) use find::decode_row;
pub use find::{CorrectionList, FoundCorrection, ListedCorrection};
pub use preview::{CorrectionEffects, CounterEffect, PreviewPart};

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

/// A correction that was made now, or before under the same idempotency key.
#[derive(Clone, Debug)]
pub struct Corrected {
    pub correction: Correction,
    pub repeated: bool,
}

/// A proposal that was written down now, or before under the same idempotency key.
#[derive(Clone, Debug)]
pub struct Proposed {
    pub proposal: Proposal,
    pub repeated: bool,
}

impl Engine {
    /// Writes a proposal down. Nothing changes until it is applied.
    pub async fn propose(&self, proposal: Proposal, once: Option<Request>) -> Result<u64, CorrectionError> {
        let remedy = Remedy::Propose(proposal);
        let proposed = self.request(CorrectionRequest { remedy, once }).await?;
        Ok(proposed.number())
    }

    /// The same, and answers the proposal as it stands in the log; if it was proposed before, as it was answered then.
    pub async fn proposed(&self, proposal: Proposal, once: Option<Request>) -> Result<Proposed, CorrectionError> {
        let (number, repeated) = match self.propose(proposal.clone(), once).await {
            Err(CorrectionError::Unfit(Unfit::Repeated(number))) => (number, true),
            number => (number?, false),
        };
        let proposal = match self.correction(number).await? {
            Some(FoundCorrection::Proposed(proposal)) => proposal,
            // Whatever has become of it since.
            Some(FoundCorrection::Applied { correction, .. }) => {
                Proposal { number, at_ms: correction.proposed_ms.unwrap_or(correction.at_ms), ..proposal }
            }
            None => Proposal { number, ..proposal },
        };
        Ok(Proposed { proposal, repeated })
    }

    /// Applies, reverts or clears as [`Self::correct`] does; what was asked for before is answered as it was then.
    pub async fn corrected(&self, request: CorrectionRequest) -> Result<Corrected, CorrectionError> {
        let number = match self.correct(request).await {
            Err(CorrectionError::Unfit(Unfit::Repeated(number))) if number > 0 => number,
            made => return Ok(Corrected { correction: made?, repeated: false }),
        };
        match self.correction(number).await? {
            Some(FoundCorrection::Applied { correction, .. }) => Ok(Corrected { correction, repeated: true }),
            Some(FoundCorrection::Proposed(_)) => Err(Unfit::OtherRequest.into()),
            None => Err(Unfit::NotThere(number).into()),
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

    /// Applies, reverts or clears, and waits until every reader sees it.
    pub async fn correct(&self, request: impl Into<CorrectionRequest>) -> Result<Correction, CorrectionError> {
        match self.request(request.into()).await? {
            RemedyOutcome::Corrected(correction) => Ok(correction),
            RemedyOutcome::Proposed(proposal) => unreachable!("{proposal:?} is no correction"),
        }
    }

    async fn request(&self, request: CorrectionRequest) -> Result<RemedyOutcome, CorrectionError> {
        self.health()?;
        let (reply, answer) = oneshot::channel();
        self.shared.send(Message::Remedy { request, reply }).await?;
        answer.await.unwrap_or(Err(Refusal::ShuttingDown.into()))
    }
}

impl<L: Log + 'static> Desk<L> {
    /// Looks up what a request touches, then commits it alone.
    pub(super) async fn remedy(&self, request: &CorrectionRequest) -> Result<RemedyOutcome, CorrectionError> {
        let touched = || {
            let mut touched = Submission::default();
            self.writer.borrow().state().touch(request, 0, &mut touched);
            Cow::Owned(touched)
        };
        let found = self.find(touched).await?;
        self.writer.borrow_mut().remedy(request, found, self.shared.clock.now_ms())
    }

    /// The next run of late entries, and how many counters it changes; `None` if nothing is due.
    fn next_run(&self) -> Option<(LateRun, usize)> {
        let writer = self.writer.borrow();
        let parked = &writer.state().fates.contracts.parked;
        let run = parked.plan(self.shared.clock.now_ms(), RunLimits::default());
        let due = parked.due(run).len();
        (due > 0).then_some((run, due))
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
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let Some((run, due)) = self.desk.next_run() else { return Ok(Next::After(LATE_EVERY)) };
        context.progress(format!("a run of {due} counters"));
        self.desk.remedy(&Remedy::Late(run).into()).await?;
        Ok(Next::Again)
    }
}
