//! An event that looks like others: where its values stand in what was received, and nothing copied.
//!
//! What it is written as in the log is what [`Event::encode`] writes of the same event, to the byte; it goes there straight
//! from the text.

use super::Event;
use super::codec::has;
use super::shape::{Shape, Values};
use crate::limits::EVENT_BYTES_MAX;
use crate::op::Submission;
use crate::pen::{Paper as _, Part, Pen, Stamped};
use crate::record::{put_bytes, put_varint, tag};
use std::borrow::Cow;
use xxhash_rust::xxh3::xxh3_64_with_seed;

#[derive(Debug)]
pub struct Line<'a> {
    /// What its parts stand in, each of which is UTF-8.
    bytes: &'a [u8],
    /// All its texts have no more than so many bytes.
    text_bytes: usize,
    shape: &'a Shape,
    values: &'a Values,
    head: &'a RecordHead,
}

/// What the records of all events of one shape, one type and one time of receipt begin with.
#[derive(Debug)]
pub(super) struct RecordHead {
    received_at_ms: u64,
    /// Up to the type; the flag of a delta is missing.
    bytes: Stamped,
}

impl RecordHead {
    pub fn new(event_type: &str, shape: &Shape, received_at_ms: u64) -> RecordHead {
        let mut bytes = vec![tag::EVENT, flags(shape)];
        put_varint(&mut bytes, received_at_ms);
        put_bytes(&mut bytes, event_type.as_bytes());
        RecordHead { received_at_ms, bytes: Stamped::new(bytes) }
    }

    pub fn received_at_ms(&self) -> u64 {
        self.received_at_ms
    }
}

/// The most that the length of a text takes, as a varint: an event has at most 256 KiB.
const LENGTH_BYTES_MAX: usize = 3;
const _: () = assert!(EVENT_BYTES_MAX < 1 << (7 * LENGTH_BYTES_MAX));

/// Where the flags of a record stand.
const FLAGS_AT: usize = 1;

fn flags(shape: &Shape) -> u8 {
    let flag = |present: bool, flag: u8| if present { flag } else { 0 };
    flag(shape.event_id.is_some(), has::EVENT_ID)
        | flag(shape.has_time, has::OCCURRED_AT)
        | flag(shape.session.is_some(), has::SESSION)
        | flag(shape.has_seq, has::SEQ)
        | flag(!shape.dimensions.is_empty(), has::DIMENSIONS)
        | flag(shape.payload.is_some(), has::PAYLOAD)
}

impl<'a> Line<'a> {
    pub(super) fn new(
        bytes: &'a [u8],
        text_bytes: usize,
        shape: &'a Shape,
        values: &'a Values,
        head: &'a RecordHead,
    ) -> Line<'a> {
        Line { bytes, text_bytes, shape, values, head }
    }

    /// A value, by its part of the shape.
    #[inline(always)]
    pub(crate) fn part(&self, part: usize) -> Part<'a> {
        let span = self.values.spans[part];
        Part::first(&self.bytes[span.start as usize..], span.len())
    }

    #[inline(always)]
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    fn text(&self, part: usize) -> &'a str {
        std::str::from_utf8(self.part(part).bytes()).expect("a part is UTF-8")
    }

    pub fn event_type(&self) -> &'a str {
        self.text(self.shape.event_type)
    }

    #[inline]
    pub(crate) fn event_id(&self) -> Option<Part<'a>> {
        self.shape.event_id.map(|part| self.part(part))
    }

    #[inline]
    pub(crate) fn seq(&self) -> Option<u64> {
        self.values.seq
    }

    #[inline]
    pub(crate) fn delta(&self) -> i64 {
        self.values.delta.unwrap_or(1)
    }

    #[inline]
    pub(crate) fn received_at_ms(&self) -> u64 {
        self.head.received_at_ms
    }

    #[inline]
    pub(crate) fn time_ms(&self) -> i64 {
        self.values.occurred_at_ms.unwrap_or(self.head.received_at_ms as i64)
    }

    /// [`Event::content_hash`].
    pub(crate) fn content_hash(&self) -> u64 {
        let own = xxh3_64_with_seed(self.part(self.shape.event_type).bytes(), self.delta() as u64);
        let dimensions = self.shape.dimensions.iter();
        let hashes =
            dimensions.map(|dimension| xxh3_64_with_seed(self.part(dimension.part).bytes(), dimension.name_hash));
        hashes.fold(own, u64::wrapping_add)
    }

    /// Appends its record.
    #[inline]
    fn encode_record(&self, out: &mut Vec<u8>) {
        // Each number is the length of a part or of its name, or one of the few that an event has.
        let lengths = 2 * self.values.spans.len() * LENGTH_BYTES_MAX;
        Pen::append(out, self.text_bytes + lengths, 8, |pen| self.write(pen));
    }

    #[inline(always)]
    fn write(&self, pen: &mut Pen<'_>) {
        let Values { occurred_at_ms, seq, delta, .. } = *self.values;
        pen.put(self.head.bytes.part());
        if let Some(part) = self.shape.event_id {
            pen.text(self.part(part));
        }
        if let Some(occurred_at_ms) = occurred_at_ms {
            pen.signed(occurred_at_ms.wrapping_sub(self.head.received_at_ms as i64));
        }
        if let Some(part) = self.shape.session {
            pen.text(self.part(part));
        }
        if let Some(seq) = seq {
            pen.varint(seq);
        }
        if let Some(delta) = delta.filter(|delta| *delta != 1) {
            pen.set(FLAGS_AT, has::DELTA);
            pen.signed(delta);
        }
        self.write_dimensions(pen);
        if let Some(part) = self.shape.payload {
            pen.text(self.part(part));
        }
    }

    #[inline(always)]
    fn write_dimensions(&self, pen: &mut Pen<'_>) {
        let dimensions = &self.shape.dimensions;
        if !dimensions.is_empty() {
            pen.varint(dimensions.len() as u64);
            for dimension in dimensions {
                pen.put(dimension.encoded_name.part());
                pen.text(self.part(dimension.part));
            }
        }
    }

    /// The same as an event by itself.
    pub fn to_event(&self) -> Event<'a> {
        let Shape { event_id, session, payload, ref dimensions, .. } = *self.shape;
        let borrowed = |part: usize| Cow::Borrowed(self.text(part));
        let name = |name: &str| Cow::Owned(name.to_owned());
        Event {
            event_type: borrowed(self.shape.event_type),
            event_id: event_id.map(borrowed),
            occurred_at_ms: self.values.occurred_at_ms,
            session: session.map(borrowed),
            seq: self.values.seq,
            delta: self.delta(),
            dimensions: dimensions.iter().map(|own| (name(&own.name), borrowed(own.part))).collect(),
            payload: payload.map(|part| self.text(part)),
            received_at_ms: self.head.received_at_ms,
        }
    }
}

impl Submission {
    /// [`Submission::event`] for an event that looks like others; [`crate::counter::Stager::stage_line`] adds its operations.
    #[inline]
    pub fn line(&mut self, line: &Line<'_>) -> u32 {
        let at = self.next_record();
        line.encode_record(&mut self.records);
        at
    }
}
