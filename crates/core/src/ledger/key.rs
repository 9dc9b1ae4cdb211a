//! Every key the ledger has in a store (`docs/formats/keys.md`, "The ledger"). The first byte is the kind; numbers are
//! big-endian, so that keys in byte order are in the order of their numbers.

use super::row::{take_array, whole};
use crate::id::CellKey;
use crate::record::{DecodeError, take_byte};
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerKey {
    /// A [`super::Claim`], by the hash of its event id.
    Claim(CellKey),
    /// An [`super::Entity`], by the hash of counter and entity.
    Entity(CellKey),
    /// An [`super::Answered`], by the hash of counter and idempotency key.
    Answer(CellKey),
    /// The [`super::Boxes`] of a cell.
    Boxes(CellKey),
    /// A [`super::Step`]: cell and generation.
    Step(CellKey, u64),
    /// A [`super::Correction`], by its number.
    Correction(u64),
    /// A [`super::Duplicate`]: offset of the batch and index within it.
    Duplicate(u64, u32),
    /// Where a duplicate of this event id is; the value is empty.
    DuplicateOf(CellKey, u64, u32),
    /// A [`super::Proposal`] that is open, by its number.
    Proposal(u64),
    /// What came first under an event id ([`super::read_first`]): log time and claim key.
    First(u64, CellKey),
}

/// Kinds in the order of a cut. The numbers are those on disk: none is ever used for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LedgerKind {
    Claim = 1,
    Entity = 2,
    Answer = 3,
    Boxes = 4,
    Step = 5,
    Correction = 6,
    Duplicate = 7,
    DuplicateOf = 8,
    Proposal = 9,
    First = 10,
}

impl LedgerKind {
    pub const ALL: [LedgerKind; 10] = [
        LedgerKind::Claim,
        LedgerKind::Entity,
        LedgerKind::Answer,
        LedgerKind::Boxes,
        LedgerKind::Step,
        LedgerKind::Correction,
        LedgerKind::Duplicate,
        LedgerKind::DuplicateOf,
        LedgerKind::Proposal,
        LedgerKind::First,
    ];

    fn take(bytes: &mut &[u8]) -> Result<LedgerKind, DecodeError> {
        let value = take_byte(bytes)?;
        let kind = LedgerKind::ALL.into_iter().find(|kind| *kind as u8 == value);
        kind.ok_or(DecodeError::BadValue { field: "kind of a ledger key", value: value.into() })
    }
}

/// The longest: kind, hash, offset, index.
const KEY_BYTES_MAX: usize = 1 + 16 + 8 + 4;

