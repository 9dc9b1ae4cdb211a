//! The owner of a fates partition: reads the events of its log in order, decides them, and hands on what each slot came to.
//!
//! The lines between slots follow from the log: a slot of log time, under one control position. So whoever reads the same log
//! emits the same bytes, a zombie included. The order is log → commits → cut: a cut ends where a slot ends, and is handed out
//! ([`FatesOwner::ready_cut`]) only when everything up to there was emitted and is durable.

use crate::control::{Control, ControlRecord, ControlUnknown};
use crate::cut::{self, ChainRows, PartitionCut};
use crate::message::{Emission, KeyChange, Logged, Offsets, Payload, SlotPart};
use crate::route::values_partition;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use tally_core::commit::{Commit, Digest, Slots, VoidBatch, exceptions};
use tally_core::fates::{Balance, Counts, Scene};
use tally_core::head::{Head, log_time_ms};
use tally_core::id::CellHasher;
use tally_core::ledger::{CountedAs, Entity};
use tally_core::machine::{Machine, Need};
use tally_core::op::{Answer, Batch, Op, Submission};
use tally_core::position::Position;

/// What a cut of a fates partition has beside its state.
#[derive(Clone, Debug)]
pub struct FatesHead {
    /// Control records before this one have taken effect.
    pub control: u64,
    /// Of the last commit.
    pub digest: Digest,
}

pub struct FatesOwner {
    partition: u32,
    values_partitions: NonZeroU32,
    state: Machine,
    /// Control records before this one have taken effect.
    control: u64,
    slots: Slots,
    digest: Digest,
    /// What the slot that is open did to each key.
    open: BTreeMap<Box<[u8]>, KeyChange>,
    /// Of the last batch. What is read again begins at 0: with every batch that matters comes the one that set its time.
    log_time_ms: u64,
    /// Behind the last batch that was read.
    next: u64,
    /// Where the cut that is in the chain ends.
    cut_at: u64,
    /// Up to here the log is only remembered: the cut stands on it.
    remember_to: u64,
    /// Where the last slot that is over ends.
    closed_to: u64,
    /// Slots that are over and not yet durable elsewhere.
    outbox: VecDeque<Emission>,
    cut: Option<PartitionCut<FatesHead>>,
    staged: Submission,
    answers: Vec<Answer>,
    voids: u64,
    alarms: u64,
}

impl FatesOwner {
    /// Goes on from what a chain of cuts adds up to.
    pub fn resume(
        partition: u32,
        values_partitions: NonZeroU32,
        hasher: CellHasher,
        rows: &ChainRows<FatesHead>,
    ) -> FatesOwner {
        let mut state = Machine::new(hasher);
        let mut owner = FatesOwner {
            partition,
            values_partitions,
            control: 0,
            slots: Slots::new(position(partition, rows.to)),
            digest: Digest::default(),
            open: BTreeMap::new(),
            log_time_ms: 0,
            next: rows.to,
            cut_at: rows.to,
            remember_to: rows.to,
            closed_to: rows.to,
            outbox: VecDeque::new(),
            cut: None,
            staged: Submission::default(),
            answers: Vec::new(),
            voids: 0,
            alarms: 0,
            state: Machine::new(hasher),
        };
        if let Some(last) = &rows.last {
            owner.next = state.resume(&last.state).expect("a cut has a state that can be read");
            (owner.control, owner.digest) = (last.head.control, last.head.digest);
            if owner.next == rows.to {
                state.resumed().expect("a cut has declarations that can be read");
            }
        }
        owner.state = state;
        owner
    }

    /// Where it reads next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Batches that stood before, and those of them that somebody should look at.
    pub fn voids(&self) -> (u64, u64) {
        (self.voids, self.alarms)
    }

    pub fn balances(&self) -> Vec<Balance> {
        self.state.balances()
    }

    /// How many late entries wait.
    pub fn waiting(&self) -> u64 {
        self.state.fates.contracts.parked.iter().map(|(_, _, parked)| parked.entries).sum()
    }

