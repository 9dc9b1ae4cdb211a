//! Fates apart from values, where a log lies between them: one state only decides, another one only counts.
//!
//! The rules are those of one node. What decides hands what counts to a [`Counts`] of the caller's; what counts takes it in here,
//! by ids, since it has not seen the events.

use super::{Machine, Need, RemedyOutcome, Unfit};
use crate::fates::{Counts, ParkedEntry, Scene, Void};
use crate::id::CellKey;
use crate::ledger::{Correction, CountedAs, Delta, Entity, Grounds, NO_PARTS, Purpose, Remedy};
use crate::op::{Answer, Batch, OpKind};

/// What a generation does to the counters of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slice {
    Correct {
        purpose: Purpose,
        deltas: Vec<Delta>,
    },
    /// Brings them to 0.
    Clear {
        ids: Vec<Vec<u8>>,
    },
    /// Undoes what another generation did here.
    Revert {
        generation: u64,
    },
}

impl Machine {
    /// Decides a batch of events; what counts goes to `counts`, and none of it to the values of this state. Answers why the batch
    /// is void, if it is: then nothing of it is decided.
    pub fn judge(&mut self, batch: &Batch<'_>, counts: &mut impl Counts, answers: &mut Vec<Answer>) -> Option<Void> {
        answers.clear();
        self.fates.contracts.repeats_are_full = false;
        let void = self.enter(batch);
        self.pass_time(batch.log_time_ms, batch.offset);
        if void.is_some() {
            return void;
        }
        let mut stamps = batch.stamps.iter();
        for (index, op) in batch.ops.iter().enumerate() {
            let Machine { fates, values, stager, .. } = self;
            let stamp = if op.has_stamp() { stamps.next() } else { None };
            let scene = Scene { batch, declarations: stager.declarations(), generation: values.generations.current };
            answers.push(match fates.decide(index, op, stamp, &scene, counts) {
                Some(answer) => answer,
                None if op.kind == OpKind::RepeatsFull => {
                    fates.contracts.repeats_are_full = true;
                    Answer::Yes
                }
                None => unreachable!("{op:?} is no event's"),
            });
        }
        None
    }

    /// A run: everything that waits and is due by a log time leaves its box, to be counted elsewhere.
    pub fn judge_late(&mut self, due_by_ms: u64) -> Vec<(CellKey, ParkedEntry)> {
        let due = self.fates.contracts.parked.take_due(due_by_ms);
        for (cell, parked) in &due {
            self.fates.settle(*cell, parked, self.stager.declarations());
        }
        due
    }

    /// Takes in what counted elsewhere for a counter. Its cell must be known.
    pub fn count_apart(&mut self, id: &[u8], delta: i64) {
        let Machine { values, stager, hasher, .. } = self;
        if let Some(sums) = values.sums.of_cell(stager.declarations(), id) {
            sums.counted += i128::from(delta);
        }
        values.count_known(hasher.key(id), id, delta);
    }

    /// An entity that counted under a generation takes that back. The cell must be known.
    pub fn take_back_apart(&mut self, id: &[u8], generation: u64) {
        let Machine { values, stager, hasher, .. } = self;
        let cell = hasher.key(id);
        let counted_as = Some(CountedAs::new(id, NO_PARTS));
        let counted = Entity { occurred_ms: 0, offset: 0, counted_at: 0, cell, generation, counted_as };
        if values.uncount(&counted)
            && let Some(sums) = values.sums.of_cell(stager.declarations(), id)
        {
            sums.counted -= 1;
        }
    }

    /// Late entries that a run has let count elsewhere count here, under its generation. The cell must be known.
    pub fn count_late_apart(&mut self, id: &[u8], delta: i64, generation: u64) {
        self.count_apart(id, delta);
        let generations = &mut self.values.generations;
        generations.current = generations.current.max(generation);
        let cell = self.hasher.key(id);
        let mut mark = self.values.table.mark(cell);
        mark.generation = mark.generation.max(generation);
        self.values.table.set_mark(cell, mark);
    }

    /// What memory does not know of what a generation touches here. A revert asks twice: for what it reverts, and then for the cells
    /// of that.
    pub fn slice_needs(&self, slice: &Slice) -> Vec<Need> {
        let mut needs = Vec::new();
        let mut touch = |id: &[u8]| {
            let cell = self.hasher.key(id);
            needs.extend((!self.values.table.knows(cell)).then_some(Need::Cell(cell)));
        };
        match slice {
            Slice::Correct { deltas, .. } => deltas.iter().for_each(|delta| touch(&delta.id)),
            Slice::Clear { ids } => ids.iter().for_each(|id| touch(id)),
            Slice::Revert { generation } => self.revert_needs(*generation, &|_| None, &mut needs),
        }
        needs
    }

    /// A generation becomes visible here, as far as counters of this state are concerned. It comes to what the same would come to on one
    /// node, at this place of the log. Whoever keeps the order of generations has given it its number.
    pub fn correct_apart(&mut self, slice: Slice, generation: u64) -> Result<Correction, Unfit> {
        let generations = &mut self.values.generations;
        assert!(generation > generations.current, "generations become visible in their order");
        (generations.current, generations.number) = (generation - 1, generation - 1);
        let (grounds, if_generation) = (Grounds::new("", ""), None);
        let drafted = match slice {
            Slice::Correct { purpose, deltas } => self.draft_at_once(purpose, deltas),
            Slice::Clear { ids } => self.assess(&Remedy::Clear { ids, grounds, if_generation }.into()),
            Slice::Revert { generation: number } => {
                self.assess(&Remedy::Revert { number, grounds, if_generation }.into())
            }
        };
        drafted.map(|outcome| match self.make(outcome) {
            RemedyOutcome::Corrected(correction) => correction,
            RemedyOutcome::Proposed(_) => unreachable!("nobody has proposed anything"),
        })
    }
}
