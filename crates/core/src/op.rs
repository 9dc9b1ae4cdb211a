//! What a commit consists of: log records, and the operations they stand for.
//!
//! A [`Submission`] is filled where a request is parsed (a RESP connection, an HTTP thread, a replay) and moves as a
//! whole to the one writer. The records go to the log; the operations, which already carry the hashed cell, go to
//! [`crate::aggregate::State::apply`], which answers each of them.

use crate::event::Event;
use crate::id::CellKey;
use crate::record::{self, ExpireCondition, Expiry, Record, SetCondition};

/// What an operation does to its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// Reads the value. Leaves no record.
    Get,
    /// Reads the time to live. Leaves no record.
    Ttl,
    /// Adds `arg` to a counter that a client named.
    Add,
    /// Adds `arg` to a declared counter that an event feeds.
    Count,
    /// The rest have their arguments in their record.
    Set,
    Delete,
    Expire,
    Persist,
    /// Forgets every counter.
    Flush,
}

/// One operation on one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Op {
    pub cell: CellKey,
    pub arg: i64,
    /// Where its record begins in the bytes of its batch. Meaningless for reads.
    pub record: u32,
    /// For [`OpKind::Count`]: which declared counter, as an index into the configuration.
    pub counter: u16,
    pub kind: OpKind,
}

impl Op {
    /// Reads leave no trace in the log and need no sync.
    pub fn is_read(&self) -> bool {
        matches!(self.kind, OpKind::Get | OpKind::Ttl)
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The new value of an `Add` or `Count`, the value read by `Get`, what `Delete` removed, or the
    /// milliseconds left of a `Ttl`.
    Value(i64),
    /// There was no such counter.
    Absent,
    /// It was done (`Expire`, `Persist`, `Flush`).
    Yes,
    /// It was not done, because its condition did not hold; for `Ttl`: the counter never expires.
    No,
    /// It was refused: the sum does not fit into 64 bits. Nothing changed.
    Overflow,
    /// The answer to `Set`.
    Set { previous: Option<i64>, applied: bool },
}

/// Records and operations on their way to one commit; all of them are in it or none is.
#[derive(Clone, Debug, Default)]
pub struct Submission {
    /// The log records, encoded, one after the other.
    pub records: Vec<u8>,
    pub record_count: u32,
    pub ops: Vec<Op>,
}

impl Submission {
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.record_count == 0
    }

    pub fn clear(&mut self) {
        self.records.clear();
        self.record_count = 0;
        self.ops.clear();
    }

    pub fn get(&mut self, cell: CellKey) {
        self.op(OpKind::Get, cell, 0, 0);
    }

    pub fn ttl(&mut self, cell: CellKey) {
        self.op(OpKind::Ttl, cell, 0, 0);
    }

    pub fn add(&mut self, cell: CellKey, name: &[u8], delta: i64) {
        self.record_op(OpKind::Add, cell, delta, &Record::Add { name, delta });
    }

    pub fn set(&mut self, cell: CellKey, name: &[u8], value: i64, condition: SetCondition, expiry: Expiry) {
        self.record_op(OpKind::Set, cell, value, &Record::Set { name, value, condition, expiry });
    }

    pub fn delete(&mut self, cell: CellKey, name: &[u8]) {
        self.record_op(OpKind::Delete, cell, 0, &Record::Delete { name });
    }

    /// `at_ms` is an absolute time in milliseconds since 1970; a time that has passed deletes the counter.
    pub fn expire(&mut self, cell: CellKey, name: &[u8], at_ms: u64, condition: ExpireCondition) {
        self.record_op(OpKind::Expire, cell, 0, &Record::Expire { name, at_ms, condition });
    }

    pub fn persist(&mut self, cell: CellKey, name: &[u8]) {
        self.record_op(OpKind::Persist, cell, 0, &Record::Persist { name });
    }

    pub fn flush(&mut self) {
        self.record_op(OpKind::Flush, CellKey::NONE, 0, &Record::Flush);
    }

    /// Appends a record and answers where it begins; its operations, if any, are added with [`Self::op`].
    pub fn record(&mut self, record: &Record<'_>) -> u32 {
        let at = u32::try_from(self.records.len()).expect("a submission is bounded far below 4 GiB");
        record.encode(&mut self.records);
        self.record_count += 1;
        at
    }

    /// Appends an event and answers where its record begins; [`crate::counter::Stager::stage`] adds its operations.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>) -> u32 {
        let at = u32::try_from(self.records.len()).expect("a submission is bounded far below 4 GiB");
        record::encode_event(event, &mut self.records);
        self.record_count += 1;
        at
    }

    pub fn op(&mut self, kind: OpKind, cell: CellKey, arg: i64, record: u32) {
        self.ops.push(Op { cell, arg, record, counter: 0, kind });
    }

    /// Appends another submission behind this one.
    pub fn append(&mut self, other: &Submission) {
        let base = u32::try_from(self.records.len()).expect("a commit is bounded far below 4 GiB");
        self.records.extend_from_slice(&other.records);
        self.record_count += other.record_count;
        self.ops.extend(other.ops.iter().map(|op| Op { record: op.record + base, ..*op }));
    }

    fn record_op(&mut self, kind: OpKind, cell: CellKey, arg: i64, record: &Record<'_>) {
        let at = self.record(record);
        self.op(kind, cell, arg, at);
    }
}
