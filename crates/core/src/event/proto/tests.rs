//! Protobuf against JSON, and against damage.

use super::*;
use crate::event::batch::tests::{ARRIVAL, Staged, any_event};
use crate::event::json;
use proptest::collection::vec;
use proptest::prelude::*;

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A message as an ordinary encoder writes it.
fn message(event: &Event<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 1, event.event_type.as_bytes());
    event.event_id.iter().for_each(|id| bytes(&mut out, 2, id.as_bytes()));
    event.occurred_at_ms.iter().for_each(|at_ms| number(&mut out, 3, *at_ms as u64));
    event.session.iter().for_each(|session| bytes(&mut out, 4, session.as_bytes()));
    event.seq.iter().for_each(|seq| number(&mut out, 5, *seq));
    if event.delta != 1 {
        number(&mut out, 6, event.delta as u64);
    }
    for (name, value) in &event.dimensions {
        let mut entry = Vec::new();
        bytes(&mut entry, 1, name.as_bytes());
        bytes(&mut entry, 2, value.as_bytes());
        bytes(&mut out, 7, &entry);
    }
    event.payload.iter().for_each(|payload| bytes(&mut out, 8, payload.as_bytes()));
    out
}

fn body_of(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::new();
    messages.iter().for_each(|message| bytes(&mut body, 1, message));
    body
}

fn staged(body: &[u8]) -> Result<Staged, ProtoError> {
    let mut staged = Staged::new();
    read(body, ARRIVAL, &mut staged)?;
    Ok(staged)
}

proptest! {
    #[test]
    fn an_event_ends_in_the_same_bytes_and_entries_however_it_came(events in vec(any_event(), 1..40)) {
        let messages: Vec<_> = events.iter().map(|event| message(&json::parse(event, 0).unwrap())).collect();
        staged(&body_of(&messages)).unwrap().assert_same(&Staged::of_lines(&events.join("\n")));
    }

    #[test]
    fn strange_bytes_are_an_error_not_a_panic(
        events in vec(any_event(), 1..5), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), strange in vec(any::<u8>(), 0..300),
    ) {
        let messages: Vec<_> = events.iter().map(|event| message(&json::parse(event, 0).unwrap())).collect();
        let mut body = body_of(&messages);
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        for body in [body, strange] {
            let mut told = Vec::new();
            let mut count = |index: usize, _: Result<&Event<'_>, EventError>| told.push(index);
            if let Ok(events) = read(&body, ARRIVAL, &mut count) {
                prop_assert!(told.into_iter().eq(0..events));
            }
        }
    }
}

/// Puts fields into a message.
type Build = fn(&mut Vec<u8>);

/// What is said of one event.
fn said(build: Build) -> String {
    let mut event = Vec::new();
    build(&mut event);
    staged(&body_of(&[event])).unwrap().said[0].1.clone()
}

fn viewed(out: &mut Vec<u8>) {
    bytes(out, 1, b"viewed");
}

#[test]
fn a_wrong_event_is_told_by_name_and_does_not_stop_the_others() {
    let cases: [(&str, Build); 11] = [
        ("field \"type\": missing", |_| {}),
        ("field \"type\": \"\" is empty", |out| bytes(out, 1, b"")),
        ("field \"type\": given twice", |out| (0..2).for_each(|_| viewed(out))),
        ("field \"seq\": of another type", |out| bytes(out, 5, b"1")),
        ("field 9 is not a field of an event", |out| number(out, 9, 1)),
        ("field \"delta\": 2147483649 is not a whole number", |out| number(out, 6, (1 << 31) + 1)),
        ("field \"occurredAt\": -9223372036854775808 is not a time", |out| number(out, 3, 1 << 63)),
        ("field \"session\": not UTF-8 at byte 1", |out| bytes(out, 4, b"a\xff")),
        ("field \"payload\": not readable", |out| bytes(out, 8, b"{]")),
        ("field \"dimensions.\": given twice", |out| (0..2).for_each(|_| bytes(out, 7, b""))),
        ("not readable as a message Event of events.proto: it ends too early", |out| out.push(0x0a)),
    ];
    for (expected, build) in cases {
        let told = said(build);
        assert!(told.starts_with(expected), "{told}");
    }
    let mut good = Vec::new();
    viewed(&mut good);
    let mut told = Vec::new();
    let mut sink = |index: usize, event: Result<&Event<'_>, EventError>| told.push((index, event.is_ok()));
    assert_eq!(read(&body_of(&[good.clone(), vec![0x0a], good]), ARRIVAL, &mut sink), Ok(3));
    assert_eq!(told, [(0, true), (1, false), (2, true)]);
}

#[test]
fn what_is_wrong_outside_of_events_refuses_the_body() {
    for (body, expected) in [
        (&b"\x0a\x05ab"[..], "at byte 0 it ends too early"),
        (b"\x0a\x00\x10\x01", "at byte 2 it has field 2"),
        (b"\x0d\0\0\0\0", "at byte 0 it has a field that is neither"),
        (b"{\"type\":\"viewed\"}", "at byte 0 it has a field that is neither"),
    ] {
        let error = staged(body).err().expect("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let many = b"\x0a\x00".repeat(EVENTS_PER_REQUEST_MAX + 1);
    assert_eq!(staged(&many).err(), Some(ProtoError::Body(BodyError::TooManyEvents)));
}
