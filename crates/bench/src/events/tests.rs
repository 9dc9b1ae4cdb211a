use super::sessions::Sessions;
use super::*;
use crate::driver::{self, Limit};
use crate::http::find;
use crate::keys::Distribution;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

fn shape() -> EventsShape {
    EventsShape {
        token: None,
        host: "h".to_owned(),
        event_type: "ad.shown".to_owned(),
        dimension: "ad".to_owned(),
        key: "v%08d".parse().unwrap(),
        events_per_request: 50,
        event_bytes: 250,
        occurred_at: "2026-11-15T18:00:00Z".to_owned(),
        occurred_at_ms: 1_794_765_600_000,
        countries: 8,
        hours: None,
        compact: false,
        run: 7,
        sessions: Sessions::Short,
        requests_before: 0,
        duplicates: 0,
        repeats_reach_back: false,
    }
}

/// The events of the next question, which is answered as if all went well.
fn ask(lane: &mut EventsLane, picker: &mut Picker) -> Vec<Value> {
    assert_eq!(lane.prepare(picker, 1), lane.shape.events_per_request);
    let body = &lane.question()[lane.body_at..];
    let lines = body.split_inclusive(|&byte| byte == b'\n');
    lines.inspect(|line| assert_eq!(line.len(), 250)).map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// The events of several requests that lanes ask in turn.
fn events(shape: EventsShape, requests: usize) -> Vec<Vec<Value>> {
    let mut lanes = lanes(shape, 3).unwrap();
    let mut picker = Picker::new(Distribution::Uniform, 1000, 1);
    (0..requests).map(|n| ask(&mut lanes[n % 3], &mut picker)).collect()
}

fn identity(event: &Value) -> (String, String, String) {
    (event["eventId"].to_string(), event["session"].to_string(), event["seq"].to_string())
}

#[test]
fn every_event_is_json_of_the_asked_length_and_no_two_share_id_or_session_and_seq() {
    for sessions in [Sessions::Short, Sessions::Lasting(7), Sessions::Lasting(1_000_000)] {
        let (mut ids, mut seqs) = (HashSet::new(), HashSet::new());
        for event in events(EventsShape { sessions, ..shape() }, 12).concat() {
            let (id, session, seq) = identity(&event);
            assert!(ids.insert(id) && seqs.insert((session, seq)), "{event}");
            assert!(event["dimensions"]["ad"].as_str().unwrap().starts_with("v00000"), "{event}");
            assert_eq!(event["type"], "ad.shown");
        }
        assert_eq!(ids.len(), 600);
    }
}

#[test]
fn a_repeat_is_equal_to_an_event_of_an_earlier_request() {
    for (sessions, duplicates) in [(Sessions::Short, 5), (Sessions::Lasting(100), 20), (Sessions::Short, 50)] {
        let shape = EventsShape { sessions, duplicates, repeats_reach_back: true, ..shape() };
        let (mut seen, mut repeats) = (HashMap::new(), 0);
        for (request, events) in events(shape, 50).into_iter().enumerate() {
            for event in events {
                match seen.get(&identity(&event)) {
                    None => drop(seen.insert(identity(&event), (request, event))),
                    Some((earlier, first)) => {
                        repeats += 1;
                        assert!(*earlier < request && *first == event, "{event} repeats {first}");
                    }
                }
            }
        }
        let asked = 50 * 50 * duplicates / 100;
        // The first requests have little or nothing to repeat.
        assert!(repeats <= asked && repeats + 200 > asked, "{repeats} of {asked}");
    }
}

#[test]
fn the_repeats_of_a_question_are_counted() {
    let shape = EventsShape { duplicates: 20, ..shape() };
    let mut lanes = lanes(shape, 1).unwrap();
    let mut picker = Picker::in_order(1000);
    let of = |lanes: &mut Vec<EventsLane>, picker: &mut Picker| {
        ask(&mut lanes[0], picker);
        lanes[0].repeats
    };
    assert_eq!(of(&mut lanes, &mut picker), 0);
    assert!((0..10).any(|_| of(&mut lanes, &mut picker) == 10));
}

#[test]
fn a_run_that_goes_on_sends_other_ids_and_repeats_those_of_the_run_before() {
    let before: HashSet<_> = events(shape(), 4).concat().iter().map(identity).collect();
    let shape = EventsShape { requests_before: 4, duplicates: 50, repeats_reach_back: true, ..shape() };
    let first = events(shape, 1).concat();
    let repeats = first.iter().filter(|event| before.contains(&identity(event))).count();
    assert_eq!((repeats, first.len()), (25, 50));
}

#[test]
fn an_event_too_short_for_its_fields_is_refused() {
    let why = lanes(EventsShape { event_bytes: 60, ..shape() }, 1).err().unwrap();
    assert!(why.contains("60 bytes is too short"), "{why}");
}

#[test]
fn an_answer_is_judged_by_what_was_counted() {
    let check = |answer: &str, error: Option<&str>| {
        let mut lane = lanes(shape(), 1).unwrap().remove(0);
        let mut errors = Errors::default();
        let (last, head) = answer.as_bytes().split_last().unwrap();
        assert!(lane.answer(head, &mut errors).is_continue(), "{answer}");
        assert!(lane.answer(&[*last], &mut errors).is_break(), "{answer}");
        assert_eq!(errors.first.is_some(), error.is_some(), "{errors:?}");
        assert!(errors.first.unwrap_or_default().contains(error.unwrap_or_default()));
    };
    check("HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"counted\":50}", None);
    check("HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"counted\":49}", Some("the answer is {\"counted\":49}"));
    check("HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"counted\":0}", Some("of 50 events 0 were repeats"));
    check("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"counted\":100}", None);
    check("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy", Some("HTTP 503: busy"));
}

/// What the server reads in the next question.
fn ask_compact(lane: &mut EventsLane, picker: &mut Picker) -> Vec<(Option<String>, String, u64, String)> {
    lane.prepare(picker, 1);
    let mut read = Vec::new();
    let arrival = tally_core::event::Arrival::from(lane.shape.occurred_at_ms);
    let mut sink = |_: usize, event: Result<&tally_core::event::Event<'_>, _>| {
        let event = event.unwrap();
        assert_eq!((&*event.event_type, event.occurred_at_ms), ("ad.shown", Some(1_794_765_600_000)));
        let text = |text: &str| text.to_owned();
        let session = event.session.as_deref().map(text).unwrap();
        read.push((
            event.event_id.as_deref().map(text),
            session,
            event.seq.unwrap(),
            text(event.dimension("ad").unwrap()),
        ));
    };
    tally_core::event::batch::read(&lane.question()[lane.body_at..], arrival, &mut sink).unwrap();
    read
}

