//! From the records of the log back to operations, and to what the state remembers of repeats.

use super::{Improper, Machine};
use crate::counter::ConfigErrors;
use crate::head::{Group, Head};
use crate::ledger::{Correction, Fill, Proposal, Row};
use crate::op::{Batch, Op, OpKind, Stamp, Submission};
use crate::record::{DecodeError, Record, joined, take_with_parts};

/// A batch of the log, read.
pub struct Decoded {
    pub head: Option<Head>,
    /// Where its first record begins.
    pub first: u32,
    pub what: Replayed,
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
    Config(#[from] ConfigErrors),
    #[error("the log has a configuration in the middle of a batch")]
    MisplacedConfig,
    #[error("the batch cannot be of this log: {0}")]
    Improper(#[from] Improper),
}

impl Machine {
    /// Turns the records of a batch back into operations.
    pub fn decode(&mut self, records: &[u8], out: &mut Submission) -> Result<Decoded, ReplayError> {
        out.clear();
        let mut rest = records;
        let head = Head::take(&mut rest)?;
        let first = (records.len() - rest.len()) as u32;
        let group = head.map_or(Group::ALL, |head| head.group);
        let what = self.decode_records(records, first, group, out)?;
        Ok(Decoded { head, first, what })
    }

    fn decode_records(
        &mut self,
        records: &[u8],
        first: u32,
        group: Group,
        out: &mut Submission,
    ) -> Result<Replayed, ReplayError> {
        let mut rest = &records[first as usize..];
        while !rest.is_empty() {
            let at = (records.len() - rest.len()) as u32;
            let (parts, record) = take_with_parts(&mut rest)?;
            if let Record::Config { version, yaml } = record {
                if at != first || !rest.is_empty() {
                    return Err(ReplayError::MisplacedConfig);
                }
                let yaml = String::from_utf8(joined(parts, yaml).into_owned()).map_err(|_| DecodeError::NotUtf8)?;
                return Ok(Replayed::Config { version, yaml });
            }
            self.decode_ops(&record, parts, at, group, out)?;
        }
        Ok(Replayed::Ops)
    }

    /// The operations of a record that begins at `at` of its batch, with what it says in parts. An event is judged for a group.
    fn decode_ops(
        &mut self,
        record: &Record<'_>,
        parts: Vec<u8>,
        at: u32,
        group: Group,
        out: &mut Submission,
    ) -> Result<(), ReplayError> {
        let none = crate::id::CellKey::NONE;
        if !parts.is_empty() && !matches!(record, Record::Remedy(_)) {
            return Err(DecodeError::BadValue { field: "bytes of parts", value: parts.len() as u64 }.into());
        }
        match *record {
            Record::Event(ref event) => {
                // What was rejected when it came is rejected again, and was told then.
                self.stager.stage_copy(group, event, at, out);
            }
            Record::Add { name, delta } => out.ops.push(self.addition(OpKind::Add, name, delta, at)),
            Record::AddMany { name, .. } => out.ops.push(self.addition(OpKind::AddMany, name, 0, at)),
            Record::AddOnce { name, id, delta } => {
                out.ops.push(self.addition(OpKind::AddOnce, name, delta, at));
                out.stamps.push(crate::fact::answer_key(&self.hasher, name, id).stamp());
            }
            Record::Set { name, value, .. } => out.op(OpKind::Set, self.hasher.key(name), value, at),
            Record::Delete { name } => out.op(OpKind::Delete, self.hasher.key(name), 0, at),
            Record::Expire { name, .. } => out.op(OpKind::Expire, self.hasher.key(name), 0, at),
            Record::Persist { name } => out.op(OpKind::Persist, self.hasher.key(name), 0, at),
            Record::Flush => out.op(OpKind::Flush, none, 0, at),
            Record::FlushDatabase { .. } => out.op(OpKind::FlushDatabase, none, 0, at),
            Record::Propose(proposal) => {
                Proposal::decode(proposal)?;
                out.op(OpKind::Propose, none, 0, at);
            }
            Record::Withdraw { .. } => out.op(OpKind::Withdraw, none, 0, at),
            Record::Correct(correction) => {
                // Reads of the cells that it changes, so that they are looked up before.
                for delta in &Correction::decode(correction)?.deltas {
                    out.get(self.hasher.key(&delta.id));
                }
                out.op(OpKind::Correct, none, 0, at);
            }
            Record::Remedy(rest) => {
                let request = self.read_request(&joined(parts, rest))?;
                self.touch(&request, at, out);
            }
            Record::Once { id, content, .. } => {
                out.op(OpKind::Once, none, 0, at);
                out.stamps.push(Stamp { number: content, ..Stamp::of_key(crate::fact::request_key(&self.hasher, id)) });
            }
            Record::Fill(fill) => Fill::decode(fill)?.stage(&mut self.stager, at, out),
            Record::RepeatsFull => out.op(OpKind::RepeatsFull, none, 0, at),
            Record::Copy { from, to, .. } => {
                out.get(self.hasher.key(from));
                out.op(OpKind::Copy, self.hasher.key(to), 0, at);
            }
            Record::SetNew(_) => {
                record.names().iter().for_each(|name| out.get(self.hasher.key(name)));
                out.op(OpKind::SetNew, none, 0, at);
            }
            Record::Tick | Record::Part(_) => {}
            Record::Config { .. } => unreachable!("a configuration is no operation"),
        }
        Ok(())
    }

    fn addition(&self, kind: OpKind, name: &[u8], delta: i64, record: u32) -> Op {
        let counter = self.declarations().declared(name).op_counter();
        Op { cell: self.hasher.key(name), arg: delta, record, counter, kind }
    }

    /// Remembers what stood in a batch from before the checkpoint, and changes nothing else.
    pub fn remember(&mut self, batch: &Batch<'_>) {
        self.timeline.passed(batch.log_time_ms, batch.offset);
        if self.was_void(batch.offset) {
            return;
        }
        let mut stamps = batch.stamps.iter();
        self.fates.contracts.repeats_are_full = false;
        for op in batch.ops {
            self.fates.contracts.repeats_are_full |= op.kind == OpKind::RepeatsFull;
            let stamp = if op.has_stamp() { stamps.next() } else { None };
            if let (OpKind::Entry, Some(stamp)) = (op.kind, stamp)
                && self.fates.contracts.has_room(op.counter, stamp, batch.log_time_ms)
            {
                self.fates.contracts.note(op.counter, stamp, batch.log_time_ms);
            }
        }
    }
}
