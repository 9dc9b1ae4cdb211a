//! Data directories of older formats, as their programs left them when they were killed: part of it in a checkpoint, the rest in
//! the log.
//!
//! `format-2`, `format-3` and `format-4` beside this file were made by the last programs of those formats, which were asked for the same: a
//! life that was stopped, and one that was killed. Only what is behind the end of their segments, zeros, is left out.

use crate::support::{Running, copy, options, start_with};
use std::fs::OpenOptions;
use std::path::Path;
use tally_node::assemble::Options;
use tally_node::clock::Clock;

const CONFIG: &str = "counters:
  - {counterName: views, mode: display, dimensions: [video], dedup: {by: [session, seq], window: 1h}, rules: [{on: viewed, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [content], entity: [user, content], rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: paid, mode: persistent, dimensions: [ad], rules: [{on: shown, op: increment}, {on: void, op: decrement}]}
  - {counterName: stock, mode: simple, dimensions: [item], floorAtZero: true}
";
/// Two seconds after the last write.
const FORMAT_2_NOW_MS: u64 = 1_794_826_810_000;
const FORMAT_3_NOW_MS: u64 = 1_794_837_574_000;
const FORMAT_4_NOW_MS: u64 = 1_794_852_654_000;
const SEGMENT_BYTES: u64 = 64 << 20;
const COMMITS_SEGMENT_BYTES: u64 = 2 << 20;

fn start(data: &Path, now_ms: u64) -> Running {
    let (clock, _) = Clock::settable(now_ms);
    let http = Some("127.0.0.1:0".parse().unwrap());
    start_with(Options { http, clock, config: Some(CONFIG.to_owned()), ..options(data) }).unwrap()
}

fn check(node: &mut Running) {
    for (id, value) in [
        ("views:a", "2"),
        ("views:b", "2"),
        ("likes:x", "2"),
        ("paid:a7", "1"),
        ("paid:a8", "12"),
        ("stock:1", "15"),
        ("stock:2", "0"),
        ("adhoc", "42"),
        ("other", "42"),
        ("DBSIZE", ""),
    ] {
        match value {
            "" => assert_eq!(node.ask(id), ":9"),
            value => assert_eq!(node.ask(&format!("GET {id}")), value, "{id}"),
        }
    }
    let (_, balance) = node.http("GET", "/v1/balance", "");
    assert!(balance.contains("\"holds\":true") && !balance.contains("\"holds\":false"), "{balance}");
}

/// Everything that the older program had acknowledged, once more.
fn repeat_everything(node: &Running) {
    let mut events = Vec::new();
    for life in 0..2 {
        for (session, video) in [("s1", "a"), ("s2", "b")] {
            events.push(format!(
                r#"{{"type":"viewed","session":"{session}","seq":{life},"dimensions":{{"video":"{video}"}}}}"#
            ));
        }
        for (ad, id) in [("a7", "e"), ("a8", "f")] {
            events.push(format!(r#"{{"type":"shown","eventId":"{id}{life}","dimensions":{{"ad":"{ad}"}}}}"#));
        }
        events.push(r#"{"type":"void","eventId":"v1","dimensions":{"ad":"a7"}}"#.to_owned());
        let key = format!("idempotency-key: k2-{life}\r\n");
        let (_, answer) = node.http_with(&key, "POST", "/v1/counters/stock:1/increment", r#"{"delta":5}"#);
        let first = format!("\"value\":{}", [10, 15][life]);
        assert!(answer.contains(&first) && answer.contains("\"repeated\":true"), "{answer}");
    }
    events.push(
        r#"{"type":"liked","occurredAt":"2026-01-01T00:00:01Z","dimensions":{"user":"u3","content":"x"}}"#.to_owned(),
    );
    let (status, outcome) = node.http("POST", "/v1/events", &format!("[{}]", events.join(",")));
    assert_eq!(status, 200, "{outcome}");
    assert!(outcome.contains("\"counted\":0") && outcome.contains("\"duplicate\":10"), "{outcome}");
}

/// A copy of a directory beside this file, with the zeros that were left out.
fn directory(format: &str, segments: &[(&str, u64)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data_directory").join(format), dir.path());
    for (name, bytes) in segments {
        let segment = OpenOptions::new().write(true).open(dir.path().join(name)).unwrap();
        segment.set_len(*bytes).unwrap();
    }
    dir
}

fn check_carried_over(data: &Path, now_ms: u64) {
    let mut node = start(data, now_ms);
    check(&mut node);
    repeat_everything(&node);
    check(&mut node);
    let (_, open) = node.http("GET", "/v1/corrections/2", "");
    assert!(open.contains("\"state\":\"proposed\"") && open.contains("\"author\":\"ann\""), "{open}");
    node.stop();

    // A second start finds the present format, and the same.
    assert!(std::fs::read_to_string(data.join("TALLY")).unwrap().starts_with("format 5\n"));
    let mut node = start(data, now_ms);
    check(&mut node);
    repeat_everything(&node);
    let (status, applied) = node.http("POST", "/v1/corrections/2/apply", "");
    assert_eq!(status, 200, "{applied}");
    assert_eq!(node.ask("GET paid:a8"), "22");
    node.stop();
}

#[test]
fn a_killed_directory_of_format_2_is_carried_over_with_everything_that_was_acknowledged() {
    let dir = directory("format-2", &[("log/000000000001.seg", SEGMENT_BYTES)]);
    check_carried_over(dir.path(), FORMAT_2_NOW_MS);
}

/// Its batches have no heads; its commits are compared, and go on with batches that have some.
#[test]
fn a_killed_directory_of_format_3_is_carried_over_with_everything_that_was_acknowledged() {
    let commits = ("commits/000000000001.seg", COMMITS_SEGMENT_BYTES);
    let dir = directory("format-3", &[("log/000000000001.seg", SEGMENT_BYTES), commits]);
    check_carried_over(dir.path(), FORMAT_3_NOW_MS);
}

/// Its answers to idempotency keys stand elsewhere: one of those that are asked for again is in its checkpoint, the other in its log.
#[test]
fn a_killed_directory_of_format_4_is_carried_over_with_everything_that_was_acknowledged() {
    let commits = ("commits/000000000001.seg", COMMITS_SEGMENT_BYTES);
    let dir = directory("format-4", &[("log/000000000001.seg", SEGMENT_BYTES), commits]);
    check_carried_over(dir.path(), FORMAT_4_NOW_MS);
}
