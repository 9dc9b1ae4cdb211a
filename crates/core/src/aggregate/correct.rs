//! Corrections: the past is changed by a record that says why, and every such change is a generation.
//!
//! A proposal changes nothing. A correction is drafted in full by the writer ([`State::draft`]), so that its record says
//! exactly what it does, and is in force from its place in the log on. For each cell that it touches the value before is
//! kept, which is what the generation before last said.

use super::State;
use crate::cell::Added;
use crate::counter::Mode;
use crate::fact::Request;
use crate::fates::Counts;
use crate::id::CellKey;
use crate::ledger::{Cause, Correction, Delta, Kind, Row, Step};
use crate::limits::{
    CORRECTION_BYTES_MAX, CORRECTION_DELTAS_MAX, DECLARED_MAX, PROPOSALS_OPEN_BYTES_MAX, PROPOSALS_OPEN_MAX,
};
use crate::op::Answer;
use std::collections::BTreeMap;

/// What a delta takes in a record beside its id, at most.
const DELTA_BYTES_MAX: usize = 32;

/// What is to be corrected, and why.
#[derive(Clone, Debug)]
pub struct CorrectionRequest {
    pub cause: Cause,
    pub reason: String,
    /// Who applies, clears or reverts.
    pub author: String,
    pub deltas: Vec<Delta>,
    /// What it undoes.
    pub reverted: Option<Reverted>,
    /// No counter that it changes may have been touched by a later generation.
    pub if_generation: Option<u64>,
    /// It is made once, however often it is asked for under the same id.
    pub once: Option<Request>,
}

/// A correction that another one undoes.
#[derive(Clone, Copy, Debug)]
pub struct Reverted {
    pub generation: u64,
    pub cause: Cause,
}

impl CorrectionRequest {
    pub fn new(cause: Cause, reason: impl Into<String>, author: impl Into<String>, deltas: Vec<Delta>) -> Self {
        let (reason, author) = (reason.into(), author.into());
        CorrectionRequest { cause, reason, author, deltas, reverted: None, if_generation: None, once: None }
    }
}

/// Why a correction cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("there is no open proposal {0}; GET /v1/corrections lists them")]
    NotOpen(u64),
    #[error("correction {number} was reverted by correction {by} already")]
    Reverted { number: u64, by: u64 },
    #[error("{id:?} would go beyond its bounds, 2⁶² for a declared counter and 64 bits for others; correct it by less")]
    Overflow { id: String },
    #[error(
        "{id:?} was corrected meanwhile: its generation is {is}, and at most {asked} was asked for; look at it again"
    )]
    Moved { id: String, asked: u64, is: u64 },
    #[error(
        "{id:?} was cleared too often since correction {number}, so nobody knows any more what that took; \
         propose what is to be added"
    )]
    TooLongAgo { id: String, number: u64 },
    #[error("it was asked for before, as {0}")]
    Repeated(u64),
    #[error("this Idempotency-Key has asked for something else before; use a new key for a new request")]
    OtherRequest,
    #[error("{0} idempotency keys are kept, which is the bound; try again later, or raise idempotency.maxKeys")]
    KeysFull(u64),
    #[error("it would change nothing: every counter it names is 0 already")]
    Nothing,
    #[error("a correction changes at most {CORRECTION_DELTAS_MAX} counters; make several")]
    TooMany,
    #[error(
        "{name} has more than {CORRECTION_DELTAS_MAX} keys that are not 0; clear them key by key, or propose corrections of some at \
         a time"
    )]
    TooManyKeys { name: String },
    #[error("{PROPOSALS_OPEN_MAX} proposals are open; apply or withdraw some first")]
    TooManyOpen,
    #[error(
        "it has {bytes} bytes and those that are open {open}: all together have at most {PROPOSALS_OPEN_BYTES_MAX}; apply or \
         withdraw some first, or propose less at once"
    )]
    OpenTooLarge { bytes: usize, open: usize },
    #[error("a correction has at most {CORRECTION_BYTES_MAX} bytes, and this one has {bytes}; make several")]
    TooLarge { bytes: usize },
}

impl State {
    /// Whether another proposal of so many bytes may be made.
    pub fn check_room(&self, bytes: usize) -> Result<(), Unfit> {
        let proposals = &self.values.proposals;
        if bytes > CORRECTION_BYTES_MAX {
            return Err(Unfit::TooLarge { bytes });
        }
        if proposals.len() >= PROPOSALS_OPEN_MAX {
            return Err(Unfit::TooManyOpen);
        }
        let open = proposals.bytes();
        if open + bytes > PROPOSALS_OPEN_BYTES_MAX { Err(Unfit::OpenTooLarge { bytes, open }) } else { Ok(()) }
    }

