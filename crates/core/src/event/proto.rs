//! The events of a body in protobuf (`docs/formats/events.proto`), for senders that have it already.
//!
//! It means what the same events in JSON mean, and is taken as strictly: a field that is not in the description, or that stands
//! there twice, is refused, though protobuf itself would pass over the one and take the last of the other. An event that cannot be read
//! does not stop the others, since its length says where the next one begins; only what is wrong outside of events
//! refuses the body.

use super::batch::cursor::Cursor;
use super::batch::error::Broken;
use super::body::{BodyError, Sink};
use super::error::EventError;
use super::json::{check_size, dimension_field, empty_text, not_whole, one_value, too_many_dimensions};
use super::time::{EARLIEST_MS, LATEST_MS, not_a_time};
use super::{Arrival, Event};
use crate::limits::{BODY_BYTES_MAX, DIMENSIONS_PER_EVENT_MAX, EVENT_DELTA_MAX, EVENTS_PER_REQUEST_MAX};
use std::borrow::Cow;

/// Why a body is refused as a whole; whatever was read from it must not be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the body is not a message Events of events.proto: at byte {at} it {reason}")]
    Broken { at: usize, reason: String },
}

/// A value as it stands on the wire. Other kinds than these two are in no message here.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Hands the events of `body` to the sink, and answers how many there are.
pub fn read<S: Sink>(body: &[u8], arrival: Arrival, sink: &mut S) -> Result<usize, ProtoError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(BodyError::TooLarge.into());
    }
    let (mut fields, mut events, mut event) = (Fields::new(body), 0, Event::new("", 0));
    loop {
        let at = fields.cursor.at();
        let broken = |reason: String| ProtoError::Broken { at, reason };
        let message = match fields.next() {
            Ok(None) => return Ok(events),
            Ok(Some((1, Wire::Bytes(message)))) => message,
            Ok(Some((number, _))) => return Err(broken(format!("has field {number}; events are messages in field 1"))),
            Err(reason) => return Err(broken(reason.to_owned())),
        };
        if events == EVENTS_PER_REQUEST_MAX {
            return Err(BodyError::TooManyEvents.into());
        }
        let read = read_event(message, &mut event);
        event.arrive(arrival);
        sink.event(events, read.map(|()| &event));
        events += 1;
    }
}

fn read_event<'a>(message: &'a [u8], event: &mut Event<'a>) -> Result<(), EventError> {
    check_size(message.len())?;
    event.reset(0);
    let (mut fields, mut seen) = (Fields::new(message), 0_u16);
    while let Some((number, value)) = fields.next().map_err(unreadable)? {
        let name = field_name(number)?;
        let bit = 1_u16 << number;
        if seen & bit != 0 && number != DIMENSIONS {
            return Err(EventError::field(name, "given twice; send it once"));
        }
        seen |= bit;
        match (number, value) {
            (1, Wire::Bytes(bytes)) => event.event_type = named(name, bytes)?,
            (2, Wire::Bytes(bytes)) => event.event_id = Some(named(name, bytes)?),
            (3, Wire::Number(at_ms)) => event.occurred_at_ms = Some(time(at_ms as i64)?),
            (4, Wire::Bytes(bytes)) => event.session = Some(named(name, bytes)?),
            (5, Wire::Number(seq)) => event.seq = Some(seq),
            (6, Wire::Number(delta)) => event.delta = bounded(delta as i64)?,
            (DIMENSIONS, Wire::Bytes(entry)) => push_dimension(entry, event)?,
            (8, Wire::Bytes(bytes)) => event.payload = Some(payload(text(name, bytes)?)?),
            _ => return Err(EventError::field(name, "of another type on the wire than events.proto says")),
        }
    }
    if seen & (1_u16 << 1) == 0 {
        return Err(EventError::field("type", "missing: say what happened, such as \"video.viewed\""));
    }
    Ok(())
}

const DIMENSIONS: u64 = 7;

