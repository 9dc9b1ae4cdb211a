//! One event in JSON: the hot path of `POST /v1/events`.
//!
//! A scanner for this one shape, strict on purpose: a field that nobody knows, a field given twice or a value of the
//! wrong kind is an error that names it, because a misspelt `"sesion"` that is silently dropped makes wrong numbers.

use super::Event;
use super::error::{EventError, excerpt};
use super::number::canonical;
use super::scan::{ScanFault, ScanTrouble, Scanner};
use super::time::parse_rfc3339;
use crate::limits::{DIMENSIONS_PER_EVENT_MAX, EVENT_BYTES_MAX, EVENT_DELTA_MAX, JSON_DEPTH_MAX, NUMBER_BYTES_MAX};
use std::borrow::Cow;
use std::fmt::Display;
use std::ops::Range;

/// Reads the event that `text` consists of. Afterwards `event` holds it, or, after an error, nothing of value; its room
/// for dimensions is used again.
#[inline]
pub fn parse_into<'a>(text: &'a str, received_at_ms: u64, event: &mut Event<'a>) -> Result<(), EventError> {
    check_size(text.len())?;
    let mut scanner = Scanner::new(text);
    let parsed = scan_event(&mut scanner, received_at_ms, event).and_then(|()| match scanner.next_token() {
        None => Ok(()),
        Some(_) => Err(scanner.syntax("nothing behind the event (one event per line, or an array of events)")),
    });
    parsed.map_err(|fault| describe(*fault, text))
}

/// [`parse_into`] for a single event.
pub fn parse(text: &str, received_at_ms: u64) -> Result<Event<'_>, EventError> {
    let mut event = Event::new("", received_at_ms);
    parse_into(text, received_at_ms, &mut event)?;
    Ok(event)
}

pub(super) fn check_size(bytes: usize) -> Result<(), EventError> {
    if bytes > EVENT_BYTES_MAX {
        return Err(EventError::event(format!(
            "the event has more than {EVENT_BYTES_MAX} bytes: keep large data elsewhere and refer to it"
        )));
    }
    Ok(())
}

/// Turns what stopped the scanner into words.
#[cold]
pub(super) fn describe(trouble: ScanTrouble, text: &str) -> EventError {
    match trouble {
        ScanTrouble::Shape(error) => error,
        ScanTrouble::TooDeep { at } => EventError::event(format!(
            "not readable at byte {at}: nested deeper than {JSON_DEPTH_MAX} levels; flatten the payload or send it as text"
        )),
        ScanTrouble::Syntax { at, expected } => {
            let found = match text.get(at..) {
                Some("") | None => "the end".to_owned(),
                Some(rest) => format!("{:?}", rest.chars().take(16).collect::<String>()),
            };
            EventError::event(format!("not readable at byte {at}: expected {expected}, found {found}"))
        }
    }
}

