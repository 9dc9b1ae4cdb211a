//! What a commit consists of: log records, and the operations they stand for.
//!
//! A [`Submission`] is filled where a request is parsed (a RESP connection, an HTTP thread, a replay) and moves as a
//! whole to the one writer. The records go to the log; the operations, which already carry the hashed cell, go to
//! [`crate::machine::Machine::apply`], which answers each of them.

use crate::combined::{Additions, encode_each};
use crate::counter::{Durability, Target};
use crate::database::Space;
use crate::event::Event;
use crate::fact::AnswerKey;
use crate::head::{HEAD_BYTES_MAX, Head};
use crate::id::CellKey;
use crate::limits::{BATCH_BYTES_KEPT, COMBINED_MAX, RECORD_BYTES_MAX};
use crate::record::{self, CopyManner, ExpireCondition, Expiry, Record, SetCondition, joined, take_with_parts};
use std::borrow::Cow;

pub use crate::contract::Stream;

/// What a part holds of something that is too large for one record, beside its tag and its length.
const PART_BYTES: usize = RECORD_BYTES_MAX - 16;

/// What an operation does to its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// Reads the value. Leaves no record.
    Get,
    /// Reads the time to live. Leaves no record.
    Ttl,
    /// Reads when the counter ends. Leaves no record.
    Deadline,
    /// Reads how many counters database `arg` has. Leaves no record.
    Size,
    /// Reads how many of them end some time. Leaves no record.
    Expiring,
    /// Adds `arg` to a counter that a client named.
    Add,
    /// Adds what is in its record, one behind the other, to a counter that a client named.
    AddMany,
    /// The same as `Add`, once per id; its [`Stamp`] is the hash of the id.
    AddOnce,
    /// Adds `arg` to a declared counter that an event feeds and that asks no questions.
    Count,
    /// Adds `arg` to a declared counter, if its contract says so; its [`Stamp`] tells the entry from others.
    Entry,
    /// Claims an event id for the entries that follow it, those of persistent counters; its [`Stamp`] is the id and the
    /// hash of the content.
    Claim,
    /// An entry that cannot be counted. It goes into its box.
    Reject,
    /// The rest have their arguments in their record.
    Set,
    Delete,
    Expire,
    Persist,
    /// Its cell is the one that is copied to.
    Copy,
    SetNew,
    /// As earlier versions wrote it; so are `Correct` and `Once`.
    Propose,
    Withdraw,
    Correct,
    /// Rejects entries behind it that need more memory of repeats.
    RepeatsFull,
    /// Something is asked for about the past ([`crate::ledger::Remedy`]); its [`Stamp`] is the hash of the id it is asked for under, if
    /// there is one, and `arg` the number of the correction that it reverts, if it does.
    Remedy,
    /// Remembers what was asked for under an id; its [`Stamp`] is the hash of the id and that of what was asked for.
    Once,
    /// Looks up what the operation behind it needs, an entity by its [`Stamp`].
    Know,
    /// A roll-up that was added later gets what was counted before it ([`crate::ledger::Fill`]).
    Fill,
    /// Forgets every counter.
    Flush,
    /// Forgets the counters of a database other than 0.
    FlushDatabase,
}

impl OpKind {
    /// Whether a value in its answer means that a counter was changed.
    #[inline]
    pub fn is_update(self) -> bool {
        matches!(self, OpKind::Add | OpKind::AddOnce | OpKind::Delete)
    }
}

/// One operation on one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Op {
    pub cell: CellKey,
    pub arg: i64,
    /// Where its record begins in the bytes of its batch. Meaningless for reads.
    pub record: u32,
    /// For entries and additions: which declared counter, as an index into the configuration; [`Op::AD_HOC`] if none.
    pub counter: u16,
    pub kind: OpKind,
}

impl Op {
    /// The counter of operations that belong to no declared one.
    pub const AD_HOC: u16 = u16::MAX;

