//! What each declared counter promises, kept: every entry ends in exactly one box.
//!
//! First the question whether the entry stood before (display, persistent) or changes anything (transition), then whether
//! it is late, then it counts. Boxes are kept per counter; those other than `counted` also per key.

use super::memory::{Memories, Memory};
use super::parked::Parked;
use super::{Batch, State, record_at};
use crate::cell::Added;
use crate::counter::{Counter, Declarations, Field, Lateness, Meaning, Mode};
use crate::dedup::{RejectedEntry, needed_from_ms};
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
    /// Memories of repeats that no declared counter has any more, and that may come back.
    resting: Memories,
    /// What a checkpoint says of entries that claimed nothing, by what memory they are of, until the log before it was noted.
    pub(super) rejected: Vec<(Vec<u8>, Vec<RejectedEntry>)>,
    pub parked: Parked,
    /// What follows in this batch is rejected if it needs more memory of repeats.
    pub(super) repeats_are_full: bool,
    /// How many rows the audit of duplicates ever got.
    pub audited: u64,
}

struct Contract {
    name: Box<str>,
    mode: Mode,
    lateness: Option<Lateness>,
    memory: Option<Memory>,
    /// One entity may count for one key and then for another.
    moves: bool,
    kept: Kept,
}

/// What a checkpoint keeps of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub meaning: Meaning,
    /// Entries that came, counted before anybody looks at them: the boxes have to add up to it.
    pub received: u64,
    pub boxes: Boxes,
    /// The latest time that an entry showed: its own, or that of its arrival if that is earlier.
    pub watermark_ms: i64,
    /// `None` if it counted under a version that did not add up.
    pub sums: Option<Sums>,
}

/// What the values of a counter's keys have to add up to, summed where it was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// What entries and additions by name have changed.
    pub counted: i128,
    /// What corrections have changed, but for late entries that they let count.
    pub corrected: i128,
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
    pub sums: Option<Sums>,
}

