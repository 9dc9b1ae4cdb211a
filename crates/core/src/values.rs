//! Values: what each counter is worth.
//!
//! Cells, the ids of counters that came and went, their expiry, what was answered to idempotency keys, corrections and their
//! steps. Entries come here as what [`crate::fates`] made of them; what clients do to counters by name comes directly.
//!
//! Increments by name are checked: a sum that does not fit is refused. What an event adds is bounded where it comes in
//! ([`EVENT_DELTA_MAX`](crate::limits::EVENT_DELTA_MAX)), and a declared counter is kept within [`DECLARED_MAX`] by everything else,
//! so that an entry always has room.

mod lists;
mod many;
mod named;
mod once;
mod quota;
mod rolling;
mod stand_in;
mod sums;
mod tops;

use crate::combined::sum_within;
use crate::counter::rollup::minute_of;
use crate::counter::{Declarations, Idempotency};
use crate::database::Databases;
use crate::fates::{Counts, Scene};
use crate::id::{CellHasher, CellKey};
use crate::ledger::{Correction, Entity, Proposal, Row, ValueFacts};
use crate::limits::DECLARED_MAX;
use crate::memory::cell::{self, Added, Settled, Table};
use crate::memory::names::Names;
use crate::op::{Answer, Batch, Op};
use lists::Lists;
use quota::Quota;
use std::collections::BTreeMap;

pub use lists::{ChangedKey, Greatest, RankedKey};
pub(crate) use quota::end_of_hour_ms;
pub use rolling::KeptRollup;
pub(crate) use rolling::{Belongs, KeptRollups, Rolling};
pub(crate) use sums::AllSums;
pub use sums::Sums;
pub use tops::{Candidate, Candidates, RestBound, Sample, choose_board};

pub struct Values {
    pub table: Table,
    /// Ids that came and went since the last cut.
    pub names: Names,
    /// Where they came and went, in the words of the Redis protocol.
    pub databases: Databases,
    /// Everything was flushed since the last cut: what the store has is void.
    pub store_is_void: bool,
    /// A cut is under way that takes the place of everything the store has.
    pub cut_replaces: bool,
    pub facts: ValueFacts,
    pub generations: Generations,
    /// Corrections that the store was asked for, to be reverted.
    stored_corrections: BTreeMap<u64, Option<Correction>>,
    pub(crate) sums: AllSums,
    pub(crate) rolling: Rolling,
    /// Which keys are worth most, and which changed last.
    pub(crate) lists: Lists,
    /// How many idempotency keys are kept.
    pub(crate) answered: Quota,
    /// Idempotency keys that came before this log time are forgotten, whatever a later configuration says.
    pub(crate) forgotten_before_ms: u64,
    /// Answers up to this log time may stand where formats up to 4 have them; `None` if there are none.
    pub(crate) answers_of_format_4_ms: Option<u64>,
    /// The store was written before every deadline was a fact: somebody has to go through its cells.
    pub lacks_endings: bool,
    idempotency: Idempotency,
    hasher: CellHasher,
    pub(crate) log_time_ms: u64,
    id: Vec<u8>,
}

/// The numbers that corrections got.
#[derive(Clone, Debug, Default)]
pub struct Generations {
    /// The number of the correction that became visible last, of all kinds.
    pub current: u64,
    /// The last number given to a proposal or correction.
    pub(crate) number: u64,
    /// Which corrections were reverted, and by which.
    pub(crate) reverted: BTreeMap<u64, u64>,
}

impl Generations {
    /// The last number given to a proposal or correction.
    pub fn last_number(&self) -> u64 {
        self.number
    }

    /// Which correction reverted this one.
    pub fn reverted_by(&self, number: u64) -> Option<u64> {
        self.reverted.get(&number).copied()
    }
}

impl Counts for Values {
    #[inline]
    fn count(&mut self, op: &Op, scene: &Scene<'_>) {
        let measure = self.sums.counted(op.counter, op.arg);
        measure.count(self, op, scene);
        if self.rolling.is_rolled(op.counter) {
            self.roll_event(op, scene);
        }
        #[cfg(debug_assertions)]
        self.count_again_if_planted(op, scene);
    }

