//! Reading by layouts against reading in full: the same records, entries and errors, whatever comes after what.

use super::body::{BodyReader, Form, Layouts, Sink};
use super::json::parse;
use super::{Arrival, Event, EventError, Line, Shape};
use crate::counter::{Declarations, Plan, Rejection, Stager};
use crate::id::CellHasher;
use crate::op::Submission;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

/// Every contract, every kind of field, several counters on one event.
const YAML: &str = "
counters:
  - {counterName: plain, mode: simple, rules: [{on: a, op: increment}, {on: b, op: decrement}]}
  - {counterName: by_two, mode: simple, dimensions: [country, video], rules: [{on: a, op: decrement}]}
  - {counterName: views, mode: display, dimensions: [video], rules: [{on: a, op: increment}, {on: c, op: increment}]}
  - {counterName: strict, mode: display, dedup: {by: [eventId, type, country, seq], window: 60s}, rules: [{on: a, op: increment}]}
  - {counterName: late, mode: display, dedup: none, dimensions: [n], lateness: {allowed: 10s}, rules: [{on: b, op: increment}]}
  - {counterName: liked, mode: transition, entity: [session, video], dimensions: [video], rules: [{on: b, op: increment}, {on: c, op: decrement}]}
  - {counterName: shown, mode: persistent, dimensions: [video], rules: [{on: c, op: increment}]}
  - {counterName: paid, mode: persistent, dimensions: [country], rules: [{on: c, op: increment}]}
";

/// Writes down what came of each event.
struct Desk {
    stager: Stager,
    out: Submission,
    told: Vec<String>,
    known: usize,
}

impl Desk {
    fn new() -> Desk {
        let stager = Stager::new(Arc::new(Declarations::parse(YAML).unwrap()), CellHasher::new(1));
        Desk { stager, out: Submission::default(), told: Vec::new(), known: 0 }
    }

    fn take(&mut self, stage: impl FnOnce(&mut Stager, &mut Submission, &mut dyn FnMut(u16, Rejection<'_>))) {
        self.out.clear();
        let mut rejected = Vec::new();
        stage(&mut self.stager, &mut self.out, &mut |counter, why| rejected.push((counter, why.to_string())));
        self.told.push(format!("{:?} {rejected:?}", self.out));
    }
}

impl Sink for Desk {
    type Plan = Plan;

    fn plan(&mut self, shape: &Shape, event_type: &str) -> Plan {
        self.stager.plan(shape, event_type)
    }

    fn line(&mut self, _: usize, line: &Line<'_>, plan: &Plan) {
        self.known += 1;
        self.take(|stager, out, mut rejected| {
            let at = out.line(line);
            stager.stage_line(line, plan, at, out, &mut rejected);
        });
    }

    fn event(&mut self, _: usize, event: Result<&Event<'_>, EventError>) {
        match event {
            Ok(event) => self.take(|stager, out, mut rejected| {
                let at = out.event(event);
                stager.stage(event, at, out, &mut rejected);
            }),
            Err(error) => self.told.push(error.to_string()),
        }
    }
}

const RECEIVED_MS: u64 = 1_794_765_600_000;

/// What a reader makes of the events of a body, and how many of them it read by their layout.
fn read(form: Form, body: &str) -> (Vec<String>, usize) {
    read_bodies(form, &[body])
}

/// The same of several bodies, each read with what those before it have taught.
fn read_bodies(form: Form, bodies: &[&str]) -> (Vec<String>, usize) {
    let (mut desk, mut layouts) = (Desk::new(), Layouts::default());
    for body in bodies {
        let mut reader = BodyReader::knowing(layouts, Some(form), RECEIVED_MS);
        reader.feed(body.as_bytes(), &mut desk).unwrap();
        reader.finish(&mut desk).unwrap();
        layouts = reader.into_layouts();
    }
    (desk.told, desk.known)
}

/// The same, each event by itself and in full.
fn read_in_full<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut desk = Desk::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let event = parse(line, RECEIVED_MS);
        desk.event(0, event.as_ref().map_err(Clone::clone));
    }
    desk.told
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-z0-9é:% ]{0,45}",
        1 => Just(r#"\n\u00e9\"\\"#.to_owned()),
        1 => Just("bad\u{1}".to_owned()),
        1 => Just(r"\ud800".to_owned()),
    ]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[1-9][0-9]{0,9}",
        1 => proptest::sample::select(vec![
            "0", "-0", "1", "-1", "-7", "00", "01", "1.50", "1e3", "-", "18446744073709551615", "9999999999999999999",
            "18446744073709551616", "2147483648", "-2147483648", "2147483649", "true", "false", "null", "\"5\"",
        ]).prop_map(str::to_owned),
    ]
}

