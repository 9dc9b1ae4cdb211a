//! Fates apart from values, where a log lies between them: one state only decides, another one only counts.
//!
//! The rules are those of one node. What decides hands what counts to a [`Counts`] of the caller's; what counts takes it in here,
//! by ids, since it has not seen the events.

use super::Machine;
use crate::fates::{Counts, ParkedEntry, Scene, Void};
use crate::id::CellKey;
use crate::ledger::{CountedAs, Entity};
use crate::op::{Answer, Batch, OpKind};

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
        let counted_as = Some(CountedAs::new(id, &[]));
        let counted = Entity { occurred_ms: 0, offset: 0, counted_at: 0, cell, generation, counted_as };
        if values.uncount(&counted)
            && let Some(sums) = values.sums.of_cell(stager.declarations(), id)
        {
            sums.counted -= 1;
        }
    }

    /// A generation touches a counter: a slice of a correction, or late entries that count now. The cell must be known.
    pub fn correct_apart(&mut self, id: &[u8], delta: i64, generation: u64, is_late: bool) {
        let cell = self.hasher.key(id);
        if is_late {
            self.count_apart(id, delta);
        } else {
            if let Some(sums) = self.values.sums.of_cell(self.stager.declarations(), id) {
                sums.adjusted += i128::from(delta);
            }
            self.values.count_known(cell, id, delta);
        }
        self.values.generations.current = self.values.generations.current.max(generation);
        let mut mark = self.values.table.mark(cell);
        mark.generation = mark.generation.max(generation);
        self.values.table.set_mark(cell, mark);
    }
}
