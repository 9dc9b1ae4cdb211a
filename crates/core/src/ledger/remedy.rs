//! What is asked for about the past, as the log has it: to propose a correction, to apply or revert one, to clear counters, to let
//! late entries count.
//!
//! A remedy says what to do. What that comes to (numbers, generation, deltas) follows from the state where it stands in the log.

use super::correction::Proposal;
use super::row::{Row, put_list, put_option, put_text, take_list, take_option, take_text, take_vec, whole};
use crate::limits::{LATE_RUN_BYTES_MAX, PARKED_MAX};
use crate::record::{DecodeError, put_bytes, put_varint, take_byte, take_bytes, take_varint};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Its number and its time are those that it gets.
    Propose(Proposal),
    /// Makes an open proposal visible.
    Apply { number: u64, author: String, if_generation: Option<u64> },
    /// Undoes a correction by another one.
    Revert { number: u64, grounds: Grounds, if_generation: Option<u64> },
    /// Brings counters to 0.
    Clear { ids: Vec<Vec<u8>>, grounds: Grounds, if_generation: Option<u64> },
    /// Lets late entries count whose time has come, as many as one run takes.
    Late(LateRun),
}

/// Grounds something is done, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grounds {
    pub reason: String,
    pub author: String,
}

impl Grounds {
    pub fn new(reason: impl Into<String>, author: impl Into<String>) -> Grounds {
        Grounds { reason: reason.into(), author: author.into() }
    }
}

/// A run of late entries: what is due by a time of the log, in the order in which they are kept, and no more than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateRun {
    pub due_by_ms: u64,
    /// Sums.
    pub sums_max: u64,
    /// Bytes of their ids, but one sum in any case.
    pub bytes_max: u64,
}

impl LateRun {
    /// The longest run at a time.
    pub fn due_by(due_by_ms: u64) -> LateRun {
        LateRun { due_by_ms, sums_max: PARKED_MAX as u64, bytes_max: LATE_RUN_BYTES_MAX as u64 }
    }
}

/// The id under which something was asked for, and the hash of what.
pub type Once = (Box<[u8]>, u64);

mod kind {
    pub const PROPOSE: u8 = 0;
    pub const APPLY: u8 = 1;
    pub const REVERT: u8 = 2;
    pub const CLEAR: u8 = 3;
    pub const LATE: u8 = 4;
}

impl Remedy {
    /// The bytes of its record.
    pub fn encode(&self, once: Option<(&[u8], u64)>) -> Vec<u8> {
        let mut out = Vec::new();
        match once {
            None => out.push(0),
            Some((id, content)) => {
                out.push(1);
                put_bytes(&mut out, id);
                put_varint(&mut out, content);
            }
        }
        self.put(&mut out);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<(Remedy, Option<Once>), DecodeError> {
        whole(bytes, |bytes| {
            let once = match take_byte(bytes)? {
                0 => None,
                1 => Some((take_bytes(bytes)?.into(), take_varint(bytes)?)),
                other => return Err(DecodeError::BadValue { field: "once", value: other.into() }),
            };
            Ok((Remedy::take(bytes)?, once))
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Remedy::Propose(proposal) => {
                out.push(kind::PROPOSE);
                put_bytes(out, &proposal.to_bytes());
            }
            Remedy::Apply { number, author, if_generation } => {
                out.push(kind::APPLY);
                put_varint(out, *number);
                put_text(out, author);
                put_option(out, *if_generation);
            }
            Remedy::Revert { number, grounds, if_generation } => {
                out.push(kind::REVERT);
                put_varint(out, *number);
                grounds.put(out);
                put_option(out, *if_generation);
            }
            Remedy::Clear { ids, grounds, if_generation } => {
                out.push(kind::CLEAR);
                grounds.put(out);
                put_option(out, *if_generation);
                put_list(out, ids, |out, id| put_bytes(out, id));
            }
            Remedy::Late(LateRun { due_by_ms, sums_max, bytes_max }) => {
                out.push(kind::LATE);
                [*due_by_ms, *sums_max, *bytes_max].into_iter().for_each(|number| put_varint(out, number));
            }
        }
    }

    fn take(bytes: &mut &[u8]) -> Result<Remedy, DecodeError> {
        Ok(match take_byte(bytes)? {
            kind::PROPOSE => Remedy::Propose(Proposal::decode(take_bytes(bytes)?)?),
            kind::APPLY => Remedy::Apply {
                number: take_varint(bytes)?,
                author: take_text(bytes)?,
                if_generation: take_option(bytes, "ifGeneration")?,
            },
            kind::REVERT => Remedy::Revert {
                number: take_varint(bytes)?,
                grounds: Grounds::take(bytes)?,
                if_generation: take_option(bytes, "ifGeneration")?,
            },
            kind::CLEAR => Remedy::Clear {
                grounds: Grounds::take(bytes)?,
                if_generation: take_option(bytes, "ifGeneration")?,
                ids: take_list(bytes, take_vec)?,
            },
            kind::LATE => Remedy::Late(LateRun {
                due_by_ms: take_varint(bytes)?,
                sums_max: take_varint(bytes)?,
                bytes_max: take_varint(bytes)?,
            }),
            other => return Err(DecodeError::BadValue { field: "remedy", value: other.into() }),
        })
    }
}

impl Grounds {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, &self.reason);
        put_text(out, &self.author);
    }

