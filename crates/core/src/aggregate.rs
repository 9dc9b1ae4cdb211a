//! The deterministic core: a batch of operations in, an answer to each out.
//!
//! The state after a batch is a function of the state before it and of the batch, time included. The running node and a
//! replay both come through [`State::apply`]; what they need from the store they look up before ([`State::needs`]) and
//! hand in with [`State::load`].
//!
//! Here are the loop and what clients do to counters by name. What events do is in [`contract`], what corrections do in
//! [`correct`], what a checkpoint carries beside rows in [`checkpoint`].

mod checkpoint;
mod contract;
mod correct;
mod memory;
mod need;
mod parked;
mod quota;
mod replay;
mod timeline;

use crate::cell::{Added, RowExpiry, Table};
use crate::counter::{Declarations, Stager};
use crate::database::{Databases, Space};
use crate::id::{CellHasher, CellKey};
use crate::ledger::{Answered, BoxKind, Ledger};
use crate::names::Names;
use crate::op::{Answer, Op, OpKind, Stamp};
use crate::record::{self, CopyManner, ExpireCondition, Expiry, Record, SetCondition};
use contract::Verdict;
use quota::Quota;
use std::sync::Arc;
use timeline::{MARK_EVERY_MS, Timeline};

pub use contract::{Balance, Contracts, Sums};
pub use correct::{CorrectionRequest, Corrections, Reverted, Unfit};
pub use need::{Need, Stored};
pub use parked::{Parked, ParkedEntry, RunLimits};
pub use replay::{ReplayError, Replayed};

/// How far ahead of itself `apply` fetches memory into the cache.
const PREFETCH_AHEAD: usize = 16;

/// Operations that become part of the state together.
pub struct Batch<'a> {
    pub records: &'a [u8],
    pub ops: &'a [Op],
    pub stamps: &'a [Stamp],
    pub log_time_ms: u64,
    /// Where its first record stands in the log.
    pub offset: u64,
}

pub struct State {
    pub table: Table,
    /// Ids that came and went since the last cut.
    pub names: Names,
    /// Where they came and went, in the words of the Redis protocol.
    pub databases: Databases,
    /// Everything was flushed since the last cut: what the store has is void.
    pub store_is_void: bool,
    /// What is remembered beside counts.
    pub ledger: Ledger,
    pub contracts: Contracts,
    pub corrections: Corrections,
    stager: Stager,
    hasher: CellHasher,
    log_time_ms: u64,
    timeline: Timeline,
    /// How many idempotency keys are kept.
    answered: Quota,
    /// Idempotency keys that came before this log time are forgotten, whatever a later configuration says.
    forgotten_before_ms: u64,
    /// What the last claim of the batch came to; the entries behind it go by it.
    verdict: Verdict,
    id: Vec<u8>,
}

impl State {
    pub fn new(hasher: CellHasher) -> State {
        State {
            table: Table::new(),
            names: Names::default(),
            databases: Databases::default(),
            store_is_void: false,
            ledger: Ledger::default(),
            contracts: Contracts::default(),
            corrections: Corrections::default(),
            stager: Stager::new(Arc::default(), hasher),
            hasher,
            log_time_ms: 0,
            timeline: Timeline::default(),
            answered: Quota::default(),
            forgotten_before_ms: 0,
            verdict: Verdict::Fresh,
            id: Vec::new(),
        }
    }

    pub fn hasher(&self) -> CellHasher {
        self.hasher
    }

    pub fn log_time_ms(&self) -> u64 {
        self.log_time_ms
    }

    pub fn declarations(&self) -> &Arc<Declarations> {
        self.stager.declarations()
    }

    /// Puts declarations in force for records from `offset` on.
    pub fn configure(&mut self, declarations: Declarations, offset: u64) {
        // Rows of keys that are over may be gone already, so they stay over under a longer `keep`.
        self.forgotten_before_ms = self.keys_known_from_ms(self.log_time_ms);
        self.timeline.configured(offset, &declarations);
        self.declare(declarations);
    }

