//! Entries that were not simply counted, event ids that came again, and corrections: what a commit says whether anybody listens or not.

use super::audit::AuditRow;
use super::codec::ToldCorrection;
use super::slot::Slot;
use crate::head::RULES_WITH_AUDIT;
use crate::ledger::{BoxKind, Correction, Row};
use crate::op::Batch;
use crate::op::{Answer, Op, OpKind};
use crate::record::Record;

/// What became of an entry that was not simply counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The record it came from.
    pub offset: u64,
    pub counter: Subject,
    pub fate: BoxKind,
}

/// Whose entry it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A declared counter, as an index into the declarations of the commit.
    Declared(u16),
    /// A counter that nobody declared, by its id.
    Id(Box<[u8]>),
}

impl Answer {
    /// The box of an entry that was not simply counted.
    fn exception(self, op: &Op) -> Option<BoxKind> {
        match (op.kind, self) {
            (OpKind::Count | OpKind::Entry | OpKind::Reject, answer) => match answer {
                Answer::Duplicate => Some(BoxKind::Duplicate),
                Answer::Conflict => Some(BoxKind::Conflict),
                Answer::Ignored => Some(BoxKind::Ignored),
                Answer::Late => Some(BoxKind::Late),
                Answer::NoRoom | Answer::Rejected => Some(BoxKind::Rejected),
                _ => None,
            },
            (OpKind::AddOnce, Answer::Repeated(_)) => Some(BoxKind::Duplicate),
            (OpKind::AddOnce, Answer::OtherDelta(_)) => Some(BoxKind::Conflict),
            (OpKind::AddOnce, Answer::Full | Answer::Overflow) => Some(BoxKind::Rejected),
            _ => None,
        }
    }
}

/// Adds the exceptions of a batch that was applied, and its rows of the audit, to its commit. `count` is how many records it has.
/// What becomes of probes is told nobody.
pub fn exceptions(batch: &Batch<'_>, count: u32, answers: &[Answer], commit: &mut Slot) {
    let mut ordinals = Ordinals::new(batch, count);
    let is_audited = batch.head.is_some_and(|head| head.rules >= RULES_WITH_AUDIT);
    let probe = commit.declarations.probe_counter();
    for (index, (op, answer)) in batch.ops.iter().zip(answers).enumerate() {
        if probe.is_some() && is_of(probe, index, batch.ops) {
            ordinals.pass(op);
        } else if let Some(fate) = answer.exception(op) {
            let offset = batch.offset + ordinals.of(op);
            commit.exceptions.push(Exception { offset, counter: subject(op, batch.records), fate });
        } else if let (true, Answer::Claimed { at_ms, .. }) = (is_audited, *answer) {
            let offset = batch.offset + ordinals.of(op);
            // All entries behind a claim go by what it came to, and there is one at least.
            let conflict = answers[index + 1] == Answer::Conflict;
            let event_id = || event_id(batch, op);
            commit.audit.push(|| AuditRow { offset, event_id: event_id(), first_seen_ms: at_ms, conflict });
        } else if !op.is_read() {
            ordinals.pass(op);
        }
    }
}

/// Whether an operation is an entry of a counter, or the claim before entries of it.
fn is_of(counter: Option<u16>, index: usize, ops: &[Op]) -> bool {
    let op = ops[index];
    let entry = if op.kind == OpKind::Claim { ops[index + 1] } else { op };
    entry.is_entry() && Some(entry.counter) == counter
}

fn event_id(batch: &Batch<'_>, op: &Op) -> Box<[u8]> {
    let Record::Event(event) = batch.record(op) else { unreachable!("only events claim") };
    event.event_id.as_deref().unwrap_or_default().as_bytes().into()
}

fn subject(op: &Op, records: &[u8]) -> Subject {
    if op.counter != Op::AD_HOC {
        return Subject::Declared(op.counter);
    }
    let record = Record::decode(&mut &records[op.record as usize..]).expect("an operation points to its record");
    Subject::Id(record.name().expect("an entry without a declared counter names one").into())
}

/// Which record of a batch an operation belongs to, by where its bytes begin.
///
/// If every record has an operation, counting them does; otherwise records are walked over, as far as somebody asks.
struct Ordinals<'a> {
    records: &'a [u8],
    every_record_has_one: bool,
    /// The record that was passed last: its number, where it begins, and what lies behind it if it was walked over.
    ordinal: u64,
    at: Option<u32>,
    rest: &'a [u8],
}

impl<'a> Ordinals<'a> {
    fn new(batch: &Batch<'a>, count: u32) -> Ordinals<'a> {
        let mut last = None;
        let mut with_ops = 0;
        for op in batch.ops.iter().filter(|op| !op.is_read()) {
            with_ops += u32::from(last != Some(op.record));
            last = Some(op.record);
        }
        let records = batch.records;
        Ordinals { records, every_record_has_one: with_ops == count, ordinal: 0, at: None, rest: batch.bare_records() }
    }

    fn pass(&mut self, op: &Op) {
        if self.every_record_has_one && self.at != Some(op.record) {
            self.ordinal += u64::from(self.at.is_some());
            self.at = Some(op.record);
        }
    }

    fn of(&mut self, op: &Op) -> u64 {
        if self.every_record_has_one {
            self.pass(op);
            return self.ordinal;
        }
        while self.records.len() - self.rest.len() < op.record as usize {
            Record::decode(&mut self.rest).expect("the log has checked the records");
            self.ordinal += 1;
        }
        self.ordinal
    }
}

/// What is told of the correction in a batch, if there is one that took effect: it is the last of its operations. `just_made` is the
/// one that the batch has made, if its record does not say what that is.
pub fn told_correction(
    batch: &Batch<'_>,
    answers: &[Answer],
    just_made: Option<&Correction>,
) -> Option<ToldCorrection> {
    let (op, answer) = (batch.ops.last()?, answers.last()?);
    let correction = match (op.kind, answer) {
        (OpKind::Remedy, Answer::Value(_)) => just_made?.clone(),
        (OpKind::Correct, Answer::Yes) => written(batch, op),
        _ => return None,
    };
    Some(ToldCorrection::new(correction))
}

/// A correction that an earlier version has written in full.
fn written(batch: &Batch<'_>, op: &Op) -> Correction {
    let Ok(Record::Correct(bytes)) = Record::decode(&mut &batch.records[op.record as usize..]) else {
        unreachable!("an operation points to its record")
    };
    let mut correction = Correction::decode(bytes).expect("it was applied");
    // The record was written before its time was known: it is that of the batch.
    correction.at_ms = batch.log_time_ms;
    correction
}
