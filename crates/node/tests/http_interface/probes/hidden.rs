//! Probes are in nobody's numbers: two nodes get the same, one of them probes, and whatever is asked of both is answered alike.

use super::{complete, wait_for};
use crate::support::TestNode;
use std::io::{Read, Write};
use tally_node::assemble::Options;

const YAML: &str = "
counters:
  - {counterName: bills, mode: persistent, dimensions: [shop], rollups: [[country, hour]], rules: [{on: paid, op: increment}]}
  - {counterName: hits, mode: simple, rules: [{on: hit, op: increment}]}
";

fn start(probes: &str) -> TestNode {
    TestNode::start_with(|options: &mut Options| {
        options.config = Some(format!("{YAML}{probes}"));
        options.archive = Some(options.data_dir.join("archive"));
        options.resp = Some("127.0.0.1:0".parse().unwrap());
    })
}

fn traffic(node: &TestNode) {
    for (id, shop) in [("1", "a"), ("2", "a"), ("1", "a"), ("3", "b")] {
        let event = format!(r#"{{"type":"paid","eventId":"{id}","dimensions":{{"shop":"{shop}","country":"DE"}}}}"#);
        node.post("/v1/events", event).ok();
    }
    node.post("/v1/events", r#"[{"type":"hit"},{"type":"hit"},{"type":"nobody"}]"#).ok();
    node.post("/v1/counters/ad:hoc/increment", "").ok();
}

/// What an answer says but for times and places in the log, which are nobody's numbers.
fn told(node: &TestNode, path: &str) -> String {
    let answer = node.get(path);
    let mut body: serde_json::Value = answer.json();
    forget_places(&mut body);
    format!("{} {body}", answer.status)
}

fn forget_places(value: &mut serde_json::Value) {
    const PLACES: [&str; 14] = [
        "asOf",
        "at",
        "position",
        "positions",
        // Each names a position, too; whether they hold is said apart.
        "checks",
        "token",
        "firstSeen",
        "seenAt",
        "seenAgain",
        "seen",
        "changedAt",
        "watermark",
        "stalenessMs",
        "cursor",
    ];
    match value {
        serde_json::Value::Object(members) => {
            members.retain(|name, _| !PLACES.contains(&name.as_str()));
            members.values_mut().for_each(forget_places);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(forget_places),
        _ => {}
    }
}

/// Lines of metrics that tell of counters and of events.
fn counted(node: &TestNode) -> Vec<String> {
    const OURS: [&str; 8] = [
        "tally_declared_",
        "tally_stream_entries",
        "tally_entries",
        "tally_events",
        "tally_updates",
        "tally_duplicate_events",
        "counter_update_success",
        "duplicate_event_dropped",
    ];
    let answer = node.get("/metrics");
    let lines = answer.text().lines().filter(|line| {
        OURS.iter().any(|name| line.starts_with(name))
            || line.starts_with("tally_http_requests") && line.contains("/v1/events")
    });
    // Families have no order.
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// All that a node says to a question whose answer it tells bit by bit.
fn snapshot(node: &TestNode) -> String {
    let mut stream = node.connect();
    write!(stream, "GET /v1/snapshot HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    said
}

/// What followers are told of, up to some words.
fn followed(node: &TestNode, from: &str, until: &str) -> String {
    let mut stream = node.connect();
    write!(stream, "GET /v1/commits?from={from} HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    let (mut said, mut piece) = (String::new(), [0; 4096]);
    while !said.contains(until) {
        let bytes = stream.read(&mut piece).unwrap();
        assert!(bytes > 0, "it ended: {said}");
        said.push_str(&String::from_utf8_lossy(&piece[..bytes]));
    }
    said
}

#[test]
fn whatever_is_asked_of_a_node_with_probes_is_answered_as_by_one_without() {
    let [with, without] = [start("probes: {every: 1s}"), start("")];
    // From here on deltas are told.
    let said = snapshot(&with);
    let from = said.split("\"position\":\"").nth(1).unwrap().split('"').next().unwrap();
    for node in [&with, &without] {
        traffic(node);
    }
    let probes = wait_for(&with, "probes and a repeat", |probes| {
        probes["repeated"].as_u64() >= Some(1) && complete(probes, "told") >= 2
    });
    assert_eq!(probes["wrong"], 0, "{probes}");
    for node in [&with, &without] {
        node.post("/v1/archive/flush", "").ok();
    }
    wait_for(&with, "a probe in the archive", |probes| complete(probes, "archived") >= 2);
    for path in [
        "/v1/counters?match=*",
        "/v1/counters?match=$*",
        "/v1/counters?order=value&match=bills:*",
        "/v1/counters/*/aggregate",
        "/v1/counters/$probe",
        "/v1/counters/$probe/explain",
        "/v1/counters/$probe/history",
        "/v1/counters/$probe/series",
        "/v1/counters/bills",
        "/v1/top/$probe",
        "/v1/top/bills",
        "/v1/balance",
        "/v1/duplicates",
        "/v1/duplicates?counter=$probe",
        "/v1/corrections",
    ] {
        assert_eq!(told(&with, path), told(&without, path), "{path}");
    }
    let declared = |node: &TestNode| node.get("/v1/config").ok()["counters"].to_string();
    assert_eq!(declared(&with), declared(&without));
    let counters = |node: &TestNode| {
        let said = snapshot(node);
        said.lines().filter(|line| line.contains("\"id\"")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(counters(&with), counters(&without));
    for (command, lines) in [("DBSIZE", 1), ("KEYS *", 9), ("EXISTS $probe", 1), ("GET $probe", 1)] {
        assert_eq!(with.resp(command, lines), without.resp(command, lines), "{command}");
    }
    assert!(!with.resp("SCAN 0 COUNT 1000", 12).concat().contains("probe"));
    assert!(!with.resp("RANDOMKEY", 2).concat().contains("probe"));
    assert_eq!(counted(&with), counted(&without));
    let said = followed(&with, from, "\"bills:b\"");
    assert!(!said.contains("$probe"), "{said}");
    // A start makes the same of it, and what it counted stays hidden when it has ended.
    let ended = with.restart(|options| {
        options.config = Some(YAML.to_owned());
        options.resp = Some("127.0.0.1:0".parse().unwrap());
    });
    assert_eq!(told(&ended, "/v1/balance"), told(&without, "/v1/balance"));
    assert_eq!(ended.resp("DBSIZE", 1), without.resp("DBSIZE", 1));
}
