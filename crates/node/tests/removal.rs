//! Counters that leave the configuration: only by name, and their names stay theirs.

#![allow(clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use tally_node::assemble::{Node, Options, StartError};
use tally_node::engine::RecoveryError;

const MONEY: &str = "  - {counterName: impressions, mode: persistent, dimensions: [ad], rules: [{on: ad.shown, op: increment}, {on: ad.void, op: decrement}]}\n";
const STOCK: &str = "  - {counterName: stock, mode: simple, dimensions: [item]}\n";
const VIEWS: &str = "  - {counterName: views, mode: display, rules: [{on: viewed, op: increment}]}\n";

fn start(dir: &Path, counters: &[&str], remove: &[&str]) -> Result<Node, StartError> {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = match counters {
        [] => "counters: []\n".to_owned(),
        counters => format!("counters:\n{}", counters.concat()),
    };
    Node::start(Options {
        http: Some(any),
        resp: Some(any),
        http_threads: 1,
        config: Some(config),
        memory_bytes: 256 << 20,
        remove: remove.iter().map(|name| (*name).to_owned()).collect(),
        ..Options::new(dir)
    })
}

/// Why a start was refused.
fn refused(dir: &Path, counters: &[&str], remove: &[&str]) -> RecoveryError {
    match start(dir, counters, remove) {
        Err(StartError::Recovery(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it has started"),
    }
}

fn redis(node: &Node, command: &str) -> String {
    let mut stream = BufReader::new(TcpStream::connect(node.resp_addr().unwrap()).unwrap());
    stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    if line.starts_with('$') && !line.starts_with("$-1") {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    line.trim_end().to_owned()
}

fn http(node: &Node, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(node.http_addr().unwrap()).unwrap();
    let headers = "Host: localhost\r\nContent-Type: application/json\r\nConnection: close";
    let length = body.len();
    write!(stream, "{head} HTTP/1.1\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn show(node: &Node, id: &str) -> String {
    let event = format!(r#"{{"type":"ad.shown","eventId":"{id}","dimensions":{{"ad":"a7"}}}}"#);
    http(node, "POST /v1/events", &event)
}

#[test]
fn a_counter_is_removed_by_name_only_and_its_name_stays_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path(), &[MONEY, STOCK, VIEWS], &[]).unwrap();
    assert_eq!(node.recovered().changes.as_ref().unwrap().to_string(), "added impressions, stock, views");
    assert!(show(&node, "e1").contains(r#""counted":1"#));
    assert_eq!(redis(&node, "INCRBY stock:7 5"), ":5");
    node.stop().unwrap();

    let why = refused(dir.path(), &[], &[]).to_string();
    assert_eq!(why, "the configuration no longer declares impressions, stock, views, which this data directory counts");
    let RecoveryError::Removed(names) = refused(dir.path(), &[VIEWS], &["stock"]) else { panic!("another refusal") };
    assert_eq!(names, ["impressions"]);
    for (remove, why) in [
        (&["views"][..], "--remove names views, and the configuration declares it"),
        (&["stok"], "--remove names stok, and there is no such counter; did you mean stock?"),
    ] {
        assert_eq!(refused(dir.path(), &[VIEWS], remove).to_string(), why);
    }

    for restart in 0..2 {
        let node = start(dir.path(), &[VIEWS], &["impressions", "stock"]).unwrap();
        let changes = node.recovered().changes.as_ref().map(ToString::to_string);
        assert_eq!(changes.as_deref(), (restart == 0).then_some("removed impressions, stock"));
        assert_eq!(redis(&node, "GET impressions:a7"), "1", "it can be read");
        assert_eq!(redis(&node, "GET stock:7"), "5");
        for command in ["SET impressions:a7 9", "DEL impressions:a7", "INCR impressions:a7", "INCR stock:7", "FLUSHALL"]
        {
            assert!(redis(&node, command).starts_with("-ERR"), "{command}");
        }
        assert!(redis(&node, "INCR stock:7").contains("was removed from the configuration"));
        let refused = http(&node, "POST /v1/counters/stock:7/increment", "");
        assert!(refused.contains("409") && refused.contains("counter-removed"), "{refused}");
        let told = show(&node, "e2");
        assert!(told.contains(r#""unmatched":1"#) && told.contains(r#""removed":["impressions"]"#), "{told}");
        node.stop().unwrap();
    }

    let node = start(dir.path(), &[VIEWS, MONEY, STOCK], &[]).unwrap();
    assert!(show(&node, "e1").contains(r#""duplicate":1"#), "what it knew it still knows");
    assert!(show(&node, "e3").contains(r#""counted":1"#));
    assert_eq!(redis(&node, "GET impressions:a7"), "2");
    assert_eq!(redis(&node, "INCR stock:7"), ":6");
    let explained = http(&node, "GET /v1/counters/impressions:a7/explain", "");
    assert!(explained.contains(r#""holds":true"#), "{explained}");
    node.stop().unwrap();
}

#[test]
fn which_way_money_goes_cannot_be_turned_round() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path(), &[MONEY], &[]).unwrap().stop().unwrap();
    let flipped = MONEY.replace("ad.void, op: decrement", "ad.void, op: increment");
    // Not even by way of a configuration that does not have the rule.
    let without = MONEY.replace(", {on: ad.void, op: decrement}", "");
    for _ in 0..2 {
        let why = refused(dir.path(), &[&flipped], &[]).to_string();
        assert!(why.contains("has counted \"ad.void\" with op: decrement"), "{why}");
        start(dir.path(), &[&without], &[]).unwrap().stop().unwrap();
    }
    start(dir.path(), &[MONEY], &[]).unwrap().stop().unwrap();
}

#[test]
fn a_counter_that_was_removed_keeps_its_floor() {
    let dir = tempfile::tempdir().unwrap();
    let watching = "  - {counterName: watching, mode: simple, floorAtZero: true}\n";
    let node = start(dir.path(), &[watching, STOCK], &[]).unwrap();
    assert_eq!(redis(&node, "DECRBY watching 3"), ":0");
    node.stop().unwrap();
    for _ in 0..2 {
        let node = start(dir.path(), &[STOCK], &["watching"]).unwrap();
        assert_eq!(redis(&node, "GET watching"), "0");
        assert!(http(&node, "GET /v1/counters/watching", "").contains(r#""value":0"#));
        node.stop().unwrap();
    }
    let node = start(dir.path(), &[&watching.replace("true", "false"), STOCK], &[]).unwrap();
    assert_eq!(redis(&node, "GET watching"), "-3", "the sum was kept");
    node.stop().unwrap();
}
