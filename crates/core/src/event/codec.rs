//! An event in the log (bytes in `docs/formats/events.md`, "In the log").
//!
//! A byte of flags says which fields follow; the client's time is written as its distance from the time of receipt,
//! which is small. Decoding borrows every text and allocates only the list of dimensions.

use super::Event;
use crate::limits::DIMENSIONS_PER_EVENT_MAX;
use crate::record::{DecodeError, put_bytes, put_signed, put_varint, take_byte, take_signed, take_str, take_varint};
use std::borrow::Cow;

pub(super) mod has {
    pub const EVENT_ID: u8 = 1;
    pub const OCCURRED_AT: u8 = 1 << 1;
    pub const SESSION: u8 = 1 << 2;
    pub const SEQ: u8 = 1 << 3;
    pub const DELTA: u8 = 1 << 4;
    pub const DIMENSIONS: u8 = 1 << 5;
    pub const PAYLOAD: u8 = 1 << 6;
    pub const RESERVED: u8 = 1 << 7;
    /// What an event says, without who sent it and what else came with it.
    pub const CONTENT: u8 = OCCURRED_AT | DELTA | DIMENSIONS;
}

impl<'a> Event<'a> {
    fn flags(&self) -> u8 {
        let flag = |present: bool, flag: u8| if present { flag } else { 0 };
        flag(self.event_id.is_some(), has::EVENT_ID)
            | flag(self.occurred_at_ms.is_some(), has::OCCURRED_AT)
            | flag(self.session.is_some(), has::SESSION)
            | flag(self.seq.is_some(), has::SEQ)
            | flag(self.delta != 1, has::DELTA)
            | flag(!self.dimensions.is_empty(), has::DIMENSIONS)
            | flag(self.payload.is_some(), has::PAYLOAD)
    }

    /// Appends the event's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.flags());
        put_varint(out, self.received_at_ms);
        put_bytes(out, self.event_type.as_bytes());
        if let Some(id) = &self.event_id {
            put_bytes(out, id.as_bytes());
        }
        if let Some(occurred_at_ms) = self.occurred_at_ms {
            put_signed(out, occurred_at_ms.wrapping_sub(self.received_at_ms as i64));
        }
        if let Some(session) = &self.session {
            put_bytes(out, session.as_bytes());
        }
        if let Some(seq) = self.seq {
            put_varint(out, seq);
        }
        if self.delta != 1 {
            put_signed(out, self.delta);
        }
        self.encode_dimensions(out);
        if let Some(payload) = self.payload {
            put_bytes(out, payload.as_bytes());
        }
    }

    fn encode_dimensions(&self, out: &mut Vec<u8>) {
        if !self.dimensions.is_empty() {
            put_varint(out, self.dimensions.len() as u64);
            for (name, value) in &self.dimensions {
                put_bytes(out, name.as_bytes());
                put_bytes(out, value.as_bytes());
            }
        }
    }

    /// Decodes the event at the front of `bytes` and moves past it.
    pub fn decode(bytes: &mut &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let flags = take_byte(bytes)?;
        if flags & has::RESERVED != 0 {
            return Err(DecodeError::BadValue { field: "flags", value: flags.into() });
        }
        let received_at_ms = take_varint(bytes)?;
        let mut event = Event::new(take_str(bytes)?, received_at_ms);
        if flags & has::EVENT_ID != 0 {
            event.event_id = Some(Cow::Borrowed(take_str(bytes)?));
        }
        if flags & has::OCCURRED_AT != 0 {
            event.occurred_at_ms = Some(take_signed(bytes)?.wrapping_add(received_at_ms as i64));
        }
        if flags & has::SESSION != 0 {
            event.session = Some(Cow::Borrowed(take_str(bytes)?));
        }
        if flags & has::SEQ != 0 {
            event.seq = Some(take_varint(bytes)?);
        }
        if flags & has::DELTA != 0 {
            event.delta = take_signed(bytes)?;
        }
        if flags & has::DIMENSIONS != 0 {
            event.dimensions = decode_dimensions(bytes)?;
        }
        if flags & has::PAYLOAD != 0 {
            event.payload = Some(take_str(bytes)?);
        }
        Ok(event)
    }
}