    fn take_back(&mut self, op: &Op, _: &Scene<'_>, counted: &Entity) {
        if self.sums.measure(op.counter).take_back(self, counted) {
            self.sums.counted(op.counter, -1);
            // What is taken back makes nobody greater.
            self.roll(op.counter, counted.cell, b"", -1, Belongs::Counted(counted.counted_as.as_ref()));
            if let Some(counted_as) = &counted.counted_as {
                self.note_taken_back(op.counter, counted.cell, counted_as.id());
            }
        }
    }

    fn wait(&mut self, op: &Op, _: &Scene<'_>) {
        self.table.add_pending(op.cell, 1);
    }
}

impl Values {
    #[cfg(debug_assertions)]
    fn count_again_if_planted(&mut self, op: &Op, scene: &Scene<'_>) {
        let counter = scene.declarations.counter(op.counter);
        if crate::planted::counts_twice(&counter.name, scene.batch.log_time_ms) {
            self.sums.counted(op.counter, op.arg).count(self, op, scene);
            if self.rolling.is_rolled(op.counter) {
                self.roll_event(op, scene);
            }
        }
    }

    pub fn new(hasher: CellHasher) -> Values {
        Values {
            table: Table::new(),
            names: Names::default(),
            databases: Databases::default(),
            store_is_void: false,
            cut_replaces: false,
            facts: ValueFacts::default(),
            generations: Generations::default(),
            stored_corrections: BTreeMap::new(),
            sums: AllSums::default(),
            rolling: Rolling::default(),
            lists: Lists::default(),
            answered: Quota::default(),
            forgotten_before_ms: 0,
            answers_of_format_4_ms: None,
            idempotency: Declarations::default().idempotency(),
            lacks_endings: false,
            hasher,
            log_time_ms: 0,
            id: Vec::new(),
        }
    }

    /// Whether nothing of what the store shows counts any more: memory has everything.
    pub fn has_everything(&self) -> bool {
        self.store_is_void || self.cut_replaces
    }

    /// Takes back what an entity has counted. Answers whether it was still there.
    pub(crate) fn uncount(&mut self, counted: &Entity) -> bool {
        let cell = counted.cell;
        if self.table.get(cell).is_none() {
            return false;
        }
        let mut mark = self.table.mark(cell);
        let is_there = mark.spans.is_there(counted.generation);
        if mark.spans.undo(counted.generation) {
            self.table.set_mark(cell, mark);
        }
        if is_there {
            if let Some(counted) = &counted.counted_as {
                self.table.name_followed(cell, counted.id());
            }
            self.table.count(cell, -1);
        }
        is_there
    }

    pub(crate) fn declare(&mut self, declarations: &Declarations) {
        self.idempotency = declarations.idempotency();
        self.sums.declare(declarations);
        self.lists.declare(declarations, self.table.cells().is_empty());
    }

    /// Goes over to the roll-ups of declarations that are in force here. Those that stood in the log before a checkpoint are not: what the
    /// checkpoint has would begin anew.
    pub(crate) fn declare_rollups(&mut self, declarations: &Declarations) {
        let Values { rolling, sums, hasher, log_time_ms, facts, .. } = self;
        let lines = rolling.declare(declarations, hasher, *log_time_ms, |name| sums.is_untouched(name));
        facts.boards.declare(lines.into_iter());
    }

    /// Lets log time pass: what is due expires.
    pub(crate) fn pass_time(&mut self, log_time_ms: u64) {
        assert!(log_time_ms >= self.log_time_ms, "log time never runs backwards");
        self.log_time_ms = log_time_ms;
        self.facts.boards.pass_time(minute_of(log_time_ms as i64));
        while let Some((at_ms, key, id)) = self.table.first_deadline()
            && at_ms <= log_time_ms
        {
            self.names.deleted(id);
            self.databases.deleted(id);
            self.forget_history(key);
            self.facts.endings.remove((at_ms, key));
            self.table.delete(key);
        }
    }

    /// Adds to a counter that a client named.
    #[inline]
    pub(crate) fn add_named(&mut self, op: &Op, batch: &Batch<'_>) -> Answer {
        if op.counter != Op::AD_HOC {
            return self.add_declared(op, batch);
        }
        let added = self.table.add(op.cell, op.arg);
        self.added(added, op, batch)
    }

