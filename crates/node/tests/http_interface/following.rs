//! Snapshots and live values: who folds a snapshot and the commits behind it has every counter.

use crate::support::TestNode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use tally_core::limits::SNAPSHOTS_MAX;

/// Asks in HTTP/1.0, where a body has no frames; answers what comes behind the head.
fn body(node: &TestNode, path: &str) -> BufReader<TcpStream> {
    let mut stream = node.connect();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: t\r\n\r\n").as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert!(line.contains(" 200 "), "{line}");
    while line.trim() != "" {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    stream
}

/// A snapshot: its position, how many counters it says there are, and those it has.
fn snapshot(node: &TestNode, query: &str) -> (String, u64, Vec<Value>) {
    let mut text = String::new();
    body(node, &format!("/v1/snapshot{query}")).read_to_string(&mut text).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    (head["position"].as_str().unwrap().to_owned(), head["counters"].as_u64().unwrap(), lines.collect())
}

/// The data of the next event of a name.
fn next(stream: &mut BufReader<TcpStream>, event: &str) -> Value {
    let (mut line, mut name) = (String::new(), String::new());
    loop {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream ends");
        match line.trim_end().split_once(": ") {
            Some(("event", text)) => name = text.to_owned(),
            Some(("data", text)) if name == event => return serde_json::from_str(text).unwrap(),
            Some(("data", text)) => panic!("{name}: {text}"),
            _ => {}
        }
    }
}

fn add(node: &TestNode, id: &str) -> String {
    node.post(&format!("/v1/counters/{id}/increment"), "").ok()["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_snapshot_has_every_counter_and_the_commits_go_on_from_it() {
    let node = TestNode::start();
    for id in ["b", "a", "a", "c"] {
        add(&node, id);
    }
    node.send("DELETE", "/v1/counters/c", &[], b"").ok();
    let (position, counters, lines) = snapshot(&node, "");
    let line = |id: &str, value| json!({"id": id, "value": value, "generation": 0});
    assert_eq!((counters, lines), (2, vec![line("a", 2), line("b", 1)]));
    let mut stream = body(&node, &format!("/v1/commits?from={position}"));
    let token = add(&node, "b");
    let commit = next(&mut stream, "commit");
    assert_eq!((&commit["from"], &commit["to"]), (&json!(position), &json!(token)));
    assert_eq!(commit["deltas"], json!([{"id": "b", "delta": 1, "value": 2}]));
}

#[test]
fn a_snapshot_is_of_one_position_while_everybody_writes() {
    let node = TestNode::start();
    let node = &node;
    std::thread::scope(|scope| {
        for writer in 0..2 {
            scope.spawn(move || (0..150).for_each(|n| drop(add(node, &format!("{writer}-{}", n % 30)))));
        }
        for _ in 0..3 {
            let (position, _, lines) = snapshot(node, "");
            let value = |line: &Value| (line["id"].as_str().unwrap().to_owned(), line["value"].as_i64().unwrap());
            let mut folded: BTreeMap<String, i64> = lines.iter().map(value).collect();
            let mut stream = body(node, &format!("/v1/commits?from={position}"));
            let last = add(node, "last");
            loop {
                let commit = next(&mut stream, "commit");
                for delta in commit["deltas"].as_array().unwrap() {
                    let (id, value) = value(delta);
                    let before = folded.insert(id, value).unwrap_or(0);
                    assert_eq!(before + delta["delta"].as_i64().unwrap(), value, "{delta}");
                }
                if offset(commit["to"].as_str().unwrap()) >= offset(&last) {
                    break;
                }
            }
        }
    });
}

fn offset(position: &str) -> u64 {
    position.parse::<tally_core::position::Position>().unwrap().offset
}

#[test]
fn a_snapshot_is_as_of_its_position_although_the_time_of_a_counter_has_come() {
    let node = TestNode::start_with(|options| options.resp = Some("127.0.0.1:0".parse().unwrap()));
    let whole = vec![json!({"id": "brief", "value": 7, "generation": 0})];
    // Longer, if the snapshot was not there in time.
    let position = [300, 3_000, 30_000].into_iter().find_map(|ttl_ms| {
        assert_eq!(node.resp(&format!("SET brief 7 PX {ttl_ms}"), 1), ["+OK"]);
        let (position, _, lines) = snapshot(&node, "");
        (lines == whole).then_some(position)
    });
    let position = position.expect("it is told while it lives");
    // Whoever folds it is told that the counter has ended, and by how much it went down.
    let mut stream = body(&node, &format!("/v1/commits?from={position}"));
    assert_eq!(next(&mut stream, "commit")["deltas"], json!([{"id": "brief", "delta": -7, "value": null}]));
    assert_eq!(snapshot(&node, &format!("?from={position}")), (position, 1, whole));
}

#[test]
fn a_snapshot_that_was_cut_off_goes_on_at_the_same_position() {
    let node = TestNode::start();
    let event = |n| format!("{{\"type\":\"item.sold\",\"dimensions\":{{\"item\":\"i{n:04}\"}}}}\n");
    node.post("/v1/events", (0..2_500).map(event).collect::<String>()).ok();
    // Its client goes after the first lines.
    let mut cut = body(&node, "/v1/snapshot");
    let mut line = || {
        let mut line = String::new();
        cut.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let position = line()["position"].as_str().unwrap().to_owned();
    let last = (0..10).map(|_| line()).last().unwrap();
    drop(cut);
    add(&node, "sales:later");
    let last_id = last["id"].as_str().unwrap();
    let (again, _, lines) = snapshot(&node, &format!("?from={position}&after={last_id}"));
    assert_eq!((again, lines.len()), (position.clone(), 2_490));
    assert!(lines[0]["id"].as_str().unwrap() > last_id);
    assert!(lines.iter().all(|line| line["id"] != "sales:later"), "it came later");
    // Whoever has read all of it has no use for it any more: its place is given to others.
    (0..SNAPSHOTS_MAX).for_each(|_| drop(snapshot(&node, "")));
    let gone = node.get(&format!("/v1/snapshot?from={position}"));
    assert!(gone.problem(410, "position-gone").contains("begin anew"));
    node.get("/v1/snapshot?from=x").problem(400, "invalid-parameter");
}

#[test]
fn a_watched_counter_is_told_at_once_and_when_it_changes() {
    let node = TestNode::start();
    let mut stream = body(&node, "/v1/counters/a/watch");
    assert_eq!(next(&mut stream, "value"), json!({"id": "a", "value": null, "generation": 0}));
    add(&node, "b");
    add(&node, "a");
    assert_eq!(next(&mut stream, "value"), json!({"id": "a", "value": 1, "generation": 0}));
    // However often it changes, what is told last is what it is.
    for _ in 0..50 {
        add(&node, "a");
    }
    let mut told = 0;
    while next(&mut stream, "value")["value"] != 51 {
        told += 1;
    }
    assert!(told < 50);
    node.send("DELETE", "/v1/counters/a", &[], b"").ok();
    assert_eq!(next(&mut stream, "value")["value"], json!(null));
}

#[test]
fn counters_that_match_are_watched_together() {
    let node = TestNode::start();
    for id in ["xa", "xb", "y"] {
        add(&node, id);
    }
    let mut stream = body(&node, "/v1/counters/watch?match=x*");
    assert_eq!(next(&mut stream, "value")["id"], "xa");
    assert_eq!(next(&mut stream, "value"), json!({"id": "xb", "value": 1, "generation": 0}));
    add(&node, "y");
    add(&node, "xc");
    assert_eq!(next(&mut stream, "value"), json!({"id": "xc", "value": 1, "generation": 0}));
    node.get("/v1/counters/watch").problem(400, "invalid-parameter");
}
