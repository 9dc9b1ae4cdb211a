//! Corrections: the past is changed by a record that says why, and every such change is a generation.
//!
//! A proposal changes nothing. A correction is drafted in full by the writer ([`State::draft`]), so that its record says
//! exactly what it does, and is in force from its place in the log on. For each cell that it touches the value before is
//! kept, which is what the generation before last said.

use super::State;
use crate::cell::{Added, Mark};
use crate::id::CellKey;
use crate::ledger::{BoxKind, Cause, Correction, Delta, Proposal, Row, Step};
use crate::limits::{CORRECTION_DELTAS_MAX, PROPOSALS_OPEN_MAX};
use crate::op::Answer;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Corrections {
    /// The number of the correction that became visible last, of all kinds.
    pub generation: u64,
    /// The last number given to a proposal or correction.
    pub(super) number: u64,
    pub(super) open: BTreeMap<u64, Proposal>,
    /// Which corrections were reverted, and by which.
    pub(super) reverted: BTreeMap<u64, u64>,
}

/// Why a correction cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("there is no open proposal {0}; GET /v1/corrections lists them")]
    NotOpen(u64),
    #[error("correction {number} was reverted by correction {by} already")]
    Reverted { number: u64, by: u64 },
    #[error("{id:?} would not fit into 64 bits; correct it by less")]
    Overflow { id: String },
    #[error("it would change nothing: every counter it names is 0 already")]
    Nothing,
    #[error("a correction changes at most {CORRECTION_DELTAS_MAX} counters; make several")]
    TooMany,
    #[error("{PROPOSALS_OPEN_MAX} proposals are open; apply or withdraw some first")]
    TooManyOpen,
}

impl Corrections {
    pub fn open(&self) -> &BTreeMap<u64, Proposal> {
        &self.open
    }

    /// The last number given to a proposal or correction.
    pub fn last_number(&self) -> u64 {
        self.number
    }

    /// Which correction reverted this one.
    pub fn reverted_by(&self, number: u64) -> Option<u64> {
        self.reverted.get(&number).copied()
    }

    /// Whether another proposal may be made.
    pub fn check_room(&self) -> Result<(), Unfit> {
        if self.open.len() < PROPOSALS_OPEN_MAX { Ok(()) } else { Err(Unfit::TooManyOpen) }
    }
}

impl State {
    /// Writes a correction in full. The cells it touches must be known. For [`Cause::Clear`] the deltas follow from the
    /// values, for [`Cause::Late`] from what waits, for [`Cause::Proposal`] everything follows from the proposal.
    pub fn draft(&self, cause: Cause, reason: &str, author: &str, deltas: &[Delta]) -> Result<Correction, Unfit> {
        let corrections = &self.corrections;
        let mut correction = Correction {
            number: corrections.number + 1,
            generation: corrections.generation + 1,
            reason: reason.to_owned(),
            author: author.to_owned(),
            at_ms: 0,
            deltas: deltas.to_vec(),
            cause,
        };
        match correction.cause {
            Cause::Proposal(number) => {
                let proposal = corrections.open.get(&number).ok_or(Unfit::NotOpen(number))?;
                correction.number = number;
                correction.reason.clone_from(&proposal.reason);
                correction.deltas.clone_from(&proposal.deltas);
            }
            Cause::Revert(number) => {
                if let Some(by) = corrections.reverted_by(number) {
                    return Err(Unfit::Reverted { number, by });
                }
            }
            Cause::Clear => correction.deltas = self.clearing(deltas),
            Cause::Late { .. } => correction.deltas = self.waiting(deltas),
        }
        self.check(&correction)?;
        Ok(correction)
    }

    fn clearing(&self, deltas: &[Delta]) -> Vec<Delta> {
        let value = |delta: &Delta| self.table.get(self.hasher.key(&delta.id)).filter(|value| *value != 0);
        let cleared = deltas.iter().filter_map(|delta| Some((delta, value(delta)?)));
        cleared.map(|(delta, value)| Delta { delta: value.wrapping_neg(), ..delta.clone() }).collect()
    }

    /// The sums that a run names, as they are now: entries may have joined them since the run was planned, and all that is in
    /// a sum leaves with it.
    fn waiting(&self, deltas: &[Delta]) -> Vec<Delta> {
        let sum = |delta: &Delta| self.contracts.parked.get(self.hasher.key(&delta.id), delta.bucket_ms?);
        let waiting = deltas.iter().filter_map(|delta| Some((delta, sum(delta)?)));
        waiting.map(|(delta, sum)| Delta { delta: sum.delta, ..delta.clone() }).collect()
    }