    /// Writes a correction in full. The cells it touches must be known. For [`Cause::Clear`] the deltas follow from the
    /// values, for [`Cause::Late`] from what waits, for [`Cause::Proposal`] everything follows from the proposal.
    pub fn draft(&self, request: &CorrectionRequest) -> Result<Correction, Unfit> {
        let generations = &self.values.generations;
        let deltas = &request.deltas;
        let mut if_generation = request.if_generation;
        let mut correction = Correction {
            number: generations.number + 1,
            generation: generations.current + 1,
            reason: request.reason.clone(),
            author: request.author.clone(),
            at_ms: 0,
            deltas: deltas.clone(),
            cause: request.cause,
            applied_by: request.author.clone(),
            proposed_ms: None,
            reverted_generation: request.reverted.map(|reverted| reverted.generation),
        };
        match correction.cause {
            Cause::Proposal(number) => {
                let proposal = self.values.proposals.get(number).ok_or(Unfit::NotOpen(number))?;
                correction.number = number;
                correction.reason = proposal.reason;
                correction.author = proposal.author;
                correction.deltas = proposal.deltas;
                correction.proposed_ms = Some(proposal.at_ms);
                if_generation = [if_generation, proposal.if_generation].into_iter().flatten().min();
            }
            Cause::Revert(number) => {
                if let Some(by) = generations.reverted_by(number) {
                    return Err(Unfit::Reverted { number, by });
                }
                if let Some(reverted) = request.reverted {
                    self.leave_out_undone(number, reverted, &mut correction.deltas)?;
                }
            }
            Cause::Clear => correction.deltas = self.clearing(deltas),
            Cause::Late { .. } => correction.deltas = self.waiting(deltas),
        }
        self.check(&correction)?;
        if let Some(asked) = if_generation {
            self.check_generation(asked, correction.deltas.iter().map(|delta| &*delta.id))?;
        }
        Ok(correction)
    }

