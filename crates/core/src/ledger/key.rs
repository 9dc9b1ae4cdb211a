//! Every key the ledger has in a store (`docs/formats/keys.md`, "The ledger"). The first byte is the kind; numbers are
//! big-endian, so that keys in byte order are in the order of their numbers.

use super::row::take_array;
use crate::id::CellKey;
use crate::record::DecodeError;
use std::ops::Range;

use super::{LedgerKey, LedgerKind};

/// A part of a key.
pub(super) trait KeyPart: Sized {
    fn put(self, out: &mut Vec<u8>);
    fn take(bytes: &mut &[u8]) -> Result<Self, DecodeError>;
}

impl KeyPart for CellKey {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    fn take(bytes: &mut &[u8]) -> Result<CellKey, DecodeError> {
        take_array(bytes).map(CellKey::from_bytes)
    }
}

impl KeyPart for u64 {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn take(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
        take_array(bytes).map(u64::from_be_bytes)
    }
}

impl KeyPart for u32 {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn take(bytes: &mut &[u8]) -> Result<u32, DecodeError> {
        take_array(bytes).map(u32::from_be_bytes)
    }
}

impl KeyPart for u16 {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn take(bytes: &mut &[u8]) -> Result<u16, DecodeError> {
        take_array(bytes).map(u16::from_be_bytes)
    }
}

/// The longest: kind, hash, offset, index.
pub(super) const KEY_BYTES_MAX: usize = 1 + 16 + 8 + 4;

impl LedgerKey {
    /// All keys of a kind.
    pub fn range(kind: LedgerKind) -> Range<Vec<u8>> {
        starting_with(vec![kind as u8])
    }

    /// The keys of what ends within a stretch of time.
    pub fn endings(times: &Range<u64>) -> Range<Vec<u8>> {
        let first = |at_ms| LedgerKey::Ending(at_ms, CellKey::NONE).encode();
        first(times.start)..first(times.end)
    }

    /// The keys of all steps of a cell, in the order of their generations.
    pub fn steps_of(cell: CellKey) -> Range<Vec<u8>> {
        starting_with(hashed(LedgerKind::Step, cell))
    }

    /// The keys of all parts of a cell.
    pub fn parts_of(cell: CellKey) -> Range<Vec<u8>> {
        starting_with(hashed(LedgerKind::Part, cell))
    }

    /// The keys of its parts of one roll-up, in the order of their buckets, from one up to another.
    pub fn parts_within(cell: CellKey, rollup: u16, buckets: &Range<u32>) -> Range<Vec<u8>> {
        let key = |bucket| LedgerKey::Part(cell, rollup, bucket).encode();
        key(buckets.start)..key(buckets.end)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(hash: [u8; 16], number: u64, index: u32) -> [LedgerKey; 12] {
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
            LedgerKey::Part(key, number as u16, index),
            LedgerKey::Board(key, number as u32, index),
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
                for kind in LedgerKind::ALL.iter().copied() {
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
        let expected: [Vec<u8>; 12] = [
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
            [&[12], &hash[..], &[1, 2], &index].concat(),
            [&[13], &hash[..], &[0, 0, 1, 2], &index].concat(),
        ];
        for (key, expected) in keys(hash, 0x0102, 0x0304).into_iter().zip(expected) {
            assert_eq!(key.encode(), expected, "{key:?}");
        }
    }
}