    fn check(&self, correction: &Correction) -> Result<(), Unfit> {
        if correction.deltas.is_empty() {
            return Err(Unfit::Nothing);
        }
        if correction.deltas.len() > CORRECTION_DELTAS_MAX {
            return Err(Unfit::TooMany);
        }
        let mut sums = BTreeMap::<CellKey, i64>::new();
        for delta in &correction.deltas {
            let cell = self.hasher.key(&delta.id);
            let sum = sums.entry(cell).or_insert_with(|| self.table.get(cell).unwrap_or(0));
            let overflow = || Unfit::Overflow { id: String::from_utf8_lossy(&delta.id).into_owned() };
            *sum = sum.checked_add(delta.delta).ok_or_else(overflow)?;
        }
        Ok(())
    }

    pub(super) fn propose(&mut self, proposal: &[u8]) -> Answer {
        let mut proposal = Proposal::decode(proposal).expect("whoever staged or decoded it has read it before");
        self.corrections.number += 1;
        proposal.number = self.corrections.number;
        proposal.at_ms = self.log_time_ms;
        self.corrections.open.insert(proposal.number, proposal);
        Answer::Value(self.corrections.number as i64)
    }

    pub(super) fn withdraw(&mut self, number: u64) -> Answer {
        if self.corrections.open.remove(&number).is_some() { Answer::Yes } else { Answer::No }
    }

    /// Makes a correction visible. A generation that is in force already changes nothing.
    pub(super) fn correct(&mut self, correction: &[u8]) -> Answer {
        let mut correction = Correction::decode(correction).expect("whoever staged or decoded it has read it before");
        if correction.generation <= self.corrections.generation {
            return Answer::No;
        }
        correction.at_ms = self.log_time_ms;
        self.corrections.generation = correction.generation;
        self.corrections.number = self.corrections.number.max(correction.number);
        match correction.cause {
            Cause::Proposal(number) => drop(self.corrections.open.remove(&number)),
            Cause::Revert(number) => drop(self.corrections.reverted.insert(number, correction.number)),
            Cause::Clear | Cause::Late { .. } => {}
        }
        let mut steps = BTreeMap::<CellKey, Step>::new();
        for delta in &correction.deltas {
            self.correct_cell(&correction, delta, &mut steps);
        }
        for (cell, step) in steps {
            self.ledger.steps.push(cell, correction.generation, step);
        }
        self.ledger.corrections.push(correction);
        Answer::Yes
    }

    fn correct_cell(&mut self, correction: &Correction, delta: &Delta, steps: &mut BTreeMap<CellKey, Step>) {
        let cell = self.hasher.key(&delta.id);
        if matches!(correction.cause, Cause::Late { .. }) && !self.settle(cell, delta) {
            return;
        }
        let before = self.table.get(cell).unwrap_or(0);
        match self.table.add(cell, delta.delta) {
            Added::Created(_) => self.names.created(&delta.id),
            Added::Value(_) => {}
            // Drafting has checked it; a record that says otherwise changes nothing.
            Added::Overflow => return,
        }
        let cleared = correction.cause == Cause::Clear;
        let step = steps.entry(cell).or_insert(Step {
            before,
            delta: 0,
            at_ms: correction.at_ms,
            number: correction.number,
            cleared,
        });
        step.delta = step.delta.wrapping_add(delta.delta);
        let last = self.table.mark(cell);
        let cleared = if cleared { correction.generation } else { last.cleared };
        self.table.set_mark(cell, Mark { generation: correction.generation, cleared });
    }

    /// A late entry becomes a counted one; `false` if it does not wait any more.
    fn settle(&mut self, cell: CellKey, delta: &Delta) -> bool {
        let Some(parked) = self.contracts.parked.take(cell, delta.bucket_ms.unwrap_or(0)) else { return false };
        let entries = parked.entries as i64;
        self.ledger.boxes.add(cell, BoxKind::Late, -entries);
        let name = parked.id.split(|byte| *byte == crate::id::SEPARATOR).next().unwrap_or_default();
        if let Some(boxes) = std::str::from_utf8(name).ok().and_then(|name| self.contracts.boxes_mut(name)) {
            boxes.bump(BoxKind::Late, -entries);
            boxes.bump(BoxKind::Counted, entries);
        }
        true
    }
}
