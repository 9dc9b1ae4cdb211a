//! Idempotency keys: what was answered to something that is asked for once.

use super::Values;
use crate::fact::AnswerKey;
use crate::id::CellKey;
use crate::ledger::{Answered, BoxKind};
use crate::op::{Answer, Batch, Op, Stamp};
use crate::record::Record;

impl Values {
    /// Adds, unless the same was asked for before under the same id.
    pub(crate) fn add_once(&mut self, op: &Op, stamp: &Stamp, batch: &Batch<'_>) -> (Answer, BoxKind) {
        let log_time_ms = batch.log_time_ms;
        let older = || self.answered_before(self.key_of_format_4(stamp, log_time_ms)?, log_time_ms);
        match self.answered_before(stamp.key, log_time_ms).or_else(older) {
            Some(known) if known.delta == op.arg => (Answer::Repeated(known.value), BoxKind::Duplicate),
            Some(known) => (Answer::OtherDelta(known.delta), BoxKind::Conflict),
            None if !self.has_room_for_a_key(batch.log_time_ms) => (Answer::Full, BoxKind::Rejected),
            None => match self.add_named(op, batch) {
                Answer::Value(value) => {
                    let answered = Answered { delta: op.arg, value, at_ms: batch.log_time_ms };
                    self.remember_answer(stamp.key, answered);
                    (Answer::Value(value), BoxKind::Counted)
                }
                refused => (refused, BoxKind::Rejected),
            },
        }
    }

    /// What was asked for under an id is in this batch, or nothing had to be done: a record of an earlier version.
    pub(crate) fn remember_request(&mut self, op: &Op, stamp: &Stamp, batch: &Batch<'_>) -> Answer {
        let Record::Once { number, .. } = batch.record(op) else { unreachable!("it is an id") };
        let delta = stamp.number as i64;
        self.remember_answer(stamp.key, Answered { delta, value: number as i64, at_ms: batch.log_time_ms });
        Answer::Yes
    }

    /// Rows of keys that are over may be gone already, so they stay over under a longer `keep`.
    pub(crate) fn keep_forgotten(&mut self) {
        self.forgotten_before_ms = self.keys_known_from_ms(self.log_time_ms);
    }

    /// What an idempotency key was used for, if it is still known at this log time.
    pub(crate) fn answered_before(&self, key: CellKey, log_time_ms: u64) -> Option<Answered> {
        let known = self.facts.answers.get(key).copied();
        known.filter(|known| known.at_ms >= self.keys_known_from_ms(log_time_ms))
    }

    /// Where else the answer to an idempotency key may stand, as long as answers of formats up to 4 are known.
    pub(crate) fn key_of_format_4(&self, stamp: &Stamp, log_time_ms: u64) -> Option<CellKey> {
        let is_known = |up_to_ms| up_to_ms >= self.keys_known_from_ms(log_time_ms);
        self.answers_of_format_4_ms.is_some_and(is_known).then(|| AnswerKey::of_format_4(stamp))
    }

    pub(crate) fn has_room_for_a_key(&mut self, log_time_ms: u64) -> bool {
        let known_from_ms = self.keys_known_from_ms(log_time_ms);
        self.answered.used(known_from_ms) < self.idempotency.keys_max
    }

    pub(crate) fn remember_answer(&mut self, key: CellKey, answered: Answered) {
        self.facts.answers.put(key, answered);
        self.answered.add(answered.at_ms, self.idempotency.keep_ms);
    }

    /// The log time at which an idempotency key must have come to be known at this one.
    pub(crate) fn keys_known_from_ms(&self, log_time_ms: u64) -> u64 {
        let keep_ms = self.idempotency.keep_ms;
        self.forgotten_before_ms.max((log_time_ms + 1).saturating_sub(keep_ms))
    }

    /// Drops rows of idempotency keys that have had their time by the log, unless they are in use again. This changes no answer:
    /// a key that is over is one that never was, and stays so.
    pub fn forget_answers(&mut self, answers: Vec<(CellKey, Answered)>) {
        let known_from_ms = self.keys_known_from_ms(self.log_time_ms);
        for (key, answer) in answers.into_iter().filter(|(_, answer)| answer.at_ms < known_from_ms) {
            self.facts.answers.load(key, Some(answer));
            if self.facts.answers.get(key) == Some(&answer) {
                self.facts.answers.remove(key);
            }
        }
    }

    /// Begins a new filter of idempotency keys when most of those in it are gone. Only while nothing is staged.
    pub fn renew_answers(&mut self) {
        if self.facts.answers.filter_is_worn() {
            self.facts.answers.relearn();
        }
    }
}
