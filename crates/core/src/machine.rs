//! The deterministic core: a batch of operations in, an answer to each out.
//!
//! The state after a batch is a function of the state before it and of the batch, time included. The running node and a
//! replay both come through [`Machine::apply`]; what they need from the store they look up before ([`Machine::needs`]) and
//! hand in with [`Machine::load`]. What a batch carries is looked at first, in [`entrance`].
//!
//! Here is the loop. What becomes of entries is in [`crate::fates`], what counters are worth in [`crate::values`]; both keep
//! facts, whose way to a cut is in [`facts`]. What corrections do is in [`correct`], what a checkpoint carries beside rows in
//! [`checkpoint`], what would happen in [`trial`].

mod apart;
mod checkpoint;
mod correct;
mod describe;
mod entrance;
mod facts;
mod need;
mod replay;
mod timeline;
mod trial;

use crate::counter::probes::PROBE;
use crate::counter::{Declarations, Stager};
use crate::fates::{Balance, Fates, Parked, Scene, Void};
use crate::id::CellHasher;
use crate::ledger::{Fill, FillStep, Kind};
use crate::limits::ENDINGS_AHEAD_MS;
use crate::op::{Answer, Batch, Op, OpKind, Stamp};
use crate::record::Record;
use crate::values::Values;
use std::ops::Range;
use std::sync::Arc;
use timeline::{MARK_EVERY_MS, Timeline};

pub use apart::Slice;
pub use checkpoint::{balance_at, read_from_of};
pub use correct::{CorrectionRequest, RemedyOutcome, Unfit};
pub use entrance::Improper;
pub use need::{Need, Stored};
pub use replay::{Decoded, ReplayError, Replayed};

/// How far ahead of itself `apply` fetches memory into the cache.
const PREFETCH_AHEAD: usize = 16;

pub struct Machine {
    pub fates: Fates,
    pub values: Values,
    stager: Stager,
    hasher: CellHasher,
    timeline: Timeline,
    /// What became of the last request about the past.
    outcome: Option<Result<RemedyOutcome, Unfit>>,
}

impl Machine {
    pub fn new(hasher: CellHasher) -> Machine {
        Machine {
            fates: Fates::default(),
            values: Values::new(hasher),
            stager: Stager::new(Arc::default(), hasher),
            hasher,
            timeline: Timeline::default(),
            outcome: None,
        }
    }

    pub fn hasher(&self) -> CellHasher {
        self.hasher
    }

    pub fn log_time_ms(&self) -> u64 {
        self.values.log_time_ms
    }

    pub fn declarations(&self) -> &Arc<Declarations> {
        self.stager.declarations()
    }

    /// Puts declarations in force for records from `offset` on.
    pub fn configure(&mut self, declarations: Declarations, offset: u64) {
        self.values.keep_forgotten();
        self.values.rolling.drop_stand_ins();
        self.timeline.configured(offset, &declarations);
        self.values.declare_rollups(&declarations);
        self.declare(declarations);
    }

    fn declare(&mut self, declarations: Declarations) {
        self.fates.contracts.declare(&declarations);
        self.values.declare(&declarations);
        let declarations = declarations.with_removed(self.fates.contracts.removed());
        let declarations = declarations.with_rollups(self.values.rolling.in_force());
        self.stager = Stager::new(Arc::new(declarations), self.hasher);
    }

    /// The same declarations, where counters have other roll-ups than before.
    fn declare_again(&mut self) {
        let declarations = Declarations::clone(self.declarations());
        self.values.declare_rollups(&declarations);
        let declarations = declarations.with_rollups(self.values.rolling.in_force());
        self.stager = Stager::new(Arc::new(declarations), self.hasher);
    }

    /// The boxes and sums of every counter there ever was, but for what counts probes.
    pub fn balances(&self) -> Vec<Balance> {
        let kept = self.fates.contracts.kept().filter(|(name, _)| *name != PROBE);
        kept.map(|(name, kept)| Balance::of(name, kept, self.values.sums.of(name))).collect()
    }