/// Reads the event at the scanner's position and steps behind it.
pub(super) fn scan_event<'a>(
    scanner: &mut Scanner<'a>,
    received_at_ms: u64,
    event: &mut Event<'a>,
) -> Result<(), ScanFault> {
    event.reset(received_at_ms);
    let mut seen = 0u8;
    let mut more = scanner.first_member()?;
    while more {
        let field = EventField::scan(scanner)?;
        if seen & field.bit() != 0 {
            return Err(EventError::field(field.name(), "given twice; send it once").into());
        }
        seen |= field.bit();
        scan_field(scanner, field, event)?;
        more = scanner.next_member()?;
    }
    if seen & EventField::Type.bit() == 0 {
        return Err(EventError::field("type", "missing: say what happened, such as \"type\":\"video.viewed\"").into());
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum EventField {
    Type,
    EventId,
    OccurredAt,
    Session,
    Seq,
    Delta,
    Dimensions,
    Payload,
}

impl EventField {
    const ALL: [EventField; 8] = {
        use EventField::*;
        [Type, EventId, OccurredAt, Session, Seq, Delta, Dimensions, Payload]
    };

    fn name(self) -> &'static str {
        ["type", "eventId", "occurredAt", "session", "seq", "delta", "dimensions", "payload"][self as usize]
    }

    /// Reads the name of a field and its colon.
    #[inline(always)]
    fn scan(scanner: &mut Scanner<'_>) -> Result<EventField, ScanFault> {
        match EventField::scan_plain(scanner) {
            Some(field) => Ok(field),
            None => EventField::named(&scanner.key()?),
        }
    }

    /// Recognises a field by its second letter and then the whole of it, if it is written without escapes or spaces.
    #[inline(always)]
    fn scan_plain(scanner: &mut Scanner<'_>) -> Option<EventField> {
        match scanner.peek_at(2)? {
            b'y' => scanner.take(b"\"type\":").then_some(EventField::Type),
            b'v' => scanner.take(b"\"eventId\":").then_some(EventField::EventId),
            b'c' => scanner.take(b"\"occurredAt\":").then_some(EventField::OccurredAt),
            b'i' => scanner.take(b"\"dimensions\":").then_some(EventField::Dimensions),
            b'a' => scanner.take(b"\"payload\":").then_some(EventField::Payload),
            b'e' if scanner.take(b"\"session\":") => Some(EventField::Session),
            b'e' if scanner.take(b"\"seq\":") => Some(EventField::Seq),
            b'e' => scanner.take(b"\"delta\":").then_some(EventField::Delta),
            _ => None,
        }
    }

    pub fn known(name: &str) -> Option<EventField> {
        EventField::ALL.into_iter().find(|field| field.name() == name)
    }

    #[cold]
    fn named(name: &str) -> Result<EventField, ScanFault> {
        EventField::known(name).ok_or_else(|| EventError::field(name, UNKNOWN).into())
    }

    #[inline(always)]
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

const UNKNOWN: &str = "not a field of an event (type, eventId, occurredAt, session, seq, delta, dimensions, payload); \
                       put your own data under \"payload\", and what counters count by under \"dimensions\"";

#[inline]
fn scan_field<'a>(scanner: &mut Scanner<'a>, field: EventField, event: &mut Event<'a>) -> Result<(), ScanFault> {
    match field {
        EventField::Type => event.event_type = scan_text(scanner, "type")?,
        EventField::EventId => event.event_id = Some(scan_text(scanner, "eventId")?),
        EventField::OccurredAt => event.occurred_at_ms = Some(scan_time(scanner)?),
        EventField::Session => event.session = Some(scan_text(scanner, "session")?),
        EventField::Seq => event.seq = Some(scan_whole(scanner, "seq", u64::MIN, u64::MAX)?),
        EventField::Delta => event.delta = scan_whole(scanner, "delta", -EVENT_DELTA_MAX, EVENT_DELTA_MAX)?,
        EventField::Dimensions => scan_dimensions(scanner, &mut event.dimensions)?,
        EventField::Payload => event.payload = Some(scanner.value()?),
    }
    Ok(())
}

/// A text that is not empty: an empty one would make one identity of everybody who has none.
#[inline]
fn scan_text<'a>(scanner: &mut Scanner<'a>, field: &'static str) -> Result<Cow<'a, str>, ScanFault> {
    if scanner.next_token() != Some(b'"') {
        return Err(wrong_kind(scanner, field, "is not text in double quotes"));
    }
    let text = scanner.string()?;
    if text.is_empty() {
        return Err(empty_text(field).into());
    }
    Ok(text)
}

pub(super) fn empty_text(field: &'static str) -> EventError {
    EventError::value(field, "\"\"", "is empty; give it a value or leave it out")
}

#[inline]
fn scan_time(scanner: &mut Scanner<'_>) -> Result<i64, ScanFault> {
    const REASON: &str = "is not an RFC 3339 time with an offset, such as \"2026-11-15T18:00:00Z\"";
    if scanner.next_token() != Some(b'"') {
        return Err(wrong_kind(scanner, "occurredAt", REASON));
    }
    let start = scanner.at();
    let text = scanner.string()?;
    parse_rfc3339(text.as_bytes()).ok_or_else(|| EventError::value("occurredAt", scanner.since(start), REASON).into())
}

#[inline]
fn scan_whole<T>(scanner: &mut Scanner<'_>, field: &'static str, min: T, max: T) -> Result<T, ScanFault>
where
    T: std::str::FromStr + Display + PartialOrd,
{
    match scanner.next_token() {
        Some(b'-' | b'0'..=b'9') => {
            let text = scanner.number()?;
            let number = text.parse().ok().filter(|number| (&min..=&max).contains(&number));
            number.ok_or_else(|| not_whole(field, text, &min, &max).into())
        }
        _ => Err(wrong_kind(scanner, field, &not_whole(field, "", &min, &max).reason)),
    }
}

pub(super) fn not_whole(field: &'static str, value: &str, min: impl Display, max: impl Display) -> EventError {
    EventError::value(field, value, format!("is not a whole number from {min} to {max}"))
}

#[inline]
fn scan_dimensions<'a>(
    scanner: &mut Scanner<'a>,
    dimensions: &mut Vec<(Cow<'a, str>, Cow<'a, str>)>,
) -> Result<(), ScanFault> {
    if scanner.next_token() != Some(b'{') {
        return Err(wrong_kind(scanner, "dimensions", "is not an object, such as {\"video\":\"v42\"}"));
    }
    let mut more = scanner.first_member()?;
    while more {
        let name = scanner.key()?;
        if dimensions.iter().any(|(known, _)| *known == name) {
            return Err(EventError::field(&dimension_field(&name), "given twice; send it once").into());
        }
        if dimensions.len() == DIMENSIONS_PER_EVENT_MAX {
            return Err(too_many_dimensions().into());
        }
        let value = scan_dimension(scanner, &name)?;
        dimensions.push((name, value));
        more = scanner.next_member()?;
    }
    Ok(())
}