    /// Takes the next batch of its log. `wants_cut`: if a slot ends before it, a cut is made there.
    pub fn take(
        &mut self,
        logged: &Logged<'_, Payload>,
        control: Control<'_>,
        rows: &ChainRows<FatesHead>,
        wants_cut: bool,
    ) -> Result<(), ControlUnknown> {
        assert_eq!(logged.offset, self.next, "a log is read in order");
        let bytes = logged.message.bytes.as_slice();
        let head = Head::take(&mut &*bytes).ok().flatten().expect("a collector writes heads");
        control.check(head.control)?;
        let to = logged.offset + logged.message.span();
        if logged.offset < self.remember_to {
            self.remember(logged, &head, control);
        } else {
            self.judge(logged, &head, control, rows, wants_cut);
        }
        self.next = to;
        Ok(())
    }

    /// What stands before the cut is only noted.
    fn remember(&mut self, logged: &Logged<'_, Payload>, head: &Head, control: Control<'_>) {
        if self.state.declarations().version() != control.version(head.control) {
            self.state.redeclare(control.copy_of_declarations(head.control));
        }
        let log_time_ms = log_time_ms(self.log_time_ms, logged.appended_ms, head.clock_ms);
        self.log_time_ms = log_time_ms;
        let first = self.stage(logged.message);
        let Submission { ops, stamps, .. } = &self.staged;
        let (records, offset) = (logged.message.bytes.as_slice(), logged.offset);
        self.state.remember(&Batch { head: Some(*head), records, first, ops, stamps, log_time_ms, offset });
        if offset + logged.message.span() == self.remember_to {
            self.state.resumed().expect("a cut has declarations that can be read");
        }
    }

    fn judge(
        &mut self,
        logged: &Logged<'_, Payload>,
        head: &Head,
        control: Control<'_>,
        rows: &ChainRows<FatesHead>,
        wants_cut: bool,
    ) {
        let before_ms = self.log_time_ms.max(self.state.log_time_ms());
        let log_time_ms = log_time_ms(before_ms, logged.appended_ms, head.clock_ms);
        self.log_time_ms = log_time_ms;
        let to = logged.offset + logged.message.span();
        self.declare(head.control, control);
        let declarations = self.state.declarations().clone();
        let closed = self.slots.enter(position(self.partition, to), log_time_ms, head.begins, &declarations);
        if let Some(slot) = closed {
            let ends_at = slot.to.offset;
            self.emit(slot);
            if wants_cut && self.cut.is_none() {
                self.begin_cut(ends_at);
            }
        }
        self.pass_control(head.control, control);
        let first = self.stage(logged.message);
        self.look_up(rows);
        let FatesOwner { state, staged, answers, open, .. } = self;
        let Submission { ops, stamps, .. } = &*staged;
        let (records, offset) = (logged.message.bytes.as_slice(), logged.offset);
        let batch = Batch { head: Some(*head), records, first, ops, stamps, log_time_ms, offset };
        let mut gathered = Gathered { open, id: Vec::new() };
        let void = state.judge(&batch, &mut gathered, answers);
        state.forget_loaded();
        let slot = self.slots.open().expect("a batch has just come");
        slot.generation = control.generation(self.control);
        slot.rules = slot.rules.max(head.rules);
        match void {
            None => exceptions(&batch, logged.message.count, answers, slot),
            Some(why) => {
                slot.voids.push(VoidBatch { offset, why });
                self.voids += 1;
                self.alarms += u64::from(why.is_alarm());
            }
        }
    }

    /// Puts the declarations in force that a batch was made under.
    fn declare(&mut self, at: u64, control: Control<'_>) {
        if self.state.control() != at {
            self.state.configure(control.copy_of_declarations(at), at);
        }
    }

    /// Control that a batch is the first to carry takes effect, before the batch.
    fn pass_control(&mut self, to: u64, control: Control<'_>) {
        if to <= self.control {
            return;
        }
        for (at, record) in control.between(self.control, to) {
            let generation = control.generation(at + 1);
            if let ControlRecord::LateRun { due_by_ms } = record {
                for (_, parked) in self.state.judge_late(*due_by_ms) {
                    let change = self.open.entry(parked.id).or_default();
                    *change.late.entry(generation).or_default() += parked.delta;
                    change.waiting -= parked.entries as i64;
                }
            }
            self.state.values.generations.current = generation;
        }
        self.control = to;
    }

