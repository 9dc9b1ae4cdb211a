//! What is told of what was applied: to whoever makes commits, and in the log of the process.

use super::super::commits::{Changed, CommitQueue, CommitStep};
use super::super::turn::Effects;
use super::Writer;
use tally_core::counter::Direction;
use tally_core::ledger::Duplicate;
use tally_core::position::Position;
use tally_storage::log::Log;

/// Duplicates of one commit that get a line in the log of the process; the audit has them all.
const DUPLICATES_TOLD: usize = 3;

impl<L: Log> Writer<L> {
    /// Hands on what the batch came to, and the batch with it if somebody follows.
    pub(super) fn hand_on_effects(&mut self, effects: Effects) {
        if let Some(closed) = effects.closed {
            self.hand_on(closed);
        }
        if let Some(changes) = effects.changes {
            let declarations = self.state.declarations().clone();
            let spare = self.steps.spare();
            self.state.values.table.reuse(spare.changes);
            let batch = std::mem::replace(&mut self.batch, spare.batch);
            self.hand_on(CommitStep::Changed { changed: Changed { changes, batch }, declarations });
        }
    }

    pub(super) fn hand_on(&mut self, step: CommitStep) {
        if self.steps.is_full() {
            // What waits may wait for this. A failure is remembered, and every later write is told.
            let _ = self.sync();
        }
        self.steps.send(step);
    }

    /// Closes the commit whose slot the clock has passed. Nobody follows for ever.
    pub(super) fn close_commit(&mut self, now_ms: u64) {
        // A log that has failed may hold more of this commit than was applied, and a start may find it: nobody knows its end.
        if self.shared.log_health().is_ok()
            && let Some(closed) = self.recorder.close_if_over(now_ms)
        {
            self.hand_on(closed);
        }
        if self.shared.commits.is_lapsed(now_ms) {
            self.state.values.table.follow(false);
            self.shared.commits.set_followed(false);
        }
    }

    /// The way to whoever makes commits.
    pub fn steps(&self) -> CommitQueue {
        self.steps.clone()
    }

    /// Notes what becomes of every counter from now on; answers from where.
    pub fn follow(&mut self) -> Position {
        if !self.state.values.table.is_followed() {
            if self.shared.log_health().is_ok()
                && let Some(closed) = self.recorder.close()
            {
                self.hand_on(closed);
            }
            self.state.values.table.follow(true);
            self.shared.commits.set_followed(true);
            let (at, log_time_ms) = (self.recorder.end(), self.state.log_time_ms());
            self.hand_on(CommitStep::Followed { at, log_time_ms });
        }
        self.recorder.end()
    }

    /// Entries that counted, of all counters.
    pub(super) fn counted(&self) -> i64 {
        self.state.balances().iter().map(|balance| balance.boxes.counted).sum()
    }

    /// Says which events were dropped since `audited`; the first few, since a sender that repeats itself is not brief.
    pub(super) fn tell_duplicates(&self, audited: u64) {
        let duplicates = &self.state.fates.facts.duplicates;
        let fresh = (self.state.fates.contracts.audited - audited) as usize;
        for duplicate in duplicates.iter().rev().take(fresh.min(DUPLICATES_TOLD)) {
            let result = if duplicate.conflict { "CONFLICT" } else { "DROPPED_DUPLICATE" };
            tracing::info!(
                counterName = duplicate.counters.join(","),
                dimensionKey = ?duplicate.dimensions,
                eventId = duplicate.event_id,
                op = self.told_op(&duplicate),
                result,
                "an event id came again"
            );
        }
        let untold = fresh.saturating_sub(DUPLICATES_TOLD);
        if untold > 0 {
            tracing::info!(untold, "more event ids came again; GET /v1/duplicates has them all");
        }
    }

    /// `INC` or `DEC` for each counter that an event would have fed, as their rules have it; once if all are the same.
    fn told_op(&self, duplicate: &Duplicate) -> String {
        let declarations = self.state.declarations();
        let op = |name: &String| {
            let counter = declarations.counters().iter().find(|counter| *counter.name == **name);
            let rule = counter.and_then(|counter| counter.rules.iter().find(|rule| *rule.on == *duplicate.event_type));
            let decrements = rule.is_some_and(|rule| rule.op == Direction::Decrement);
            if decrements != (duplicate.delta < 0) { "DEC" } else { "INC" }
        };
        let mut ops: Vec<&str> = duplicate.counters.iter().map(op).collect();
        if ops.iter().all(|op| *op == ops[0]) {
            ops.truncate(1);
        }
        ops.join(",")
    }
}