    fn declare(&mut self, declarations: Declarations) {
        self.contracts.declare(&declarations);
        let declarations = declarations.with_removed(self.contracts.removed());
        self.stager = Stager::new(Arc::new(declarations), self.hasher);
    }

    /// Applies a batch; `answers` gets one per operation.
    pub fn apply(&mut self, batch: &Batch<'_>, answers: &mut Vec<Answer>) {
        answers.clear();
        self.contracts.repeats_are_full = false;
        if !batch.records.is_empty() {
            self.pass_time(batch.log_time_ms, batch.offset);
        }
        let mut ahead = Ahead { ops: batch.ops, stamps: batch.stamps };
        for _ in 0..PREFETCH_AHEAD {
            ahead.fetch(self);
        }
        answers.reserve(batch.ops.len());
        let mut stamps = batch.stamps.iter();
        for (index, op) in batch.ops.iter().enumerate() {
            ahead.fetch(self);
            if op.kind == OpKind::Add {
                answers.push(self.add_named(op, batch.records));
                continue;
            }
            let stamp = if op.has_stamp() { stamps.next() } else { None };
            if op.is_entry() {
                self.contracts.receive(op.counter);
            }
            answers.push(match (op.kind, stamp) {
                (OpKind::Count, _) => self.count(op, batch.records),
                (OpKind::Entry, Some(stamp)) => self.entry(op, stamp, batch),
                (OpKind::Claim, Some(stamp)) => self.claim(index, stamp, batch),
                (OpKind::AddOnce, Some(stamp)) => self.add_once(op, stamp, batch),
                (OpKind::Once, Some(stamp)) => self.remember_request(op, stamp, batch),
                _ => self.apply_rare(op, batch),
            });
        }
    }

    /// Lets log time pass: what is due expires, and what no longer counts is forgotten. `offset` is that of the next record.
    /// Without a record this may be forgotten again, and then passes with the next one.
    pub fn pass_time(&mut self, log_time_ms: u64, offset: u64) {
        assert!(log_time_ms >= self.log_time_ms, "log time never runs backwards");
        self.log_time_ms = log_time_ms;
        if self.timeline.passed(log_time_ms, offset) {
            self.contracts.advance(log_time_ms);
        }
        self.expire_due();
    }

    /// Whether something is due at a time: a counter to expire, or repeats to be forgotten.
    pub fn waits_for(&self, now_ms: u64) -> bool {
        self.table.first_deadline().is_some_and(|(at_ms, ..)| at_ms <= now_ms)
            || self.contracts.forgets_at_ms().is_some_and(|at_ms| at_ms + MARK_EVERY_MS <= now_ms)
    }

    #[inline]
    fn add(&mut self, op: &Op, records: &[u8]) -> Answer {
        match self.table.add(op.cell, op.arg) {
            Added::Value(value) => Answer::Value(value),
            Added::Overflow => Answer::Overflow,
            Added::Created(value) => {
                self.name_created(op, records);
                Answer::Value(value)
            }
        }
    }

    /// Adds to a counter that a client named.
    #[inline]
    fn add_named(&mut self, op: &Op, records: &[u8]) -> Answer {
        let answer = self.add(op, records);
        if op.counter != Op::AD_HOC && answer != Answer::Overflow {
            self.contracts.added(op.counter, op.arg);
        }
        answer
    }

    #[cold]
    fn name_created(&mut self, op: &Op, records: &[u8]) {
        match record_at(records, op) {
            Record::Event(event) => {
                let id = self.stager.declarations().entry_id(op.counter, &event, &mut self.id);
                id.expect("staging has built this id before");
                self.names.created(&self.id);
                self.databases.created(&self.id);
            }
            Record::Add { name, .. } | Record::AddOnce { name, .. } => self.note_created(name),
            other => unreachable!("{other:?} adds nothing"),
        }
    }

