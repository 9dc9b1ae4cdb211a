//! A collector: takes events and operations, routes them, and makes batches that say who they are from their first send on.
//!
//! A batch keeps its bytes and its partition until its log has it: sent again, spooled, drained hours later and after a restart,
//! it is the same batch. Increments by name of one key that wait together are one record, and their answers are handed out in
//! their order. Every start is a new incarnation; what an earlier one has spooled keeps its own.

use crate::message::Payload;
use crate::route::{routes, values_partition};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use tally_core::counter::{Declarations, Mode};
use tally_core::event::Event;
use tally_core::head::{Group, Head, RULES};
use tally_core::op::{Answer, Submission};
use tally_core::record::{ExpireCondition, Record};

/// Where a batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum To {
    Events { partition: u32, group: u16 },
    Values { partition: u32 },
}

/// What a client asked for, as the collector's caller knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(pub u64);

/// Which batch of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    pub incarnation: u64,
    pub seq: u64,
}

/// A batch on its way.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub to: To,
    pub payload: Payload,
    /// Whom it is for, record by record; several, with what each adds, where increments were combined.
    pub receipts: Vec<Vec<(Receipt, i64)>>,
    /// A counter in it is persistent: it is not acknowledged from a spool.
    pub is_persistent: bool,
}

impl Outgoing {
    pub fn all_receipts(&self) -> impl Iterator<Item = Receipt> + '_ {
        self.receipts.iter().flatten().map(|(receipt, _)| *receipt)
    }
}

/// A batch that is still filled.
#[derive(Clone, Debug, Default)]
struct Open {
    records: Submission,
    receipts: Vec<Vec<(Receipt, i64)>>,
    /// Increments by name, by key.
    sums: BTreeMap<Box<[u8]>, Combined>,
    is_persistent: bool,
}

/// Increments of one key that wait together.
#[derive(Clone, Debug, Default)]
struct Combined {
    sum: i64,
    /// Who asked for how much, in order.
    receipts: Vec<(Receipt, i64)>,
}

#[derive(Clone, Debug)]
pub struct Collector {
    sender: u64,
    incarnation: u64,
    next_seq: u64,
    fates_partitions: NonZeroU32,
    values_partitions: NonZeroU32,
    /// What it knows of control: batches are made under it.
    control: u64,
    declarations: Arc<Declarations>,
    open: BTreeMap<To, Open>,
    /// Batches that no log has confirmed.
    out: BTreeMap<BatchId, Outgoing>,
    /// Those of them that are on disk: they outlive the process.
    spooled: BTreeSet<BatchId>,
    /// Batches that a log has, and whose operations wait for their answers.
    asked: BTreeMap<BatchId, Outgoing>,
}

impl Collector {
    /// A new life of a sender, with what the one before has spooled.
    pub fn start(
        sender: u64,
        incarnation: u64,
        fates_partitions: NonZeroU32,
        values_partitions: NonZeroU32,
        spool: impl IntoIterator<Item = (BatchId, Outgoing)>,
    ) -> Collector {
        let out: BTreeMap<_, _> = spool.into_iter().collect();
        assert!(out.keys().all(|id| id.incarnation < incarnation), "every start is a new incarnation");
        let spooled = out.keys().copied().collect();
        Collector {
            sender,
            incarnation,
            next_seq: 0,
            fates_partitions,
            values_partitions,
            control: 0,
            declarations: Arc::default(),
            open: BTreeMap::new(),
            out,
            spooled,
            asked: BTreeMap::new(),
        }
    }

