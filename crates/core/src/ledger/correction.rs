//! Corrections: how the past was put right, by whom and why; and proposals, which change nothing yet.

use super::LedgerKey;
use super::cut::Placed;
use super::row::{Row, put_list, put_option, put_text, take_list, take_option, take_text, take_vec, whole};
use crate::memory::journal::Journal;
use crate::record::{DecodeError, put_bytes, put_signed, put_varint, take_byte, take_signed, take_varint};

/// What stands before the fields that later versions added; a row of format 2 ends before it.
const MORE: u8 = 1;

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

/// What a correction is for. A recount brings back what should be restored, and must leave alone what was adjusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// It changes what is right: what people decide. The log alone says otherwise from then on.
    #[default]
    Adjust = 0,
    /// It brings a counter to what the log says.
    Restore = 1,
    /// Neither: entries that had waited are let count.
    Count = 2,
}

impl Purpose {
    /// Of a correction of which nobody says anything else.
    pub fn usual(cause: Cause) -> Purpose {
        if matches!(cause, Cause::Late { .. }) { Purpose::Count } else { Purpose::Adjust }
    }

    /// To take back what was let count is a decision.
    pub fn of_its_revert(self) -> Purpose {
        if self == Purpose::Restore { Purpose::Restore } else { Purpose::Adjust }
    }

    /// A row says what is not usual; so those of earlier versions are what they were.
    fn put(self, usual: Purpose, out: &mut Vec<u8>) {
        if self != usual {
            out.extend_from_slice(&[MORE, self as u8]);
        }
    }

    fn take(usual: Purpose, bytes: &mut &[u8]) -> Result<Purpose, DecodeError> {
        if !take_more(bytes)? {
            return Ok(usual);
        }
        match take_byte(bytes)? {
            0 => Ok(Purpose::Adjust),
            1 => Ok(Purpose::Restore),
            2 => Ok(Purpose::Count),
            other => Err(DecodeError::BadValue { field: "purpose", value: other.into() }),
        }
    }
}

/// A correction that was made, and the generation it made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    pub number: u64,
    pub generation: u64,
    pub cause: Cause,
    pub purpose: Purpose,
    pub reason: String,
    /// Who proposed it, or made it without a proposal.
    pub author: String,
    pub at_ms: u64,
    pub deltas: Vec<Delta>,
    /// Who made it visible.
    pub applied_by: String,
    /// When it was proposed, if it was.
    pub proposed_ms: Option<u64>,
    /// The generation of the correction that it undoes.
    pub reverted_generation: Option<u64>,
}

/// A correction that somebody may apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub number: u64,
    pub reason: String,
    pub author: String,
    pub at_ms: u64,
    pub deltas: Vec<Delta>,
    /// It may be applied only while no counter that it changes was touched by a later generation.
    pub if_generation: Option<u64>,
    pub purpose: Purpose,
}

impl Placed for Correction {
    type Place = u64;

    fn key(number: u64) -> LedgerKey {
        LedgerKey::Correction(number)
    }
}

/// Corrections since the last cut, by number.
pub type Corrections = Journal<Correction>;

impl Corrections {
    pub fn push(&mut self, correction: &Correction) {
        self.insert(correction.number, correction);
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
        out.push(MORE);
        put_text(out, &self.applied_by);
        put_option(out, self.proposed_ms);
        put_option(out, self.reverted_generation);
        self.purpose.put(Purpose::usual(self.cause), out);
    }