    fn note_created(&mut self, id: &[u8]) {
        self.names.created(id);
        self.databases.created(id);
    }

    /// Adds, unless the same was asked for before under the same id.
    fn add_once(&mut self, op: &Op, stamp: &Stamp, batch: &Batch<'_>) -> Answer {
        let (answer, kind) = match self.answered_before(stamp.key, batch.log_time_ms) {
            Some(known) if known.delta == op.arg => (Answer::Repeated(known.value), BoxKind::Duplicate),
            Some(known) => (Answer::OtherDelta(known.delta), BoxKind::Conflict),
            None if !self.has_room_for_a_key(batch.log_time_ms) => (Answer::Full, BoxKind::Rejected),
            None => match self.add_named(op, batch.records) {
                Answer::Value(value) => {
                    let answered = Answered { delta: op.arg, value, at_ms: batch.log_time_ms };
                    self.remember_answer(stamp.key, answered);
                    (Answer::Value(value), BoxKind::Counted)
                }
                refused => (refused, BoxKind::Rejected),
            },
        };
        self.box_named(op, kind);
        answer
    }

    /// What an idempotency key was used for, if it is still known at this log time.
    fn answered_before(&self, key: CellKey, log_time_ms: u64) -> Option<Answered> {
        let known = self.ledger.answers.get(key).copied();
        known.filter(|known| known.at_ms >= self.keys_known_from_ms(log_time_ms))
    }

    fn has_room_for_a_key(&mut self, log_time_ms: u64) -> bool {
        let known_from_ms = self.keys_known_from_ms(log_time_ms);
        self.answered.used(known_from_ms) < self.declarations().idempotency().keys_max
    }

    fn remember_answer(&mut self, key: CellKey, answered: Answered) {
        self.ledger.answers.put(key, answered);
        self.answered.add(answered.at_ms, self.declarations().idempotency().keep_ms);
    }

    /// The log time at which an idempotency key must have come to be known at this one.
    fn keys_known_from_ms(&self, log_time_ms: u64) -> u64 {
        let keep_ms = self.declarations().idempotency().keep_ms;
        self.forgotten_before_ms.max((log_time_ms + 1).saturating_sub(keep_ms))
    }

    /// Drops rows of idempotency keys that have had their time by the log, unless they are in use again. This changes no answer:
    /// a key that is over is one that never was, and stays so.
    pub fn forget_answers(&mut self, answers: Vec<(CellKey, Answered)>) {
        let known_from_ms = self.keys_known_from_ms(self.log_time_ms);
        for (key, answer) in answers.into_iter().filter(|(_, answer)| answer.at_ms < known_from_ms) {
            self.ledger.answers.load(key, Some(answer));
            if self.ledger.answers.get(key) == Some(&answer) {
                self.ledger.answers.remove(key);
            }
        }
    }

    /// Begins a new filter of idempotency keys when most of those in it are gone. Only while nothing is staged.
    pub fn renew_answers(&mut self) {
        if self.ledger.answers.filter_is_worn() {
            self.ledger.answers.relearn();
        }
    }