    /// Whether no counter was touched by a generation later than the one asked for. They must be known.
    pub fn check_generation<'i>(&self, asked: u64, ids: impl Iterator<Item = &'i [u8]>) -> Result<(), Unfit> {
        for id in ids {
            let is = self.values.table.mark(self.hasher.key(id)).generation;
            if is > asked {
                return Err(Unfit::Moved { id: shown(id), asked, is });
            }
        }
        Ok(())
    }

    /// What was undone since a clear does not come back with it, and the other way round.
    fn leave_out_undone(&self, number: u64, reverted: Reverted, deltas: &mut [Delta]) -> Result<(), Unfit> {
        for delta in deltas.iter_mut().filter(|delta| self.keeps_entities(&delta.id)) {
            let spans = self.values.table.mark(self.hasher.key(&delta.id)).spans;
            if reverted.cause == Cause::Clear && !spans.has(reverted.generation) {
                return Err(Unfit::TooLongAgo { id: shown(&delta.id), number });
            }
            let undone = spans.undone_since(reverted.generation);
            delta.delta = delta.delta.checked_add(undone).ok_or_else(|| Unfit::Overflow { id: shown(&delta.id) })?;
        }
        Ok(())
    }

    /// Whether a counter counts for entities, which may undo what they counted.
    fn keeps_entities(&self, id: &[u8]) -> bool {
        let counter = self.declarations().counter_of(id);
        counter.is_some_and(|counter| counter.mode == Mode::Transition && !counter.entity.is_empty())
    }

    fn clearing(&self, deltas: &[Delta]) -> Vec<Delta> {
        let value = |delta: &Delta| self.values.table.get(self.hasher.key(&delta.id)).filter(|value| *value != 0);
        let cleared = deltas.iter().filter_map(|delta| Some((delta, value(delta)?)));
        cleared.map(|(delta, value)| Delta { delta: value.wrapping_neg(), ..delta.clone() }).collect()
    }

    /// The sums that a run names, as they are now: entries may have joined them since the run was planned, and all that is in
    /// a sum leaves with it.
    fn waiting(&self, deltas: &[Delta]) -> Vec<Delta> {
        let sum = |delta: &Delta| self.fates.contracts.parked.get(self.hasher.key(&delta.id), delta.bucket_ms?);
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
        let bytes = correction.deltas.iter().map(|delta| delta.id.len() + DELTA_BYTES_MAX).sum();
        if bytes > CORRECTION_BYTES_MAX {
            return Err(Unfit::TooLarge { bytes });
        }
        if matches!(correction.cause, Cause::Late { .. }) {
            // What does not fit is rejected when the run comes to it.
            return Ok(());
        }
        let mut sums = BTreeMap::<CellKey, (i64, i64)>::new();
        for delta in &correction.deltas {
            let cell = self.hasher.key(&delta.id);
            let (value, change) = sums.entry(cell).or_insert_with(|| (self.values.table.get(cell).unwrap_or(0), 0));
            let overflow = || Unfit::Overflow { id: shown(&delta.id) };
            let bound = self.bound_of(&delta.id).unsigned_abs();
            let sum = value.checked_add(delta.delta).filter(|sum| sum.unsigned_abs() <= bound);
            *value = sum.ok_or_else(overflow)?;
            // The history has one number for all of them, and a revert takes its opposite.
            *change = change.checked_add(delta.delta).filter(|change| *change != i64::MIN).ok_or_else(overflow)?;
        }
        Ok(())
    }

    /// How far from 0 people may bring a counter.
    fn bound_of(&self, id: &[u8]) -> i64 {
        if self.declarations().index_of(id).is_some() { DECLARED_MAX } else { i64::MAX }
    }

    /// Whether something may be asked for under this id at this log time. Its answer must be known.
    pub fn check_once(&mut self, request: &Request, log_time_ms: u64) -> Result<(), Unfit> {
        let keys_max = self.declarations().idempotency().keys_max;
        match self.values.answered_before(request.key, log_time_ms) {
            Some(known) if known.delta == request.content as i64 => Err(Unfit::Repeated(known.value as u64)),
            Some(_) => Err(Unfit::OtherRequest),
            None if !self.values.has_room_for_a_key(log_time_ms) => Err(Unfit::KeysFull(keys_max)),
            None => Ok(()),
        }
    }

    /// Makes a correction visible. A generation that is in force already changes nothing.
    pub(super) fn correct(&mut self, correction: &[u8]) -> Answer {
        let mut correction = Correction::decode(correction).expect("whoever staged or decoded it has read it before");
        if correction.generation <= self.values.generations.current {
            return Answer::No;
        }
        correction.at_ms = self.values.log_time_ms;
        self.values.generations.current = correction.generation;
        self.values.generations.number = self.values.generations.number.max(correction.number);
        match correction.cause {
            Cause::Proposal(number) => _ = self.values.proposals.remove(number),
            Cause::Revert(number) => drop(self.values.generations.reverted.insert(number, correction.number)),
            Cause::Clear | Cause::Late { .. } => {}
        }
        let mut steps = BTreeMap::<CellKey, Step>::new();
        // Only what was done is kept as done.
        let mut deltas = std::mem::take(&mut correction.deltas);
        deltas.retain(|delta| self.correct_cell(&correction, delta, &mut steps));
        correction.deltas = deltas;
        for (cell, step) in steps {
            self.values.steps.push(cell, correction.generation, step);
        }
        self.values.corrections.push(correction);
        Answer::Yes
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
        let added = if is_late { table.count(cell, delta.delta) } else { table.add(cell, delta.delta) };
        match added {
            Added::Created(_) => self.values.note_created(&delta.id),
            Added::Value(_) => {}
            // Drafting has checked what people ask for; a record that says otherwise changes nothing.
            Added::Overflow => return false,
            Added::Unknown => unreachable!("a correction knows every cell that it changes"),
        }
        if let Some(sums) = self.values.sums.of_cell(self.stager.declarations(), &delta.id) {
            let sum = if is_late { &mut sums.counted } else { &mut sums.corrected };
            *sum += i128::from(delta.delta);
        }
        if let Some(step) = steps.get_mut(&cell) {
            // The history has one number for all of them, and a revert takes its opposite.
            step.delta = step.delta.wrapping_add(delta.delta);
            return true;
        }
        let Correction { at_ms, number, cause, .. } = *correction;
        let step = Step { before, delta: delta.delta, at_ms, number, cleared: cause == Cause::Clear, forgotten: false };
        steps.insert(cell, step);
        self.mark_corrected(correction, cell, &delta.id);
        true
    }

    /// Late entries leave their box; `false` if they do not wait any more.
    fn let_count(&mut self, cell: CellKey, delta: &Delta) -> bool {
        let parked = self.fates.contracts.parked.take(cell, delta.bucket_ms.unwrap_or(0));
        let Some(parked) = parked else { return false };
        self.values.wait(cell, -(parked.entries as i64));
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

fn shown(id: &[u8]) -> String {
    String::from_utf8_lossy(id).into_owned()
}
