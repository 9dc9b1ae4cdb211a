//! The audit of event ids that came again: one row each, and an index by event id.

use super::LedgerKey;
use super::cut::{Kind, LedgerRow, Placed, Rows};
use super::row::{Row, put_list, put_text, take_bool, take_list, take_text, whole};
use crate::id::CellKey;
use crate::memory::journal::Journal;
use crate::record::{DecodeError, put_signed, put_varint, take_signed, take_varint};
use std::sync::Arc;

/// An event whose id was seen before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Of its batch in the log.
    pub offset: u64,
    /// Its place within the batch.
    pub index: u32,
    pub event_id: String,
    pub event_type: String,
    pub dimensions: Vec<(String, String)>,
    pub delta: i64,
    /// The counters it would have fed.
    pub counters: Vec<String>,
    pub first_seen_ms: u64,
    pub seen_ms: u64,
    /// Its content is not that of the first event with this id.
    pub conflict: bool,
}

/// Offset and index: the key of a duplicate. A later one is greater.
pub type DuplicatePlace = (u64, u32);

impl Row for Duplicate {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.index.into());
        put_text(out, &self.event_id);
        put_text(out, &self.event_type);
        put_list(out, &self.dimensions, |out, (name, value)| {
            put_text(out, name);
            put_text(out, value);
        });
        put_signed(out, self.delta);
        put_list(out, &self.counters, |out, counter| put_text(out, counter));
        put_varint(out, self.first_seen_ms);
        put_varint(out, self.seen_ms);
        out.push(self.conflict.into());
    }

    fn decode(bytes: &[u8]) -> Result<Duplicate, DecodeError> {
        whole(bytes, |bytes| {
            Ok(Duplicate {
                offset: take_varint(bytes)?,
                index: take_index(bytes)?,
                event_id: take_text(bytes)?,
                event_type: take_text(bytes)?,
                dimensions: take_list(bytes, |bytes| Ok((take_text(bytes)?, take_text(bytes)?)))?,
                delta: take_signed(bytes)?,
                counters: take_list(bytes, take_text)?,
                first_seen_ms: take_varint(bytes)?,
                seen_ms: take_varint(bytes)?,
                conflict: take_bool(bytes, "conflict")?,
            })
        })
    }
}

fn take_index(bytes: &mut &[u8]) -> Result<u32, DecodeError> {
    let value = take_varint(bytes)?;
    u32::try_from(value).map_err(|_| DecodeError::BadValue { field: "index", value })
}

impl Placed for Duplicate {
    type Place = DuplicatePlace;

    fn key((offset, index): DuplicatePlace) -> LedgerKey {
        LedgerKey::Duplicate(offset, index)
    }
}

/// Where a duplicate of an event id is: the key says it all.
impl Placed for () {
    type Place = (CellKey, u64, u32);

    fn key((event_id, offset, index): (CellKey, u64, u32)) -> LedgerKey {
        LedgerKey::DuplicateOf(event_id, offset, index)
    }
}

/// Duplicates since the last cut.
#[derive(Default)]
pub struct Duplicates {
    pub(crate) rows: Journal<Duplicate>,
    pub(crate) by_id: Journal<()>,
}

impl Duplicates {
    /// `event_id` is the key of the claim that was there.
    pub fn push(&mut self, event_id: CellKey, duplicate: Duplicate) {
        let (offset, index) = (duplicate.offset, duplicate.index);
        self.rows.insert((offset, index), &duplicate);
        self.by_id.insert((event_id, offset, index), &());
    }

    /// In the order of the log; backwards for those who want the newest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Duplicate> {
        self.rows.iter().map(|(_, duplicate)| duplicate)
    }

    /// Those before a place, in the order of the log: for pages, newest first.
    pub fn before(&self, place: DuplicatePlace) -> impl DoubleEndedIterator<Item = Duplicate> {
        self.rows.range(..place).map(|(_, duplicate)| duplicate)
    }

    /// Those of one event id, in the order of the log.
    pub fn of(&self, event_id: CellKey) -> impl DoubleEndedIterator<Item = Duplicate> {
        let places = self.by_id.range((event_id, 0, 0)..=(event_id, u64::MAX, u32::MAX));
        places.filter_map(|((_, offset, index), ())| self.rows.get((offset, index)))
    }

    /// Those of one event id before a place, in the order of the log.
    pub fn of_before(&self, event_id: CellKey, place: DuplicatePlace) -> impl DoubleEndedIterator<Item = Duplicate> {
        let places = self.by_id.range((event_id, 0, 0)..(event_id, place.0, place.1));
        places.filter_map(|((_, offset, index), ())| self.rows.get((offset, index)))
    }
}