/// Appends what the event at the front of `event` says, behind its length: the bytes of the same event without id, session, seq
/// and payload. Done for each event that claims its id, so nothing is decoded on the way: staging has encoded or decoded it.
#[inline]
pub(crate) fn copy_content(event: &[u8], out: &mut Vec<u8>) {
    let layout = Layout::of(event);
    let (Layout { head_end, time, time_end, tail, .. }, tail_end) = (layout, layout.tail_end(event));
    put_varint(out, (head_end + time_end - time + tail_end - tail) as u64);
    out.push(event[0] & has::CONTENT);
    out.extend_from_slice(&event[1..head_end]);
    out.extend_from_slice(&event[time..time_end]);
    out.extend_from_slice(&event[tail..tail_end]);
}

/// The dimensions of the event at the front of `event`, found in the same way.
#[inline]
pub(crate) fn raw_dimensions(event: &[u8]) -> RawDimensions<'_> {
    RawDimensions::new(event, &Layout::of(event))
}

/// The same, and when it happened, as the client says; when it was received, if the client says nothing.
#[inline]
pub(crate) fn raw_time_and_dimensions(event: &[u8]) -> (i64, RawDimensions<'_>) {
    let layout = Layout::of(event);
    let read = "the event was read before";
    let mut time_ms = take_varint(&mut &event[1..]).expect(read) as i64;
    if layout.time < layout.time_end {
        time_ms = take_signed(&mut &event[layout.time..]).expect(read).wrapping_add(time_ms);
    }
    (time_ms, RawDimensions::new(event, &layout))
}

/// Names and values of dimensions, as they stand.
#[derive(Clone)]
pub(crate) struct RawDimensions<'a> {
    event: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> RawDimensions<'a> {
    fn new(event: &'a [u8], layout: &Layout) -> RawDimensions<'a> {
        let (left, at) = match event[0] & has::DIMENSIONS {
            0 => (0, layout.dimensions),
            _ => varint(event, layout.dimensions),
        };
        RawDimensions { event, at, left }
    }

    /// The value of one of them.
    #[inline]
    pub fn value(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.clone().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    #[inline]
    fn text(&mut self) -> &'a [u8] {
        let (len, begin) = varint(self.event, self.at);
        self.at = begin + len;
        &self.event[begin..self.at]
    }
}

impl<'a> Iterator for RawDimensions<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        self.left = self.left.checked_sub(1)?;
        Some((self.text(), self.text()))
    }
}

/// Where the fields of an encoded event begin and end.
#[derive(Clone, Copy)]
struct Layout {
    /// Behind the time of receipt and the type.
    head_end: usize,
    /// The client's time.
    time: usize,
    time_end: usize,
    /// Delta and dimensions.
    tail: usize,
    dimensions: usize,
}

impl Layout {
    #[inline]
    fn of(event: &[u8]) -> Layout {
        let flags = event[0];
        let behind = |flag: u8, at: usize, skip: fn(&[u8], usize) -> usize| {
            if flags & flag != 0 { skip(event, at) } else { at }
        };
        let head_end = skip_text(event, skip_varint(event, 1));
        let time = behind(has::EVENT_ID, head_end, skip_text);
        let time_end = behind(has::OCCURRED_AT, time, skip_varint);
        let tail = behind(has::SEQ, behind(has::SESSION, time_end, skip_text), skip_varint);
        let dimensions = behind(has::DELTA, tail, skip_varint);
        Layout { head_end, time, time_end, tail, dimensions }
    }

    /// Behind the dimensions. Who reads those need not go over them twice.
    #[inline]
    fn tail_end(&self, event: &[u8]) -> usize {
        if event[0] & has::DIMENSIONS != 0 { skip_dimensions(event, self.dimensions) } else { self.dimensions }
    }
}

/// Where the varint at `at` ends; eight bytes at a glance, which times need.
#[inline]
fn skip_varint(bytes: &[u8], mut at: usize) -> usize {
    if let Some(word) = bytes[at..].first_chunk() {
        let ends = !u64::from_le_bytes(*word) & 0x8080_8080_8080_8080;
        if ends != 0 {
            return at + ends.trailing_zeros() as usize / 8 + 1;
        }
    }
    while bytes[at] >= 0x80 {
        at += 1;
    }
    at + 1
}

#[inline]
fn skip_text(bytes: &[u8], at: usize) -> usize {
    let (len, at) = varint(bytes, at);
    at + len
}

#[inline]
fn skip_dimensions(bytes: &[u8], at: usize) -> usize {
    let (dimensions, at) = varint(bytes, at);
    (0..2 * dimensions).fold(at, |at, _| skip_text(bytes, at))
}