impl LedgerKey {
    pub fn kind(&self) -> LedgerKind {
        match self {
            LedgerKey::Claim(_) => LedgerKind::Claim,
            LedgerKey::Entity(_) => LedgerKind::Entity,
            LedgerKey::Answer(_) => LedgerKind::Answer,
            LedgerKey::Boxes(_) => LedgerKind::Boxes,
            LedgerKey::Step(..) => LedgerKind::Step,
            LedgerKey::Correction(_) => LedgerKind::Correction,
            LedgerKey::Duplicate(..) => LedgerKind::Duplicate,
            LedgerKey::DuplicateOf(..) => LedgerKind::DuplicateOf,
            LedgerKey::Proposal(_) => LedgerKind::Proposal,
            LedgerKey::First(..) => LedgerKind::First,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(KEY_BYTES_MAX);
        bytes.push(self.kind() as u8);
        match *self {
            LedgerKey::Claim(key) | LedgerKey::Entity(key) | LedgerKey::Answer(key) | LedgerKey::Boxes(key) => {
                bytes.extend_from_slice(&key.to_bytes());
            }
            LedgerKey::Step(cell, generation) => {
                bytes.extend_from_slice(&cell.to_bytes());
                bytes.extend_from_slice(&generation.to_be_bytes());
            }
            LedgerKey::Correction(number) | LedgerKey::Proposal(number) => {
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            LedgerKey::Duplicate(offset, index) => {
                bytes.extend_from_slice(&offset.to_be_bytes());
                bytes.extend_from_slice(&index.to_be_bytes());
            }
            LedgerKey::DuplicateOf(event_id, offset, index) => {
                bytes.extend_from_slice(&event_id.to_bytes());
                bytes.extend_from_slice(&offset.to_be_bytes());
                bytes.extend_from_slice(&index.to_be_bytes());
            }
            LedgerKey::First(at_ms, event_id) => {
                bytes.extend_from_slice(&at_ms.to_be_bytes());
                bytes.extend_from_slice(&event_id.to_bytes());
            }
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<LedgerKey, DecodeError> {
        whole(bytes, |bytes| {
            Ok(match LedgerKind::take(bytes)? {
                LedgerKind::Claim => LedgerKey::Claim(take_key(bytes)?),
                LedgerKind::Entity => LedgerKey::Entity(take_key(bytes)?),
                LedgerKind::Answer => LedgerKey::Answer(take_key(bytes)?),
                LedgerKind::Boxes => LedgerKey::Boxes(take_key(bytes)?),
                LedgerKind::Step => LedgerKey::Step(take_key(bytes)?, take_u64(bytes)?),
                LedgerKind::Correction => LedgerKey::Correction(take_u64(bytes)?),
                LedgerKind::Duplicate => LedgerKey::Duplicate(take_u64(bytes)?, take_u32(bytes)?),
                LedgerKind::DuplicateOf => LedgerKey::DuplicateOf(take_key(bytes)?, take_u64(bytes)?, take_u32(bytes)?),
                LedgerKind::Proposal => LedgerKey::Proposal(take_u64(bytes)?),
                LedgerKind::First => LedgerKey::First(take_u64(bytes)?, take_key(bytes)?),
            })
        })
    }

    /// All keys of a kind.
    pub fn range(kind: LedgerKind) -> Range<Vec<u8>> {
        starting_with(vec![kind as u8])
    }

    /// The keys of all steps of a cell, in the order of their generations.
    pub fn steps_of(cell: CellKey) -> Range<Vec<u8>> {
        starting_with(hashed(LedgerKind::Step, cell))
    }

    /// The keys that say where the duplicates of an event id are, in the order of the log.
    pub fn duplicates_of(event_id: CellKey) -> Range<Vec<u8>> {
        starting_with(hashed(LedgerKind::DuplicateOf, event_id))
    }
}

fn hashed(kind: LedgerKind, key: CellKey) -> Vec<u8> {
    [&[kind as u8], key.to_bytes().as_slice()].concat()
}

/// All keys with this prefix: the end is the prefix plus one, as a number.
fn starting_with(prefix: Vec<u8>) -> Range<Vec<u8>> {
    let mut end = prefix.clone();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    *end.last_mut().expect("the kind is no 255") += 1;
    prefix..end
}

fn take_key(bytes: &mut &[u8]) -> Result<CellKey, DecodeError> {
    take_array(bytes).map(CellKey::from_bytes)
}

fn take_u64(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    take_array(bytes).map(u64::from_be_bytes)
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, DecodeError> {
    take_array(bytes).map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(hash: [u8; 16], number: u64, index: u32) -> [LedgerKey; 10] {
        let key = CellKey::from_bytes(hash);
        [
            LedgerKey::Claim(key),
            LedgerKey::Entity(key),
            LedgerKey::Answer(key),
            LedgerKey::Boxes(key),
            LedgerKey::Step(key, number),
            LedgerKey::Correction(number),
            LedgerKey::Duplicate(number, index),
            LedgerKey::DuplicateOf(key, number, index),
            LedgerKey::Proposal(number),
            LedgerKey::First(number, key),
        ]
    }

    fn contains(range: &Range<Vec<u8>>, key: LedgerKey) -> bool {
        range.contains(&key.encode())
    }

    proptest! {
        #[test]
        fn a_key_survives_its_bytes_and_is_in_the_range_of_its_kind_only(hash: [u8; 16], number: u64, index: u32) {
            for key in keys(hash, number, index) {
                let bytes = key.encode();
                prop_assert_eq!(LedgerKey::decode(&bytes), Ok(key));
                prop_assert!(bytes.len() <= KEY_BYTES_MAX);
                for cut in 0..bytes.len() {
                    prop_assert!(LedgerKey::decode(&bytes[..cut]).is_err());
                }
                prop_assert!(LedgerKey::decode(&[bytes, vec![0]].concat()).is_err());
                for kind in LedgerKind::ALL {
                    prop_assert_eq!(contains(&LedgerKey::range(kind), key), kind == key.kind());
                }
            }
        }

        #[test]
        fn the_order_of_bytes_is_the_order_of_numbers(a: (u64, u32), b: (u64, u32)) {
            let bytes = |(offset, index)| LedgerKey::Duplicate(offset, index).encode();
            prop_assert_eq!(a.cmp(&b), bytes(a).cmp(&bytes(b)));
        }

        #[test]
        fn a_range_holds_what_belongs_to_its_hash_only(hash: [u8; 16], ones in 0usize..=16, number: u64, index: u32) {
            // Hashes that end in ones are where the end of a range carries over.
            let mut hash = hash;
            hash[16 - ones..].fill(u8::MAX);
            let key = CellKey::from_bytes(hash);
            let neighbours = [key.as_u128().wrapping_add(1), key.as_u128().wrapping_sub(1)];
            let (steps, duplicates) = (LedgerKey::steps_of(key), LedgerKey::duplicates_of(key));
            for number in [0, number, u64::MAX] {
                prop_assert!(contains(&steps, LedgerKey::Step(key, number)));
                prop_assert!(contains(&duplicates, LedgerKey::DuplicateOf(key, number, index)));
                for other in neighbours.map(CellKey::from_u128) {
                    prop_assert!(!contains(&steps, LedgerKey::Step(other, number)));
                    prop_assert!(!contains(&duplicates, LedgerKey::DuplicateOf(other, number, index)));
                }
            }
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            let _ = LedgerKey::decode(&bytes);
        }
    }

    #[test]
    fn the_bytes_of_ledger_keys_are_pinned() {
        let hash = [9; 16];
        let number = [0, 0, 0, 0, 0, 0, 1, 2];
        let index = [0, 0, 3, 4];
        let expected: [Vec<u8>; 10] = [
            [&[1], &hash[..]].concat(),
            [&[2], &hash[..]].concat(),
            [&[3], &hash[..]].concat(),
            [&[4], &hash[..]].concat(),
            [&[5], &hash[..], &number].concat(),
            [&[6], &number[..]].concat(),
            [&[7], &number[..], &index].concat(),
            [&[8], &hash[..], &number, &index].concat(),
            [&[9], &number[..]].concat(),
            [&[10], &number[..], &hash].concat(),
        ];
        for (key, expected) in keys(hash, 0x0102, 0x0304).into_iter().zip(expected) {
            assert_eq!(key.encode(), expected, "{key:?}");
        }
    }
}