fn time() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "2026-11-1[45]T[01][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{3})?Z",
        1 => "2026-11-15[Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{1,9})?(Z|z|[+-]0[0-9]:30)",
        1 => Just("2026-02-30T00:00:00Z".to_owned()),
    ]
}

fn payload() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![text().prop_map(|text| format!("\"{text}\"")), number(), Just("null".to_owned())];
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            (inner.clone(), inner).prop_map(|(a, b)| format!(r#"{{"a":{a}, "\u0062":{b}}}"#)),
        ]
    })
}

/// Ways to write an event; `T` is its type, `S` any text, `N` a number, `W` a time, `P` any JSON.
const SHAPES: [&str; 14] = [
    r#"{"eventId":"S","type":"T","occurredAt":"W","session":"S","seq":N,"dimensions":{"video":"S","country":"S","n":N},"payload":P}"#,
    r#"{"eventId":"S","type":"T","occurredAt":"W","session":"S","seq":N,"dimensions":{"video":"S","country":"S"},"payload":{"a":"S","b":N}}"#,
    r#"{"payload":P,"dimensions":{"country":"S","video":N},"delta":N,"session":"S","type":"T","eventId":"S"}"#,
    r#"{ "type" : "T" , "dimensions" : { "video" : "S" , "n" : N } , "seq" : N } "#,
    r#"{"type":"T","delta":N}"#,
    r#"{"type":"T","dimensions":{}}"#,
    r#"{"type":"T","occurredAt":"W"}"#,
    r#"{"dimensions":{"vid\u0065o":"S"},"t\u0079pe":"T"}"#,
    r#"{"type":"T","dimensions":{"video":true,"country":N}}"#,
    r#"{"type":"T","type":"T"}"#,
    r#"{"type":"T","dimensions":{"video":"S","video":"S"}}"#,
    r#"{"type":"T","sesion":"S"}"#,
    r#"{"eventId":"S"}"#,
    r#"{"type":"T","session":"S","dimensions":{"a_name_that_is_much_longer_than_thirty_two_bytes_and_than_forty":"S"}}"#,
];

/// An event of one shape, with values of its own.
fn event() -> impl Strategy<Value = String> {
    let values =
        (vec(text(), 4), vec(number(), 3), time(), payload(), proptest::sample::select(vec!["a", "b", "c", "d"]));
    (proptest::sample::select(SHAPES.to_vec()), values).prop_map(
        |(shape, (texts, numbers, time, payload, event_type))| {
            let (mut texts, mut numbers) = (texts.iter().cycle(), numbers.iter().cycle());
            let mut out = String::new();
            for c in shape.chars() {
                match c {
                    'T' => out += event_type,
                    'S' => out += texts.next().unwrap(),
                    'N' => out += numbers.next().unwrap(),
                    'W' => out += &time,
                    'P' => out += &payload,
                    other => out.push(other),
                }
            }
            out
        },
    )
}