    /// The operations of a batch, for the counters of its group. Answers where its records begin.
    fn stage(&mut self, payload: &Payload) -> u32 {
        let decoded = self.state.decode(&payload.bytes, &mut self.staged);
        decoded.expect("a collector writes what can be read").first
    }

    fn look_up(&mut self, rows: &ChainRows<FatesHead>) {
        let FatesOwner { state, staged, .. } = self;
        let missing = state.needs(&staged.ops, &staged.stamps, |_| None);
        for need in missing.into_iter().filter(|need| !matches!(need, Need::Cell(_))) {
            let stored = rows.get(need).expect("a chain has rows that can be read");
            state.load(need, stored);
        }
    }

    /// A slot is over.
    fn emit(&mut self, slot: tally_core::commit::Slot) {
        let (from, to, log_time_ms) = (slot.from.offset, slot.to.offset, slot.log_time_ms);
        let commit = Commit::new(slot, self.digest, None);
        self.digest = commit.digest;
        let part = |_| SlotPart {
            partition: self.partition,
            from,
            to,
            log_time_ms,
            control: self.control,
            changes: BTreeMap::new(),
        };
        let mut parts: Vec<SlotPart> = (0..self.values_partitions.get()).map(part).collect();
        for (id, change) in std::mem::take(&mut self.open) {
            let of = values_partition(&id, self.values_partitions);
            parts[of as usize].changes.insert(id, change);
        }
        self.closed_to = to;
        self.outbox.push_back(Emission { commit, parts });
    }

    /// What is to be emitted next, the oldest first.
    pub fn outbox(&self) -> impl Iterator<Item = &Emission> {
        self.outbox.iter()
    }

    /// Everything before this was emitted and is durable.
    pub fn emitted_to(&self) -> u64 {
        let waiting = self.outbox.front().map(|emission| emission.commit.from.offset);
        waiting.unwrap_or(self.closed_to)
    }

    /// The oldest of what was to be emitted is durable, in the commits and at every values partition.
    pub fn emitted(&mut self) {
        self.outbox.pop_front().expect("something was emitted");
    }

    fn begin_cut(&mut self, to: u64) {
        let head = FatesHead { control: self.control, digest: self.digest };
        self.cut = Some(PartitionCut::begin(&mut self.state, self.cut_at, to, head));
    }

    /// The cut that may become final: everything up to it is durable elsewhere.
    pub fn ready_cut(&self) -> Option<&PartitionCut<FatesHead>> {
        self.cut.as_ref().filter(|cut| cut.to <= self.emitted_to())
    }

    pub fn has_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// The cut is in the chain.
    pub fn cut_is_final(&mut self) -> PartitionCut<FatesHead> {
        let cut = self.cut.take().expect("a cut was on its way");
        self.cut_at = cut.to;
        cut::finish(&mut self.state);
        cut
    }
}

fn position(partition: u32, offset: u64) -> Position {
    Position { epoch: 0, log: partition, offset }
}

/// What entries do to values, by key.
struct Gathered<'a> {
    open: &'a mut BTreeMap<Box<[u8]>, KeyChange>,
    id: Vec<u8>,
}

impl Gathered<'_> {
    fn change(&mut self, op: &Op, scene: &Scene<'_>) -> &mut KeyChange {
        scene.entry_id(op, &mut self.id);
        self.open.entry(self.id.as_slice().into()).or_default()
    }
}

impl Counts for Gathered<'_> {
    fn count(&mut self, op: &Op, scene: &Scene<'_>) {
        *self.change(op, scene).counted.get_or_insert(0) += op.arg;
    }

    fn take_back(&mut self, op: &Op, scene: &Scene<'_>, counted: &Entity) {
        // An entity that does not say what it counted for always counts for the same.
        let change = match counted.counted_as.as_ref().map(CountedAs::id) {
            Some(id) => self.open.entry(id.into()).or_default(),
            None => self.change(op, scene),
        };
        *change.taken_back.entry(counted.counted_at).or_default() += 1;
    }

    fn wait(&mut self, op: &Op, scene: &Scene<'_>) {
        self.change(op, scene).waiting += 1;
    }
}
