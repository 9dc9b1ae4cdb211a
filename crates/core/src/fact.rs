//! The hashed keys of what Tally remembers beside counts: event ids, entities, sessions, idempotency keys.
//!
//! A key is the seeded hash of a kind and some parts, each behind its length, so that no two lists of parts share their
//! bytes. Rows on disk are found by it.

use crate::id::{CellHasher, CellKey};
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

pub fn claim_key(hasher: &CellHasher, event_id: &str, buffer: &mut Vec<u8>) -> CellKey {
    begin(buffer, CLAIM);
    part(buffer, event_id.as_bytes());
    hasher.key(buffer)
}

pub fn answer_key(hasher: &CellHasher, counter_id: &[u8], idempotency_key: &[u8]) -> CellKey {
    let mut buffer = Vec::with_capacity(counter_id.len() + idempotency_key.len() + 8);
    begin(&mut buffer, ANSWER);
    part(&mut buffer, counter_id);
    part(&mut buffer, idempotency_key);
    hasher.key(&buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_pinned_and_no_two_lists_of_parts_share_one() {
        let hasher = CellHasher::new(42);
        assert_eq!(claim_key(&hasher, "e1", &mut Vec::new()).as_u128(), CLAIM_E1);
        assert_ne!(answer_key(&hasher, b"ab", b"c"), answer_key(&hasher, b"a", b"bc"));
        assert_ne!(answer_key(&hasher, b"", b"e1"), claim_key(&hasher, "e1", &mut Vec::new()));
    }

    const CLAIM_E1: u128 = 152877632697428995146061037384437867392;
}
