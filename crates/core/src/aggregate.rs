//! The deterministic core: a batch of operations in, an answer to each out.
//!
//! The state after a batch is a function of the state before it and of the batch, time included. The running node and a
//! replay both come through [`State::apply`]; what they need from the store they look up before and hand in with
//! [`State::load`].

use crate::cell::{Added, Row, RowExpiry, Table};
use crate::counter::{ConfigError, Declarations, Stager};
use crate::id::{CellHasher, CellKey};
use crate::names::Names;
use crate::op::{Answer, Op, OpKind, Submission};
use crate::record::{DecodeError, ExpireCondition, Expiry, Record, SetCondition};
use std::sync::Arc;

/// How far ahead of itself `apply` fetches slots into the cache.
const PREFETCH_AHEAD: usize = 16;

/// Operations that become part of the state together.
pub struct Batch<'a> {
    pub records: &'a [u8],
    pub ops: &'a [Op],
    pub log_time_ms: u64,
}

pub struct State {
    pub table: Table,
    /// Ids that came and went since the last cut.
    pub names: Names,
    /// Everything was flushed since the last cut: what the store has is void.
    pub store_is_void: bool,
    stager: Stager,
    hasher: CellHasher,
    log_time_ms: u64,
    id: Vec<u8>,
}

/// What a batch of the log says.
pub enum Replayed {
    /// Operations, now in the submission that was passed in.
    Ops,
    /// New declarations.
    Config { version: u64, yaml: String },
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("a record of the log cannot be read: {0}")]
    Record(#[from] DecodeError),
    #[error("the log has a configuration that this version of Tally does not accept: {0}")]
    Config(#[from] ConfigError),
    #[error("the log has a configuration in the middle of a batch")]
    MisplacedConfig,
}

impl State {
    pub fn new(hasher: CellHasher) -> State {
        State {
            table: Table::new(),
            names: Names::default(),
            store_is_void: false,
            stager: Stager::new(Arc::default(), hasher),
            hasher,
            log_time_ms: 0,
            id: Vec::new(),
        }
    }

    /// Goes on from a checkpoint.
    pub fn resume(&mut self, log_time_ms: u64, declarations: Declarations) {
        self.log_time_ms = log_time_ms;
        self.configure(declarations);
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

    pub fn configure(&mut self, declarations: Declarations) {
        self.stager = Stager::new(Arc::new(declarations), self.hasher);
    }

    /// Whether memory can answer this operation.
    pub fn knows(&self, op: &Op) -> bool {
        op.kind == OpKind::Flush || self.table.knows(op.cell)
    }

    /// Takes in what the store knows about a cell that memory does not know.
    pub fn load(&mut self, key: CellKey, row: Row) {
        self.table.load(key, row);
    }

    /// Applies a batch; `answers` gets one per operation.
    pub fn apply(&mut self, batch: &Batch<'_>, answers: &mut Vec<Answer>) {
        answers.clear();
        if !batch.records.is_empty() {
            assert!(batch.log_time_ms >= self.log_time_ms, "log time never runs backwards");
            self.log_time_ms = batch.log_time_ms;
            self.expire_due();
        }
        for op in batch.ops.iter().take(PREFETCH_AHEAD) {
            self.table.prefetch(op.cell);
        }
        answers.reserve(batch.ops.len());
        for (index, op) in batch.ops.iter().enumerate() {
            if let Some(ahead) = batch.ops.get(index + PREFETCH_AHEAD) {
                self.table.prefetch(ahead.cell);
            }
            answers.push(match op.kind {
                OpKind::Add | OpKind::Count => self.add(op, batch.records),
                _ => self.apply_rare(op, batch),
            });
        }
    }

    /// Turns the records of a batch back into operations.
    pub fn decode(&mut self, records: &[u8], out: &mut Submission) -> Result<Replayed, ReplayError> {
        out.clear();
        let mut rest = records;
        while !rest.is_empty() {
            let at = (records.len() - rest.len()) as u32;
            match Record::decode(&mut rest)? {
                Record::Config { version, yaml } if at == 0 && rest.is_empty() => {
                    let yaml = String::from_utf8(yaml.to_vec()).map_err(|_| DecodeError::NotUtf8)?;
                    return Ok(Replayed::Config { version, yaml });
                }
                Record::Config { .. } => return Err(ReplayError::MisplacedConfig),
                Record::Event(event) => {
                    // What was rejected when it came is rejected again, and was told then.
                    self.stager.stage(&event, at, out, &mut |_, _| {});
                }
                Record::Add { name, delta } => out.op(OpKind::Add, self.hasher.key(name), delta, at),
                Record::Set { name, value, .. } => out.op(OpKind::Set, self.hasher.key(name), value, at),
                Record::Delete { name } => out.op(OpKind::Delete, self.hasher.key(name), 0, at),
                Record::Expire { name, .. } => out.op(OpKind::Expire, self.hasher.key(name), 0, at),
                Record::Persist { name } => out.op(OpKind::Persist, self.hasher.key(name), 0, at),
                Record::Flush => out.op(OpKind::Flush, CellKey::NONE, 0, at),
                Record::Tick => {}
            }
        }
        Ok(Replayed::Ops)
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

    #[cold]
    fn name_created(&mut self, op: &Op, records: &[u8]) {
        match record_at(records, op) {
            Record::Event(event) => {
                let id = self.stager.declarations().entry_id(op.counter, &event, &mut self.id);
                id.expect("staging has built this id before");
                self.names.created(&self.id);
            }
            Record::Add { name, .. } => self.names.created(name),
            other => unreachable!("{other:?} adds nothing"),
        }
    }

    fn apply_rare(&mut self, op: &Op, batch: &Batch<'_>) -> Answer {
        match op.kind {
            OpKind::Get => self.get(op.cell, batch.log_time_ms).map_or(Answer::Absent, Answer::Value),
            OpKind::Ttl => self.ttl(op.cell, batch.log_time_ms),
            OpKind::Flush => self.flush(),
            _ => match record_at(batch.records, op) {
                Record::Set { name, value, condition, expiry } => self.set(op.cell, name, value, condition, expiry),
                Record::Delete { name } => self.delete(op.cell, name).map_or(Answer::Absent, Answer::Value),
                Record::Expire { name, at_ms, condition } => self.expire(op.cell, name, at_ms, condition),
                Record::Persist { .. } => self.persist(op.cell),
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
                self.names.created(name);
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
        let previous = self.table.delete(key)?;
        self.names.deleted(name);
        Some(previous)
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
        self.store_is_void = true;
        Answer::Yes
    }

    fn expire_due(&mut self) {
        while let Some((at_ms, key, id)) = self.table.first_deadline()
            && at_ms <= self.log_time_ms
        {
            self.names.deleted(id);
            self.table.delete(key);
        }
    }
}

/// The record of an operation; the log has checked the bytes, and whoever staged the operation encoded or decoded it.
fn record_at<'a>(records: &'a [u8], op: &Op) -> Record<'a> {
    Record::decode(&mut &records[op.record as usize..]).expect("an operation points to its record")
}

#[cfg(test)]
mod tests;