    fn take(bytes: &mut &[u8]) -> Result<Grounds, DecodeError> {
        Ok(Grounds { reason: take_text(bytes)?, author: take_text(bytes)? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::correction::{Delta, Purpose};
    use super::*;
    use proptest::prelude::*;

    fn remedies(number: u64, text: &str, id: &[u8], if_generation: Option<u64>) -> [Remedy; 5] {
        let grounds = || Grounds::new(text, "who");
        let deltas = vec![Delta { id: id.to_vec(), bucket_ms: None, delta: -2 }];
        let proposal = Proposal {
            number: 0,
            reason: text.into(),
            author: "who".into(),
            at_ms: 0,
            deltas,
            if_generation,
            purpose: Purpose::Adjust,
        };
        [
            Remedy::Propose(proposal),
            Remedy::Apply { number, author: text.into(), if_generation },
            Remedy::Revert { number, grounds: grounds(), if_generation },
            Remedy::Clear { ids: vec![id.to_vec(), b"other".to_vec()], grounds: grounds(), if_generation },
            Remedy::Late(LateRun { due_by_ms: number, sums_max: 2, bytes_max: 300 }),
        ]
    }

    proptest! {
        #[test]
        fn a_remedy_survives_its_bytes(number: u64, text: String, id: Vec<u8>, if_generation: Option<u64>, content: u64) {
            for remedy in remedies(number, &text, &id, if_generation) {
                for once in [None, Some((&id[..], content))] {
                    let bytes = remedy.encode(once);
                    let known = once.map(|(id, content)| (id.into(), content));
                    prop_assert_eq!(Remedy::decode(&bytes).unwrap(), (remedy.clone(), known));
                    for cut in 0..bytes.len() {
                        prop_assert!(Remedy::decode(&bytes[..cut]).is_err(), "{remedy:?} cut at {cut}");
                    }
                }
            }
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            let _ = Remedy::decode(&bytes);
        }
    }

    #[test]
    fn the_bytes_of_a_remedy_are_pinned() {
        let expected: [&[u8]; 5] = [
            b"\x00\x00\x14\x00\x03why\x03who\x00\x01\x03a:1\x00\x03\x01\x01\x09",
            b"\x00\x01\x07\x03why\x01\x09",
            b"\x00\x02\x07\x03why\x03who\x01\x09",
            b"\x00\x03\x03why\x03who\x01\x09\x02\x03a:1\x05other",
            b"\x00\x04\x07\x02\xac\x02",
        ];
        for (remedy, expected) in remedies(7, "why", b"a:1", Some(9)).into_iter().zip(expected) {
            assert_eq!(remedy.encode(None), expected, "{remedy:?}");
            let once = [b"\x01\x01k\xac\x02", &expected[1..]].concat();
            assert_eq!(remedy.encode(Some((b"k", 300))), once);
        }
    }
}