    /// Apart from additions to ad-hoc counters, which are many more.
    #[inline(never)]
    fn add_declared(&mut self, op: &Op, batch: &Batch<'_>) -> Answer {
        if !self.has_room(op.cell, op.arg, DECLARED_MAX) {
            return Answer::Overflow;
        }
        self.sums.counted(op.counter, op.arg);
        self.roll(op.counter, op.cell, batch.named(op), op.arg, Belongs::Nowhere);
        let added = self.table.count(op.cell, op.arg);
        if self.lists.rises(op.counter, added, op.arg) {
            self.lead_named(op, batch.named(op));
        }
        self.added(added, op, batch)
    }

    /// Whether a cell may be changed by so much and stays within a bound.
    pub(crate) fn has_room(&self, cell: CellKey, delta: i64, bound: i64) -> bool {
        sum_within(self.table.get(cell).unwrap_or(0), delta, Some(bound)).is_some()
    }

    #[inline]
    fn added(&mut self, added: Added, op: &Op, batch: &Batch<'_>) -> Answer {
        match added {
            Added::Value(value) => Answer::Value(value),
            Added::Overflow => Answer::Overflow,
            Added::Unknown => unreachable!("whoever waits for an answer has waited for the row"),
            Added::Created(value) => {
                self.name_addition(op, batch);
                Answer::Value(value)
            }
        }
    }

    #[cold]
    fn name_addition(&mut self, op: &Op, batch: &Batch<'_>) {
        self.note_created(batch.named(op));
    }

    /// An entry needs no answer, so it does not wait for the row of its cell.
    #[cold]
    pub(crate) fn count_blindly(&mut self, op: &Op, scene: &Scene<'_>) {
        self.table.count_blindly(op.cell, op.arg, || {
            scene.entry_id(op, &mut self.id);
            self.id.as_slice().into()
        });
    }

    /// Counts for a cell that must be known.
    pub(crate) fn count_known(&mut self, cell: CellKey, id: &[u8], delta: i64) {
        let added = self.table.count(cell, delta);
        match added {
            Added::Created(_) => self.note_created(id),
            Added::Value(_) | Added::Overflow => {}
            Added::Unknown => unreachable!("everything that is changed is known"),
        }
        self.lists.changed(&mut self.table, cell, id, added, delta);
    }

    /// Takes in what the store has of a cell, unless memory knows better.
    pub fn load(&mut self, cell: CellKey, row: Option<cell::CellRow>) {
        if let Some(Settled { id, value, is_new }) = self.table.load(cell, row) {
            if is_new {
                self.note_created(&id);
            }
            self.lists.settled(&mut self.table, cell, &id, value);
        }
    }

    #[cold]
    pub(crate) fn name_entry(&mut self, op: &Op, scene: &Scene<'_>) {
        scene.entry_id(op, &mut self.id);
        self.names.created(&self.id);
        self.databases.created(&self.id);
    }

    pub(crate) fn note_created(&mut self, id: &[u8]) {
        self.names.created(id);
        self.databases.created(id);
    }

    /// A correction that was made. It must be known.
    pub(crate) fn made(&self, number: u64) -> Option<Correction> {
        let stored = || self.stored_corrections.get(&number).cloned().flatten();
        self.facts.corrections.get(number).or_else(stored)
    }

    /// Whether memory knows of a correction with this number, or that there is none.
    pub(crate) fn knows_made(&self, number: u64) -> bool {
        let is_new = || self.facts.corrections.get(number).is_some() || self.facts.proposals.row(number).is_some();
        self.store_is_void || self.stored_corrections.contains_key(&number) || is_new()
    }

    pub(crate) fn load_made(&mut self, number: u64, made: Option<Correction>) {
        if !self.store_is_void {
            self.stored_corrections.insert(number, made);
        }
    }

    pub(crate) fn forget_made(&mut self) {
        self.stored_corrections.clear();
    }

    /// As a record of an earlier version has it.
    pub(crate) fn propose(&mut self, proposal: &[u8]) -> Answer {
        let mut proposal = Proposal::decode(proposal).expect("whoever staged or decoded it has read it before");
        self.generations.number += 1;
        proposal.number = self.generations.number;
        proposal.at_ms = self.log_time_ms;
        self.facts.proposals.insert(&proposal);
        Answer::Value(self.generations.number as i64)
    }

    pub(crate) fn withdraw(&mut self, number: u64) -> Answer {
        if self.facts.proposals.remove(number) { Answer::Yes } else { Answer::No }
    }
}