    fn apply_rare(&mut self, op: &Op, batch: &Batch<'_>) -> Answer {
        match op.kind {
            OpKind::Get => self.get(op.cell, batch.log_time_ms).map_or(Answer::Absent, Answer::Value),
            OpKind::Ttl => self.ttl(op.cell, batch.log_time_ms),
            OpKind::Deadline => self.deadline(op.cell, batch.log_time_ms),
            OpKind::Expiring => Answer::Value(self.expiring(op.arg as usize) as i64),
            OpKind::Size => Answer::Value(self.size(op.arg as usize) as i64),
            OpKind::Reject => self.rejected(op),
            OpKind::Flush => self.flush(),
            OpKind::RepeatsFull => {
                self.contracts.repeats_are_full = true;
                Answer::Yes
            }
            _ => match record_at(batch.records, op) {
                Record::Set { name, value, condition, expiry } => self.set(op.cell, name, value, condition, expiry),
                Record::Delete { name } => self.delete(op.cell, name).map_or(Answer::Absent, Answer::Value),
                Record::Expire { name, at_ms, condition } => self.expire(op.cell, name, at_ms, condition),
                Record::Persist { .. } => self.persist(op.cell),
                Record::Propose(proposal) => self.propose(proposal),
                Record::Withdraw { number } => self.withdraw(number),
                Record::Correct(correction) => self.correct(correction),
                Record::FlushDatabase { database, space } => self.flush_database(database, space),
                Record::Copy { from, to, manner } => self.copy(from, op.cell, to, manner),
                Record::SetNew(pairs) => self.set_new(pairs),
                other => unreachable!("{other:?} is not the record of {op:?}"),
            },
        }
    }

    /// A counter's value at a time; reads come through here too while their time is not in the log.
    fn get(&self, key: CellKey, now_ms: u64) -> Option<i64> {
        let due = self.table.deadline(key).is_some_and(|at_ms| at_ms <= now_ms);
        if due { None } else { self.table.get(key) }
    }

    /// The time to live of a counter that memory knows.
    pub fn ttl(&self, key: CellKey, now_ms: u64) -> Answer {
        match (self.get(key, now_ms), self.table.deadline(key)) {
            (None, _) => Answer::Absent,
            (Some(_), None) => Answer::No,
            (Some(_), Some(at_ms)) => Answer::Value((at_ms - now_ms) as i64),
        }
    }

    /// When a counter ends that memory knows.
    pub fn deadline(&self, key: CellKey, now_ms: u64) -> Answer {
        match (self.get(key, now_ms), self.table.deadline(key)) {
            (None, _) => Answer::Absent,
            (Some(_), None) => Answer::No,
            (Some(_), Some(at_ms)) => Answer::Value(at_ms as i64),
        }
    }

    fn copy(&mut self, from_name: &[u8], to: CellKey, to_name: &[u8], manner: CopyManner) -> Answer {
        let from = self.hasher.key(from_name);
        let Some(value) = self.table.get(from) else { return Answer::Absent };
        if !manner.replaces() && self.table.get(to).is_some() {
            return Answer::No;
        }
        if from != to {
            let expiry = self.table.deadline(from).map_or(Expiry::Clear, Expiry::At);
            self.delete(to, to_name);
            self.set(to, to_name, value, SetCondition::Always, expiry);
            if manner.moves() {
                self.delete(from, from_name);
            }
        }
        Answer::Yes
    }

    fn set_new(&mut self, pairs: &[u8]) -> Answer {
        if record::pairs(pairs).any(|(name, _)| self.table.get(self.hasher.key(name)).is_some()) {
            return Answer::No;
        }
        for (name, value) in record::pairs(pairs) {
            self.set(self.hasher.key(name), name, value, SetCondition::Always, Expiry::Clear);
        }
        Answer::Yes
    }

    fn set(&mut self, key: CellKey, name: &[u8], value: i64, condition: SetCondition, expiry: Expiry) -> Answer {
        let previous = self.table.get(key);
        let applied = match condition {
            SetCondition::Always => true,
            SetCondition::IfAbsent => previous.is_none(),
            SetCondition::IfPresent => previous.is_some(),
        };
        if applied {
            self.table.set(key, value);
            if previous.is_none() {
                self.note_created(name);
            }
            self.set_expiry(key, name, expiry);
        }
        Answer::Set { previous, applied }
    }