    /// Reads leave no trace in the log and need no sync.
    pub fn is_read(&self) -> bool {
        matches!(self.kind, OpKind::Get | OpKind::Ttl | OpKind::Deadline | OpKind::Size | OpKind::Expiring)
    }

    /// Whether it is an event for one of the counters it feeds.
    #[inline]
    pub fn is_entry(&self) -> bool {
        matches!(self.kind, OpKind::Count | OpKind::Entry | OpKind::Reject)
    }

    /// Whether a [`Stamp`] goes with it.
    #[inline]
    pub fn has_stamp(&self) -> bool {
        matches!(
            self.kind,
            OpKind::Entry | OpKind::Claim | OpKind::AddOnce | OpKind::Remedy | OpKind::Once | OpKind::Know
        )
    }
}

/// What tells one entry from another: whose it is, its number or content, and when it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The session, the entity, the event id or the idempotency key, hashed; [`CellKey::NONE`] if nothing is asked.
    pub key: CellKey,
    /// The `seq` of a session, or the hash of an event's content; of an idempotency key what its hash begins with.
    pub number: u64,
    /// When it happened, as the client says; when it was received, if the client says nothing.
    pub time_ms: i64,
    /// When it was received.
    pub received_ms: u64,
}

impl Stamp {
    /// Of something that is known by a key alone.
    pub fn of_key(key: CellKey) -> Stamp {
        Stamp { key, number: 0, time_ms: 0, received_ms: 0 }
    }
}

/// Operations that become part of the state together.
pub struct Batch<'a> {
    /// `None` in logs from before there were any, and for what never gets into a log.
    pub head: Option<Head>,
    pub records: &'a [u8],
    /// Where among these bytes the first record begins: the head stands before it, or room for one.
    pub first: u32,
    pub ops: &'a [Op],
    pub stamps: &'a [Stamp],
    pub log_time_ms: u64,
    /// Where its first record stands in the log.
    pub offset: u64,
}

impl<'a> Batch<'a> {
    /// The records without what stands before them.
    pub fn bare_records(&self) -> &'a [u8] {
        &self.records[self.first as usize..]
    }

    /// Whether it begins a commit, although it would still belong to the one before.
    pub fn begins(&self) -> bool {
        self.head.is_some_and(|head| head.begins) || record::begins_with_tick(self.bare_records())
    }

    /// The record of an operation; the log has checked the bytes, and whoever staged the operation encoded or decoded it.
    pub fn record(&self, op: &Op) -> Record<'a> {
        Record::decode(&mut &self.records[op.record as usize..]).expect("an operation points to its record")
    }

    /// The id that an addition by name has in its record.
    pub(crate) fn named(&self, op: &Op) -> &'a [u8] {
        match self.record(op) {
            Record::Add { name, .. } | Record::AddOnce { name, .. } | Record::AddMany { name, .. } => name,
            other => unreachable!("{other:?} adds nothing by name"),
        }
    }

    /// What an operation asks for about the past.
    pub(crate) fn remedy(&self, op: &Op) -> Cow<'a, [u8]> {
        let (parts, record) =
            take_with_parts(&mut &self.records[op.record as usize..]).expect("an operation points to its record");
        let Record::Remedy(rest) = record else { unreachable!("{record:?} is not the record of {op:?}") };
        joined(parts, rest)
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The entry has counted.
    Counted,
    /// The new value of an addition by name, the value read by `Get`, what `Delete` removed, the milliseconds left of a `Ttl`, those
    /// since 1970 of a `Deadline`, the `Size` of a database, or the number of a proposal or correction.
    Value(i64),
    /// The answer to `AddMany`: the value before the first, from which follows what each is answered
    /// ([`Additions::answers`]), and how many of them fit.
    Many { before: i64, counted: u32 },
    /// There was no such counter.
    Absent,
    /// It was done (`Expire`, `Persist`, `Copy`, `SetNew`, `Flush`, `FlushDatabase`, `Claim`).
    Yes,
    /// It was not done, because its condition did not hold; for `Ttl` and `Deadline`: the counter never expires.
    No,
    /// It was refused: the sum does not fit into 64 bits. Nothing changed.
    Overflow,
    /// The answer to `Set`.
    Set { previous: Option<i64>, applied: bool },
    /// The same entry stood before.
    Duplicate,
    /// The same id stood before, with another content.
    Conflict,
    /// The answer to a `Claim` whose id stood before: with which content, hashed, and when.
    Claimed { content: u64, at_ms: u64 },
    /// The same `AddOnce` stood before: what it answered then.
    Repeated(i64),
    /// The same id stood before, with another delta.
    OtherDelta(i64),
    /// There is no room for another id of an `AddOnce`. Nothing changed.
    Full,
    /// It changes nothing.
    Ignored,
    /// It came too late to count at once, and is parked.
    Late,
    /// It was rejected when it was staged.
    Rejected,
    /// There is no memory to tell whether it stood before. Nothing changed; it may come again.
    NoRoom,
}