/// The varint at `at`, and where it ends.
#[inline]
fn varint(bytes: &[u8], at: usize) -> (usize, usize) {
    match bytes[at] {
        small @ 0..0x80 => (usize::from(small), at + 1),
        _ => long_varint(&bytes[at..], at),
    }
}

#[cold]
fn long_varint(mut bytes: &[u8], at: usize) -> (usize, usize) {
    let before = bytes.len();
    let value = take_varint(&mut bytes).expect("the event was read before");
    (value as usize, at + before - bytes.len())
}

type Dimensions<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

fn decode_dimensions<'a>(bytes: &mut &'a [u8]) -> Result<Dimensions<'a>, DecodeError> {
    let count = take_varint(bytes)?;
    if count > DIMENSIONS_PER_EVENT_MAX as u64 {
        return Err(DecodeError::BadValue { field: "dimensions", value: count });
    }
    let mut dimensions = Vec::with_capacity(count as usize);
    for _ in 0..count {
        dimensions.push((Cow::Borrowed(take_str(bytes)?), Cow::Borrowed(take_str(bytes)?)));
    }
    Ok(dimensions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::take_bytes;
    use proptest::collection::vec;
    use proptest::option::of;
    use proptest::prelude::*;

    type Parts = (String, Option<String>, Option<i64>, Option<String>, Option<u64>, i64);

    fn check(
        (event_type, id, occurred_at_ms, session, seq, delta): &Parts,
        dimensions: &[(String, String)],
        received_at_ms: u64,
    ) {
        let event = Event {
            event_type: event_type.as_str().into(),
            event_id: id.as_deref().map(Cow::from),
            occurred_at_ms: *occurred_at_ms,
            session: session.as_deref().map(Cow::from),
            seq: *seq,
            delta: *delta,
            dimensions: dimensions.iter().map(|(n, v)| (n.as_str().into(), v.as_str().into())).collect(),
            payload: session.as_deref(),
            received_at_ms,
        };
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        let mut rest = bytes.as_slice();
        assert_eq!(Event::decode(&mut rest).unwrap(), event);
        assert!(rest.is_empty());
        for cut in 0..bytes.len() {
            assert!(Event::decode(&mut &bytes[..cut]).is_err(), "cut at {cut}");
        }
        let raw: Vec<_> = raw_dimensions(&bytes).collect();
        let known: Vec<_> = dimensions.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        assert_eq!(raw, known);
        assert_eq!(raw_time_and_dimensions(&bytes).0, occurred_at_ms.unwrap_or(received_at_ms as i64));
        let mut content = Vec::new();
        copy_content(&[bytes, b"behind it".to_vec()].concat(), &mut content);
        let mut content = take_bytes(&mut content.as_slice()).unwrap();
        let without_sender = Event { event_id: None, session: None, seq: None, payload: None, ..event };
        assert_eq!(Event::decode(&mut content).unwrap(), without_sender);
        assert!(content.is_empty());
    }

    proptest! {
        #[test]
        fn an_event_survives_its_bytes(
            parts in (".*", of(".*"), of(any::<i64>()), of(".*"), of(any::<u64>()), prop_oneof![Just(1), any::<i64>()]),
            dimensions in vec((".*", ".*"), 0..5),
            received_at_ms: u64,
        ) {
            check(&parts, &dimensions, received_at_ms);
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes in vec(any::<u8>(), 0..200)) {
            let _ = Event::decode(&mut bytes.as_slice());
        }
    }

    #[test]
    fn the_bytes_of_an_event_are_pinned() {
        let event = Event {
            event_id: Some("e1".into()),
            occurred_at_ms: Some(990),
            session: Some("s1".into()),
            seq: Some(300),
            delta: -2,
            dimensions: vec![("video".into(), "v42".into())],
            payload: Some("{}"),
            ..Event::new("viewed", 1000)
        };
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        Event::new("t", 5).encode(&mut bytes);
        assert_eq!(bytes, b"\x7f\xe8\x07\x06viewed\x02e1\x13\x02s1\xac\x02\x03\x01\x05video\x03v42\x02{}\x00\x05\x01t");
    }

    #[test]
    fn reserved_flags_and_too_many_dimensions_are_refused_by_name() {
        let error = Event::decode(&mut [0x80, 0, 0].as_slice()).unwrap_err();
        assert_eq!(error, DecodeError::BadValue { field: "flags", value: 0x80 });
        let error = Event::decode(&mut [has::DIMENSIONS, 0, 0, 65].as_slice()).unwrap_err();
        assert_eq!(error, DecodeError::BadValue { field: "dimensions", value: 65 });
    }
}
