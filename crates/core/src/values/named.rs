//! What clients do to counters by name, beside adding to them.

use super::{Quota, Values};
use crate::database::Space;
use crate::id::CellKey;
use crate::memory::cell::RowExpiry;
use crate::op::Answer;
use crate::record::{self, CopyManner, ExpireCondition, Expiry, SetCondition};

impl Values {
    /// A counter's value at a time; reads come through here too while their time is not in the log.
    pub(crate) fn get(&self, key: CellKey, now_ms: u64) -> Option<i64> {
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

    pub(crate) fn copy(&mut self, from_name: &[u8], to: CellKey, to_name: &[u8], manner: CopyManner) -> Answer {
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

    pub(crate) fn set_new(&mut self, pairs: &[u8]) -> Answer {
        if record::pairs(pairs).any(|(name, _)| self.table.get(self.hasher.key(name)).is_some()) {
            return Answer::No;
        }
        for (name, value) in record::pairs(pairs) {
            self.set(self.hasher.key(name), name, value, SetCondition::Always, Expiry::Clear);
        }
        Answer::Yes
    }

    pub(crate) fn set(
        &mut self,
        key: CellKey,
        name: &[u8],
        value: i64,
        condition: SetCondition,
        expiry: Expiry,
    ) -> Answer {
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
            Expiry::Clear => self.give_deadline(key, None),
            Expiry::At(at_ms) if at_ms <= self.log_time_ms => {
                self.delete(key, name);
            }
            Expiry::At(at_ms) => self.give_deadline(key, Some(RowExpiry { at_ms, id: name.into() })),
        }
    }

    fn give_deadline(&mut self, key: CellKey, expiry: Option<RowExpiry>) {
        self.forget_deadline(key);
        if let Some(RowExpiry { at_ms, .. }) = expiry {
            self.facts.endings.insert((at_ms, key));
        }
        self.table.set_expiry(key, expiry);
    }

    /// The deadline that a counter has, if it has one, is over or of no meaning any more.
    fn forget_deadline(&mut self, key: CellKey) {
        if let Some(at_ms) = self.table.deadline(key) {
            self.facts.endings.remove((at_ms, key));
        }
    }

    pub(crate) fn delete(&mut self, key: CellKey, name: &[u8]) -> Option<i64> {
        self.forget_history(key);
        self.forget_deadline(key);
        let previous = self.table.delete(key)?;
        self.names.deleted(name);
        self.databases.deleted(name);
        Some(previous)
    }

    /// A counter that is deleted takes what corrections did to it along.
    pub(crate) fn forget_history(&mut self, key: CellKey) {
        if self.table.mark(key).generation > 0 {
            self.facts.steps.forget(key, self.generations.current, self.log_time_ms);
        }
    }

    pub(crate) fn expire(&mut self, key: CellKey, name: &[u8], at_ms: u64, condition: ExpireCondition) -> Answer {
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

    pub(crate) fn persist(&mut self, key: CellKey) -> Answer {
        if self.table.deadline(key).is_none() {
            return Answer::No;
        }
        self.give_deadline(key, None);
        Answer::Yes
    }

    /// Forgets every counter; what is kept of them as facts is cleared by the caller.
    pub(crate) fn flush(&mut self) {
        self.table.clear();
        self.names.clear();
        self.databases.clear();
        self.answered = Quota::default();
        self.sums.clear();
        self.rolling.flush();
        self.lists.clear();
        self.store_is_void = true;
    }

    pub(crate) fn flush_database(&mut self, database: u8, space: u64) -> Answer {
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
}