    fn decode(bytes: &[u8]) -> Result<Correction, DecodeError> {
        whole(bytes, |bytes| {
            let mut correction = Correction {
                number: take_varint(bytes)?,
                generation: take_varint(bytes)?,
                cause: Cause::take(bytes)?,
                purpose: Purpose::Adjust,
                reason: take_text(bytes)?,
                author: take_text(bytes)?,
                at_ms: take_varint(bytes)?,
                deltas: take_list(bytes, Delta::take)?,
                applied_by: String::new(),
                proposed_ms: None,
                reverted_generation: None,
            };
            correction.purpose = Purpose::usual(correction.cause);
            match take_more(bytes)? {
                true => {
                    correction.applied_by = take_text(bytes)?;
                    correction.proposed_ms = take_option(bytes, "proposed")?;
                    correction.reverted_generation = take_option(bytes, "reverted")?;
                    correction.purpose = Purpose::take(correction.purpose, bytes)?;
                }
                // Format 2 took whoever proposed it for whoever applied it.
                false => correction.applied_by.clone_from(&correction.author),
            }
            Ok(correction)
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
        out.push(MORE);
        put_option(out, self.if_generation);
        self.purpose.put(Purpose::Adjust, out);
    }

    fn decode(bytes: &[u8]) -> Result<Proposal, DecodeError> {
        whole(bytes, |bytes| {
            Ok(Proposal {
                number: take_varint(bytes)?,
                reason: take_text(bytes)?,
                author: take_text(bytes)?,
                at_ms: take_varint(bytes)?,
                deltas: take_list(bytes, Delta::take)?,
                if_generation: if take_more(bytes)? { take_option(bytes, "ifGeneration")? } else { None },
                purpose: Purpose::take(Purpose::Adjust, bytes)?,
            })
        })
    }
}

/// Whether the fields of later versions follow.
fn take_more(bytes: &mut &[u8]) -> Result<bool, DecodeError> {
    if bytes.is_empty() {
        return Ok(false);
    }
    match take_byte(bytes)? {
        MORE => Ok(true),
        other => Err(DecodeError::BadValue { field: "fields of a later version", value: other.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::check_strange;
    use super::*;
    use proptest::prelude::*;

    /// As [`check`], for a row that ends in fields which format 2 did not have: without all of them it is read as well. So it is
    /// without its purpose, which may be all that is not usual.
    fn check_more<R: Row + PartialEq + std::fmt::Debug>(row: &R, more_bytes: usize, purpose_bytes: Option<usize>) {
        let mut bytes = row.to_bytes();
        assert_eq!(&R::decode(&bytes).unwrap(), row);
        let format_2 = bytes.len() - more_bytes;
        let usual = purpose_bytes.map(|purpose| bytes.len() - purpose);
        for cut in 0..bytes.len() {
            assert_eq!(R::decode(&bytes[..cut]).is_ok(), cut == format_2 || Some(cut) == usual, "{row:?} cut at {cut}");
        }
        bytes.push(0);
        assert!(R::decode(&bytes).is_err(), "{row:?} with a byte more");
    }

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
                let (applied_by, proposed_ms, reverted_generation) = ("x".to_owned(), None, None);
                let purpose = Purpose::usual(cause);
                let mut correction = Correction { number, generation, cause, purpose, reason, author, at_ms, deltas, applied_by, proposed_ms, reverted_generation };
                check_more(&correction, 5, None);
                correction.purpose = Purpose::Restore;
                check_more(&correction, 7, Some(2));
            }
            let mut proposal = Proposal { number, reason, author, at_ms, deltas, if_generation: Some(7), purpose: Purpose::Adjust };
            check_more(&proposal, 3, None);
            proposal.purpose = Purpose::Restore;
            check_more(&proposal, 5, Some(2));
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
            let mut correction = Correction {
                number: 1,
                generation: 2,
                cause,
                purpose: Purpose::usual(cause),
                reason,
                author,
                at_ms: 3,
                deltas: deltas(),
                applied_by: "you".into(),
                proposed_ms: Some(2),
                reverted_generation: None,
            };
            let format_2 =
                [b"\x01\x02", expected, b"\x03why\x03who\x03\x02\x03a:1\x00\x02\x03a:1\x01\x09\x01"].concat();
            assert_eq!(correction.to_bytes(), [&format_2[..], b"\x01\x03you\x01\x02\x00"].concat());
            let restoring = Correction { purpose: Purpose::Restore, ..correction.clone() };
            assert_eq!(restoring.to_bytes(), [&format_2[..], b"\x01\x03you\x01\x02\x00\x01\x01"].concat());
            (correction.applied_by, correction.proposed_ms) = ("who".into(), None);
            assert_eq!(Correction::decode(&format_2).unwrap(), correction, "a row of format 2 is still read");
        }
    }

    #[test]
    fn the_bytes_of_a_proposal_are_pinned() {
        let (reason, author) = ("why".into(), "who".into());
        let purpose = Purpose::Adjust;
        let proposal = Proposal { number: 1, reason, author, at_ms: 3, deltas: deltas(), if_generation: None, purpose };
        let format_2 = b"\x01\x03why\x03who\x03\x02\x03a:1\x00\x02\x03a:1\x01\x09\x01";
        assert_eq!(proposal.to_bytes(), [&format_2[..], b"\x01\x00"].concat());
        let restoring = Proposal { purpose: Purpose::Restore, ..proposal.clone() };
        assert_eq!(restoring.to_bytes(), [&format_2[..], b"\x01\x00\x01\x01"].concat());
        assert_eq!(Proposal::decode(format_2).unwrap(), proposal, "a row of format 2 is still read");
    }
}
