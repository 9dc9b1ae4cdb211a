//! What each declared counter promises, kept: every entry ends in exactly one box.
//!
//! First the question whether the entry stood before (display, persistent) or changes anything (transition), then whether
//! it is late, then it counts. Boxes are kept per counter; those other than `counted` also per key.

use super::parked::Parked;
use super::{Batch, State, record_at};
use crate::cell::Added;
use crate::counter::{Declarations, Lateness, Meaning, Mode, Target};
use crate::dedup::{Dedup, needed_from_ms};
use crate::id::CellKey;
use crate::ledger::{BoxKind, Boxes, Claim, Duplicate, Entity};
use crate::op::{Answer, Op, OpKind, Stamp, Stream};
use crate::record::Record;
use std::collections::BTreeMap;

/// The running part of all declared counters, in the order of the declarations.
#[derive(Default)]
pub struct Contracts {
    active: Vec<Contract>,
    /// What is left of counters that are not declared any more.
    retired: BTreeMap<Box<str>, Kept>,
    pub parked: Parked,
    /// How many rows the audit of duplicates ever got.
    pub audited: u64,
}

struct Contract {
    name: Box<str>,
    mode: Mode,
    lateness: Option<Lateness>,
    dedup: Option<Dedup>,
    kept: Kept,
}

/// What a checkpoint keeps of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub meaning: Meaning,
    /// Entries that came, counted before anybody looks at them: the boxes have to add up to it.
    pub received: u64,
    pub boxes: Boxes,
    /// The latest time of an entry that counted.
    pub watermark_ms: i64,
}

/// A counter's boxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    pub name: Box<str>,
    pub stream: Stream,
    /// Counted apart from the boxes, which add up to it.
    pub received: u64,
    pub boxes: Boxes,
    pub watermark_ms: Option<i64>,
}

impl Balance {
    fn of((name, kept): (&str, &Kept)) -> Balance {
        Balance {
            name: name.into(),
            stream: Stream::of(kept.meaning.mode),
            received: kept.received,
            boxes: kept.boxes,
            watermark_ms: (kept.watermark_ms != i64::MIN).then_some(kept.watermark_ms),
        }
    }
}

/// What a claim came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fresh,
    Duplicate,
    Conflict,
    Overflow,
}

impl Contracts {
    /// Goes over to new declarations. A counter keeps what it has by its name.
    pub(super) fn declare(&mut self, declarations: &Declarations) {
        let mut memories = BTreeMap::new();
        for contract in self.active.drain(..) {
            memories.extend(contract.dedup.map(|dedup| (contract.name.clone(), dedup)));
            self.retired.insert(contract.name, contract.kept);
        }
        for counter in declarations.counters() {
            let kept = self.retired.remove(&counter.name).unwrap_or_else(|| Kept {
                meaning: counter.meaning(),
                received: 0,
                boxes: Boxes::default(),
                watermark_ms: i64::MIN,
            });
            let memory = memories.remove(&counter.name);
            let dedup = counter.dedup.as_ref().map(|wanted| {
                memory.filter(|dedup| dedup.window_ms() == wanted.window_ms).unwrap_or(Dedup::new(wanted.window_ms))
            });
            let (name, mode, lateness) = (counter.name.clone(), counter.mode, counter.lateness);
            self.active.push(Contract { name, mode, lateness, dedup, kept });
        }
    }

    /// What every counter ever declared meant, so that none comes to mean something else.
    pub fn meanings(&self) -> BTreeMap<Box<str>, Meaning> {
        self.kept().map(|(name, kept)| (name.into(), kept.meaning.clone())).collect()
    }

    /// The boxes of every counter there ever was.
    pub fn balances(&self) -> Vec<Balance> {
        self.kept().map(Balance::of).collect()
    }

    /// The boxes of one counter.
    pub fn balance(&self, name: &str) -> Option<Balance> {
        self.kept().find(|(known, _)| *known == name).map(Balance::of)
    }