impl Answer {
    /// Whether an entry has come to nothing, and neither stood before nor waits. A repeat is none: it has had its effect.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Answer::Conflict | Answer::NoRoom | Answer::Rejected)
    }

    /// The same for a counter that shows 0 for a sum below it.
    pub fn floored(self) -> Answer {
        match self {
            Answer::Value(value) => Answer::Value(value.max(0)),
            Answer::Repeated(value) => Answer::Repeated(value.max(0)),
            other => other,
        }
    }
}

/// Records and operations on their way to one commit; all of them are in it or none is.
#[derive(Clone, Debug, Default)]
pub struct Submission {
    /// The log records, encoded, one after the other.
    pub records: Vec<u8>,
    pub record_count: u32,
    pub ops: Vec<Op>,
    /// One for each operation that has one, in their order.
    pub stamps: Vec<Stamp>,
    pub needs: Needs,
    /// The version of the declarations that its events were staged under; `None` if it has none.
    pub staged_under: Option<u64>,
}

/// What a submission demands of its commit: the most that any of its entries does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// `None` before the first entry.
    pub stream: Option<Stream>,
    /// The highest that counters in it declare; `None` if none does.
    pub durability: Option<Durability>,
    /// Something in it is to be as durable as the node.
    pub node_durability: bool,
    /// Nobody may see a part of it without the rest.
    pub whole: bool,
    /// It is committed only if none of its entries is refused ([`Answer::is_refusal`]). For events alone.
    pub strict: bool,
}

impl Needs {
    #[inline]
    pub fn entry(&mut self, stream: Stream, durability: Option<Durability>) {
        self.stream = self.stream.max(Some(stream));
        match durability {
            Some(_) => self.durability = self.durability.max(durability),
            None => self.node_durability = true,
        }
    }

    pub fn stream(&self) -> Stream {
        self.stream.unwrap_or_default()
    }

    /// The durability of a commit on a node whose own is `node`.
    pub fn durability(&self, node: Durability) -> Durability {
        match self.durability {
            Some(own) if self.node_durability => own.max(node),
            Some(own) => own,
            None => node,
        }
    }
}

