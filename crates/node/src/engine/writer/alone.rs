//! What is committed by itself: events that count all or not at all, and what is asked for about the past.

use super::super::Refusal;
use super::super::correction::{CorrectionError, CorrectionRequest, RemedyOutcome};
use super::super::lookup::Found;
use super::super::shared::Reply;
use super::Writer;
use tally_core::counter::Durability;
use tally_core::ledger::{Correction, Proposal, Remedy};
use tally_core::machine::Unfit;
use tally_core::op::{Answer, Submission};
use tally_storage::log::Log;

impl<L: Log> Writer<L> {
    /// Commits events by themselves if none of their entries would be refused. What would become of them is looked at where they
    /// stand in the log, at the time they would have there.
    pub(super) fn commit_strict(&mut self, submission: &Submission, found: Found, reply: Reply) {
        self.commit_staged(self.shared.clock.now_ms());
        self.add_to_batch(submission, found, reply);
        for (need, stored) in self.loads.drain(..) {
            self.state.load(need, stored);
        }
        let now_ms = self.shared.clock.now_ms();
        let (log_time_ms, offset) = (self.next_log_time_ms(now_ms), self.log.end().offset);
        let mut answers = self.state.try_out(&self.batch.batch(None, log_time_ms, offset));
        // Before its operations there may be one of the writer's own.
        let answers = answers.split_off(self.batch.ops.len() - submission.ops.len());
        match answers.iter().any(Answer::is_refusal) {
            true => self.refuse(&Refusal::NotAll(answers.into())),
            false => self.commit_staged(now_ms),
        }
    }

    /// Commits what is asked for about the past by itself, if it can be done. What it touches is known. Nothing is appended of what
    /// comes to nothing, but that nothing had to be done is what a repeat is told, whatever there is by then.
    pub fn remedy(
        &mut self,
        request: &CorrectionRequest,
        found: Found,
        now_ms: u64,
    ) -> Result<RemedyOutcome, CorrectionError> {
        self.commit_staged(now_ms);
        self.load(found);
        // As it will be where the record stands.
        let log_time_ms = self.know_endings(self.next_log_time_ms(now_ms))?;
        self.state.pass_time(log_time_ms, self.log.end().offset);
        match self.state.assess(request) {
            Err(Unfit::Nothing) if request.once.is_some() => {}
            assessed => _ = assessed?,
        }
        let appended = self.append_remedy(request, now_ms);
        if let Ok(log_time_ms) = appended {
            self.apply_remedy(&request.remedy, log_time_ms);
        }
        self.batch.begin_batch();
        appended?;
        let outcome = self.state.take_outcome().expect("what was applied has come to something")?;
        tell(&outcome);
        Ok(outcome)
    }

    fn append_remedy(&mut self, request: &CorrectionRequest, now_ms: u64) -> Result<u64, Refusal> {
        let once = request.once.as_ref().map(|once| (&*once.id, once.content));
        let record = self.batch.remedy(&request.remedy.encode(once));
        self.state.touch(request, record, &mut self.batch);
        self.durability = match request.remedy {
            Remedy::Propose(_) => self.options.durability.level(),
            _ => Durability::Sync,
        };
        self.append(now_ms)
    }

    fn apply_remedy(&mut self, remedy: &Remedy, log_time_ms: u64) {
        if matches!(remedy, Remedy::Propose(_)) {
            return self.apply(log_time_ms);
        }
        let counted = self.counted();
        self.apply_whole(log_time_ms);
        // A run lets late entries count.
        self.shared.metrics.updates.inc_by((self.counted() - counted).max(0) as u64);
    }
}

/// A line for each: it changes what people have read, or is about to.
fn tell(outcome: &RemedyOutcome) {
    match outcome {
        RemedyOutcome::Proposed(Proposal { number, author, deltas, .. }) => {
            tracing::info!(number, author, counters = deltas.len(), "a correction was proposed");
        }
        RemedyOutcome::Corrected(Correction { number, generation, cause, purpose, reason, author, deltas, .. }) => {
            let counters = deltas.len();
            tracing::info!(number, generation, ?cause, ?purpose, reason, author, counters, "a correction was applied");
        }
    }
}
