//! Corrections: the past is changed by a record that says why, and every such change is a generation.
//!
//! A proposal changes nothing. A correction is drafted in full by the writer ([`State::draft`]), so that its record says
//! exactly what it does, and is in force from its place in the log on. For each cell that it touches the value before is
//! kept, which is what the generation before last said.

use super::{Batch, ParkedEntry, State, record_at};
use crate::cell::Added;
use crate::counter::Mode;
use crate::fact::Request;
use crate::id::CellKey;
use crate::ledger::{Answered, BoxKind, Cause, Correction, Delta, Proposal, Row, Step};
use crate::limits::{CORRECTION_BYTES_MAX, CORRECTION_DELTAS_MAX, PROPOSALS_OPEN_BYTES_MAX, PROPOSALS_OPEN_MAX};
use crate::op::{Answer, Op, Stamp};
use crate::record::Record;
use std::collections::BTreeMap;

/// What a delta takes in a record beside its id, at most.
const DELTA_BYTES_MAX: usize = 32;

#[derive(Clone, Debug, Default)]
pub struct Corrections {
    /// The number of the correction that became visible last, of all kinds.
    pub generation: u64,
    /// The last number given to a proposal or correction.
    pub(super) number: u64,
    /// Which corrections were reverted, and by which.
    pub(super) reverted: BTreeMap<u64, u64>,
}

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
    #[error("{id:?} would not fit into 64 bits; correct it by less")]
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

impl Corrections {
    /// The last number given to a proposal or correction.
    pub fn last_number(&self) -> u64 {
        self.number
    }

    /// Which correction reverted this one.
    pub fn reverted_by(&self, number: u64) -> Option<u64> {
        self.reverted.get(&number).copied()
    }
}

impl State {
    /// Whether another proposal of so many bytes may be made.
    pub fn check_room(&self, bytes: usize) -> Result<(), Unfit> {
        let proposals = &self.ledger.proposals;
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
        let corrections = &self.corrections;
        let deltas = &request.deltas;
        let mut if_generation = request.if_generation;
        let mut correction = Correction {
            number: corrections.number + 1,
            generation: corrections.generation + 1,
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
                let proposal = self.ledger.proposals.get(number).ok_or(Unfit::NotOpen(number))?;
                correction.number = number;
                correction.reason = proposal.reason;
                correction.author = proposal.author;
                correction.deltas = proposal.deltas;
                correction.proposed_ms = Some(proposal.at_ms);
                if_generation = [if_generation, proposal.if_generation].into_iter().flatten().min();
            }
            Cause::Revert(number) => {
                if let Some(by) = corrections.reverted_by(number) {
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
            let is = self.table.mark(self.hasher.key(id)).generation;
            if is > asked {
                return Err(Unfit::Moved { id: shown(id), asked, is });
            }
        }
        Ok(())
    }

    /// What was undone since a clear does not come back with it, and the other way round.
    fn leave_out_undone(&self, number: u64, reverted: Reverted, deltas: &mut [Delta]) -> Result<(), Unfit> {
        for delta in deltas.iter_mut().filter(|delta| self.keeps_entities(&delta.id)) {
            let spans = self.table.mark(self.hasher.key(&delta.id)).spans;
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
            let (value, change) = sums.entry(cell).or_insert_with(|| (self.table.get(cell).unwrap_or(0), 0));
            let overflow = || Unfit::Overflow { id: shown(&delta.id) };
            *value = value.checked_add(delta.delta).ok_or_else(overflow)?;
            // The history has one number for all of them, and a revert takes its opposite.
            *change = change.checked_add(delta.delta).filter(|change| *change != i64::MIN).ok_or_else(overflow)?;
        }
        Ok(())
    }

    /// Whether something may be asked for under this id at this log time. Its answer must be known.
    pub fn check_once(&mut self, request: &Request, log_time_ms: u64) -> Result<(), Unfit> {
        let keys_max = self.declarations().idempotency().keys_max;
        match self.answered_before(request.key, log_time_ms) {
            Some(known) if known.delta == request.content as i64 => Err(Unfit::Repeated(known.value as u64)),
            Some(_) => Err(Unfit::OtherRequest),
            None if !self.has_room_for_a_key(log_time_ms) => Err(Unfit::KeysFull(keys_max)),
            None => Ok(()),
        }
    }

    /// What was asked for under an id is in this batch, or nothing had to be done.
    pub(super) fn remember_request(&mut self, op: &Op, stamp: &Stamp, batch: &Batch<'_>) -> Answer {
        let Record::Once { number, .. } = record_at(batch.records, op) else { unreachable!("it is an id") };
        let delta = stamp.number as i64;
        self.remember_answer(stamp.key, Answered { delta, value: number as i64, at_ms: batch.log_time_ms });
        Answer::Yes
    }

    pub(super) fn propose(&mut self, proposal: &[u8]) -> Answer {
        let mut proposal = Proposal::decode(proposal).expect("whoever staged or decoded it has read it before");
        self.corrections.number += 1;
        proposal.number = self.corrections.number;
        proposal.at_ms = self.log_time_ms;
        self.ledger.proposals.insert(&proposal);
        Answer::Value(self.corrections.number as i64)
    }

    pub(super) fn withdraw(&mut self, number: u64) -> Answer {
        if self.ledger.proposals.remove(number) { Answer::Yes } else { Answer::No }
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
            Cause::Proposal(number) => _ = self.ledger.proposals.remove(number),
            Cause::Revert(number) => drop(self.corrections.reverted.insert(number, correction.number)),
            Cause::Clear | Cause::Late { .. } => {}
        }
        let mut steps = BTreeMap::<CellKey, Step>::new();
        // Only what was done is kept as done.
        let mut deltas = std::mem::take(&mut correction.deltas);
        deltas.retain(|delta| self.correct_cell(&correction, delta, &mut steps));
        correction.deltas = deltas;
        for (cell, step) in steps {
            self.ledger.steps.push(cell, correction.generation, step);
        }
        self.ledger.corrections.push(correction);
        Answer::Yes
    }