impl Submission {
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.record_count == 0
    }

    /// Memory that it has, used or not.
    fn bytes_allocated(&self) -> usize {
        let (ops, stamps) = (self.ops.capacity() * size_of::<Op>(), self.stamps.capacity() * size_of::<Stamp>());
        self.records.capacity() + ops + stamps
    }

    pub fn clear(&mut self) {
        self.records.clear();
        self.record_count = 0;
        self.ops.clear();
        self.stamps.clear();
        self.needs = Needs::default();
        self.staged_under = None;
    }

    /// Begins a batch: what follows stands behind room for its head.
    pub fn begin_batch(&mut self) {
        if self.bytes_allocated() > BATCH_BYTES_KEPT {
            *self = Submission::default();
        }
        self.clear();
        self.records.resize(HEAD_BYTES_MAX, 0);
    }

    /// The bytes of a batch that was begun, for the log.
    pub fn payload(&mut self, head: &Head) -> &[u8] {
        let room = self.records.first_chunk_mut().expect("a batch begins with room for its head");
        let at = head.encode_before(room);
        &self.records[at..]
    }

    /// What a batch that was begun is to the state.
    pub fn batch(&self, head: Option<Head>, log_time_ms: u64, offset: u64) -> Batch<'_> {
        let Submission { records, ops, stamps, .. } = self;
        Batch { head, records, first: HEAD_BYTES_MAX as u32, ops, stamps, log_time_ms, offset }
    }

    pub fn get(&mut self, cell: CellKey) {
        self.op(OpKind::Get, cell, 0, 0);
    }

    pub fn ttl(&mut self, cell: CellKey) {
        self.op(OpKind::Ttl, cell, 0, 0);
    }

    pub fn deadline(&mut self, cell: CellKey) {
        self.op(OpKind::Deadline, cell, 0, 0);
    }

    pub fn size(&mut self, database: u8) {
        self.op(OpKind::Size, CellKey::NONE, database.into(), 0);
    }

    pub fn expiring(&mut self, database: u8) {
        self.op(OpKind::Expiring, CellKey::NONE, database.into(), 0);
    }

    /// Adds to an ad-hoc counter.
    #[inline(always)]
    pub fn add(&mut self, cell: CellKey, id: &[u8], delta: i64) {
        let record = self.next_record();
        record::encode_add(id, delta, &mut self.records);
        self.addition(Op { cell, arg: delta, record, counter: Op::AD_HOC, kind: OpKind::Add }, None);
    }

    /// Adds to a counter that may be declared.
    pub fn add_to(&mut self, to: &Target<'_>, delta: i64) {
        let record = self.next_record();
        record::encode_add(&to.id, delta, &mut self.records);
        self.add_op(OpKind::Add, to, delta, record);
    }

    /// Adds one behind the other, as one record. Each is answered as if it stood by itself.
    pub fn add_many(&mut self, to: &Target<'_>, deltas: &[i64]) {
        let times = u32::try_from(deltas.len()).unwrap_or(u32::MAX);
        assert!((1..=COMBINED_MAX).contains(&times), "so many additions are not combined");
        let each = encode_each(deltas);
        let same = deltas.iter().all(|delta| *delta == deltas[0]);
        let deltas = if same { Additions::Same { delta: deltas[0], times } } else { Additions::Each(&each) };
        let record = self.record(&Record::AddMany { name: &to.id, deltas });
        self.add_op(OpKind::AddMany, to, 0, record);
    }

    /// Adds once per id. `key` is that of the counter and the id, as [`crate::fact::answer_key`] makes it. An id changes
    /// nothing about where the counter's changes have to be when they are answered.
    pub fn add_once(&mut self, to: &Target<'_>, delta: i64, key: AnswerKey, id: &[u8]) {
        let record = self.record(&Record::AddOnce { name: &to.id, id, delta });
        self.add_op(OpKind::AddOnce, to, delta, record);
        self.stamps.push(key.stamp());
    }

    fn add_op(&mut self, kind: OpKind, to: &Target<'_>, arg: i64, record: u32) {
        let counter = to.declared.op_counter();
        self.addition(Op { cell: to.cell, arg, record, counter, kind }, to.durability);
    }

    #[inline(always)]
    fn addition(&mut self, op: Op, durability: Option<Durability>) {
        self.ops.push(op);
        self.needs.entry(Stream::Simple, durability);
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

    /// Gives a counter the value and the end of another one. Two operations: the first reads, so that memory knows what is
    /// copied.
    pub fn copy(&mut self, from: (CellKey, &[u8]), to: (CellKey, &[u8]), manner: CopyManner) {
        self.get(from.0);
        self.record_op(OpKind::Copy, to.0, 0, &Record::Copy { from: from.1, to: to.1, manner });
        self.needs.whole = true;
    }

    /// Gives counters values if there is none of them. One operation for each, which reads, and one more.
    pub fn set_new<'n>(&mut self, counters: impl Iterator<Item = (CellKey, &'n [u8], i64)>) {
        let mut pairs = Vec::new();
        for (cell, name, value) in counters {
            self.get(cell);
            record::encode_pair(name, value, &mut pairs);
        }
        self.record_op(OpKind::SetNew, CellKey::NONE, 0, &Record::SetNew(&pairs));
        self.needs.whole = true;
    }

    pub fn flush(&mut self) {
        self.record_op(OpKind::Flush, CellKey::NONE, 0, &Record::Flush);
    }

    pub fn flush_database(&mut self, database: u8, space: Space) {
        let record = Record::FlushDatabase { database, space: space.number() };
        self.record_op(OpKind::FlushDatabase, CellKey::NONE, 0, &record);
    }

    /// Appends a record and answers where it begins; its operations, if any, are added with [`Self::op`].
    pub fn record(&mut self, record: &Record<'_>) -> u32 {
        let at = self.next_record();
        record.encode(&mut self.records);
        assert!(self.records.len() - at as usize <= RECORD_BYTES_MAX, "a record is bounded where it is made");
        at
    }

    /// Appends an event and answers where its record begins; [`crate::counter::Stager::stage`] adds its operations.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>) -> u32 {
        let at = self.next_record();
        record::encode_event(event, &mut self.records);
        at
    }

    /// Counts the record that is about to be appended, and answers where it begins.
    #[inline]
    pub(crate) fn next_record(&mut self) -> u32 {
        self.record_count += 1;
        u32::try_from(self.records.len()).expect("a submission is bounded far below 4 GiB")
    }

    pub fn op(&mut self, kind: OpKind, cell: CellKey, arg: i64, record: u32) {
        self.ops.push(Op { cell, arg, record, counter: Op::AD_HOC, kind });
    }

    /// Appends another submission behind this one.
    pub fn append(&mut self, other: &Submission) {
        let base = u32::try_from(self.records.len()).expect("a commit is bounded far below 4 GiB");
        self.records.extend_from_slice(&other.records);
        self.record_count += other.record_count;
        self.ops.extend(other.ops.iter().map(|op| Op { record: op.record + base, ..*op }));
        self.stamps.extend_from_slice(&other.stamps);
    }

    /// Appends what is asked for about the past; answers where it begins.
    pub fn remedy(&mut self, bytes: &[u8]) -> u32 {
        self.in_parts(bytes, Record::Remedy)
    }

    /// Appends declarations.
    pub fn config(&mut self, version: u64, yaml: &[u8]) {
        self.in_parts(yaml, |yaml| Record::Config { version, yaml });
    }

    /// Appends a record, and before it in parts what does not fit into it; answers where the first of them begins.
    fn in_parts<'b>(&mut self, bytes: &'b [u8], last: impl FnOnce(&'b [u8]) -> Record<'b>) -> u32 {
        let (parts, rest) = bytes.split_at((bytes.len().max(1) - 1) / PART_BYTES * PART_BYTES);
        let at = u32::try_from(self.records.len()).expect("a submission is bounded far below 4 GiB");
        for part in parts.chunks(PART_BYTES) {
            self.record(&Record::Part(part));
        }
        self.record(&last(rest));
        at
    }

    /// Appends a record with the one operation that it stands for; it is as durable as the node.
    pub fn record_op(&mut self, kind: OpKind, cell: CellKey, arg: i64, record: &Record<'_>) {
        let at = self.record(record);
        self.op(kind, cell, arg, at);
        self.needs.entry(Stream::Simple, None);
    }
}
