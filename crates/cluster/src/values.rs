//! The owner of a values partition: reads one log, of operations by name and of slots of all fates partitions, in one order.
//!
//! A slot is taken iff it begins where this owner stands with that fates partition: one that begins earlier was taken before (a
//! zombie, or an owner that went back to its cut, has sent it again), one that begins later means that something is missing. The
//! answer to an operation is an effect of its place here, never a later read.

use crate::clears::Clears;
use crate::control::{Cleared, Control, ControlRecord, ControlUnknown};
use crate::cut::{self, ChainRows, PartitionCut};
use crate::message::{KeyChange, Logged, Offsets, Payload, SlotPart, ToValues};
use crate::route::values_partition;
use crate::view::OwnerRow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use tally_core::commit::{Deltas, Gathering};
use tally_core::head::{Head, log_time_ms};
use tally_core::id::{CellHasher, name_of};
use tally_core::ledger::{Cause, Correction};
use tally_core::machine::{Machine, Need, Slice, Unfit};
use tally_core::op::{Answer, Batch, Submission};
use tally_core::record::Record;
use tally_core::values::Sums;

/// What a cut of a values partition has beside its state.
#[derive(Clone, Debug)]
pub struct ValuesHead {
    pub control: u64,
    /// How far it is with each fates partition.
    pub to: Vec<u64>,
    /// The ids of its counters.
    pub ids: BTreeSet<Box<[u8]>>,
    /// Late entries that wait for them: those who keep the entries are elsewhere.
    pub waiting: BTreeMap<Box<[u8]>, i64>,
    pub clears: Clears,
}

/// What came of a message.
#[derive(Clone, Debug, Default)]
pub struct ValuesEffects {
    /// Whose batch it was, if it was one and stood there for the first time, and the answers to its operations.
    pub answers: Option<(Head, Vec<Answer>)>,
    /// Counters that changed.
    pub changed: BTreeSet<Box<[u8]>>,
    /// What happened to each; `None` if nobody follows.
    pub deltas: Option<Deltas>,
    /// Generations that became visible with it, as far as they touch counters of this partition; or why nothing of one did.
    pub corrections: Vec<Result<Correction, Unfit>>,
}

