//! What is asked for about the past, what it comes to, and why it may come to nothing.

use crate::fact::Request;
use crate::ledger::{Correction, Proposal, Remedy};
use crate::limits::{CORRECTION_BYTES_MAX, CORRECTION_DELTAS_MAX, PROPOSALS_OPEN_BYTES_MAX, PROPOSALS_OPEN_MAX};

/// What is asked for about the past.
#[derive(Clone, Debug)]
pub struct CorrectionRequest {
    pub remedy: Remedy,
    /// It is done once, however often it is asked for under the same id.
    pub once: Option<Request>,
}

impl From<Remedy> for CorrectionRequest {
    fn from(remedy: Remedy) -> CorrectionRequest {
        CorrectionRequest { remedy, once: None }
    }
}

/// What a request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemedyOutcome {
    Proposed(Proposal),
    Corrected(Correction),
}

impl RemedyOutcome {
    pub fn number(&self) -> u64 {
        match self {
            RemedyOutcome::Proposed(proposal) => proposal.number,
            RemedyOutcome::Corrected(correction) => correction.number,
        }
    }
}

/// Why a correction cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("there is no open proposal {0}; GET /v1/corrections lists them")]
    NotOpen(u64),
    #[error(
        "there is no correction {0}: it was never proposed, or it was withdrawn; GET /v1/corrections lists those there are"
    )]
    NotThere(u64),
    #[error("correction {0} is proposed, so there is nothing to revert; DELETE it to withdraw it")]
    OnlyProposed(u64),
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
