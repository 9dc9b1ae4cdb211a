//! The hashed keys of what Tally remembers beside counts: event ids, entities, sessions, idempotency keys.
//!
//! A key is the seeded hash of a kind and some parts, each behind its length, so that no two lists of parts share their
//! bytes. Rows on disk are found by it.

use crate::id::{CellHasher, CellKey};
use crate::op::Stamp;
use crate::pen::{Paper as _, Part, Scratch};
use crate::record::put_bytes;

/// An event id.
pub const CLAIM: u8 = 1;
/// A counter and the values of its `entity`.
pub const ENTITY: u8 = 2;
/// A counter's id and an idempotency key.
pub const ANSWER: u8 = 3;
/// A counter and what `dedup.by` names.
pub const GROUP: u8 = 4;
/// An idempotency key of something that is asked of the node, such as a correction.
pub const REQUEST: u8 = 5;

/// Something that is asked of the node and must happen once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub key: CellKey,
    pub id: Box<[u8]>,
    /// The hash of what is asked for: something else under the same id is a conflict.
    pub content: u64,
}

impl Request {
    /// `content` is all that says what is asked for.
    pub fn new(hasher: &CellHasher, id: &[u8], content: &[&[u8]]) -> Request {
        let mut buffer = Vec::new();
        begin(&mut buffer, REQUEST);
        content.iter().for_each(|text| part(&mut buffer, text));
        let content = (hasher.key(&buffer).as_u128() >> 64) as u64;
        Request { key: request_key(hasher, id), id: id.into(), content }
    }
}

pub fn request_key(hasher: &CellHasher, id: &[u8]) -> CellKey {
    let mut buffer = Vec::with_capacity(id.len() + 8);
    begin(&mut buffer, REQUEST);
    part(&mut buffer, id);
    hasher.key(&buffer)
}

/// Begins the bytes of a key.
#[inline]
pub fn begin(buffer: &mut Vec<u8>, kind: u8) {
    buffer.clear();
    buffer.push(kind);
}

#[inline]
pub fn part(buffer: &mut Vec<u8>, part: &[u8]) {
    put_bytes(buffer, part);
}

pub fn claim_key(hasher: &CellHasher, event_id: &[u8]) -> CellKey {
    claim_key_in(hasher, Part::exactly(event_id), &mut Scratch::default())
}

/// The same with room that is there already.
pub(crate) fn claim_key_in(hasher: &CellHasher, event_id: Part<'_>, scratch: &mut Scratch) -> CellKey {
    let mut pen = scratch.pen(event_id.len(), 2);
    pen.byte(CLAIM);
    pen.text(event_id);
    hasher.key(pen.bytes())
}

/// The key of what was answered to an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerKey {
    /// It begins with the slot of the counter whose answer it is, so that it moves with its counter.
    pub key: CellKey,
    /// What the hash begins with by itself.
    hash_slot: u16,
}

pub fn answer_key(hasher: &CellHasher, counter_id: &[u8], idempotency_key: &[u8]) -> AnswerKey {
    let mut buffer = Vec::with_capacity(counter_id.len() + idempotency_key.len() + 8);
    begin(&mut buffer, ANSWER);
    part(&mut buffer, counter_id);
    part(&mut buffer, idempotency_key);
    let hash = hasher.key(&buffer);
    AnswerKey { key: hash.in_slot(hasher.key(counter_id).slot()), hash_slot: hash.slot() }
}

impl AnswerKey {
    pub(crate) fn stamp(self) -> Stamp {
        Stamp { number: self.hash_slot.into(), ..Stamp::of_key(self.key) }
    }

    /// The key under which data directories up to format 4 have the answer: all of it is the hash.
    pub(crate) fn of_format_4(stamp: &Stamp) -> CellKey {
        stamp.key.in_slot(stamp.number as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_pinned_and_no_two_lists_of_parts_share_one() {
        let hasher = CellHasher::new(42);
        assert_eq!(claim_key(&hasher, b"e1").as_u128(), CLAIM_E1);
        assert_ne!(answer_key(&hasher, b"ab", b"c"), answer_key(&hasher, b"a", b"bc"));
        assert_ne!(answer_key(&hasher, b"", b"e1").key, claim_key(&hasher, b"e1"));
        assert_eq!(answer_key(&hasher, b"c", b"k").key.as_u128(), ANSWER_K_OF_C);
    }

    #[test]
    fn an_answer_is_in_the_slot_of_its_counter_and_is_found_where_earlier_formats_have_it() {
        let hasher = CellHasher::new(42);
        for key in ["a", "b", "c"] {
            let answer = answer_key(&hasher, b"c", key.as_bytes());
            assert_eq!(answer.key.slot(), hasher.key(b"c").slot());
            let mut hashed = Vec::new();
            begin(&mut hashed, ANSWER);
            part(&mut hashed, b"c");
            part(&mut hashed, key.as_bytes());
            assert_eq!(AnswerKey::of_format_4(&answer.stamp()), hasher.key(&hashed));
        }
    }

    const ANSWER_K_OF_C: u128 = 173626586309953219976782797690087702336;
    const CLAIM_E1: u128 = 152877632697428995146061037384437867392;
}