    pub fn sender(&self) -> u64 {
        self.sender
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// It has read control up to a position. What waits was made before that, and goes out as it is.
    pub fn learn(&mut self, control: u64, declarations: Arc<Declarations>, clock_ms: u64) {
        self.flush(clock_ms);
        (self.control, self.declarations) = (control, declarations);
    }

    pub fn control(&self) -> u64 {
        self.control
    }

    /// Takes an event. Answers how many copies of it go out; none if it feeds nothing.
    pub fn event(&mut self, event: &Event<'_>, receipt: Receipt) -> usize {
        let declarations = self.declarations.clone();
        let routes = routes(&declarations, event, self.fates_partitions);
        let listeners = declarations.listeners(&event.event_type);
        let is_persistent =
            listeners.iter().any(|listener| declarations.counter(listener.counter).mode() == Mode::Persistent);
        for (group, partition) in &routes {
            let open = self.open.entry(To::Events { partition: *partition, group: group.0 }).or_default();
            open.records.event(event);
            open.receipts.push(vec![(receipt, 0)]);
            open.is_persistent |= is_persistent;
        }
        routes.len()
    }

    /// Adds to a counter by its name.
    pub fn add(&mut self, id: &[u8], delta: i64, receipt: Receipt) {
        let combined = self.open_for(id).sums.entry(id.into()).or_default();
        combined.sum += delta;
        combined.receipts.push((receipt, delta));
    }

    /// The same, once per idempotency key.
    pub fn add_once(&mut self, id: &[u8], key: &[u8], delta: i64, receipt: Receipt) {
        self.record(&Record::AddOnce { name: id, id: key, delta }, receipt);
    }

    pub fn expire(&mut self, id: &[u8], at_ms: u64, receipt: Receipt) {
        self.record(&Record::Expire { name: id, at_ms, condition: ExpireCondition::Always }, receipt);
    }

    fn record(&mut self, record: &Record<'_>, receipt: Receipt) {
        let open = self.open_for(record.name().expect("an operation by name has one"));
        open.settle_sums();
        open.records.record(record);
        open.receipts.push(vec![(receipt, 0)]);
    }

    fn open_for(&mut self, id: &[u8]) -> &mut Open {
        let partition = values_partition(id, self.values_partitions);
        self.open.entry(To::Values { partition }).or_default()
    }

    /// An empty batch for a log that stands still, so that its time and control go on.
    pub fn beat(&mut self, to: To) {
        self.open.entry(to).or_default();
    }

    /// What waits goes out.
    pub fn flush(&mut self, clock_ms: u64) {
        for (to, mut open) in std::mem::take(&mut self.open) {
            open.settle_sums();
            let seq = self.next_seq;
            self.next_seq += 1;
            let group = if let To::Events { group, .. } = to { Group(group) } else { Group::ALL };
            let head = Head {
                begins: false,
                rules: RULES,
                group,
                control: self.control,
                sender: self.sender,
                incarnation: self.incarnation,
                seq,
                settled: self.settled(seq),
                clock_ms,
            };
            let mut batch = Submission::default();
            batch.begin_batch();
            batch.append(&open.records);
            let payload = Payload { bytes: batch.payload(&head).to_vec(), count: batch.record_count };
            let id = BatchId { incarnation: self.incarnation, seq };
            let Open { receipts, is_persistent, .. } = open;
            self.out.insert(id, Outgoing { to, payload, receipts, is_persistent });
        }
    }

    /// No batch of this life before this one is sent again.
    fn settled(&self, next: u64) -> u64 {
        let of_this_life = self.out.keys().filter(|id| id.incarnation == self.incarnation);
        of_this_life.map(|id| id.seq).min().unwrap_or(next)
    }

    /// What no log has confirmed.
    pub fn out(&self) -> &BTreeMap<BatchId, Outgoing> {
        &self.out
    }

    /// A batch is on disk: it outlives the process. Answers whom that is told to, for some it is enough.
    pub fn spool(&mut self, id: BatchId) -> Vec<Receipt> {
        let Some(outgoing) = self.out.get(&id) else { return Vec::new() };
        self.spooled.insert(id);
        if outgoing.is_persistent { Vec::new() } else { outgoing.all_receipts().collect() }
    }

    pub fn spooled(&self) -> impl Iterator<Item = (BatchId, &Outgoing)> {
        self.spooled.iter().filter_map(|id| Some((*id, self.out.get(id)?)))
    }

    /// A log has a batch, this life's or an earlier one's. Answers whose it was.
    pub fn appended(&mut self, id: BatchId) -> Vec<Receipt> {
        self.spooled.remove(&id);
        let Some(outgoing) = self.out.remove(&id) else { return Vec::new() };
        let receipts = outgoing.all_receipts().collect();
        if matches!(outgoing.to, To::Values { .. }) && id.incarnation == self.incarnation {
            self.asked.insert(id, outgoing);
        }
        receipts
    }

    /// What an owner of values says to a batch: each of those who waits gets the answer of its own place.
    pub fn answered(&mut self, id: BatchId, answers: &[Answer]) -> Vec<(Receipt, Answer)> {
        let Some(outgoing) = self.asked.remove(&id).or_else(|| self.out.get(&id).cloned()) else { return Vec::new() };
        let mut told = Vec::new();
        for (receipts, answer) in outgoing.receipts.iter().zip(answers) {
            hand_out(receipts, *answer, &mut told);
        }
        told
    }
}

/// The answer to a sum is the value behind all of it: each gets what it was behind its own part.
fn hand_out(receipts: &[(Receipt, i64)], answer: Answer, told: &mut Vec<(Receipt, Answer)>) {
    let sum: i64 = receipts.iter().map(|(_, delta)| delta).sum();
    let Answer::Value(value) = answer else {
        return told.extend(receipts.iter().map(|(receipt, _)| (*receipt, answer)));
    };
    let mut value = value - sum;
    for (receipt, delta) in receipts {
        value += delta;
        told.push((*receipt, Answer::Value(value)));
    }
}

impl Open {
    /// Increments that wait become records, before anything else about their keys does.
    fn settle_sums(&mut self) {
        for (id, Combined { sum, receipts }) in std::mem::take(&mut self.sums) {
            self.records.record(&Record::Add { name: &id, delta: sum });
            self.receipts.push(receipts);
        }
    }
}
