//! How fast events are read, written for the log and staged, against serde_json: `cargo run --release -p tally-core
//! --example event_speed`. One core, 250-byte events in JSON and small ones in a compact batch, the best of several rounds.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::borrow::Cow;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use tally_batch::{BatchEvent, Encoder};
use tally_core::counter::{Declarations, Plan, Stager};
use tally_core::event::batch;
use tally_core::event::body::{BodyReader, Form, Sink};
use tally_core::event::{Event, EventError, Line, Shape};
use tally_core::id::CellHasher;
use tally_core::op::Submission;
use tally_core::record::Record;

const EVENTS: usize = 1000;
const ROUNDS: usize = 400;

fn main() {
    let body = sample();
    println!("{} bytes per event", body.len() / EVENTS);
    report("serde_json, borrowed", || serde(&body));
    let mut desk = Desk::new();
    for what in [Far::Read, Far::Encode, Far::Stage] {
        desk.far = what;
        report(what.title(), || desk.take(&body));
    }
    println!("{} bytes per event in the log", desk.submission.records.len() / EVENTS);
    assert_eq!(desk.submission.ops.len(), EVENTS);
    report("decode + stage (replay)", || desk.replay());
    assert_eq!(desk.submission.ops.len(), EVENTS);

    let batch = sample_batch();
    println!("{} bytes per event in a batch", batch.len() / EVENTS);
    for what in [Far::Read, Far::Encode, Far::Stage] {
        desk.far = what;
        report(what.title(), || desk.take_batch(&batch));
    }
    println!("{} bytes per event in the log", desk.submission.records.len() / EVENTS);
}

/// How far events are taken.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Far {
    Read,
    Encode,
    Stage,
}

impl Far {
    fn title(self) -> &'static str {
        ["read", "read + encode", "read + encode + stage"][self as usize]
    }
}

struct Desk {
    far: Far,
    stager: Stager,
    submission: Submission,
}

impl Desk {
    fn new() -> Desk {
        let declarations = Arc::new(Declarations::parse(YAML).expect("valid"));
        let stager = Stager::new(declarations, CellHasher::new(1));
        Desk { far: Far::Read, stager, submission: Submission::default() }
    }

    fn take(&mut self, body: &[u8]) {
        self.submission.clear();
        let mut reader = BodyReader::new(Some(Form::Lines), 1_794_769_200_000);
        reader.feed(body, self).expect("small");
        assert_eq!(reader.finish(self), Ok(EVENTS));
    }

    fn take_batch(&mut self, batch: &[u8]) {
        self.submission.clear();
        assert_eq!(batch::read(batch, 1_794_769_200_000.into(), self), Ok(EVENTS));
    }

    fn replay(&mut self) {
        let records = std::mem::take(&mut self.submission.records);
        self.submission.ops.clear();
        self.submission.stamps.clear();
        let mut rest = &*records;
        while !rest.is_empty() {
            let Ok(Record::Event(event)) = Record::decode(&mut rest) else { unreachable!("only events were encoded") };
            self.stager.stage(&event, 0, &mut self.submission, &mut |_, _| {});
        }
        self.submission.records = records;
    }
}

impl Sink for Desk {
    type Plan = Plan;

    fn plan(&mut self, shape: &Shape, event_type: &str) -> Plan {
        self.stager.plan(shape, event_type)
    }

    fn line(&mut self, _: usize, line: &Line<'_>, plan: &Plan) {
        let line = black_box(line);
        if self.far >= Far::Encode {
            let at = self.submission.line(line);
            if self.far == Far::Stage {
                self.stager.stage_line(line, plan, at, &mut self.submission, &mut |_, _| {});
            }
        }
    }

    fn event(&mut self, _: usize, event: Result<&Event<'_>, EventError>) {
        let event = black_box(event.expect("valid"));
        if self.far >= Far::Encode {
            let at = self.submission.event(event);
            if self.far == Far::Stage {
                self.stager.stage(event, at, &mut self.submission, &mut |_, _| {});
            }
        }
    }
}

const YAML: &str =
    "counters: [{counterName: views, mode: display, dimensions: [video], rules: [{on: video.viewed, op: increment}]}]";

fn sample() -> Vec<u8> {
    let mut body = String::new();
    for n in 0..EVENTS {
        body += &format!(
            "{{\"eventId\":\"0192f3a0-7c1e-7{:03x}-b8f4-{n:012x}\",\"type\":\"video.viewed\",\"occurredAt\":\"2026-11-15T18:{:02}:{:02}.{:03}Z\",\
             \"session\":\"s-{:016x}\",\"seq\":{n},\"dimensions\":{{\"video\":\"v{:07}\",\"country\":\"DE\",\"device\":\"tv\"}},\
             \"payload\":{{\"player\":\"web\",\"ms\":{}}}}}\n",
            n % 4096,
            n % 60,
            n % 59,
            n % 1000,
            n * 0x9e37_79b9,
            n * 7919 % 10_000_000,
            n * 3,
        );
    }
    body.into_bytes()
}

fn sample_batch() -> Vec<u8> {
    let mut encoder = Encoder::new();
    for n in 0..EVENTS {
        let (session, video) = (format!("s-{:016x}", n * 0x9e37_79b9), format!("v{:08}", n * 7919 % 10_000_000));
        let event = BatchEvent {
            event_type: "video.viewed",
            occurred_at_ms: Some(1_794_769_100_000 + n as i64),
            session: Some(&session),
            seq: Some(n as u64 % 20),
            dimensions: &[("video", &video)],
            ..BatchEvent::default()
        };
        encoder.push(&event).expect("there is room");
    }
    encoder.finish().expect("there are events")
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "only what it costs to read them matters")]
struct SerdeEvent<'a> {
    #[serde(borrow)]
    event_id: Option<Cow<'a, str>>,
    r#type: Cow<'a, str>,
    occurred_at: Option<Cow<'a, str>>,
    session: Option<Cow<'a, str>>,
    seq: Option<u64>,
    dimensions: HashMap<Cow<'a, str>, Cow<'a, str>>,
    payload: Option<&'a serde_json::value::RawValue>,
}

fn serde(body: &[u8]) {
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        black_box(serde_json::from_slice::<SerdeEvent<'_>>(line).expect("valid"));
    }
}

fn report(what: &str, mut work: impl FnMut()) {
    if std::env::args().nth(1).is_some_and(|only| only != what) {
        return work();
    }
    let best = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .min()
        .expect("several rounds");
    let ns = best.as_secs_f64() * 1e9 / EVENTS as f64;
    println!("{what:28} {ns:7.1} ns/event  {:6.2} M/s", 1e3 / ns);
}
