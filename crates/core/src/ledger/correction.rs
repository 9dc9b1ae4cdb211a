//! Corrections: how the past was put right, by whom and why; and proposals, which change nothing yet.

use super::journal::Journal;
use super::row::{Row, put_list, put_option, put_text, take_list, take_option, take_text, take_vec, whole};
use crate::record::{DecodeError, put_bytes, put_signed, put_varint, take_byte, take_signed, take_varint};

/// What is added to one counter, in one bucket of time if it has buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    pub id: Vec<u8>,
    pub bucket_ms: Option<u64>,
    pub delta: i64,
}

/// Where a correction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Somebody proposed it under this number.
    Proposal(u64),
    /// Late entries, applied by a run.
    Late { run: u64 },
    /// A declared counter was cleared.
    Clear,
    /// It undoes the correction of this number.
    Revert(u64),
}

/// A correction that was made, and the generation it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    pub number: u64,
    pub generation: u64,
    pub cause: Cause,
    pub reason: String,
    pub author: String,
    pub at_ms: u64,
    pub deltas: Vec<Delta>,
}

/// A correction that somebody may apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub number: u64,
    pub reason: String,
    pub author: String,
    pub at_ms: u64,
    pub deltas: Vec<Delta>,
}

/// Corrections since the last cut, by number.
pub type Corrections = Journal<u64, Correction>;

impl Corrections {
    pub fn push(&mut self, correction: Correction) {
        self.insert(correction.number, &correction);
    }
}

mod cause {
    pub const PROPOSAL: u8 = 0;
    pub const LATE: u8 = 1;
    pub const CLEAR: u8 = 2;
    pub const REVERT: u8 = 3;
}

impl Cause {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, number) = match *self {
            Cause::Proposal(number) => (cause::PROPOSAL, Some(number)),
            Cause::Late { run } => (cause::LATE, Some(run)),
            Cause::Clear => (cause::CLEAR, None),
            Cause::Revert(number) => (cause::REVERT, Some(number)),
        };
        out.push(tag);
        if let Some(number) = number {
            put_varint(out, number);
        }
    }

    fn take(bytes: &mut &[u8]) -> Result<Cause, DecodeError> {
        match take_byte(bytes)? {
            cause::PROPOSAL => Ok(Cause::Proposal(take_varint(bytes)?)),
            cause::LATE => Ok(Cause::Late { run: take_varint(bytes)? }),
            cause::CLEAR => Ok(Cause::Clear),
            cause::REVERT => Ok(Cause::Revert(take_varint(bytes)?)),
            other => Err(DecodeError::BadValue { field: "cause", value: other.into() }),
        }
    }
}

impl Delta {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.id);
        put_option(out, self.bucket_ms);
        put_signed(out, self.delta);
    }

    fn take(bytes: &mut &[u8]) -> Result<Delta, DecodeError> {
        Ok(Delta { id: take_vec(bytes)?, bucket_ms: take_option(bytes, "bucket")?, delta: take_signed(bytes)? })
    }
}

impl Row for Correction {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        put_varint(out, self.generation);
        self.cause.put(out);
        put_text(out, &self.reason);
        put_text(out, &self.author);
        put_varint(out, self.at_ms);
        put_list(out, &self.deltas, |out, delta| delta.put(out));
    }

    fn decode(bytes: &[u8]) -> Result<Correction, DecodeError> {
        whole(bytes, |bytes| {
            Ok(Correction {
                number: take_varint(bytes)?,
                generation: take_varint(bytes)?,
                cause: Cause::take(bytes)?,
                reason: take_text(bytes)?,
                author: take_text(bytes)?,
                at_ms: take_varint(bytes)?,
                deltas: take_list(bytes, Delta::take)?,
            })
        })
    }
}

impl Row for Proposal {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        put_text(out, &self.reason);
        put_text(out, &self.author);
        put_varint(out, self.at_ms);
        put_list(out, &self.deltas, |out, delta| delta.put(out));
    }

    fn decode(bytes: &[u8]) -> Result<Proposal, DecodeError> {
        whole(bytes, |bytes| {
            Ok(Proposal {
                number: take_varint(bytes)?,
                reason: take_text(bytes)?,
                author: take_text(bytes)?,
                at_ms: take_varint(bytes)?,
                deltas: take_list(bytes, Delta::take)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::{check, check_strange};
    use super::*;
    use proptest::prelude::*;

    fn causes(number: u64) -> [Cause; 4] {
        [Cause::Proposal(number), Cause::Late { run: number }, Cause::Clear, Cause::Revert(number)]
    }

    proptest! {
        #[test]
        fn corrections_and_proposals_survive_their_bytes(
            number: u64, generation: u64, at_ms: u64, reason: String, author: String,
            deltas in proptest::collection::vec((any::<Vec<u8>>(), any::<Option<u64>>(), any::<i64>()), 0..3),
        ) {
            let deltas: Vec<_> = deltas.into_iter().map(|(id, bucket_ms, delta)| Delta { id, bucket_ms, delta }).collect();
            for cause in causes(number) {
                let (reason, author, deltas) = (reason.clone(), author.clone(), deltas.clone());
                check(&Correction { number, generation, cause, reason, author, at_ms, deltas });
            }
            check(&Proposal { number, reason, author, at_ms, deltas });
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            check_strange::<Correction>(&bytes);
            check_strange::<Proposal>(&bytes);
        }
    }

    fn deltas() -> Vec<Delta> {
        let delta = |bucket_ms, delta| Delta { id: b"a:1".to_vec(), bucket_ms, delta };
        vec![delta(None, 1), delta(Some(9), -1)]
    }

    #[test]
    fn the_bytes_of_a_correction_are_pinned() {
        let expected: [&[u8]; 4] = [b"\x00\x07", b"\x01\x07", b"\x02", b"\x03\x07"];
        for (cause, expected) in causes(7).into_iter().zip(expected) {
            let (reason, author) = ("why".into(), "who".into());
            let correction = Correction { number: 1, generation: 2, cause, reason, author, at_ms: 3, deltas: deltas() };
            let bytes = [b"\x01\x02", expected, b"\x03why\x03who\x03\x02\x03a:1\x00\x02\x03a:1\x01\x09\x01"].concat();
            assert_eq!(correction.to_bytes(), bytes);
        }
    }

    #[test]
    fn the_bytes_of_a_proposal_are_pinned() {
        let proposal = Proposal { number: 1, reason: "why".into(), author: "who".into(), at_ms: 3, deltas: deltas() };
        assert_eq!(proposal.to_bytes(), b"\x01\x03why\x03who\x03\x02\x03a:1\x00\x02\x03a:1\x01\x09\x01");
    }
}
