//! What was asked for is done, at its place in the log.

use super::{CorrectionRequest, RemedyOutcome, Unfit};
use crate::id::CellKey;
use crate::ledger::{Answered, Cause, Correction, Delta, Purpose, Row, Step};
use crate::machine::Machine;
use crate::memory::cell::Added;
use crate::op::Answer;
use crate::values::Belongs;
use std::collections::BTreeMap;

impl Machine {
    /// Does what a record asks for, if it can be done here; what became of it is kept for whoever asked ([`Machine::take_outcome`]).
    pub(in crate::machine) fn remedy(&mut self, record: &[u8]) -> Answer {
        let request = self.read_request(record).expect("whoever staged or decoded it has read it before");
        let outcome = self.assess(&request).map(|outcome| self.make(outcome));
        self.remember_outcome(&request, &outcome);
        let answer = outcome.as_ref().map_or(Answer::No, |outcome| Answer::Value(outcome.number() as i64));
        self.outcome = Some(outcome);
        answer
    }

    /// What became of the last request.
    pub fn take_outcome(&mut self) -> Option<Result<RemedyOutcome, Unfit>> {
        self.outcome.take()
    }

    /// The correction that the last batch has made.
    pub fn just_made(&self) -> Option<&Correction> {
        match &self.outcome {
            Some(Ok(RemedyOutcome::Corrected(correction))) => Some(correction),
            _ => None,
        }
    }

    /// Whoever asks again under the same id is told the same; also that nothing had to be done, whatever there is by then.
    fn remember_outcome(&mut self, request: &CorrectionRequest, outcome: &Result<RemedyOutcome, Unfit>) {
        let Some(once) = &request.once else { return };
        let number = match outcome {
            Ok(outcome) => outcome.number(),
            Err(Unfit::Nothing) => 0,
            Err(_) => return,
        };
        let at_ms = self.values.log_time_ms;
        self.values.remember_answer(once.key, Answered { delta: once.content as i64, value: number as i64, at_ms });
    }

    pub(in crate::machine) fn make(&mut self, outcome: RemedyOutcome) -> RemedyOutcome {
        match outcome {
            RemedyOutcome::Proposed(proposal) => {
                self.values.generations.number = proposal.number;
                self.values.facts.proposals.insert(&proposal);
                RemedyOutcome::Proposed(proposal)
            }
            RemedyOutcome::Corrected(correction) => RemedyOutcome::Corrected(self.make_correction(correction)),
        }
    }

    /// Makes a correction visible that an earlier version has drafted in full. A generation that is in force already changes nothing.
    pub(in crate::machine) fn correct(&mut self, correction: &[u8]) -> Answer {
        let mut correction = Correction::decode(correction).expect("whoever staged or decoded it has read it before");
        if correction.generation <= self.values.generations.current {
            return Answer::No;
        }
        correction.at_ms = self.values.log_time_ms;
        self.make_correction(correction);
        Answer::Yes
    }

    /// Makes a correction visible, and answers what was done of it.
    fn make_correction(&mut self, mut correction: Correction) -> Correction {
        let generations = &mut self.values.generations;
        generations.current = correction.generation;
        generations.number = generations.number.max(correction.number);
        match correction.cause {
            Cause::Proposal(number) => _ = self.values.facts.proposals.remove(number),
            Cause::Revert(number) => drop(generations.reverted.insert(number, correction.number)),
            Cause::Clear | Cause::Late { .. } => {}
        }
        let mut steps = BTreeMap::<CellKey, Step>::new();
        // Only what was done is kept as done.
        let mut deltas = std::mem::take(&mut correction.deltas);
        deltas.retain(|delta| self.correct_cell(&correction, delta, &mut steps));
        correction.deltas = deltas;
        self.values.note_corrected(&correction);
        for (cell, step) in steps {
            self.values.facts.steps.push(cell, correction.generation, step);
        }
        self.values.facts.corrections.push(&correction);
        correction
    }