    /// Whether it was done.
    fn correct_cell(&mut self, correction: &Correction, delta: &Delta, steps: &mut BTreeMap<CellKey, Step>) -> bool {
        let cell = self.hasher.key(&delta.id);
        let is_late = matches!(correction.cause, Cause::Late { .. });
        let mut parked = None;
        if is_late {
            parked = self.contracts.parked.take(cell, delta.bucket_ms.unwrap_or(0));
            if parked.is_none() {
                // It does not wait any more.
                return false;
            }
        }
        let before = self.table.get(cell).unwrap_or(0);
        // The history has one number for all of them, and a revert takes its opposite.
        let change = steps.get(&cell).map_or(Some(delta.delta), |step| step.delta.checked_add(delta.delta));
        let is_too_much = is_late && change.is_none_or(|change| change == i64::MIN);
        let added = if is_too_much { Added::Overflow } else { self.table.add(cell, delta.delta) };
        if let Some(parked) = parked {
            self.settle(cell, &parked, if added == Added::Overflow { BoxKind::Rejected } else { BoxKind::Counted });
        }
        match added {
            Added::Created(_) => self.note_created(&delta.id),
            Added::Value(_) => {}
            // Drafting has checked what people ask for; a record that says otherwise changes nothing.
            Added::Overflow => return false,
        }
        if let Some(kept) = self.contracts.kept_of(self.stager.declarations(), &delta.id) {
            if is_late { kept.add_counted(delta.delta) } else { kept.add_corrected(delta.delta) }
        }
        if let Some(step) = steps.get_mut(&cell) {
            step.delta = step.delta.wrapping_add(delta.delta);
            return true;
        }
        let Correction { at_ms, number, cause, .. } = *correction;
        let step = Step { before, delta: delta.delta, at_ms, number, cleared: cause == Cause::Clear, forgotten: false };
        steps.insert(cell, step);
        self.mark_corrected(correction, cell, &delta.id);
        true
    }

    fn mark_corrected(&mut self, correction: &Correction, cell: CellKey, id: &[u8]) {
        let generation = correction.generation;
        let mut mark = self.table.mark(cell);
        mark.generation = generation;
        if self.keeps_entities(id) {
            match (correction.cause, correction.reverted_generation) {
                (Cause::Clear, _) => mark.spans.clear(generation),
                (Cause::Revert(_), Some(of)) => mark.spans.revert(of, generation),
                _ => {}
            }
        }
        self.table.set_mark(cell, mark);
    }

    /// Late entries leave their box for another.
    fn settle(&mut self, cell: CellKey, parked: &ParkedEntry, to: BoxKind) {
        let entries = parked.entries as i64;
        self.table.add_pending(cell, -entries);
        self.ledger.boxes.add(cell, BoxKind::Late, -entries);
        if to != BoxKind::Counted {
            self.ledger.boxes.add(cell, to, entries);
        }
        if let Some(kept) = self.contracts.kept_of(self.stager.declarations(), &parked.id) {
            kept.boxes.bump(BoxKind::Late, -entries);
            kept.boxes.bump(to, entries);
        }
    }
}

fn shown(id: &[u8]) -> String {
    String::from_utf8_lossy(id).into_owned()
}
