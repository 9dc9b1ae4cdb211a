//! What is told, and what goes on, while the memory of repeats is full.

use crate::support::TestNode;
use serde_json::json;
use tally_node::clock::{Clock, Stopwatch};

const YAML: &str = "
counters:
  - {counterName: views, mode: display, dedup: {by: [session, seq], window: 1h}, rules: [{on: viewed, op: increment}]}
  - {counterName: paid, mode: persistent, rules: [{on: bought, op: increment}]}
  - {counterName: likes, mode: transition, entity: [user], rules: [{on: liked, op: increment}]}
  - {counterName: stock, mode: simple}
";
const WINDOW_MS: u64 = 60 * 60 * 1000;

fn view(session: usize, seq: u64) -> String {
    json!({"type": "viewed", "session": format!("s{session}"), "seq": seq}).to_string()
}

fn trouble(node: &TestNode) -> String {
    let text = node.get("/metrics").text().to_owned();
    text.lines().find(|line| line.starts_with("tally_trouble{kind=\"repeats_full\"}")).unwrap().to_owned()
}

/// Views of ever new sessions until there is no memory for more; answers the refusal.
fn fill(node: &TestNode) -> String {
    let mut next = 0;
    loop {
        let views: Vec<String> = (next..next + 200).map(|session| view(session, 5)).collect();
        let answer = node.post("/v1/events", views.join("\n"));
        if answer.status == 503 {
            return answer.problem(503, "repeats-full");
        }
        answer.ok();
        next += 200;
        assert!(next < 1_000_000, "it never fills up");
    }
}

#[test]
fn a_full_memory_of_repeats_is_told_by_name_and_refuses_nothing_else() {
    let (clock, hands) = Clock::settable(1_700_000_000_000);
    let node = TestNode::start_with(|options| {
        options.config = Some(YAML.to_owned());
        options.table_bytes = Some(400 << 10);
        options.clock = clock;
    });
    assert_eq!((node.get("/readyz").text(), trouble(&node).ends_with(" 0")), ("ready\n", true));
    let why = fill(&node);
    assert!(why.contains("the memory of repeats is full"), "{why}");
    let ready = node.get("/readyz");
    assert_eq!(ready.status, 200, "most writes are taken");
    assert!(ready.text().starts_with("ready\nrepeats_full: the memory of repeats is full"), "{}", ready.text());
    assert!(trouble(&node).ends_with(" 1"));

    let paid = json!({"type": "bought", "eventId": "e1"}).to_string();
    let liked = json!({"type": "liked", "dimensions": {"user": "u"}}).to_string();
    let outcome = node.post("/v1/events", [view(1_000_000, 0), view(0, 5), paid, liked].join("\n")).ok();
    let boxes = ["received", "counted", "duplicate", "rejectedCount"].map(|name| outcome[name].as_u64().unwrap());
    assert_eq!(boxes, [4, 2, 1, 1], "{outcome}");
    let rejected = &outcome["rejected"][0];
    assert_eq!((&rejected["index"], &rejected["counter"]), (&json!(0), &json!("views")));
    assert!(rejected["reason"].as_str().unwrap().contains("the memory of repeats is full"), "{rejected}");
    assert_eq!(node.post("/v1/counters/stock/increment", r#"{"delta":7}"#).ok()["value"], 7);
    let proposal = r#"{"reason":"r","author":"a","deltas":[{"id":"views","delta":1}]}"#;
    let number = node.post("/v1/corrections", proposal).with_status(201)["number"].clone();
    node.post(&format!("/v1/corrections/{number}/apply"), "").ok();

    // Nobody writes, and yet the window passes.
    hands.pass(2 * WINDOW_MS + 2_000);
    let began = Stopwatch::start();
    while node.get("/readyz").text() != "ready\n" {
        assert!(began.elapsed().as_secs() < 60, "it does not pass: {}", node.get("/readyz").text());
    }
    assert!(trouble(&node).ends_with(" 0"));
    assert_eq!(node.post("/v1/events", view(1_000_000, 0)).ok()["counted"], 1);
}