    fn set_expiry(&mut self, key: CellKey, name: &[u8], expiry: Expiry) {
        match expiry {
            Expiry::Keep => {}
            Expiry::Clear if self.table.deadline(key).is_none() => {}
            Expiry::Clear => self.table.set_expiry(key, None),
            Expiry::At(at_ms) if at_ms <= self.log_time_ms => {
                self.delete(key, name);
            }
            Expiry::At(at_ms) => self.table.set_expiry(key, Some(RowExpiry { at_ms, id: name.into() })),
        }
    }

    fn delete(&mut self, key: CellKey, name: &[u8]) -> Option<i64> {
        self.forget_history(key);
        let previous = self.table.delete(key)?;
        self.names.deleted(name);
        self.databases.deleted(name);
        Some(previous)
    }

    /// A counter that is deleted takes what corrections did to it along.
    fn forget_history(&mut self, key: CellKey) {
        if self.table.mark(key).generation > 0 {
            self.ledger.steps.forget(key, self.corrections.generation, self.log_time_ms);
        }
    }

    fn expire(&mut self, key: CellKey, name: &[u8], at_ms: u64, condition: ExpireCondition) -> Answer {
        if self.table.get(key).is_none() {
            return Answer::No;
        }
        let current = self.table.deadline(key);
        let holds = match condition {
            ExpireCondition::Always => true,
            ExpireCondition::IfNone => current.is_none(),
            ExpireCondition::IfSome => current.is_some(),
            ExpireCondition::IfGreater | ExpireCondition::IfSomeAndGreater => current.is_some_and(|now| at_ms > now),
            ExpireCondition::IfLess => current.is_none_or(|now| at_ms < now),
            ExpireCondition::IfSomeAndLess => current.is_some_and(|now| at_ms < now),
        };
        if !holds {
            return Answer::No;
        }
        self.set_expiry(key, name, Expiry::At(at_ms));
        Answer::Yes
    }

    fn persist(&mut self, key: CellKey) -> Answer {
        if self.table.deadline(key).is_none() {
            return Answer::No;
        }
        self.table.set_expiry(key, None);
        Answer::Yes
    }

    fn flush(&mut self) -> Answer {
        self.table.clear();
        self.names.clear();
        self.databases.clear();
        self.ledger.clear();
        self.answered = Quota::default();
        self.contracts.forget_values();
        self.store_is_void = true;
        Answer::Yes
    }

    fn flush_database(&mut self, database: u8, space: u64) -> Answer {
        let space = Space::from_number(space).expect("decoding has checked it");
        self.databases.flush(database.into(), space);
        Answer::Yes
    }

    /// How many counters a database has.
    pub fn size(&self, database: usize) -> u64 {
        self.databases.counters(database, self.table.cells().len())
    }

    /// How many of the counters of a database end some time.
    pub fn expiring(&self, database: usize) -> u64 {
        self.table.expiring(self.databases.spaces()[database])
    }

    fn expire_due(&mut self) {
        while let Some((at_ms, key, id)) = self.table.first_deadline()
            && at_ms <= self.log_time_ms
        {
            self.names.deleted(id);
            self.databases.deleted(id);
            self.forget_history(key);
            self.table.delete(key);
        }
    }
}

/// Runs ahead of the loop and asks for the memory it will need.
struct Ahead<'a> {
    ops: &'a [Op],
    stamps: &'a [Stamp],
}

impl Ahead<'_> {
    #[inline(always)]
    fn fetch(&mut self, state: &State) {
        let Some((op, ops)) = self.ops.split_first() else { return };
        self.ops = ops;
        state.table.prefetch(op.cell);
        if op.has_stamp()
            && let Some((stamp, stamps)) = self.stamps.split_first()
        {
            self.stamps = stamps;
            state.contracts.prefetch(op, stamp);
        }
    }
}

/// The record of an operation; the log has checked the bytes, and whoever staged the operation encoded or decoded it.
fn record_at<'a>(records: &'a [u8], op: &Op) -> Record<'a> {
    Record::decode(&mut &records[op.record as usize..]).expect("an operation points to its record")
}

#[cfg(test)]
mod tests;