impl Kind for Duplicates {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        Arc::new(DuplicatesCut([self.rows.begin_cut(), self.by_id.begin_cut()]))
    }

    fn finish_cut(&mut self) {
        self.both().into_iter().for_each(Kind::finish_cut);
    }

    fn abort_cut(&mut self) {
        self.both().into_iter().for_each(Kind::abort_cut);
    }

    fn clear(&mut self) {
        self.both().into_iter().for_each(Kind::clear);
    }

    fn changed(&self) -> usize {
        self.rows.changed() + self.by_id.changed()
    }

    fn unsettled_bytes(&self) -> usize {
        self.rows.unsettled_bytes() + self.by_id.unsettled_bytes()
    }

    fn bytes(&self) -> usize {
        self.rows.bytes() + self.by_id.bytes()
    }
}

impl Duplicates {
    fn both(&mut self) -> [&mut dyn Kind; 2] {
        [&mut self.rows, &mut self.by_id]
    }
}

/// Duplicates, and then where those of each event id are.
struct DuplicatesCut([Arc<dyn Rows>; 2]);

impl Rows for DuplicatesCut {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        Box::new(self.0.iter().flat_map(|rows| rows.rows()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::{check, check_strange};
    use super::*;
    use proptest::prelude::*;

    fn duplicate(offset: u64, index: u32) -> Duplicate {
        Duplicate {
            offset,
            index,
            event_id: "e1".into(),
            event_type: "t".into(),
            dimensions: vec![("ad".into(), "a7".into())],
            delta: -1,
            counters: vec!["impressions".into()],
            first_seen_ms: 3,
            seen_ms: 4,
            conflict: true,
        }
    }

    proptest! {
        #[test]
        fn a_duplicate_survives_its_bytes(
            offset: u64, index: u32, delta: i64, times: (u64, u64), conflict: bool,
            event_id: String, dimensions in proptest::collection::vec(any::<(String, String)>(), 0..3),
            counters in proptest::collection::vec(any::<String>(), 0..3),
        ) {
            let (first_seen_ms, seen_ms) = times;
            let event_type = event_id.clone();
            let duplicate =
                Duplicate { event_id, event_type, dimensions, delta, counters, first_seen_ms, seen_ms, conflict, offset, index };
            check(&duplicate);
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            check_strange::<Duplicate>(&bytes);
        }
    }

    #[test]
    fn the_bytes_of_a_duplicate_are_pinned() {
        assert_eq!(
            duplicate(300, 2).to_bytes(),
            b"\xac\x02\x02\x02e1\x01t\x01\x02ad\x02a7\x01\x01\x0bimpressions\x03\x04\x01"
        );
    }

    #[test]
    fn duplicates_are_found_by_place_and_by_event_id() {
        let [one, other] = [1, 2].map(|n| CellKey::from_bytes([n; 16]));
        let mut duplicates = Duplicates::default();
        for (n, id) in [one, other, one, one].into_iter().enumerate() {
            duplicates.push(id, duplicate(n as u64 / 2, n as u32));
        }
        let place = |duplicate: Duplicate| (duplicate.offset, duplicate.index);
        assert_eq!(duplicates.iter().map(place).collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 2), (1, 3)]);
        assert_eq!(duplicates.before((1, 3)).rev().map(place).collect::<Vec<_>>(), [(1, 2), (0, 1), (0, 0)]);
        assert_eq!(duplicates.of(one).map(place).collect::<Vec<_>>(), [(0, 0), (1, 2), (1, 3)]);
        assert_eq!(duplicates.of_before(one, (1, 3)).map(place).collect::<Vec<_>>(), [(0, 0), (1, 2)]);
        assert_eq!((duplicates.rows.changed(), duplicates.by_id.changed()), (4, 4));
    }
}
