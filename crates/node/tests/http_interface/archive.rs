//! The archive, as those see it who ask the server. What is in it others read (`cargo xtask archive`).

use crate::support::TestNode;
use serde_json::{Value, json};
use std::time::Duration;
use tally_node::assemble::Options;
use tally_node::clock::Stopwatch;

fn with_archive(options: &mut Options) {
    options.archive = Some(options.data_dir.join("archive"));
}

fn start() -> TestNode {
    TestNode::start_with(with_archive)
}

fn view(node: &TestNode, seq: u64) {
    let event = json!({"type": "video.viewed", "session": "s", "seq": seq, "dimensions": {"video": "a"}});
    node.post("/v1/events", event.to_string()).ok();
}

fn offset(position: &Value) -> u64 {
    position.as_str().unwrap().rsplit('-').next().unwrap().parse().unwrap()
}

#[test]
fn a_flush_answers_when_everything_acknowledged_is_in_the_archive() {
    let node = start();
    let mut before = 0;
    for seq in 0..3 {
        view(&node, seq);
        let applied = node.node().engine().applied().offset;
        let flushed = node.post("/v1/archive/flush", "").ok();
        assert!(offset(&flushed["position"]) >= applied, "{flushed}, applied {applied}");
        assert!(offset(&flushed["position"]) > before, "{flushed}, before {before}");
        before = offset(&flushed["position"]);
    }
    let status = node.get("/v1/archive").ok();
    assert_eq!((offset(&status["position"]), status["digest"].as_str().unwrap().len()), (before, 32), "{status}");
}

#[test]
fn an_archive_goes_on_where_it_was_after_a_restart_and_after_a_crash() {
    let node = start();
    view(&node, 1);
    node.post("/v1/archive/flush", "").ok();
    view(&node, 2); // Acknowledged, and not in the archive when the server ends.
    let node = node.restart(with_archive);
    view(&node, 3);
    let flushed = node.post("/v1/archive/flush", "").ok();
    let crashed = node.after_a_crash(with_archive);
    view(&crashed, 4);
    let again = crashed.post("/v1/archive/flush", "").ok();
    assert!(offset(&again["position"]) > offset(&flushed["position"]), "{again}");
    assert_eq!(crashed.value("views:a"), 4);
    let restarted = crashed.restart(with_archive);
    // A start looks at all files, so it knows how many events there are.
    restarted.post("/v1/archive/flush", "").ok();
    assert_eq!(restarted.get("/v1/archive").ok()["events"], 4);
}

#[test]
fn without_an_archive_both_say_how_to_get_one() {
    let node = TestNode::start();
    assert!(node.get("/v1/archive").problem(404, "no-archive").contains("--archive"));
    node.post("/v1/archive/flush", "").problem(404, "no-archive");
}

/// No memory of repeats, which would hold the log as well; and small segments, so that something of it can be freed.
fn simple(options: &mut Options) {
    let yaml = "counters: [{counterName: hits, mode: simple, rules: [{on: hit, op: increment}]}]";
    options.config = Some(yaml.to_owned());
    options.log.segment_bytes = 64 << 10;
}

/// More than a segment of them.
fn hit(node: &TestNode) {
    let events: Vec<Value> = (0..1000).map(|n| json!({"type": "hit", "dimensions": {"n": n}})).collect();
    for _ in 0..5 {
        node.post("/v1/events", json!(events).to_string()).ok();
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Stopwatch::start();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::yield_now();
    }
}

fn last_error(node: &TestNode) -> String {
    let workers = node.get("/v1/workers").ok()["workers"].as_array().unwrap().clone();
    let archive = workers.into_iter().find(|worker| worker["name"] == "archive").unwrap();
    archive["lastError"]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn what_the_archive_does_not_have_is_not_freed_and_a_gap_is_named() {
    let node = TestNode::start_with(|options| {
        simple(options);
        with_archive(options);
    });
    hit(&node);
    let had = offset(&node.post("/v1/archive/flush", "").ok()["position"]);
    // Without it the log goes when a checkpoint has it.
    let node = node.restart(simple);
    hit(&node);
    let node = node.restart(simple);
    wait_until("the end of a segment", || node.node().engine().log().start().offset > had);
    let node = node.restart(|options| {
        simple(options);
        with_archive(options);
    });
    wait_until("word of the gap", || last_error(&node).contains("is in neither"));
    let start = node.node().engine().log().start();
    hit(&node);
    assert!(node.post("/v1/archive/flush", "").problem(503, "store-failed").contains("is in neither"));
    // Until somebody has decided, nothing more is freed.
    assert_eq!(node.node().engine().log_needed_from(), 0);
    assert_eq!(node.node().engine().log().start().offset, start.offset);
}