    /// How many sessions (or other groups) are remembered against repeats, and the memory for it.
    pub fn dedup_usage(&self) -> (usize, usize) {
        let memories = self.active.iter().filter_map(|contract| contract.dedup.as_ref());
        memories.fold((0, 0), |(groups, bytes), dedup| (groups + dedup.groups(), bytes + dedup.bytes()))
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = (&str, &Kept)> {
        let active = self.active.iter().map(|contract| (&*contract.name, &contract.kept));
        active.chain(self.retired.iter().map(|(name, kept)| (&**name, kept)))
    }

    pub(super) fn resume(&mut self, name: Box<str>, kept: Kept) {
        self.retired.insert(name, kept);
    }

    /// The first log time whose batches a rebuild of the repeats needs; `None` if nothing is remembered.
    pub(super) fn needed_from_ms(&self, log_time_ms: u64) -> Option<u64> {
        let memories = self.active.iter().filter_map(|contract| contract.dedup.as_ref());
        memories.map(|dedup| needed_from_ms(dedup.window_ms(), log_time_ms)).min()
    }

    /// Lets log time pass for the memories of repeats, whether anybody feeds them or not.
    pub(super) fn advance(&mut self, log_time_ms: u64) {
        for dedup in self.active.iter_mut().filter_map(|contract| contract.dedup.as_mut()) {
            dedup.advance(log_time_ms);
        }
    }

    /// The log time at which some of what is remembered of repeats no longer counts.
    pub(super) fn forgets_at_ms(&self) -> Option<u64> {
        self.active.iter().filter_map(|contract| contract.dedup.as_ref()?.forgets_at_ms()).min()
    }

    /// Gives some of the memory back that repeats no longer need. It changes nothing that anybody can see.
    pub fn sweep(&mut self, segments: usize) {
        for dedup in self.active.iter_mut().filter_map(|contract| contract.dedup.as_mut()) {
            dedup.sweep(segments);
        }
    }

    #[inline]
    pub(super) fn prefetch(&self, op: &Op, stamp: &Stamp) {
        if op.kind == OpKind::Entry
            && let Some(dedup) = &self.active[usize::from(op.counter)].dedup
        {
            dedup.prefetch(stamp.key);
        }
    }

    pub(super) fn mode(&self, counter: u16) -> Mode {
        self.active[usize::from(counter)].mode
    }

    /// Whether a display entry stood before; notes it.
    #[inline]
    pub(super) fn is_repeat(&mut self, counter: u16, stamp: &Stamp, log_time_ms: u64) -> bool {
        match &mut self.active[usize::from(counter)].dedup {
            Some(dedup) if stamp.key != CellKey::NONE => dedup.is_repeat(stamp.key, stamp.number, log_time_ms),
            _ => false,
        }
    }

    /// An entry came; whatever becomes of it, it ends in one box.
    #[inline]
    pub(super) fn receive(&mut self, counter: u16) {
        self.active[usize::from(counter)].kept.received += 1;
    }

    #[inline]
    pub(super) fn bump(&mut self, counter: u16, kind: BoxKind, n: i64) {
        self.active[usize::from(counter)].kept.boxes.bump(kind, n);
    }

    pub(super) fn index(&self, name: &str) -> Option<u16> {
        self.active.iter().position(|contract| *contract.name == *name).map(|index| index as u16)
    }

    /// The boxes of a counter by its name, declared or not any more.
    pub(super) fn boxes_mut(&mut self, name: &str) -> Option<&mut Boxes> {
        match self.index(name) {
            Some(index) => Some(&mut self.active[usize::from(index)].kept.boxes),
            None => self.retired.get_mut(name).map(|kept| &mut kept.boxes),
        }
    }
}

impl State {
    /// An entry of a counter that asks no questions.
    #[inline]
    pub(super) fn count(&mut self, op: &Op, records: &[u8]) -> Answer {
        let answer = self.add(op, records);
        match answer {
            Answer::Value(_) => self.contracts.bump(op.counter, BoxKind::Counted, 1),
            _ => self.put_into(op, BoxKind::Rejected),
        }
        answer
    }

