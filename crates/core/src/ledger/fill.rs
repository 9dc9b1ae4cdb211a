//! How a roll-up that was added to a running counter gets what was counted before it, as the log has it (ADR 37).
//!
//! A *stand-in* begins beside the roll-up, which nobody sees: it gets everything from there on, and bit by bit what it lacks. When it has
//! that as well it takes the roll-up's place, in one step.

use super::row::{put_list, put_option, put_text, take_list, take_option, take_text, take_vec, whole};
use crate::counter::rollup::Minutes;
use crate::record::{DecodeError, put_bytes, put_signed, put_varint, take_byte, take_signed, take_varint};

/// One step of that, for a roll-up of a counter by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fill {
    pub counter: String,
    pub rollup: u16,
    pub step: FillStep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillStep {
    /// A stand-in for it begins.
    Begin,
    /// It is a stand-in, and lacks these parts. They were reckoned when this was the newest generation.
    Add { generation: u64, keys: Vec<FillKey> },
    /// It is a stand-in, and takes the place of what it stands in for: it has everything from a log time on, or all there ever was.
    End { since_ms: Option<u64> },
    /// It is a stand-in that is given up.
    Drop,
    /// What entities that count were counted for, by events that stood before an offset ([`crate::machine`]): it was not remembered where no
    /// roll-up asked for it.
    Describe { before: u64, events: Vec<Vec<u8>> },
}

/// What a key lacks, or the counter as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillKey {
    pub id: Vec<u8>,
    pub parts: Vec<FillPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillPart {
    /// One of the roll-up's unit; 0 if it has none.
    pub bucket: Minutes,
    /// One for each of its dimensions, each behind its length.
    pub values: Vec<u8>,
    pub delta: i64,
}

/// What numbers and lengths beside something take, at most.
const NUMBERS_BYTES: usize = 24;

mod kind {
    pub const BEGIN: u8 = 0;
    pub const ADD: u8 = 1;
    pub const END: u8 = 2;
    pub const DROP: u8 = 3;
    pub const DESCRIBE: u8 = 4;
}

impl Fill {
    /// The bytes of its record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.counter);
        put_varint(&mut out, self.rollup.into());
        match &self.step {
            FillStep::Begin => out.push(kind::BEGIN),
            FillStep::Add { generation, keys } => {
                out.push(kind::ADD);
                put_varint(&mut out, *generation);
                put_list(&mut out, keys, FillKey::put);
            }
            FillStep::End { since_ms } => {
                out.push(kind::END);
                put_option(&mut out, *since_ms);
            }
            FillStep::Drop => out.push(kind::DROP),
            FillStep::Describe { before, events } => {
                out.push(kind::DESCRIBE);
                put_varint(&mut out, *before);
                put_list(&mut out, events, |out, event| put_bytes(out, event));
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Fill, DecodeError> {
        whole(bytes, |bytes| {
            let (counter, rollup) = (take_text(bytes)?, take_small(bytes, "number of a roll-up")?);
            let step = match take_byte(bytes)? {
                kind::BEGIN => FillStep::Begin,
                kind::ADD => FillStep::Add { generation: take_varint(bytes)?, keys: take_list(bytes, FillKey::take)? },
                kind::END => FillStep::End { since_ms: take_option(bytes, "since")? },
                kind::DROP => FillStep::Drop,
                kind::DESCRIBE => {
                    FillStep::Describe { before: take_varint(bytes)?, events: take_list(bytes, take_vec)? }
                }
                other => return Err(DecodeError::BadValue { field: "step of a fill", value: other.into() }),
            };
            Ok(Fill { counter, rollup, step })
        })
    }
}

impl FillKey {
    fn put(out: &mut Vec<u8>, FillKey { id, parts }: &FillKey) {
        put_bytes(out, id);
        put_list(out, parts, |out, FillPart { bucket, values, delta }| {
            put_varint(out, (*bucket).into());
            put_bytes(out, values);
            put_signed(out, *delta);
        });
    }

    fn take(bytes: &mut &[u8]) -> Result<FillKey, DecodeError> {
        let part = |bytes: &mut &[u8]| {
            let (bucket, values) = (take_small(bytes, "bucket")?, take_vec(bytes)?);
            Ok(FillPart { bucket, values, delta: take_signed(bytes)? })
        };
        Ok(FillKey { id: take_vec(bytes)?, parts: take_list(bytes, part)? })
    }

    /// What it takes in a record, at most.
    pub fn bytes(&self) -> usize {
        self.id.len() + NUMBERS_BYTES + self.parts.iter().map(FillPart::bytes).sum::<usize>()
    }
}

impl FillPart {
    pub fn bytes(&self) -> usize {
        self.values.len() + NUMBERS_BYTES
    }
}

fn take_small<N: TryFrom<u64>>(bytes: &mut &[u8], field: &'static str) -> Result<N, DecodeError> {
    let value = take_varint(bytes)?;
    N::try_from(value).map_err(|_| DecodeError::BadValue { field, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(number: u64, id: &[u8], values: &[u8], since_ms: Option<u64>) -> [FillStep; 5] {
        let part = |delta| FillPart { bucket: 60, values: values.to_vec(), delta };
        let keys = vec![FillKey { id: id.to_vec(), parts: vec![part(-2), part(3)] }];
        let add = FillStep::Add { generation: number, keys };
        let describe = FillStep::Describe { before: number, events: vec![id.to_vec(), values.to_vec()] };
        [FillStep::Begin, add, FillStep::End { since_ms }, FillStep::Drop, describe]
    }

    fn fill(step: FillStep) -> Fill {
        Fill { counter: "a".to_owned(), rollup: 300, step }
    }

    proptest! {
        #[test]
        fn a_step_survives_its_bytes(number: u64, id: Vec<u8>, values: Vec<u8>, since_ms: Option<u64>) {
            for fill in steps(number, &id, &values, since_ms).map(fill) {
                let bytes = fill.encode();
                prop_assert_eq!(Fill::decode(&bytes).unwrap(), fill.clone());
                for cut in 0..bytes.len() {
                    prop_assert!(Fill::decode(&bytes[..cut]).is_err(), "{fill:?} cut at {cut}");
                }
            }
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            let _ = Fill::decode(&bytes);
        }
    }

    #[test]
    fn the_bytes_of_a_step_are_pinned() {
        let expected: [&[u8]; 5] = [
            b"\x01a\xac\x02\x00",
            b"\x01a\xac\x02\x01\x07\x01\x03a:1\x02\x3c\x03\x02DE\x03\x3c\x03\x02DE\x06",
            b"\x01a\xac\x02\x02\x01\x09",
            b"\x01a\xac\x02\x03",
            b"\x01a\xac\x02\x04\x07\x02\x03a:1\x03\x02DE",
        ];
        for (step, expected) in steps(7, b"a:1", b"\x02DE", Some(9)).into_iter().zip(expected) {
            assert_eq!(fill(step.clone()).encode(), expected, "{step:?}");
        }
    }
}