/// What a field of an event is called; the names are those in JSON.
fn field_name(number: u64) -> Result<&'static str, EventError> {
    let names = ["type", "eventId", "occurredAt", "session", "seq", "delta", "dimensions", "payload"];
    let name = number.checked_sub(1).and_then(|at| names.get(at as usize));
    name.copied().ok_or_else(|| EventError::event(format!("field {number} is not a field of an event (1 to 8)")))
}

/// An entry of the map: its key in field 1, its value in field 2, and what is missing is empty.
fn push_dimension<'a>(entry: &'a [u8], event: &mut Event<'a>) -> Result<(), EventError> {
    let (mut fields, mut parts) = (Fields::new(entry), [&b""[..]; 2]);
    while let Some((number, value)) = fields.next().map_err(unreadable)? {
        let (1 | 2, Wire::Bytes(bytes)) = (number, value) else {
            return Err(EventError::field(
                "dimensions",
                "an entry has a text in field 1, its name, and one in field 2",
            ));
        };
        parts[number as usize - 1] = bytes;
    }
    let name = text("dimensions", parts[0])?;
    if event.dimensions.iter().any(|(known, _)| known == name) {
        return Err(EventError::field(&dimension_field(name), "given twice; send it once"));
    }
    if event.dimensions.len() == DIMENSIONS_PER_EVENT_MAX {
        return Err(too_many_dimensions());
    }
    let value = text(&dimension_field(name), parts[1])?;
    event.dimensions.push((Cow::Borrowed(name), Cow::Borrowed(value)));
    Ok(())
}

fn named<'a>(field: &'static str, bytes: &'a [u8]) -> Result<Cow<'a, str>, EventError> {
    match text(field, bytes)? {
        "" => Err(empty_text(field)),
        text => Ok(Cow::Borrowed(text)),
    }
}

fn text<'a>(field: &str, bytes: &'a [u8]) -> Result<&'a str, EventError> {
    std::str::from_utf8(bytes).map_err(|error| {
        EventError::field(field, format!("not UTF-8 at byte {} of it; texts are sent in UTF-8", error.valid_up_to()))
    })
}

fn payload(text: &str) -> Result<&str, EventError> {
    Ok(&text[one_value(text)?])
}

fn time(at_ms: i64) -> Result<i64, EventError> {
    if (EARLIEST_MS..=LATEST_MS).contains(&at_ms) { Ok(at_ms) } else { Err(not_a_time(at_ms)) }
}

fn bounded(delta: i64) -> Result<i64, EventError> {
    let is_good = (-EVENT_DELTA_MAX..=EVENT_DELTA_MAX).contains(&delta);
    is_good.then_some(delta).ok_or_else(|| not_whole("delta", &delta.to_string(), -EVENT_DELTA_MAX, EVENT_DELTA_MAX))
}

fn unreadable(reason: &'static str) -> EventError {
    EventError::event(format!("not readable as a message Event of events.proto: it {reason}"))
}

/// Steps through the fields of a message.
struct Fields<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Fields<'a> {
    fn new(message: &'a [u8]) -> Fields<'a> {
        Fields { cursor: Cursor::new(message, 0) }
    }

    /// The number of the next field and its value; nothing at the end.
    #[inline]
    fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, &'static str> {
        const VARINT: u64 = 0;
        const LENGTH_DELIMITED: u64 = 2;
        let bytes = self.cursor.bytes();
        if self.cursor.at() == bytes.len() {
            return Ok(None);
        }
        let tag = self.cursor.varint().map_err(reason)?;
        let value = match tag & 7 {
            VARINT => Wire::Number(self.cursor.varint().map_err(reason)?),
            LENGTH_DELIMITED => {
                let span = self.cursor.varint().and_then(|length| self.cursor.span(length)).map_err(reason)?;
                Wire::Bytes(&bytes[span.range()])
            }
            _ => return Err("has a field that is neither a varint nor length-delimited"),
        };
        Ok(Some((tag >> 3, value)))
    }
}

fn reason(broken: Broken) -> &'static str {
    match broken {
        Broken::LongNumber => "has a number of more than 64 bits",
        _ => "ends too early",
    }
}

#[cfg(test)]
mod tests;
