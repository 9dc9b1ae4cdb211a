//! Counter ids, their canonical form, and the cells they name.
//!
//! An id is `name`, `name:key` or `name:key1:key2`. The parts of a declared counter's key may hold any text: `:` and
//! `%` are written `%3A` and `%25`, and nothing else is encoded in the canonical form, so that each key has exactly one
//! id and no two keys share one.

use crate::pen::{Paper, Part};
use std::borrow::Cow;
use std::hash::{BuildHasherDefault, Hasher};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The hashed id of a counter: what the table and the store know a counter by.
///
/// The low [`CellKey::FLAG_BITS`] bits are always zero, which leaves room for a slot's flags; 122 bits of a seeded hash
/// remain, so that even 10¹² counters share a key with a probability of about 10⁻¹³.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellKey(u128);

/// The bits behind a slot.
const SLOT_SHIFT: u32 = u128::BITS - crate::limits::SLOTS.ilog2();

impl CellKey {
    pub const FLAG_BITS: u32 = 6;
    /// No counter: the key of operations on the whole node.
    pub const NONE: CellKey = CellKey(0);

    pub fn as_u128(self) -> u128 {
        self.0
    }

    /// Which of the [`SLOTS`](crate::limits::SLOTS) what is hashed belongs to: its first bits, so that a slot is a range of keys and
    /// can be moved as a whole.
    pub fn slot(self) -> u16 {
        (self.0 >> SLOT_SHIFT) as u16
    }

    /// The same in another slot.
    pub fn in_slot(self, slot: u16) -> CellKey {
        let behind = self.0 & ((1 << SLOT_SHIFT) - 1);
        CellKey(u128::from(slot) << SLOT_SHIFT | behind.max(1 << CellKey::FLAG_BITS))
    }

    /// Big-endian, so that keys in byte order are keys in numeric order.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> CellKey {
        CellKey(u128::from_be_bytes(bytes))
    }

    /// For tables: its lowest bits are always zero, and its top bits are alike within a shard, so those between are taken.
    #[inline]
    pub(crate) fn spread(self) -> u64 {
        (self.0 >> CellKey::FLAG_BITS) as u64
    }

    pub(crate) fn from_u128(raw: u128) -> CellKey {
        CellKey(raw)
    }
}

/// Hashes ids to cells. The seed is drawn once per data directory, so that nobody can choose ids that collide.
#[derive(Clone, Copy, Debug)]
pub struct CellHasher {
    seed: u64,
}

impl CellHasher {
    pub const fn new(seed: u64) -> CellHasher {
        CellHasher { seed }
    }

    #[inline]
    pub fn key(&self, id: &[u8]) -> CellKey {
        let hash = xxh3_128_with_seed(id, self.seed) >> CellKey::FLAG_BITS << CellKey::FLAG_BITS;
        // Zero marks an empty slot.
        CellKey(if hash == 0 { 1 << 127 } else { hash })
    }
}

/// For maps whose keys are hashes already.
pub(crate) type KeyHash = BuildHasherDefault<PassThrough>;

#[derive(Default)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn write_u128(&mut self, key: u128) {
        self.0 = CellKey(key).spread();
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only a CellKey is hashed, which is one u128");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What separates a counter's name and the parts of its key.
pub const SEPARATOR: u8 = b':';

/// The name at the beginning of an id.
#[inline]
pub fn name_of(id: &[u8]) -> &[u8] {
    &id[..memchr::memchr(SEPARATOR, id).unwrap_or(id.len())]
}

/// Appends a part of a key in its canonical form.
pub fn encode_part(value: &[u8], out: &mut Vec<u8>) {
    write_part(Part::exactly(value), out);
}

/// The same on any paper.
#[inline(always)]
pub(crate) fn write_part(value: Part<'_>, out: &mut impl Paper) {
    match has_separator(value.bytes()) {
        false => out.put(value),
        true => write_encoded(value.bytes(), out),
    }
}