    #[inline]
    pub(super) fn entry(&mut self, op: &Op, stamp: &Stamp, batch: &Batch<'_>) -> Answer {
        match self.contracts.mode(op.counter) {
            Mode::Display if self.contracts.is_repeat(op.counter, stamp, batch.log_time_ms) => {
                self.put_into(op, BoxKind::Duplicate);
                return Answer::Duplicate;
            }
            Mode::Persistent if self.verdict != Verdict::Fresh => return self.refuse_claimed(op),
            Mode::Transition => return self.transition(op, stamp, batch),
            Mode::Simple | Mode::Display | Mode::Persistent => {}
        }
        match self.contracts.lateness(op.counter, stamp.time_ms) {
            Timely::InTime => self.count(op, batch.records),
            Timely::Late { due_ms } => self.park(op, stamp, due_ms, batch),
        }
    }

    fn refuse_claimed(&mut self, op: &Op) -> Answer {
        let (answer, kind) = match self.verdict {
            Verdict::Duplicate => (Answer::Duplicate, BoxKind::Duplicate),
            Verdict::Conflict => (Answer::Conflict, BoxKind::Conflict),
            Verdict::Fresh | Verdict::Overflow => (Answer::Overflow, BoxKind::Rejected),
        };
        self.put_into(op, kind);
        answer
    }

    /// Claims an event id for the entries behind operation `index`: all of them count in this commit, or none.
    pub(super) fn claim(&mut self, index: usize, stamp: &Stamp, batch: &Batch<'_>) -> Answer {
        let entries = &batch.ops[index + 1..][..usize::from(batch.ops[index].counter)];
        let known = self.ledger.claims.get(stamp.key).copied();
        self.verdict = match known {
            Some(known) if known.content == stamp.number => Verdict::Duplicate,
            Some(_) => Verdict::Conflict,
            None if entries.iter().any(|op| self.would_overflow(op)) => Verdict::Overflow,
            None => Verdict::Fresh,
        };
        if self.verdict == Verdict::Fresh {
            self.ledger.claims.put(stamp.key, Claim { content: stamp.number, at_ms: batch.log_time_ms });
            return Answer::Yes;
        }
        let Some(known) = known else { return Answer::No };
        self.audit(index, known, entries, stamp, batch);
        Answer::Claimed { content: known.content, at_ms: known.at_ms }
    }

    fn would_overflow(&self, op: &Op) -> bool {
        self.table.get(op.cell).is_some_and(|value| value.checked_add(op.arg).is_none())
    }

    fn audit(&mut self, index: usize, known: Claim, entries: &[Op], stamp: &Stamp, batch: &Batch<'_>) {
        let Record::Event(event) = record_at(batch.records, &batch.ops[index]) else {
            unreachable!("only events claim");
        };
        let declarations = self.stager.declarations();
        let text = |text: &str| text.to_owned();
        let duplicate = Duplicate {
            offset: batch.offset,
            index: index as u32,
            event_id: event.event_id.as_deref().map(text).unwrap_or_default(),
            event_type: text(&event.event_type),
            dimensions: event.dimensions.iter().map(|(name, value)| (text(name), text(value))).collect(),
            delta: event.delta,
            counters: entries.iter().map(|op| text(&declarations.counter(op.counter).name)).collect(),
            first_seen_ms: known.at_ms,
            seen_ms: batch.log_time_ms,
            conflict: self.verdict == Verdict::Conflict,
        };
        self.ledger.duplicates.push(stamp.key, duplicate);
        self.contracts.audited += 1;
    }

