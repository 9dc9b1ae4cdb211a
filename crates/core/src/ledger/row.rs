//! Rows of the ledger as bytes (`docs/formats/keys.md`, "The ledger"), and the three kinds that are found by a hash.

use crate::id::CellKey;
use crate::record::{
    DecodeError, put_bytes, put_signed, put_varint, take_byte, take_bytes, take_signed, take_str, take_varint,
};

/// A value of the ledger and its bytes in the store.
pub trait Row: Sized {
    fn encode(&self, out: &mut Vec<u8>);
    /// The row whose bytes these are, all of them.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }
}

/// An event id that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The hash of what came with the id: another content under the same id is a conflict.
    pub content: u64,
    /// When it was first seen, in log time.
    pub at_ms: u64,
}

/// The state of an entity, such as one user's like of one video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    pub on: bool,
    /// The time and the position of the event that decided the state; the greatest wins.
    pub occurred_ms: i64,
    pub offset: u64,
    /// What was counted when it went on: undoing undoes exactly that.
    pub cell: CellKey,
    pub generation: u64,
    /// The id of that cell, where the entity does not say it: a later event may name another one.
    pub id: Option<Box<[u8]>>,
}

/// In the first byte of an [`Entity`]: an id stands at its end.
const HAS_ID: u8 = 2;

/// An idempotency key that was used: what was asked, what was answered, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    pub delta: i64,
    pub value: i64,
    pub at_ms: u64,
}

impl Row for Claim {
    fn encode(&self, out: &mut Vec<u8>) {
        // A hash is as long as it gets: as a varint it would take nine bytes or ten.
        out.extend_from_slice(&self.content.to_le_bytes());
        put_varint(out, self.at_ms);
    }

    fn decode(bytes: &[u8]) -> Result<Claim, DecodeError> {
        whole(bytes, |bytes| Ok(Claim { content: u64::from_le_bytes(take_array(bytes)?), at_ms: take_varint(bytes)? }))
    }
}

impl Row for Entity {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.on) | if self.id.is_some() { HAS_ID } else { 0 });
        put_signed(out, self.occurred_ms);
        put_varint(out, self.offset);
        out.extend_from_slice(&self.cell.to_bytes());
        put_varint(out, self.generation);
        if let Some(id) = &self.id {
            put_bytes(out, id);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Entity, DecodeError> {
        whole(bytes, |bytes| {
            let flags = take_byte(bytes)?;
            if flags > (HAS_ID | 1) {
                return Err(DecodeError::BadValue { field: "flags of an entity", value: flags.into() });
            }
            Ok(Entity {
                on: flags & 1 != 0,
                occurred_ms: take_signed(bytes)?,
                offset: take_varint(bytes)?,
                cell: CellKey::from_bytes(take_array(bytes)?),
                generation: take_varint(bytes)?,
                id: if flags & HAS_ID != 0 { Some(take_bytes(bytes)?.into()) } else { None },
            })
        })
    }
}

impl Row for Answered {
    fn encode(&self, out: &mut Vec<u8>) {
        put_signed(out, self.delta);
        put_signed(out, self.value);
        put_varint(out, self.at_ms);
    }

    fn decode(bytes: &[u8]) -> Result<Answered, DecodeError> {
        whole(bytes, |bytes| {
            Ok(Answered { delta: take_signed(bytes)?, value: take_signed(bytes)?, at_ms: take_varint(bytes)? })
        })
    }
}

/// The key says it all.
impl Row for () {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(bytes: &[u8]) -> Result<(), DecodeError> {
        whole(bytes, |_| Ok(()))
    }
}

/// Takes a row and makes sure that nothing stands behind it.
pub(super) fn whole<'a, T>(
    mut bytes: &'a [u8],
    take: impl FnOnce(&mut &'a [u8]) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let row = take(&mut bytes)?;
    match bytes.len() {
        0 => Ok(row),
        left => Err(DecodeError::BadValue { field: "bytes behind the last field", value: left as u64 }),
    }
}

pub(super) fn take_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (array, rest) = bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    Ok(*array)
}

pub(super) fn take_bool(bytes: &mut &[u8], field: &'static str) -> Result<bool, DecodeError> {
    match take_byte(bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(DecodeError::BadValue { field, value: other.into() }),
    }
}

pub(super) fn put_option(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(value.is_some().into());
    if let Some(value) = value {
        put_varint(out, value);
    }
}

pub(super) fn take_option(bytes: &mut &[u8], field: &'static str) -> Result<Option<u64>, DecodeError> {
    Ok(if take_bool(bytes, field)? { Some(take_varint(bytes)?) } else { None })
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(super) fn take_text(bytes: &mut &[u8]) -> Result<String, DecodeError> {
    Ok(take_str(bytes)?.to_owned())
}

pub(super) fn take_vec(bytes: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
    Ok(take_bytes(bytes)?.to_vec())
}

pub(super) fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_varint(out, list.len() as u64);
    for item in list {
        put(out, item);
    }
}

pub(super) fn take_list<T>(
    bytes: &mut &[u8],
    mut take: impl FnMut(&mut &[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    // A length that is not true finds the end of the bytes, not the end of memory.
    (0..take_varint(bytes)?).map(|_| take(bytes)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Debug;

    /// A row survives its bytes; with one byte less, or one more, they are nothing.
    pub fn check<R: Row + PartialEq + Debug>(row: &R) {
        let mut bytes = row.to_bytes();
        assert_eq!(&R::decode(&bytes).unwrap(), row);
        for cut in 0..bytes.len() {
            assert!(R::decode(&bytes[..cut]).is_err(), "{row:?} cut at {cut}");
        }
        bytes.push(0);
        assert!(R::decode(&bytes).is_err(), "{row:?} with a byte more");
    }

    /// Whatever the bytes: an error, or a row, never a panic.
    pub fn check_strange<R: Row>(bytes: &[u8]) {
        let _ = R::decode(bytes);
    }

    proptest! {
        #[test]
        fn rows_survive_their_bytes(a: u64, b: u64, c: i64, d: i64, cell: [u8; 16], on: bool) {
            check(&Claim { content: a, at_ms: b });
            let cell = CellKey::from_bytes(cell);
            for id in [None, Some(cell.to_bytes().into())] {
                check(&Entity { on, occurred_ms: c, offset: a, cell, generation: b, id });
            }
            check(&Answered { delta: c, value: d, at_ms: a });
            check(&());
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            check_strange::<Claim>(&bytes);
            check_strange::<Entity>(&bytes);
            check_strange::<Answered>(&bytes);
        }
    }

    #[test]
    fn the_bytes_of_claims_entities_and_answers_are_pinned() {
        assert_eq!(Claim { content: 0x0102, at_ms: 300 }.to_bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 0xac, 2]);
        let cell = CellKey::from_bytes([7; 16]);
        let entity = Entity { on: true, occurred_ms: -3, offset: 4, cell, generation: 5, id: None };
        let expected = [1, 5, 4, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 5];
        assert_eq!(entity.to_bytes(), expected);
        let named = Entity { id: Some(b"v:a"[..].into()), ..entity };
        assert_eq!(named.to_bytes(), [&[3], &expected[1..], b"\x03v:a"].concat());
        assert_eq!(Answered { delta: -1, value: 2, at_ms: 3 }.to_bytes(), [1, 4, 3]);
    }

    #[test]
    fn a_claim_takes_32_bytes_with_its_key() {
        assert_eq!(size_of::<(CellKey, Claim)>(), 32);
    }
}