/// Events among which many look like one before, and some that were tampered with.
fn events() -> impl Strategy<Value = Vec<String>> {
    let changes = vec((0usize..40, any::<prop::sample::Index>(), "[ -~\r]"), 0..4);
    (vec((event(), 1usize..4), 1..16), changes).prop_map(|(events, changes)| {
        let mut lines: Vec<String> = events.into_iter().flat_map(|(event, times)| vec![event; times]).collect();
        for (line, at, with) in changes {
            let line = line % lines.len();
            let chars: Vec<char> = lines[line].chars().collect();
            let at = at.index(chars.len());
            let changed = |(n, c): (usize, &char)| if n == at { with.clone() } else { c.to_string() };
            lines[line] = chars.iter().enumerate().map(changed).collect();
        }
        lines
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_layout_changes_nothing_of_what_a_line_comes_to(lines in events(), end in "\n|\r\n") {
        let body = lines.join(&end) + &end;
        prop_assert_eq!(read(Form::Lines, &body).0, read_in_full(body.split('\n')), "{:#?}", lines);
    }

    #[test]
    fn what_bodies_before_have_taught_changes_nothing(lines in events()) {
        let bodies: Vec<&str> = lines.iter().map(String::as_str).collect();
        prop_assert_eq!(read_bodies(Form::Lines, &bodies).0, read_in_full(bodies.iter().copied()), "{:#?}", lines);
    }

    #[test]
    fn a_layout_changes_nothing_of_what_an_array_comes_to(lines in events()) {
        let good: Vec<_> = lines.iter().map(String::as_str).filter(|line| parse(line, 0).is_ok()).collect();
        let (told, _) = read(Form::Document, &format!("[{}]", good.join(",\n")));
        prop_assert_eq!(told, read_in_full(good.iter().copied()), "{:#?}", good);
    }
}

#[track_caller]
fn check(lines: &[String], known: usize) {
    let (told, found) = read(Form::Lines, &lines.join("\n"));
    assert_eq!(told, read_in_full(lines.iter().map(String::as_str)));
    assert_eq!(found, known);
}

fn viewed(event_type: &str, n: usize) -> String {
    let time = format!("2026-11-15T17:{:02}:{:02}.{:03}Z", n % 60, n % 59, n % 1000);
    format!(
        r#"{{"eventId":"e-{n}","type":"{event_type}","occurredAt":"{time}","session":"s{n}","seq":{n},"dimensions":{{"video":"v{n}","country":"DE"}},"payload":{{"player":"web","ms":{n}}}}}"#
    )
}

#[test]
fn from_the_second_on_like_events_are_read_by_their_layout() {
    check(&(0..9).map(|n| viewed("a", n)).collect::<Vec<_>>(), 8);
    check(&(0..9).map(|n| viewed("a", n) + ["", " ", "\t\r"][n % 3]).collect::<Vec<_>>(), 8);
    check(&(0..9).map(|n| viewed(["a", "c", "d"][n % 3], n * 1000)).collect::<Vec<_>>(), 8);
    let other = |n: usize| format!(r#"{{"type":"b","delta":{n}}}"#);
    check(&(0..10).map(|n| if n % 2 == 0 { viewed("a", n) } else { other(n) }).collect::<Vec<_>>(), 8);
}

#[test]
fn events_that_come_one_by_one_are_read_by_their_layout_as_well() {
    let bodies: Vec<_> = (0..9).map(|n| viewed("a", n)).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    assert_eq!(read_bodies(Form::Lines, &bodies).1, 8);
    assert_eq!(read_bodies(Form::Document, &bodies).1, 8);
}

#[test]
fn an_event_of_any_type_is_read_by_its_layout_unless_nobody_can_listen_to_it() {
    let of_type = |n: usize| viewed(&format!("type-{}", n % 80), n);
    check(&(0..202).map(of_type).collect::<Vec<_>>(), 201);
    let long = "x".repeat(300);
    check(&(0..5).map(|n| viewed(&long, n)).collect::<Vec<_>>(), 0);
}

#[test]
fn payload_that_goes_on_behind_its_line_is_not_read_there() {
    let good = r#"{"type":"a","payload":[1]}"#.to_owned();
    let lines = [good.clone(), good.clone(), r#"{"type":"a","payload":["#.to_owned(), "1]}".to_owned(), good];
    check(&lines, 2);
}

#[test]
fn a_space_before_payload_is_no_part_of_it() {
    let with = |payload: &str| format!(r#"{{"type":"a","payload":{payload}}}"#);
    check(&["-110", "\t110", " [1]", "7"].map(with), 1);
}

#[test]
fn an_event_that_is_too_long_is_refused_by_layout_as_well() {
    let sized = |bytes: usize| {
        let empty = viewed("a", 7);
        empty.replace("web", &"x".repeat(bytes - empty.len() + 3))
    };
    let max = crate::limits::EVENT_BYTES_MAX;
    let lines = [viewed("a", 1), viewed("a", 2), sized(max - 2), sized(max - 1), sized(max), sized(max + 1)];
    check(&lines, 2);
    let (told, _) = read(Form::Document, &format!("[{}]", lines.join(",")));
    assert_eq!(told, read_in_full(lines.iter().map(String::as_str)));
}

#[test]
fn an_event_from_ahead_is_received_by_the_clock_that_is_ahead() {
    let arrival = Arrival { log_ms: RECEIVED_MS - 3_600_000, wall_ms: RECEIVED_MS };
    let line = |hour: &str| viewed("a", 7).replace("T17", hour);
    let lines = ["T16", "T16", "T16", "T17", "T17", "T16"].map(line).join("\n");
    let mut received = Vec::new();
    let mut reader = BodyReader::new(Some(Form::Lines), arrival);
    let mut sink = |_: usize, event: Result<&Event<'_>, EventError>| received.push(event.unwrap().received_at_ms);
    reader.feed(lines.as_bytes(), &mut sink).unwrap();
    reader.finish(&mut sink).unwrap();
    let Arrival { log_ms, wall_ms } = arrival;
    assert_eq!(received, [log_ms, log_ms, log_ms, wall_ms, wall_ms, log_ms]);
}