    /// Whether it was done.
    fn correct_cell(&mut self, correction: &Correction, delta: &Delta, steps: &mut BTreeMap<CellKey, Step>) -> bool {
        let cell = self.hasher.key(&delta.id);
        let is_late = matches!(correction.cause, Cause::Late { .. });
        if is_late && !self.let_count(cell, delta) {
            return false;
        }
        let table = &mut self.values.table;
        let before = table.get(cell).unwrap_or(0);
        table.name_followed(cell, &delta.id);
        let added = if is_late { table.count(cell, delta.delta) } else { table.add(cell, delta.delta) };
        match added {
            Added::Created(_) => self.values.note_created(&delta.id),
            Added::Value(_) => {}
            // Drafting has checked what people ask for; a record that says otherwise changes nothing.
            Added::Overflow => return false,
            Added::Unknown => unreachable!("a correction knows every cell that it changes"),
        }
        self.values.lists.changed(&mut self.values.table, cell, &delta.id, added, delta.delta);
        if let Some(sums) = self.values.sums.of_cell(self.stager.declarations(), &delta.id) {
            *sums.by(correction.purpose) += i128::from(delta.delta);
        }
        if !is_late {
            self.correct_parts(correction, cell, delta);
        }
        if let Some(step) = steps.get_mut(&cell) {
            // The history has one number for all of them, and a revert takes its opposite.
            step.delta = step.delta.wrapping_add(delta.delta);
            return true;
        }
        let Correction { at_ms, number, cause, purpose, .. } = *correction;
        let step = Step {
            cleared: cause == Cause::Clear,
            restored: purpose == Purpose::Restore,
            ..Step::new(before, delta.delta, at_ms, number)
        };
        steps.insert(cell, step);
        self.mark_corrected(correction, cell, &delta.id);
        true
    }

    /// What people correct belongs to no part of a key but the one for that; what is cleared begins anew.
    fn correct_parts(&mut self, correction: &Correction, cell: CellKey, delta: &Delta) {
        let declarations = self.stager.declarations();
        let reverted_ms = match correction.cause {
            Cause::Revert(number) => self.values.made(number).map(|made| made.at_ms),
            _ => None,
        };
        let belongs = Belongs::Corrected(delta.bucket_ms.or(reverted_ms));
        match correction.cause {
            Cause::Clear => self.values.clear_parts(declarations, &delta.id, cell, delta.delta, belongs),
            _ => self.values.roll_id(declarations, &delta.id, cell, delta.delta, belongs),
        }
    }

    /// Late entries leave their box; `false` if they do not wait any more.
    fn let_count(&mut self, cell: CellKey, delta: &Delta) -> bool {
        let hour_ms = delta.bucket_ms.unwrap_or(0);
        let parked = self.fates.contracts.parked.take(cell, hour_ms);
        let Some(parked) = parked else { return false };
        self.values.table.add_pending(cell, -(parked.entries as i64));
        for (part, sum) in &parked.parts {
            self.values.roll_id(self.stager.declarations(), &delta.id, cell, *sum, Belongs::Counted(Some(part)));
        }
        let unsaid = parked.delta - parked.parts.values().sum::<i64>();
        if unsaid != 0 {
            self.values.roll_id(self.stager.declarations(), &delta.id, cell, unsaid, Belongs::Late(hour_ms));
        }
        self.fates.settle(cell, &parked, self.stager.declarations());
        true
    }

    fn mark_corrected(&mut self, correction: &Correction, cell: CellKey, id: &[u8]) {
        let generation = correction.generation;
        let mut mark = self.values.table.mark(cell);
        mark.generation = generation;
        if self.keeps_entities(id) {
            match (correction.cause, correction.reverted_generation) {
                (Cause::Clear, _) => mark.spans.clear(generation),
                (Cause::Revert(_), Some(of)) => mark.spans.revert(of, generation),
                _ => {}
            }
        }
        self.values.table.set_mark(cell, mark);
    }
}