    /// Late entries that wait for their run.
    pub fn parked(&self) -> &Parked {
        &self.fates.contracts.parked
    }

    /// The boxes and sums of one counter.
    pub fn balance(&self, name: &str) -> Option<Balance> {
        let (_, kept) = self.fates.contracts.kept().find(|(known, _)| *known == name)?;
        Some(Balance::of(name, kept, self.values.sums.of(name)))
    }

    /// Applies a batch; `answers` gets one per operation, and none if the batch is void. Answers why it is, if it is.
    pub fn apply(&mut self, batch: &Batch<'_>, answers: &mut Vec<Answer>) -> Option<Void> {
        answers.clear();
        self.outcome = None;
        self.fates.contracts.repeats_are_full = false;
        let void = self.enter(batch);
        if !batch.bare_records().is_empty() {
            self.pass_time(batch.log_time_ms, batch.offset);
        }
        if void.is_some() {
            return void;
        }
        self.values.lists.begin(batch);
        let mut ahead = Ahead { ops: batch.ops, stamps: batch.stamps, records: batch.records };
        for _ in 0..PREFETCH_AHEAD {
            ahead.fetch(self);
        }
        answers.reserve(batch.ops.len());
        let mut stamps = batch.stamps.iter();
        for (index, op) in batch.ops.iter().enumerate() {
            ahead.fetch(self);
            if op.kind == OpKind::Add {
                answers.push(self.values.add_named(op, batch));
                continue;
            }
            let stamp = if op.has_stamp() { stamps.next() } else { None };
            answers.push(self.apply_op(index, op, stamp, batch));
        }
        self.note_changed(batch, answers);
        None
    }

    fn note_changed(&mut self, batch: &Batch<'_>, answers: &[Answer]) {
        let Machine { fates, values, stager, .. } = self;
        if !stager.declarations().all_counters().is_empty() {
            let scene = Scene { batch, declarations: stager.declarations(), generation: values.generations.current };
            values.note_changed(&scene, answers, |counter| fates.contracts.moves(counter));
        }
    }

    #[inline]
    fn apply_op(&mut self, index: usize, op: &Op, stamp: Option<&Stamp>, batch: &Batch<'_>) -> Answer {
        let Machine { fates, values, stager, .. } = self;
        let scene = Scene { batch, declarations: stager.declarations(), generation: values.generations.current };
        if let Some(answer) = fates.decide(index, op, stamp, &scene, values) {
            return answer;
        }
        match (op.kind, stamp) {
            (OpKind::AddOnce, Some(stamp)) => {
                let (answer, kind) = values.add_once(op, stamp, batch);
                fates.box_named(op, kind);
                answer
            }
            (OpKind::Once, Some(stamp)) => values.remember_request(op, stamp, batch),
            _ => self.apply_rare(op, batch),
        }
    }