    /// Per entity the greatest (time, position) wins. Undoing undoes what was counted, wherever that was.
    fn transition(&mut self, op: &Op, stamp: &Stamp, batch: &Batch<'_>) -> Answer {
        let now = (stamp.time_ms, batch.offset);
        let known = self.ledger.entities.get(stamp.key).copied();
        let is_overtaken = known.is_some_and(|known| now < (known.occurred_ms, known.offset));
        let was_on = known.filter(|known| known.on);
        let turns_on = op.arg > 0;
        let answer = match was_on {
            _ if is_overtaken => return self.ignore(op),
            None if turns_on => self.count(op, batch.records),
            Some(counted) if !turns_on => self.undo(op, &counted),
            _ => self.ignore(op),
        };
        if answer == Answer::Overflow {
            return answer;
        }
        let (cell, generation) = match was_on {
            Some(counted) => (counted.cell, counted.generation),
            None => (op.cell, self.corrections.generation),
        };
        let entity = Entity { on: turns_on, occurred_ms: now.0, offset: now.1, cell, generation };
        self.ledger.entities.put(stamp.key, entity);
        answer
    }

    fn undo(&mut self, op: &Op, counted: &Entity) -> Answer {
        // What was cleared since then is not there to be undone.
        if self.table.mark(counted.cell).cleared > counted.generation {
            return self.ignore(op);
        }
        match self.table.add(counted.cell, op.arg) {
            Added::Overflow => {
                self.put_into(op, BoxKind::Rejected);
                Answer::Overflow
            }
            Added::Value(value) | Added::Created(value) => {
                self.contracts.bump(op.counter, BoxKind::Counted, 1);
                Answer::Value(value)
            }
        }
    }

    fn ignore(&mut self, op: &Op) -> Answer {
        self.put_into(op, BoxKind::Ignored);
        Answer::Ignored
    }

    pub(super) fn rejected(&mut self, op: &Op) -> Answer {
        self.contracts.bump(op.counter, BoxKind::Rejected, 1);
        Answer::Rejected
    }

    /// A box other than `counted`, for the counter and for the key.
    fn put_into(&mut self, op: &Op, kind: BoxKind) {
        self.contracts.bump(op.counter, kind, 1);
        self.ledger.boxes.add(op.cell, kind, 1);
    }

    /// The box of an entry that a client made by the name of its counter.
    pub(super) fn box_named(&mut self, op: &Op, records: &[u8], kind: BoxKind) {
        if kind != BoxKind::Counted {
            self.ledger.boxes.add(op.cell, kind, 1);
        }
        if let Record::AddOnce { name, .. } = record_at(records, op)
            && let Ok(Target::Declared { counter, .. }) = self.stager.declarations().resolve(name)
        {
            self.contracts.receive(counter);
            self.contracts.bump(counter, kind, 1);
        }
    }

    fn park(&mut self, op: &Op, stamp: &Stamp, due_ms: DueMs, batch: &Batch<'_>) -> Answer {
        let Record::Event(event) = record_at(batch.records, op) else { unreachable!("only events are late") };
        let id = self.stager.declarations().entry_id(op.counter, &event, &mut self.id);
        id.expect("staging has built this id before");
        let due_ms = due_ms.after(batch.log_time_ms);
        if !self.contracts.parked.park(op.cell, &self.id, stamp.time_ms, op.arg, due_ms) {
            self.put_into(op, BoxKind::Rejected);
            return Answer::Overflow;
        }
        self.put_into(op, BoxKind::Late);
        Answer::Late
    }
}

enum Timely {
    InTime,
    Late { due_ms: DueMs },
}

/// Runs come at the multiples of this.
struct DueMs(u64);

impl DueMs {
    fn after(&self, log_time_ms: u64) -> u64 {
        (log_time_ms / self.0 + 1) * self.0
    }
}

impl Contracts {
    /// Whether an entry of this time counts at once; moves the watermark.
    #[inline]
    fn lateness(&mut self, counter: u16, time_ms: i64) -> Timely {
        let Contract { lateness: Some(lateness), kept, .. } = &mut self.active[usize::from(counter)] else {
            return Timely::InTime;
        };
        kept.watermark_ms = kept.watermark_ms.max(time_ms);
        let behind_ms = kept.watermark_ms.abs_diff(time_ms);
        if behind_ms <= lateness.allowed_ms {
            return Timely::InTime;
        }
        let soon = behind_ms <= lateness.corrected_ms;
        Timely::Late { due_ms: DueMs(if soon { lateness.every_ms } else { lateness.restated_ms }) }
    }
}
