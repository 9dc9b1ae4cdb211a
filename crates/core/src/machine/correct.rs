//! Corrections: the past is changed by a record that says what to do and why, and every such change is a generation.
//!
//! A record says what is asked for ([`Remedy`]); what that comes to is drafted here from the state at its place in the log, and
//! made there ([`make`]): the number, the generation, the deltas. Whoever wants to know before he appends asks [`Machine::assess`],
//! which is the same draft. A proposal changes nothing. For each cell that a correction touches the value before is kept, which
//! is what the generation before last said.

mod make;
mod request;

use super::Machine;
use crate::counter::Declared;
use crate::fact::Request;
use crate::id::CellKey;
use crate::ledger::{Cause, Correction, Delta, Grounds, Kind, Proposal, Purpose, Remedy, Row};
use crate::limits::{
    CORRECTION_BYTES_MAX, CORRECTION_DELTAS_MAX, DECLARED_MAX, PROPOSALS_OPEN_BYTES_MAX, PROPOSALS_OPEN_MAX,
};
use crate::op::{OpKind, Stamp, Submission};
use crate::record::DecodeError;
use std::collections::BTreeMap;

pub use request::{CorrectionRequest, RemedyOutcome, Unfit};

/// What a delta takes in a correction beside its id, at most.
const DELTA_BYTES_MAX: usize = 32;

impl Machine {
    /// What a request would come to now. Whatever it touches must be known ([`Machine::touch`]).
    pub fn assess(&mut self, request: &CorrectionRequest) -> Result<RemedyOutcome, Unfit> {
        if let Some(once) = &request.once {
            self.check_once(once)?;
        }
        match &request.remedy {
            Remedy::Propose(proposal) => self.draft_proposal(proposal).map(RemedyOutcome::Proposed),
            Remedy::Apply { number, author, if_generation } => self.draft_application(*number, author, *if_generation),
            Remedy::Revert { number, grounds, if_generation } => self.draft_revert(*number, grounds, *if_generation),
            Remedy::Clear { ids, grounds, if_generation } => {
                let correction = Correction { deltas: self.clearing(ids), ..self.draft(Cause::Clear, grounds) };
                self.fit(correction, *if_generation)
            }
            Remedy::Late(run) => {
                let cause = Cause::Late { run: self.values.generations.current + 1 };
                let deltas = self.fates.contracts.parked.due(*run);
                let correction = Correction { deltas, ..self.draft(cause, &Grounds::new("late entries", "tally")) };
                self.fit(correction, None)
            }
        }
    }

    /// Adds to a submission what a request does, and reads of whatever it touches, so that all of it is looked up before. Its
    /// record, if there is one yet, begins at `record`.
    pub fn touch(&self, request: &CorrectionRequest, record: u32, out: &mut Submission) {
        let mut reverts = 0;
        let mut read = |id: &[u8]| out.get(self.hasher.key(id));
        match &request.remedy {
            Remedy::Propose(proposal) if proposal.if_generation.is_none() => {}
            Remedy::Propose(proposal) => proposal.deltas.iter().for_each(|delta| read(&delta.id)),
            Remedy::Apply { number, .. } => {
                let proposal = self.values.facts.proposals.get(*number);
                proposal.iter().flat_map(|proposal| &proposal.deltas).for_each(|delta| read(&delta.id));
            }
            // Which those are says a row that may have to be looked up itself.
            Remedy::Revert { number, .. } => reverts = *number,
            Remedy::Clear { ids, .. } => ids.iter().for_each(|id| read(id)),
            Remedy::Late(run) => self.fates.contracts.parked.due(*run).iter().for_each(|delta| read(&delta.id)),
        }
        out.op(OpKind::Remedy, CellKey::NONE, reverts as i64, record);
        let key = request.once.as_ref().map_or(CellKey::NONE, |once| once.key);
        out.stamps.push(Stamp::of_key(key));
    }

    /// Reads a request as its record has it.
    pub(super) fn read_request(&self, record: &[u8]) -> Result<CorrectionRequest, DecodeError> {
        let (remedy, once) = Remedy::decode(record)?;
        let request = |(id, content): (Box<[u8]>, u64)| {
            let key = crate::fact::request_key(&self.hasher, &id);
            Request { key, id, content }
        };
        Ok(CorrectionRequest { remedy, once: once.map(request) })
    }

    fn draft_proposal(&self, proposal: &Proposal) -> Result<Proposal, Unfit> {
        let number = self.values.generations.number + 1;
        let proposal = Proposal { number, at_ms: self.values.log_time_ms, ..proposal.clone() };
        self.check_room(proposal.to_bytes().len())?;
        if let Some(asked) = proposal.if_generation {
            self.check_generation(asked, &proposal.deltas)?;
        }
        Ok(proposal)
    }

    /// Whether another proposal of so many bytes may be made.
    fn check_room(&self, bytes: usize) -> Result<(), Unfit> {
        let proposals = &self.values.facts.proposals;
        if bytes > CORRECTION_BYTES_MAX {
            return Err(Unfit::TooLarge { bytes });
        }
        if proposals.len() >= PROPOSALS_OPEN_MAX {
            return Err(Unfit::TooManyOpen);
        }
        let open = proposals.bytes();
        if open + bytes > PROPOSALS_OPEN_BYTES_MAX { Err(Unfit::OpenTooLarge { bytes, open }) } else { Ok(()) }
    }