#[cold]
fn write_encoded(value: &[u8], out: &mut impl Paper) {
    for &byte in value {
        match byte {
            b':' => out.put(Part::exactly(b"%3A")),
            b'%' => out.put(Part::exactly(b"%25")),
            other => out.byte(other),
        }
    }
}

/// Whether a byte of it is written otherwise in an id. Eight at a time: most values are too short for more.
#[inline]
fn has_separator(value: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let has = |word: u64, byte: u8| {
        let zeroed = word ^ (ONES * u64::from(byte));
        zeroed.wrapping_sub(ONES) & !zeroed & (ONES * 0x80)
    };
    let either = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        has(word, b':') | has(word, b'%')
    };
    // The last eight overlap those before them.
    let Some(last) = value.last_chunk() else { return value.iter().any(|byte| matches!(byte, b':' | b'%')) };
    value.as_chunks().0.iter().fold(either(last), |found, word| found | either(word)) != 0
}

/// The value of a part of a key: every `%XX` decoded. An error is where a `%` has no two hexadecimal digits behind it.
pub fn decode_part(part: &[u8]) -> Result<Cow<'_, [u8]>, usize> {
    let Some(first) = memchr::memchr(b'%', part) else { return Ok(Cow::Borrowed(part)) };
    let mut value = part[..first].to_vec();
    let mut at = first;
    while at < part.len() {
        if part[at] == b'%' {
            value.push(hex_byte(part.get(at + 1..at + 3)).ok_or(at)?);
            at += 3;
        } else {
            value.push(part[at]);
            at += 1;
        }
    }
    Ok(Cow::Owned(value))
}

fn hex_byte(digits: Option<&[u8]>) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let digits = digits?;
    Some((digit(digits[0])? * 16 + digit(digits[1])?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_hash_of_an_id_is_pinned() {
        // Cells on disk are found by this hash: a change here makes every data directory unreadable.
        assert_eq!(CellHasher::new(42).key(b"views:v42").as_u128(), PINNED);
    }

    const PINNED: u128 = 62683818809181067136033752854774248128;

    #[test]
    fn a_slot_is_the_first_14_bits_of_a_key() {
        let key = CellHasher::new(42).key(b"views:v42");
        assert_eq!((key.slot(), u16::from_be_bytes([key.to_bytes()[0], key.to_bytes()[1]]) >> 2), (3018, 3018));
        assert_eq!(CellKey(u128::MAX).slot(), 16_383);
    }

    #[test]
    fn the_flag_bits_of_a_key_are_free() {
        for n in 0..1000u32 {
            let key = CellHasher::new(7).key(&n.to_le_bytes());
            assert_eq!(key.as_u128() & 0x3f, 0);
            assert_eq!(CellKey::from_bytes(key.to_bytes()), key);
        }
    }

    fn encoded(value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_part(value, &mut out);
        out
    }

    #[test]
    fn a_part_encodes_its_separators_only() {
        assert_eq!(encoded("50%: é /x".as_bytes()), "50%25%3A é /x".as_bytes());
        assert_eq!(decode_part(b"%3a%2F%41%c3%a9").unwrap().as_ref(), ":/Aé".as_bytes());
    }

    #[test]
    fn a_percent_sign_without_its_digits_is_found() {
        for (part, at) in [("%", 0), ("a%", 1), ("a%4", 1), ("%41%zz", 3), ("%+1", 0)] {
            assert_eq!(decode_part(part.as_bytes()), Err(at), "{part}");
        }
    }

    proptest! {
        #[test]
        fn a_part_survives_its_encoding(value in vec(any::<u8>(), 0..40)) {
            let part = encoded(&value);
            prop_assert!(!part.contains(&SEPARATOR));
            prop_assert_eq!(decode_part(&part).unwrap().into_owned(), value);
        }

        #[test]
        fn different_keys_have_different_ids(a in vec("[:%a3A25]{0,4}", 1..4), b in vec("[:%a3A25]{0,4}", 1..4)) {
            let id = |parts: &[String]| parts.iter().map(|part| encoded(part.as_bytes())).collect::<Vec<_>>().join(&SEPARATOR);
            prop_assert_eq!(a == b, id(&a) == id(&b));
        }
    }
}
