//! Fates: whether an entry counts.
//!
//! That is decided where what makes an entry unique is remembered: repeats of display counters, event ids that were claimed,
//! states of entities, late entries that wait. First comes the question of its contract ([`crate::contract`]): whether it stood before,
//! or changes anything; then whether it is late, then it counts. Every entry ends in exactly one box.
//!
//! Fates hold no value and ask for none. What they do to values goes through [`Counts`], from which nothing comes back: on one
//! node that is a call, on many a log lies between.

mod memory;
mod parked;
mod running;
mod senders;

use crate::contract::Verdict;
use crate::counter::Declarations;
use crate::id::CellKey;
use crate::ledger::{BoxKind, Entity, FateFacts};
use crate::op::{Answer, Batch, Op, OpKind, Stamp};
use crate::record::event_at;
use running::Timely;

use parked::LateEntry;
pub use parked::{Parked, ParkedEntry, RunLimits};
pub(crate) use running::Kept;
pub use running::{Balance, Contracts};
pub use senders::{Overrun, Senders, Void};

/// What fates do to values.
pub trait Counts {
    /// An entry counts.
    fn count(&mut self, op: &Op, scene: &Scene<'_>);
    /// What an entity has counted is taken back, if it is still there.
    fn take_back(&mut self, op: &Op, scene: &Scene<'_>, counted: &Entity);
    /// One more late entry waits.
    fn wait(&mut self, op: &Op, scene: &Scene<'_>);
}

/// What all entries of a batch have in common.
pub struct Scene<'a> {
    pub batch: &'a Batch<'a>,
    pub declarations: &'a Declarations,
    /// The generation that is in force.
    pub generation: u64,
}

impl Scene<'_> {
    /// What an entry says of the parts that it counts for; nothing if its counter has none.
    pub fn parts_of(&self, op: &Op) -> Vec<Vec<u8>> {
        self.declarations.counter(op.counter).parts_of(event_at(self.batch.records, op.record))
    }

    /// The id of the counter that an entry is for.
    pub fn entry_id(&self, op: &Op, id: &mut Vec<u8>) {
        self.declarations.staged_entry_id(op.counter, event_at(self.batch.records, op.record), id);
    }
}

#[derive(Default)]
pub struct Fates {
    pub contracts: Contracts,
    pub facts: FateFacts,
    /// Whose batches stood.
    pub senders: Senders,
    /// What the last claim of the batch came to; the entries behind it go by it.
    pub(crate) verdict: Verdict,
    pub(crate) id: Vec<u8>,
}

impl Fates {
    /// What becomes of an entry, or of the claim before some; `None` if it is neither. Behind `stamp` is what tells it from others.
    #[inline(always)]
    pub fn decide(
        &mut self,
        index: usize,
        op: &Op,
        stamp: Option<&Stamp>,
        scene: &Scene<'_>,
        values: &mut impl Counts,
    ) -> Option<Answer> {
        if op.is_entry() {
            self.contracts.receive(op.counter);
        }
        Some(match (op.kind, stamp) {
            (OpKind::Count, _) => self.count(op, scene, values),
            (OpKind::Entry, Some(stamp)) => self.entry(op, stamp, scene, values),
            (OpKind::Claim, Some(stamp)) => self.claim(index, stamp, scene),
            (OpKind::Reject, _) => self.rejected(op),
            _ => return None,
        })
    }

    /// An entry of a counter that asks no questions.
    #[inline]
    pub fn count(&mut self, op: &Op, scene: &Scene<'_>, values: &mut impl Counts) -> Answer {
        values.count(op, scene);
        self.contracts.bump(op.counter, BoxKind::Counted, 1);
        Answer::Counted
    }

    #[inline]
    pub fn entry(&mut self, op: &Op, stamp: &Stamp, scene: &Scene<'_>, values: &mut impl Counts) -> Answer {
        let mode = self.contracts.mode(op.counter);
        if let Some(answer) = mode.judge(self, op, stamp, scene, values) {
            return answer;
        }
        match self.contracts.lateness(op.counter, stamp) {
            Timely::InTime => self.count(op, scene, values),
            Timely::Late { every_ms } => self.park(op, stamp, every_ms, scene, values),
        }
    }

    fn park(&mut self, op: &Op, stamp: &Stamp, every_ms: u64, scene: &Scene<'_>, values: &mut impl Counts) -> Answer {
        scene.entry_id(op, &mut self.id);
        // Runs come at the multiples of their interval.
        let due_ms = (scene.batch.log_time_ms / every_ms + 1) * every_ms;
        let parts = scene.parts_of(op);
        let (time_ms, delta, now_ms) = (stamp.time_ms, op.arg, scene.batch.log_time_ms);
        self.contracts.parked.park(op.cell, &self.id, LateEntry { time_ms, delta, parts: &parts, due_ms, now_ms });
        values.wait(op, scene);
        self.put_into(op, BoxKind::Late);
        Answer::Late
    }

    /// Late entries leave their box and have counted.
    pub fn settle(&mut self, cell: CellKey, parked: &ParkedEntry, declarations: &Declarations) {
        let entries = parked.entries as i64;
        self.facts.boxes.add(cell, BoxKind::Late, -entries);
        if let Some(kept) = self.contracts.kept_of(declarations, &parked.id) {
            kept.boxes.bump(BoxKind::Late, -entries);
            kept.boxes.bump(BoxKind::Counted, entries);
        }
    }

    /// An entry that staging has rejected.
    pub fn rejected(&mut self, op: &Op) -> Answer {
        self.contracts.bump(op.counter, BoxKind::Rejected, 1);
        Answer::Rejected
    }

    /// The box of an entry that a client made by the name of its counter.
    pub fn box_named(&mut self, op: &Op, kind: BoxKind) {
        if kind != BoxKind::Counted {
            self.facts.boxes.add(op.cell, kind, 1);
        }
        if op.counter != Op::AD_HOC {
            self.contracts.receive(op.counter);
            self.contracts.bump(op.counter, kind, 1);
        }
    }

    pub(crate) fn ignore(&mut self, op: &Op) -> Answer {
        self.put_into(op, BoxKind::Ignored);
        Answer::Ignored
    }

    /// A box other than `counted`, for the counter and for the key.
    pub(crate) fn put_into(&mut self, op: &Op, kind: BoxKind) {
        self.contracts.bump(op.counter, kind, 1);
        self.facts.boxes.add(op.cell, kind, 1);
    }
}