#[test]
fn a_compact_batch_has_the_events_that_the_lines_have() {
    for (sessions, ids) in [(Sessions::Short, false), (Sessions::Lasting(7), true)] {
        let shape = EventsShape { sessions, repeats_reach_back: ids, duplicates: 20, ..shape() };
        let picker = || Picker::new(Distribution::Uniform, 1000, 1);
        let (mut of_lines, mut of_batches) = (picker(), picker());
        let mut compact = lanes(EventsShape { compact: true, ..shape.clone() }, 1).unwrap();
        let mut lines = lanes(shape, 1).unwrap();
        for _ in 0..5 {
            let expected = ask(&mut lines[0], &mut of_lines).into_iter().map(|event| {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let id = ids.then(|| text(&event["eventId"]));
                (id, text(&event["session"]), event["seq"].as_u64().unwrap(), text(&event["dimensions"]["ad"]))
            });
            assert_eq!(ask_compact(&mut compact[0], &mut of_batches), expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn events_come_from_as_many_countries_and_hours_as_asked() {
    let shape = EventsShape { countries: 20, hours: Some(24), ..shape() };
    let mut parts = HashSet::new();
    for (request, events) in (0..).zip(events(shape, 48)) {
        for event in events {
            let at = event["occurredAt"].as_str().unwrap().to_owned();
            assert_eq!(at, format!("2026-11-15T{:02}:00:00Z", request % 24));
            parts.insert((at, event["dimensions"]["country"].to_string()));
        }
    }
    assert_eq!(parts.len(), 20 * 24);
}

/// The request on a connection, whole.
fn request(from: &mut impl Read) -> Vec<u8> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let head_end = find(&bytes, b"\r\n\r\n");
        let body = head_end.and_then(|end| {
            let head = std::str::from_utf8(&bytes[..end]).unwrap();
            let length = head.split("\r\n").find_map(|line| line.strip_prefix("Content-Length: "))?;
            Some(end + 4 + length.parse::<usize>().unwrap())
        });
        if body == Some(bytes.len()) {
            return bytes;
        }
        let read = from.read(&mut chunk).unwrap();
        assert!(read > 0, "the connection ended within a request");
        bytes.extend_from_slice(&chunk[..read]);
    }
}

#[test]
fn a_request_that_a_busy_server_refuses_is_sent_again_as_it_was_and_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let refused = request(&mut socket);
        socket.write_all(b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        let again = request(&mut socket);
        let body = r#"{"received":50,"entries":{"counted":50}}"#;
        write!(socket, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        assert_eq!(String::from_utf8(again), String::from_utf8(refused));
    });
    let limit = Limit { operations: 50, time: Duration::MAX };
    let picker = Picker::new(Distribution::Uniform, 1000, 1);
    let lanes = lanes(shape(), 1).unwrap();
    let measured = driver::run(server, None, lanes, picker, limit, None, |_, _| ControlFlow::Continue(())).unwrap();
    served.join().unwrap();
    assert_eq!((measured.retries, measured.errors.count), (1, 0), "{:?}", measured.errors.first);
    assert_eq!(measured.groups[0].operations, 50, "once, however often it was sent");
}