/// The canonical text of a dimension: strings as they are, numbers in plain form, `true` and `false`.
#[inline]
fn scan_dimension<'a>(scanner: &mut Scanner<'a>, name: &str) -> Result<Cow<'a, str>, ScanFault> {
    match scanner.next_token() {
        Some(b'"') => scanner.string(),
        Some(b'-' | b'0'..=b'9') => {
            let number = scanner.number()?;
            canonical(number).ok_or_else(|| {
                let reason = format!("has more than {NUMBER_BYTES_MAX} digits; send it as text in double quotes");
                EventError::value(dimension_field(name), number, reason).into()
            })
        }
        Some(b't') => scanner.literal(b"true").map(Cow::Borrowed),
        Some(b'f') => scanner.literal(b"false").map(Cow::Borrowed),
        _ => {
            let reason = "is not text, a number, true or false; leave the dimension out or give it such a value";
            Err(wrong_kind(scanner, &dimension_field(name), reason))
        }
    }
}

#[cold]
pub(super) fn too_many_dimensions() -> EventError {
    let reason =
        format!("more than {DIMENSIONS_PER_EVENT_MAX} of them; put what nothing is counted by under \"payload\"");
    EventError::field("dimensions", reason)
}

/// Where the one JSON value stands that a payload consists of.
pub(super) fn one_value(text: &str) -> Result<Range<usize>, EventError> {
    let mut scanner = Scanner::new(text);
    let read = scanner.value().and_then(|value| match (scanner.at(), scanner.next_token()) {
        (end, None) => Ok(end - value.len()..end),
        _ => Err(scanner.syntax("nothing behind the payload (it is one JSON value)")),
    });
    read.map_err(|fault| EventError { field: Some("payload".to_owned()), ..describe(*fault, text) })
}

pub(super) fn dimension_field(name: &str) -> String {
    format!("dimensions.{}", excerpt(name))
}

/// A well-formed value of another kind; what is no JSON at all stays a syntax error.
#[cold]
fn wrong_kind(scanner: &mut Scanner<'_>, field: &str, reason: &str) -> ScanFault {
    match scanner.value() {
        Ok(value) => EventError::value(field, value, reason).into(),
        Err(fault) => fault,
    }
}

#[cfg(test)]
mod tests;