    /// The next correction, without deltas.
    fn draft(&self, cause: Cause, grounds: &Grounds) -> Correction {
        let generations = &self.values.generations;
        Correction {
            number: generations.number + 1,
            generation: generations.current + 1,
            cause,
            purpose: Purpose::usual(cause),
            reason: grounds.reason.clone(),
            author: grounds.author.clone(),
            at_ms: self.values.log_time_ms,
            deltas: Vec::new(),
            applied_by: grounds.author.clone(),
            proposed_ms: None,
            reverted_generation: None,
        }
    }

    fn draft_application(&self, number: u64, author: &str, if_generation: Option<u64>) -> Result<RemedyOutcome, Unfit> {
        let proposal = self.values.facts.proposals.get(number).ok_or(Unfit::NotOpen(number))?;
        let grounds = Grounds::new(proposal.reason, proposal.author);
        let correction = Correction {
            number,
            purpose: proposal.purpose,
            deltas: proposal.deltas,
            applied_by: author.to_owned(),
            proposed_ms: Some(proposal.at_ms),
            ..self.draft(Cause::Proposal(number), &grounds)
        };
        self.fit(correction, [if_generation, proposal.if_generation].into_iter().flatten().min())
    }

    fn draft_revert(&self, number: u64, grounds: &Grounds, if_generation: Option<u64>) -> Result<RemedyOutcome, Unfit> {
        if self.values.facts.proposals.row(number).is_some() {
            return Err(Unfit::OnlyProposed(number));
        }
        let made = self.values.made(number).ok_or(Unfit::NotThere(number))?;
        if let Some(by) = self.values.generations.reverted_by(number) {
            return Err(Unfit::Reverted { number, by });
        }
        let correction = Correction {
            purpose: made.purpose.of_its_revert(),
            deltas: self.undoing(&made)?,
            reverted_generation: Some(made.generation),
            ..self.draft(Cause::Revert(number), grounds)
        };
        self.fit(correction, if_generation)
    }

    /// The opposite of a correction. What was undone since a clear does not come back with it, and the other way round.
    fn undoing(&self, made: &Correction) -> Result<Vec<Delta>, Unfit> {
        let undo = |delta: &Delta| {
            let overflow = || Unfit::Overflow { id: shown(&delta.id) };
            let mut opposite = delta.delta.checked_neg().ok_or_else(overflow)?;
            if self.keeps_entities(&delta.id) {
                let spans = self.values.table.mark(self.hasher.key(&delta.id)).spans;
                if made.cause == Cause::Clear && !spans.has(made.generation) {
                    return Err(Unfit::TooLongAgo { id: shown(&delta.id), number: made.number });
                }
                opposite = opposite.checked_add(spans.undone_since(made.generation)).ok_or_else(overflow)?;
            }
            Ok(Delta { delta: opposite, ..delta.clone() })
        };
        made.deltas.iter().map(undo).collect()
    }

    /// Whether a counter counts for entities, which may undo what they counted.
    fn keeps_entities(&self, id: &[u8]) -> bool {
        let counter = self.declarations().counter_of(id);
        counter.is_some_and(|counter| counter.contract.keeps_entities())
    }

    /// What brings counters to 0 that are not. One that is named twice is cleared once.
    fn clearing(&self, ids: &[Vec<u8>]) -> Vec<Delta> {
        let mut named = std::collections::BTreeSet::new();
        let value = |id: &[u8]| self.values.table.get(self.hasher.key(id)).filter(|value| *value != 0);
        let cleared = ids.iter().filter(|id| named.insert(id.as_slice())).filter_map(|id| Some((id, value(id)?)));
        cleared.map(|(id, value)| Delta { id: id.clone(), bucket_ms: None, delta: value.wrapping_neg() }).collect()
    }

    /// A correction that nobody had to propose here.
    pub(super) fn draft_at_once(&self, purpose: Purpose, deltas: Vec<Delta>) -> Result<RemedyOutcome, Unfit> {
        let cause = Cause::Proposal(self.values.generations.number + 1);
        self.fit(Correction { purpose, deltas, ..self.draft(cause, &Grounds::new("", "")) }, None)
    }

    /// Whether a correction can be made.
    fn fit(&self, correction: Correction, if_generation: Option<u64>) -> Result<RemedyOutcome, Unfit> {
        self.check(&correction)?;
        if let Some(asked) = if_generation {
            self.check_generation(asked, &correction.deltas)?;
        }
        Ok(RemedyOutcome::Corrected(correction))
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

    /// Whether no counter was touched by a generation later than the one asked for. They must be known.
    fn check_generation(&self, asked: u64, deltas: &[Delta]) -> Result<(), Unfit> {
        for Delta { id, .. } in deltas {
            let is = self.values.table.mark(self.hasher.key(id)).generation;
            if is > asked {
                return Err(Unfit::Moved { id: shown(id), asked, is });
            }
        }
        Ok(())
    }

    /// How far from 0 people may bring a counter.
    fn bound_of(&self, id: &[u8]) -> i64 {
        if self.declarations().declared(id) == Declared::Never { i64::MAX } else { DECLARED_MAX }
    }

    /// Whether something may be asked for under this id. Its answer must be known.
    fn check_once(&mut self, request: &Request) -> Result<(), Unfit> {
        let (keys_max, now_ms) = (self.declarations().idempotency().keys_max, self.values.log_time_ms);
        match self.values.answered_before(request.key, now_ms) {
            Some(known) if known.delta == request.content as i64 => Err(Unfit::Repeated(known.value as u64)),
            Some(_) => Err(Unfit::OtherRequest),
            None if !self.values.has_room_for_a_key(now_ms) => Err(Unfit::KeysFull(keys_max)),
            None => Ok(()),
        }
    }
}

fn shown(id: &[u8]) -> String {
    String::from_utf8_lossy(id).into_owned()
}
