//! What is committed by itself: events that count all or not at all, proposals, and the ids under which proposals and
//! corrections are asked for.

use super::super::Refusal;
use super::super::correction::CorrectionError;
use super::super::lookup::Found;
use super::super::shared::Reply;
use super::Writer;
use tally_core::aggregate::Unfit;
use tally_core::counter::Durability;
use tally_core::fact::Request;
use tally_core::id::CellKey;
use tally_core::ledger::{Proposal, Row};
use tally_core::op::{Answer, OpKind, Stamp, Submission};
use tally_core::record::Record;
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

    /// Commits a proposal by itself, if there is room for it: what is decided here is in the log, so a replay need not decide.
    pub fn propose(
        &mut self,
        proposal: &Proposal,
        once: Option<&Request>,
        found: Found,
        now_ms: u64,
    ) -> Result<u64, CorrectionError> {
        self.commit_staged(now_ms);
        for (need, stored) in found.into_rows() {
            self.state.load(need, stored);
        }
        self.check_once(once, now_ms)?;
        let bytes = proposal.to_bytes();
        self.state.check_room(bytes.len())?;
        if let Some(asked) = proposal.if_generation {
            self.state.check_generation(asked, proposal.deltas.iter().map(|delta| &*delta.id))?;
        }
        let number = self.state.values.generations.last_number() + 1;
        self.remember_request(once, number);
        self.batch.record_op(OpKind::Propose, CellKey::NONE, 0, &Record::Propose(&bytes));
        self.durability = self.options.durability.level();
        self.commit_alone(now_ms)?;
        assert_eq!(self.state.values.generations.last_number(), number, "a proposal gets the next number");
        Ok(number)
    }

    /// Whether something may be asked for under its id, if it has one.
    pub(super) fn check_once(&mut self, once: Option<&Request>, now_ms: u64) -> Result<(), Unfit> {
        let log_time_ms = self.next_log_time_ms(now_ms);
        once.map_or(Ok(()), |once| self.state.check_once(once, log_time_ms))
    }

    /// In the batch of what was asked for, so that neither is ever there without the other.
    pub(super) fn remember_request(&mut self, once: Option<&Request>, number: u64) {
        if let Some(Request { key, id, content }) = once {
            let at = self.batch.record(&Record::Once { id, content: *content, number });
            self.batch.op(OpKind::Once, CellKey::NONE, 0, at);
            self.batch.stamps.push(Stamp { number: *content, ..Stamp::of_key(*key) });
        }
    }

    /// Nothing had to be done, and that is what a repeat is told, whatever there is by then.
    pub(super) fn remember_nothing(&mut self, once: Option<&Request>, now_ms: u64) -> Result<(), Refusal> {
        if once.is_none() {
            return Ok(());
        }
        self.remember_request(once, 0);
        self.durability = Durability::Sync;
        self.commit_alone(now_ms).map(drop)
    }

    /// Makes what is in the batch durable and applies it; nobody waits for it here.
    fn commit_alone(&mut self, now_ms: u64) -> Result<u64, Refusal> {
        let appended = self.append(now_ms);
        if let Ok(log_time_ms) = appended {
            self.apply(log_time_ms);
        }
        self.batch.begin_batch();
        appended
    }
}
