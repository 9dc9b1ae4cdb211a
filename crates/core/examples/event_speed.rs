//! How fast events are read, written for the log and staged, against serde_json: `cargo run --release -p tally-core
//! --example event_speed`. One core, 250-byte events, the best of several rounds.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::borrow::Cow;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use tally_core::counter::{Declarations, Stager};
use tally_core::event::body::{BodyReader, Form};
use tally_core::event::{Event, EventError};
use tally_core::id::CellHasher;
use tally_core::op::Submission;

const EVENTS: usize = 1000;
const ROUNDS: usize = 400;

fn main() {
    let body = sample();
    println!("{} bytes per event", body.len() / EVENTS);
    report("serde_json, borrowed", || serde(&body));
    report("read", || read(&body, |_| {}));
    let mut bytes = Vec::new();
    report("read + encode", || {
        bytes.clear();
        read(&body, |event| event.encode(&mut bytes));
    });
    println!("{} bytes per event in the log", bytes.len() / EVENTS);
    let mut stager = Stager::new(Arc::new(Declarations::parse(YAML).expect("valid")), CellHasher::new(1));
    let mut submission = Submission::default();
    report("read + encode + stage", || {
        submission.clear();
        read(&body, |event| {
            let at = submission.event(event);
            stager.stage(event, at, &mut submission, &mut |_, _| {});
        });
    });
    assert_eq!(submission.ops.len(), EVENTS);
    report("decode + stage (replay)", || {
        submission.ops.clear();
        let mut rest = submission.records.clone();
        replay(&mut stager, &mut rest, &mut submission);
    });
    assert_eq!(submission.ops.len(), EVENTS);
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

fn read(body: &[u8], mut each: impl FnMut(&Event<'_>)) {
    let mut reader = BodyReader::new(Some(Form::Lines), 1_794_765_600_000);
    let mut sink = |_: usize, event: Result<&Event<'_>, EventError>| each(black_box(event.expect("valid")));
    reader.feed(body, &mut sink).expect("small");
    assert_eq!(reader.finish(&mut sink), Ok(EVENTS));
}

fn replay(stager: &mut Stager, records: &mut [u8], submission: &mut Submission) {
    let mut rest = &*records;
    while !rest.is_empty() {
        let tally_core::record::Record::Event(event) =
            tally_core::record::Record::decode(&mut rest).expect("encoded here")
        else {
            unreachable!("only events were encoded")
        };
        stager.stage(&event, 0, submission, &mut |_, _| {});
    }
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