    fn apply_rare(&mut self, op: &Op, batch: &Batch<'_>) -> Answer {
        let values = &mut self.values;
        match op.kind {
            OpKind::Get => values.get(op.cell, batch.log_time_ms).map_or(Answer::Absent, Answer::Value),
            OpKind::Ttl => values.ttl(op.cell, batch.log_time_ms),
            OpKind::Deadline => values.deadline(op.cell, batch.log_time_ms),
            OpKind::Expiring => Answer::Value(values.expiring(op.arg as usize) as i64),
            OpKind::Size => Answer::Value(values.size(op.arg as usize) as i64),
            OpKind::Flush => self.flush(),
            OpKind::Know => Answer::Yes,
            OpKind::Fill => self.fill(batch.record(op)),
            OpKind::Remedy => self.remedy(&batch.remedy(op)),
            OpKind::RepeatsFull => {
                self.fates.contracts.repeats_are_full = true;
                Answer::Yes
            }
            _ => match batch.record(op) {
                Record::Set { name, value, condition, expiry } => values.set(op.cell, name, value, condition, expiry),
                Record::Delete { name } => values.delete(op.cell, name).map_or(Answer::Absent, Answer::Value),
                Record::Expire { name, at_ms, condition } => values.expire(op.cell, name, at_ms, condition),
                Record::Persist { .. } => values.persist(op.cell),
                Record::Copy { from, to, manner } => values.copy(from, op.cell, to, manner),
                Record::SetNew(pairs) => values.set_new(pairs),
                Record::AddMany { name, deltas } => values.add_many(op, name, deltas),
                Record::FlushDatabase { database, space } => values.flush_database(database, space),
                Record::Propose(proposal) => values.propose(proposal),
                Record::Withdraw { number } => values.withdraw(number),
                Record::Correct(correction) => self.correct(correction),
                other => unreachable!("{other:?} is not the record of {op:?}"),
            },
        }
    }

    /// Lets log time pass: what is due expires, and what no longer counts is forgotten. `offset` is that of the next record.
    /// Without a record this may be forgotten again, and then passes with the next one.
    pub fn pass_time(&mut self, log_time_ms: u64, offset: u64) {
        if self.timeline.passed(log_time_ms, offset) {
            self.fates.contracts.advance(log_time_ms);
        }
        self.values.pass_time(log_time_ms);
    }

    /// The stretch of time whose endings have to be looked up before log time gets to `log_time_ms`: counters that end then may be
    /// only in the store.
    pub fn endings_missing(&self, log_time_ms: u64) -> Option<Range<u64>> {
        let known_before_ms = self.values.table.ends_kept_before_ms();
        let are_known = self.values.table.cells().cold() == 0 || log_time_ms < known_before_ms;
        (!are_known).then(|| known_before_ms..log_time_ms + ENDINGS_AHEAD_MS)
    }

    /// Whether something is due at a time: a counter to expire, or repeats to be forgotten.
    pub fn waits_for(&self, now_ms: u64) -> bool {
        self.values.table.first_deadline().is_some_and(|(at_ms, ..)| at_ms <= now_ms)
            || self.fates.contracts.forgets_at_ms().is_some_and(|at_ms| at_ms + MARK_EVERY_MS <= now_ms)
    }

    /// What is refused changes nothing: whoever fills looks again.
    fn fill(&mut self, record: Record<'_>) -> Answer {
        let Record::Fill(fill) = record else { unreachable!("{record:?} is no fill") };
        let fill = Fill::decode(fill).expect("whoever staged or decoded it has read it before");
        if let FillStep::Describe { before, .. } = fill.step {
            self.describe(&fill, before);
            return Answer::Yes;
        }
        let (is_done, has_others) = self.values.fill(&fill, self.stager.declarations());
        if has_others {
            self.declare_again();
        }
        if is_done { Answer::Yes } else { Answer::No }
    }

    fn flush(&mut self) -> Answer {
        self.facts_mut().for_each(Kind::clear);
        self.fates.contracts.parked.clear();
        self.values.flush();
        self.declare_again();
        Answer::Yes
    }
}

/// Runs ahead of the loop and asks for the memory it will need.
struct Ahead<'a> {
    ops: &'a [Op],
    stamps: &'a [Stamp],
    records: &'a [u8],
}

impl Ahead<'_> {
    #[inline(always)]
    fn fetch(&mut self, state: &Machine) {
        let Some((op, ops)) = self.ops.split_first() else { return };
        self.ops = ops;
        state.values.table.prefetch(op.cell);
        state.values.rolling.prefetch(op, self.records);
        if op.has_stamp()
            && let Some((stamp, stamps)) = self.stamps.split_first()
        {
            self.stamps = stamps;
            state.fates.contracts.prefetch(op, stamp);
        }
    }
}

#[cfg(test)]
mod tests;