/// A slot is missing between what was taken and what has come: its partition must stop, and somebody must look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fates partition {partition} was taken up to {taken}, and a slot has come that begins at {from}")]
pub struct SlotMissing {
    pub partition: u32,
    pub taken: u64,
    pub from: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValuesError {
    #[error("{0}")]
    Control(#[from] ControlUnknown),
    #[error("{0}")]
    Missing(#[from] SlotMissing),
}

pub struct ValuesOwner {
    partition: u32,
    partitions: NonZeroU32,
    state: Machine,
    control: u64,
    to: Vec<u64>,
    ids: BTreeSet<Box<[u8]>>,
    waiting: BTreeMap<Box<[u8]>, i64>,
    clears: Clears,
    next: u64,
    cut_at: u64,
    cut: Option<PartitionCut<ValuesHead>>,
    staged: Submission,
    seen_again: u64,
    /// Somebody follows.
    gathering: Option<Gathering>,
}

impl ValuesOwner {
    /// Goes on from what a chain of cuts adds up to.
    pub fn resume(
        partition: u32,
        partitions: NonZeroU32,
        fates_partitions: u32,
        hasher: CellHasher,
        rows: &ChainRows<ValuesHead>,
    ) -> ValuesOwner {
        let mut state = Machine::new(hasher);
        let (control, to) = (0, vec![0; fates_partitions as usize]);
        let (ids, waiting, clears) = (BTreeSet::new(), BTreeMap::new(), Clears::default());
        let mut head = ValuesHead { control, to, ids, waiting, clears };
        if let Some(last) = &rows.last {
            state.resume(&last.state).expect("a cut has a state that can be read");
            state.resumed().expect("a cut has declarations that can be read");
            state.values.table.set_cold(last.counters);
            head = last.head.clone();
        }
        // Time ends counters that nobody touches: those that end have to be known.
        for need in rows.expiring().map(Need::Cell) {
            state.load(need, rows.get(need).expect("a chain has rows that can be read"));
        }
        for (id, entries) in &head.waiting {
            state.values.table.add_pending(hasher.key(id), *entries);
        }
        let ValuesHead { control, to, ids, waiting, clears } = head;
        ValuesOwner {
            partition,
            partitions,
            state,
            control,
            to,
            ids,
            waiting,
            clears,
            next: rows.to,
            cut_at: rows.to,
            cut: None,
            staged: Submission::default(),
            seen_again: 0,
            gathering: None,
        }
    }

    /// Somebody follows from here on: effects say what happened to each counter.
    pub fn follow(&mut self) {
        self.state.values.table.follow(true);
        self.gathering = Some(Gathering::new(self.state.hasher()));
    }

    pub fn next(&self) -> u64 {
        self.next
    }

    /// How far it is with each fates partition.
    pub fn taken(&self) -> &[u64] {
        &self.to
    }

    /// Slots that came again.
    pub fn seen_again(&self) -> u64 {
        self.seen_again
    }

    pub fn ids(&self) -> impl Iterator<Item = &[u8]> {
        self.ids.iter().map(|id| &**id)
    }

    /// What a counter of this partition is.
    pub fn row(&mut self, id: &[u8], rows: &ChainRows<ValuesHead>) -> OwnerRow {
        self.know(id, rows);
        let cell = self.state.hasher().key(id);
        let table = &self.state.values.table;
        OwnerRow { value: table.get(cell), generation: table.mark(cell).generation }
    }

    /// Late entries that wait for a counter.
    pub fn waiting(&self, id: &[u8]) -> u64 {
        self.state.values.table.cells().pending(self.state.hasher().key(id))
    }

    /// What the values of a counter's keys here add up to, by what changed them; `None` if nobody has declared it here.
    pub fn sums(&self, counter: &str) -> Option<Sums> {
        self.state.balance(counter)?.sums
    }

    /// Takes the next message of its log.
    pub fn take(
        &mut self,
        logged: &Logged<'_, ToValues>,
        control: Control<'_>,
        rows: &ChainRows<ValuesHead>,
    ) -> Result<ValuesEffects, ValuesError> {
        assert_eq!(logged.offset, self.next, "a log is read in order");
        let mut effects = ValuesEffects::default();
        match logged.message {
            ToValues::Operations(payload) => self.operate(logged, payload, control, rows, &mut effects)?,
            ToValues::Slot(part) => self.take_part(logged, part, control, rows, &mut effects)?,
        }
        self.next = logged.offset + logged.message.span();
        self.state.forget_loaded();
        effects.deltas = self.gather(&effects.changed);
        self.ids.extend(effects.changed.iter().cloned());
        Ok(effects)
    }

    /// What a message did to values, if somebody follows. All that changed is named.
    fn gather(&mut self, changed: &BTreeSet<Box<[u8]>>) -> Option<Deltas> {
        let gathering = self.gathering.as_mut()?;
        for id in changed {
            self.state.values.table.name_followed(self.state.hasher().key(id), id);
        }
        let changes = self.state.values.table.take_changes().expect("it is followed since somebody follows");
        gathering.add(&changes, &[], &[], self.state.declarations());
        Some(gathering.finish())
    }

    fn operate(
        &mut self,
        logged: &Logged<'_, ToValues>,
        payload: &Payload,
        control: Control<'_>,
        rows: &ChainRows<ValuesHead>,
        effects: &mut ValuesEffects,
    ) -> Result<(), ControlUnknown> {
        let records = payload.bytes.as_slice();
        let head = Head::take(&mut &*records).ok().flatten().expect("a collector writes heads");
        control.check(head.control)?;
        let log_time_ms = log_time_ms(self.state.log_time_ms(), logged.appended_ms, head.clock_ms);
        self.expire(log_time_ms, logged.offset, effects);
        self.pass_control(head.control, control, rows, effects);
        if self.state.control() != head.control {
            self.state.configure(control.copy_of_declarations(head.control), head.control);
        }
        let mut staged = std::mem::take(&mut self.staged);
        let decoded = self.state.decode(records, &mut staged).expect("a collector writes what can be read");
        let Submission { ops, stamps, .. } = &staged;
        for need in self.state.needs(ops, stamps, |_| None) {
            self.state.load(need, rows.get(need).expect("a chain has rows that can be read"));
        }
        let (first, offset) = (decoded.first, logged.offset);
        let batch = Batch { head: Some(head), records, first, ops, stamps, log_time_ms, offset };
        let mut answers = Vec::new();
        if self.state.apply(&batch, &mut answers).is_none() {
            effects.changed.extend(names(batch.bare_records()));
            effects.answers = Some((head, answers));
        }
        self.staged = staged;
        Ok(())
    }

    fn take_part(
        &mut self,
        logged: &Logged<'_, ToValues>,
        part: &SlotPart,
        control: Control<'_>,
        rows: &ChainRows<ValuesHead>,
        effects: &mut ValuesEffects,
    ) -> Result<(), ValuesError> {
        control.check(part.control)?;
        let taken = self.to[part.partition as usize];
        if part.from > taken {
            return Err(SlotMissing { partition: part.partition, taken, from: part.from }.into());
        }
        let log_time_ms = log_time_ms(self.state.log_time_ms(), logged.appended_ms, part.log_time_ms);
        self.expire(log_time_ms, logged.offset, effects);
        self.pass_control(part.control, control, rows, effects);
        if part.from < taken {
            self.seen_again += 1;
            return Ok(());
        }
        self.declare(self.control, control);
        for (id, change) in &part.changes {
            self.know(id, rows);
            self.change(id, change, part.partition);
            effects.changed.insert(id.clone());
        }
        self.to[part.partition as usize] = part.to;
        Ok(())
    }

    fn change(&mut self, id: &[u8], change: &KeyChange, partition: u32) {
        let cell = self.state.hasher().key(id);
        if let Some(counted) = change.counted {
            self.state.count_apart(id, counted);
        }
        for (offset, times) in &change.taken_back {
            let generation = self.clears.before(partition, *offset);
            for _ in 0..*times {
                self.state.take_back_apart(id, generation);
            }
        }
        for (generation, delta) in &change.late {
            self.state.count_late_apart(id, *delta, *generation);
        }
        if change.waiting != 0 {
            self.state.values.table.add_pending(cell, change.waiting);
            let waiting = self.waiting.entry(id.into()).or_default();
            *waiting += change.waiting;
            if *waiting == 0 {
                self.waiting.remove(id);
            }
        }
    }

    /// Lets time pass: counters that are over are gone.
    fn expire(&mut self, log_time_ms: u64, offset: u64, effects: &mut ValuesEffects) {
        while let Some((at_ms, _, id)) = self.state.values.table.first_deadline()
            && at_ms <= log_time_ms
        {
            effects.changed.insert(id.into());
            self.state.pass_time(at_ms.max(self.state.log_time_ms()), offset);
        }
        self.state.pass_time(log_time_ms, offset);
    }

    /// Control that a message is the first to carry takes effect, before the message: what generations do to counters of this
    /// partition.
    fn pass_control(
        &mut self,
        to: u64,
        control: Control<'_>,
        rows: &ChainRows<ValuesHead>,
        effects: &mut ValuesEffects,
    ) {
        if to <= self.control {
            return;
        }
        for (at, record) in control.between(self.control, to) {
            let Some(slice) = self.slice_of(record) else { continue };
            self.declare(at, control);
            let made = self.correct(slice, control.generation(at + 1), rows);
            let changed = made.iter().flat_map(|made| &made.deltas).map(|delta| Box::from(delta.id.as_slice()));
            effects.changed.extend(changed);
            // The next one may be a clear of what this one has brought about.
            self.ids.extend(effects.changed.iter().cloned());
            effects.corrections.push(made);
        }
        self.control = to;
    }

    /// What a control record does here; `None` if it is none that changes values.
    fn slice_of(&self, record: &ControlRecord) -> Option<Slice> {
        let is_here = |id: &[u8]| values_partition(id, self.partitions) == self.partition;
        match record {
            ControlRecord::Config(_) | ControlRecord::LateRun { .. } => None,
            ControlRecord::Correct { purpose, deltas } => {
                let deltas = deltas.iter().filter(|delta| is_here(&delta.id)).cloned().collect();
                Some(Slice::Correct { purpose: *purpose, deltas })
            }
            ControlRecord::Clear(Cleared::Key(id)) => is_here(id).then(|| Slice::Clear { ids: vec![id.clone()] }),
            ControlRecord::Clear(Cleared::Counter(name)) => {
                let of_counter = self.ids().filter(|id| name_of(id) == name.as_bytes());
                Some(Slice::Clear { ids: of_counter.map(<[u8]>::to_vec).collect() })
            }
            ControlRecord::Revert { generation } => Some(Slice::Revert { generation: *generation }),
        }
    }

    fn correct(&mut self, slice: Slice, generation: u64, rows: &ChainRows<ValuesHead>) -> Result<Correction, Unfit> {
        loop {
            let needs = self.state.slice_needs(&slice);
            if needs.is_empty() {
                break;
            }
            for need in needs {
                self.state.load(need, rows.get(need).expect("a chain has rows that can be read"));
            }
        }
        let made = self.state.correct_apart(slice, generation)?;
        if made.cause == Cause::Clear {
            self.clears.note(generation, &self.to);
        }
        Ok(made)
    }

    /// Puts the declarations in force that there are at a control position, if they are others.
    fn declare(&mut self, at: u64, control: Control<'_>) {
        if self.state.declarations().version() != control.version(at) {
            self.state.configure(control.copy_of_declarations(at), at);
        }
    }

    /// Looks a cell up, if memory does not know it.
    fn know(&mut self, id: &[u8], rows: &ChainRows<ValuesHead>) {
        let cell = self.state.hasher().key(id);
        if !self.state.values.table.knows(cell) {
            let need = Need::Cell(cell);
            self.state.load(need, rows.get(need).expect("a chain has rows that can be read"));
        }
    }

    /// Makes a cut here.
    pub fn begin_cut(&mut self) {
        let (to, ids, waiting) = (self.to.clone(), self.ids.clone(), self.waiting.clone());
        let head = ValuesHead { control: self.control, to, ids, waiting, clears: self.clears.clone() };
        self.cut = Some(PartitionCut::begin(&mut self.state, self.cut_at, self.next, head));
    }

    pub fn cut(&self) -> Option<&PartitionCut<ValuesHead>> {
        self.cut.as_ref()
    }

    /// The cut is in the chain.
    pub fn cut_is_final(&mut self) -> PartitionCut<ValuesHead> {
        let cut = self.cut.take().expect("a cut was on its way");
        self.cut_at = cut.to;
        cut::finish(&mut self.state);
        cut
    }
}

/// The counters that records name.
fn names(mut records: &[u8]) -> impl Iterator<Item = Box<[u8]>> {
    std::iter::from_fn(move || {
        if records.is_empty() {
            return None;
        }
        let record = Record::decode(&mut records).expect("they were applied");
        Some(record.names().into_iter().map(Box::from).collect::<Vec<_>>())
    })
    .flatten()
}