impl Balance {
    fn of((name, kept): (&str, &Kept)) -> Balance {
        Balance {
            name: name.into(),
            stream: Stream::of(kept.meaning.mode),
            received: kept.received,
            boxes: kept.boxes,
            watermark_ms: (kept.watermark_ms != i64::MIN).then_some(kept.watermark_ms),
            sums: kept.sums,
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
        for contract in self.active.drain(..) {
            self.resting.rest(contract.memory);
            self.retired.insert(contract.name, contract.kept);
        }
        for counter in declarations.counters() {
            let mut kept = self.retired.remove(&counter.name).unwrap_or_else(|| Kept {
                meaning: counter.meaning(),
                received: 0,
                boxes: Boxes::default(),
                watermark_ms: i64::MIN,
                sums: Some(Sums::default()),
            });
            kept.meaning.learn(counter);
            let memory = counter.dedup.as_ref().map(|dedup| self.resting.wake(&counter.name, dedup));
            let (name, mode, lateness, moves) = (counter.name.clone(), counter.mode, counter.lateness, moves(counter));
            self.active.push(Contract { name, mode, lateness, memory, moves, kept });
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
        let dedups = self.memories().map(|memory| &memory.dedup);
        dedups.fold((0, 0), |(groups, bytes), dedup| (groups + dedup.groups(), bytes + dedup.bytes()))
    }

    /// Everything that is remembered against repeats.
    pub(super) fn memories(&self) -> impl Iterator<Item = &Memory> {
        self.active.iter().filter_map(|contract| contract.memory.as_ref()).chain(self.resting.iter())
    }

    fn memories_mut(&mut self) -> impl Iterator<Item = &mut Memory> {
        self.active.iter_mut().filter_map(|contract| contract.memory.as_mut()).chain(self.resting.iter_mut())
    }

    /// The log before the checkpoint was noted: what it says of rejected entries holds from here on.
    pub(super) fn resume_rejected(&mut self) {
        let rejected = std::mem::take(&mut self.rejected);
        for memory in self.memories_mut() {
            let name = memory.name();
            let of = rejected.iter().filter(|(of, _)| *of == name).flat_map(|(_, entries)| entries);
            memory.dedup.resume_rejected(of.copied());
        }
    }

    /// What every counter meant that was declared once and is not any more.
    pub(super) fn removed(&self) -> impl Iterator<Item = (&str, &Meaning)> {
        self.retired.iter().map(|(name, kept)| (&**name, &kept.meaning))
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
        self.memories().map(|memory| needed_from_ms(memory.dedup.window_ms(), log_time_ms)).min()
    }

    /// Lets log time pass for the memories of repeats, whether anybody feeds them or not.
    pub(super) fn advance(&mut self, log_time_ms: u64) {
        self.memories_mut().for_each(|memory| memory.dedup.advance(log_time_ms));
        self.resting.let_go();
    }

    /// The log time at which some of what is remembered of repeats no longer counts.
    pub(super) fn forgets_at_ms(&self) -> Option<u64> {
        self.memories().filter_map(|memory| memory.dedup.forgets_at_ms()).min()
    }

    /// Gives some of the memory back that repeats no longer need. It changes nothing that anybody can see.
    pub fn sweep(&mut self, segments: usize) {
        self.memories_mut().for_each(|memory| memory.dedup.sweep(segments));
        self.resting.let_go();
    }

    #[inline]
    pub(super) fn prefetch(&self, op: &Op, stamp: &Stamp) {
        if op.kind == OpKind::Entry
            && let Some(memory) = &self.active[usize::from(op.counter)].memory
        {
            memory.dedup.prefetch(stamp.key);
        }
    }

    pub(super) fn mode(&self, counter: u16) -> Mode {
        self.active[usize::from(counter)].mode
    }

    /// Whether there is memory to note a display entry.
    #[inline]
    pub(super) fn has_room(&self, counter: u16, stamp: &Stamp, log_time_ms: u64) -> bool {
        !self.repeats_are_full || self.has_place(counter, stamp, log_time_ms)
    }

    #[cold]
    fn has_place(&self, counter: u16, stamp: &Stamp, log_time_ms: u64) -> bool {
        match &self.active[usize::from(counter)].memory {
            Some(memory) if stamp.key != CellKey::NONE => memory.dedup.has_place(stamp.key, stamp.number, log_time_ms),
            _ => true,
        }
    }

    /// Whether any of these operations may need memory of repeats.
    pub fn may_need_room(&self, ops: &[Op]) -> bool {
        ops.iter().any(|op| op.kind == OpKind::Entry && self.mode(op.counter) == Mode::Display)
    }

    /// Whether a display entry stood before; notes it.
    #[inline]
    pub(super) fn is_repeat(&mut self, counter: u16, stamp: &Stamp, log_time_ms: u64) -> bool {
        match &mut self.active[usize::from(counter)].memory {
            Some(memory) if stamp.key != CellKey::NONE => memory.dedup.is_repeat(stamp.key, stamp.number, log_time_ms),
            _ => false,
        }
    }

    /// Notes a display entry that stands in the log before a checkpoint.
    pub(super) fn note(&mut self, counter: u16, stamp: &Stamp, log_time_ms: u64) {
        if let Some(memory) = &mut self.active[usize::from(counter)].memory
            && stamp.key != CellKey::NONE
        {
            memory.dedup.note(stamp.key, stamp.number, log_time_ms);
        }
    }

    /// The display entry that was noted last is rejected: it has claimed nothing.
    #[cold]
    fn unclaim(&mut self, counter: u16, stamp: &Stamp) {
        if let Some(memory) = &mut self.active[usize::from(counter)].memory
            && stamp.key != CellKey::NONE
        {
            memory.dedup.reject(stamp.key, stamp.number);
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

    /// An entry has counted, and changed the sum of all values by so much.
    #[inline]
    fn counted(&mut self, counter: u16, change: i64) {
        let kept = &mut self.active[usize::from(counter)].kept;
        kept.boxes.bump(BoxKind::Counted, 1);
        kept.add_counted(change);
    }

    /// A client has added to a declared counter by its name.
    #[inline]
    pub(super) fn added(&mut self, counter: u16, change: i64) {
        self.active[usize::from(counter)].kept.add_counted(change);
    }

    /// What is kept of the counter that a cell belongs to, declared or not any more.
    pub(super) fn kept_of(&mut self, declarations: &Declarations, id: &[u8]) -> Option<&mut Kept> {
        if let Some(index) = declarations.index_of(id) {
            return Some(&mut self.active[usize::from(index)].kept);
        }
        let name = id.split(|byte| *byte == crate::id::SEPARATOR).next().unwrap_or_default();
        self.retired.get_mut(std::str::from_utf8(name).ok()?)
    }

    /// Every value is gone, and with it what they add up to.
    pub(super) fn forget_values(&mut self) {
        self.parked.clear();
        let active = self.active.iter_mut().map(|contract| &mut contract.kept);
        active.chain(self.retired.values_mut()).for_each(|kept| kept.sums = Some(Sums::default()));
    }
}

impl Kept {
    #[inline]
    pub(super) fn add_counted(&mut self, change: i64) {
        if let Some(sums) = &mut self.sums {
            sums.counted += i128::from(change);
        }
    }

    pub(super) fn add_corrected(&mut self, change: i64) {
        if let Some(sums) = &mut self.sums {
            sums.corrected += i128::from(change);
        }
    }
}

impl State {
    /// An entry of a counter that asks no questions.
    #[inline]
    pub(super) fn count(&mut self, op: &Op, records: &[u8]) -> Answer {
        let answer = self.add(op, records);
        match answer {
            Answer::Value(_) => self.contracts.counted(op.counter, op.arg),
            _ => self.put_into(op, BoxKind::Rejected),
        }
        answer
    }

    #[inline]
    pub(super) fn entry(&mut self, op: &Op, stamp: &Stamp, batch: &Batch<'_>) -> Answer {
        match self.contracts.mode(op.counter) {
            Mode::Display if !self.contracts.has_room(op.counter, stamp, batch.log_time_ms) => {
                self.put_into(op, BoxKind::Rejected);
                return Answer::NoRoom;
            }
            Mode::Display if self.contracts.is_repeat(op.counter, stamp, batch.log_time_ms) => {
                self.put_into(op, BoxKind::Duplicate);
                return Answer::Duplicate;
            }
            Mode::Persistent if self.verdict != Verdict::Fresh => return self.refuse_claimed(op),
            Mode::Transition => return self.transition(op, stamp, batch),
            Mode::Simple | Mode::Display | Mode::Persistent => {}
        }
        let answer = match self.contracts.lateness(op.counter, stamp) {
            Timely::InTime => self.count(op, batch.records),
            Timely::Late { due_ms } => self.park(op, stamp, due_ms, batch),
        };
        if answer == Answer::Overflow {
            self.contracts.unclaim(op.counter, stamp);
        }
        answer
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

    /// Per entity the greatest (time, position) wins, and decides the state as well as the key. Undoing undoes what was counted,
    /// wherever that was.
    fn transition(&mut self, op: &Op, stamp: &Stamp, batch: &Batch<'_>) -> Answer {
        let now = (stamp.time_ms, batch.offset);
        let known = self.ledger.entities.get(stamp.key).cloned();
        if known.as_ref().is_some_and(|known| now < (known.occurred_ms, known.offset)) {
            return self.ignore(op);
        }
        let counted = known.filter(|known| known.on);
        let turns_on = op.arg > 0;
        let answer = match &counted {
            Some(counted) if turns_on && counted.cell == op.cell => self.ignore(op),
            Some(counted) if turns_on => self.move_to(op, counted, batch.records),
            Some(counted) => self.undo(op, counted),
            None if turns_on => self.count(op, batch.records),
            None => self.ignore(op),
        };
        if answer == Answer::Overflow {
            return answer;
        }
        let (cell, generation, id) = match counted {
            Some(counted) if counted.cell == op.cell || !turns_on => (counted.cell, counted.generation, counted.id),
            _ => (op.cell, self.corrections.generation, self.id_that_may_move(op, batch.records)),
        };
        let entity = Entity { on: turns_on, occurred_ms: now.0, offset: now.1, cell, generation, id };
        self.ledger.entities.put(stamp.key, entity);
        answer
    }

    /// The id of an entry, if later ones of its entity may have another.
    fn id_that_may_move(&mut self, op: &Op, records: &[u8]) -> Option<Box<[u8]>> {
        if !self.contracts.active[usize::from(op.counter)].moves {
            return None;
        }
        let Record::Event(event) = record_at(records, op) else { unreachable!("only events have entities") };
        let id = self.stager.declarations().entry_id(op.counter, &event, &mut self.id);
        id.expect("staging has built this id before");
        Some(self.id.as_slice().into())
    }

    /// The entity counts for another key from now on.
    fn move_to(&mut self, op: &Op, counted: &Entity, records: &[u8]) -> Answer {
        if self.would_overflow(op) || self.has_no_room_below(counted.cell) {
            return self.overflow(op);
        }
        let change = if self.take_away(counted) { 0 } else { op.arg };
        let answer = self.add(op, records);
        self.contracts.counted(op.counter, change);
        answer
    }

    fn undo(&mut self, op: &Op, counted: &Entity) -> Answer {
        if self.has_no_room_below(counted.cell) {
            return self.overflow(op);
        }
        if !self.take_away(counted) {
            return self.ignore(op);
        }
        self.contracts.counted(op.counter, -1);
        self.table.get(counted.cell).map_or(Answer::Absent, Answer::Value)
    }

    /// Takes away what an entity counted. `false` if it is not there: it was cleared since.
    fn take_away(&mut self, counted: &Entity) -> bool {
        if self.table.get(counted.cell).is_none() {
            return false;
        }
        let mut mark = self.table.mark(counted.cell);
        let is_there = mark.spans.is_there(counted.generation);
        if mark.spans.undo(counted.generation) {
            self.table.set_mark(counted.cell, mark);
        }
        if is_there {
            if let Some(id) = &counted.id {
                self.table.name_followed(counted.cell, id);
            }
            let taken = self.table.add(counted.cell, -1);
            debug_assert!(matches!(taken, Added::Value(_)), "room was checked, and the cell is there");
        }
        is_there
    }

    fn has_no_room_below(&self, cell: CellKey) -> bool {
        self.table.get(cell) == Some(i64::MIN)
    }

    fn overflow(&mut self, op: &Op) -> Answer {
        self.put_into(op, BoxKind::Rejected);
        Answer::Overflow
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
    pub(super) fn box_named(&mut self, op: &Op, kind: BoxKind) {
        if kind != BoxKind::Counted {
            self.ledger.boxes.add(op.cell, kind, 1);
        }
        if op.counter != Op::AD_HOC {
            self.contracts.receive(op.counter);
            self.contracts.bump(op.counter, kind, 1);
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
        self.table.add_pending(op.cell, 1);
        self.put_into(op, BoxKind::Late);
        Answer::Late
    }
}

/// Whether the key of an entry is more than its entity says.
fn moves(counter: &Counter) -> bool {
    let says = |dimension: &str| {
        counter.entity.iter().any(|field| matches!(field, Field::Dimension(name) if **name == *dimension))
    };
    counter.mode == Mode::Transition && !counter.dimensions.iter().all(|dimension| says(dimension))
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
    /// Whether an entry counts at once; moves the watermark. A time ahead of its arrival moves it no further than to the
    /// arrival, and an entry that we kept waiting is not late for that.
    #[inline]
    fn lateness(&mut self, counter: u16, stamp: &Stamp) -> Timely {
        let Contract { lateness: Some(lateness), kept, .. } = &mut self.active[usize::from(counter)] else {
            return Timely::InTime;
        };
        let received_ms = i64::try_from(stamp.received_ms).unwrap_or(i64::MAX);
        kept.watermark_ms = kept.watermark_ms.max(stamp.time_ms.min(received_ms));
        let now_ms = kept.watermark_ms.min(received_ms);
        let behind_ms = if stamp.time_ms < now_ms { now_ms.abs_diff(stamp.time_ms) } else { 0 };
        if behind_ms <= lateness.allowed_ms {
            return Timely::InTime;
        }
        let soon = behind_ms <= lateness.corrected_ms;
        Timely::Late { due_ms: DueMs(if soon { lateness.every_ms } else { lateness.restated_ms }) }
    }
}
