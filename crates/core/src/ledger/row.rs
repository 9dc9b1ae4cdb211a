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
        let mut bytes = Vec::with_capacity(ROW_BYTES);
        self.encode(&mut bytes);
        bytes
    }
}

/// Most rows have less, so that their bytes are allocated once.
const ROW_BYTES: usize = 32;

/// An event id that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The hash of what came with the id: another content under the same id is a conflict.
    pub content: u64,
    /// When it was first seen, in log time.
    pub at_ms: u64,
}

/// The state of an entity, such as one user's like of one video, and what was counted when it went on: undoing undoes exactly that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// The time and the position of the event that decided the state; the greatest wins.
    pub occurred_ms: i64,
    pub offset: u64,
    /// The position of what was counted and still is; [`Entity::OFF`] if nothing is.
    pub counted_at: u64,
    pub cell: CellKey,
    pub generation: u64,
    /// What cannot be told from the entity itself.
    pub counted_as: Option<CountedAs>,
}

impl Entity {
    /// No position of a log.
    pub const OFF: u64 = u64::MAX;

    pub fn is_on(&self) -> bool {
        self.counted_at != Entity::OFF
    }
}

/// What says nothing of parts.
pub const NO_PARTS: &[&[u8]] = &[];

/// The id of a cell and what says which parts of it an entity was counted for, as they stand in a row: its time, and the names and values
/// of dimensions. Where the entity says the id and there are no parts, there is nothing to keep: so this is one pointer, and mostly none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedAs(Box<[u8]>);

impl CountedAs {
    pub fn new(id: &[u8], parts: &[impl AsRef<[u8]>]) -> CountedAs {
        let mut bytes = Vec::with_capacity(id.len() + 3);
        put_bytes(&mut bytes, id);
        put_varint(&mut bytes, parts.len() as u64);
        parts.iter().for_each(|part| put_bytes(&mut bytes, part.as_ref()));
        CountedAs(bytes.as_slice().into())
    }

    pub fn id(&self) -> &[u8] {
        take_bytes(&mut &self.0[..]).expect("it was written or read before")
    }

    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        let mut left = take_bytes(&mut rest).and_then(|_| take_varint(&mut rest)).unwrap_or(0);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            take_bytes(&mut rest).ok()
        })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn take(bytes: &mut &[u8]) -> Result<CountedAs, DecodeError> {
        let whole = *bytes;
        take_bytes(bytes)?;
        for _ in 0..take_varint(bytes)? {
            take_bytes(bytes)?;
        }
        Ok(CountedAs(whole[..whole.len() - bytes.len()].into()))
    }
}

/// What the first byte of an [`Entity`] says.
mod entity_flag {
    pub const ON: u8 = 1;
    /// The id of what was counted stands at the end, as formats up to 4 wrote it.
    pub const ID: u8 = 2;
    /// How far before the deciding event the counted one stands. Without it they are one.
    pub const BEFORE: u8 = 4;
    /// A [`super::CountedAs`] stands at the end.
    pub const AS: u8 = 8;
    pub const ALL: u8 = ON | ID | BEFORE | AS;
}

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
        let before = if self.is_on() { self.offset - self.counted_at } else { 0 };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        out.push(
            flag(self.is_on(), entity_flag::ON)
                | flag(before > 0, entity_flag::BEFORE)
                | flag(self.counted_as.is_some(), entity_flag::AS),
        );
        put_signed(out, self.occurred_ms);
        put_varint(out, self.offset);
        out.extend_from_slice(&self.cell.to_bytes());
        put_varint(out, self.generation);
        if before > 0 {
            put_varint(out, before);
        }
        if let Some(CountedAs(bytes)) = &self.counted_as {
            out.extend_from_slice(bytes);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Entity, DecodeError> {
        whole(bytes, |bytes| {
            let flags = take_byte(bytes)?;
            let has = |flag| flags & flag != 0;
            let bad = |field, value| Err(DecodeError::BadValue { field, value });
            if flags > entity_flag::ALL || has(entity_flag::ID) && has(entity_flag::AS) {
                return bad("flags of an entity", flags.into());
            }
            let (occurred_ms, offset) = (take_signed(bytes)?, take_varint(bytes)?);
            let (cell, generation) = (CellKey::from_bytes(take_array(bytes)?), take_varint(bytes)?);
            let before = if has(entity_flag::BEFORE) { take_varint(bytes)? } else { 0 };
            let counted_at = match offset.checked_sub(before) {
                Some(counted_at) if has(entity_flag::ON) && counted_at != Entity::OFF => counted_at,
                Some(_) if !has(entity_flag::ON) && before == 0 => Entity::OFF,
                _ => return bad("position of what was counted", before),
            };
            let counted_as = match (has(entity_flag::ID), has(entity_flag::AS)) {
                (true, _) => Some(CountedAs::new(take_bytes(bytes)?, NO_PARTS)),
                (_, true) => Some(CountedAs::take(bytes)?),
                (false, false) => None,
            };
            Ok(Entity { occurred_ms, offset, counted_at, cell, generation, counted_as })
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
            let at = a.min(Entity::OFF - 1);
            for counted_as in [None, Some(CountedAs::new(&cell.to_bytes(), NO_PARTS)), Some(CountedAs::new(b"", &["DE", ""]))] {
                for counted_at in if on { [at, at / 2] } else { [Entity::OFF; 2] } {
                    let counted_as = counted_as.clone();
                    check(&Entity { occurred_ms: c, offset: at, counted_at, cell, generation: b, counted_as });
                }
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
        let (offset, counted_as) = (4, None);
        let entity = Entity { occurred_ms: -3, offset, counted_at: 4, cell, generation: 5, counted_as };
        let expected = [1, 5, 4, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 5];
        assert_eq!(entity.to_bytes(), expected);
        assert_eq!(Entity { counted_at: 1, ..entity.clone() }.to_bytes(), [&[5], &expected[1..], &[3]].concat());
        assert_eq!(Entity { counted_at: Entity::OFF, ..entity.clone() }.to_bytes(), [&[0], &expected[1..]].concat());
        let named = Entity { counted_as: Some(CountedAs::new(b"v:a", NO_PARTS)), ..entity.clone() };
        assert_eq!(named.to_bytes(), [&[9], &expected[1..], b"\x03v:a\x00"].concat());
        let parts = Entity { counted_as: Some(CountedAs::new(b"v:a", &["DE", "tv"])), ..entity };
        assert_eq!(parts.to_bytes(), [&[9], &expected[1..], b"\x03v:a\x02\x02DE\x02tv"].concat());
        let of_format_4 = [&[3], &expected[1..], b"\x03v:a"].concat();
        assert_eq!(Entity::decode(&of_format_4), Ok(named), "as it was written once");
        assert_eq!(Answered { delta: -1, value: 2, at_ms: 3 }.to_bytes(), [1, 4, 3]);
    }

    #[test]
    fn a_claim_takes_32_bytes_with_its_key() {
        assert_eq!(size_of::<(CellKey, Claim)>(), 32);
    }

    #[test]
    fn an_entity_takes_80_bytes_with_its_key_and_its_parts_none_while_there_are_none() {
        assert_eq!(size_of::<(CellKey, Entity)>(), 80);
    }
}
