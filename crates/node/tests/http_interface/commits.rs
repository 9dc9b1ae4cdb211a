//! The subscription to commits: complete, resumable, and gone when its client is.

use crate::support::{TestNode, read_answer, read_head};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tally_core::head::RULES;
use tally_core::position::Position;
use tally_node::engine::NodeDurability;
use tally_node::worker::Spawner;

/// A client of `GET /v1/commits`.
struct Subscriber {
    stream: BufReader<TcpStream>,
    text: String,
    last_id: Option<String>,
}

/// What it is sent.
#[derive(Debug, PartialEq)]
enum Told {
    Commit(Value),
    Correction(Value),
    Comment(String),
    Problem(Value),
}

impl Subscriber {
    fn connect(node: &TestNode, query: &str, last_event_id: Option<&str>) -> TcpStream {
        let mut stream = node.connect();
        let header = last_event_id.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        stream.write_all(format!("GET /v1/commits{query} HTTP/1.1\r\nhost: t\r\n{header}\r\n").as_bytes()).unwrap();
        stream
    }

    fn open(node: &TestNode, query: &str, last_event_id: Option<&str>) -> Subscriber {
        let mut stream = Subscriber::connect(node, query, last_event_id);
        let head = read_head(&mut stream).unwrap();
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        assert_eq!(head.header("cache-control"), Some("no-store"));
        let mut subscriber = Subscriber { stream: BufReader::new(stream), text: String::new(), last_id: None };
        assert_eq!(subscriber.next(), Some(Told::Comment("subscribed".to_owned())));
        assert!(subscriber.last_id.is_some(), "the first word says where it begins");
        subscriber
    }

    /// The next thing told; `None` after a clean end.
    fn next(&mut self) -> Option<Told> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(self.told(&block));
            }
            let chunk = self.chunk()?;
            self.text.push_str(&chunk);
        }
    }

    /// One chunk of the transfer encoding; `None` for the last.
    fn chunk(&mut self) -> Option<String> {
        let mut size = String::new();
        assert_ne!(self.stream.read_line(&mut size).unwrap(), 0, "the connection breaks off");
        let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap() + 2];
        self.stream.read_exact(&mut chunk).unwrap();
        assert!(chunk.ends_with(b"\r\n"));
        chunk.truncate(chunk.len() - 2);
        (!chunk.is_empty()).then(|| String::from_utf8(chunk).unwrap())
    }

    fn told(&mut self, block: &str) -> Told {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        if let Some(id) = field("id: ") {
            self.last_id = Some(id);
        }
        let data = || serde_json::from_str(&field("data: ").unwrap()).unwrap();
        match field("event: ").as_deref() {
            Some("commit") => Told::Commit(data()),
            Some("count_correction") => Told::Correction(data()),
            Some("problem") => Told::Problem(data()),
            _ => Told::Comment(field(": ").unwrap_or_else(|| panic!("{block:?} tells nothing"))),
        }
    }

    fn commit(&mut self) -> Value {
        loop {
            match self.next() {
                Some(Told::Commit(commit)) => return commit,
                Some(Told::Comment(_)) => {}
                other => panic!("{other:?} is no commit"),
            }
        }
    }

    /// Reads commits until one ends at a position.
    fn commits_to(&mut self, token: &str) -> Vec<Value> {
        let mut commits = vec![self.commit()];
        while commits.last().unwrap()["to"] != token {
            commits.push(self.commit());
        }
        commits
    }
}

fn add(node: &TestNode, id: &str) -> String {
    let answer = node.post(&format!("/v1/counters/{id}/increment"), "").ok();
    answer["token"].as_str().unwrap().to_owned()
}

fn sell(node: &TestNode, events: usize) -> String {
    let event = "{\"type\":\"item.sold\",\"dimensions\":{\"item\":\"i1\"}}\n";
    let answer = node.post("/v1/events", event.repeat(events)).ok();
    answer["token"].as_str().unwrap().to_owned()
}

fn propose(node: &TestNode) -> u64 {
    let body =
        json!({"reason": "bots", "author": "ops", "deltas": [{"id": "a", "delta": -1}, {"id": "b", "delta": 2}]});
    node.post("/v1/corrections", body.to_string()).with_status(201)["number"].as_u64().unwrap()
}

fn offset(position: &Value) -> u64 {
    position.as_str().unwrap().parse::<Position>().unwrap().offset
}

/// What somebody outside makes of commits: a value for each counter, and where it stands.
#[derive(Default)]
struct Folded {
    values: BTreeMap<String, i64>,
    at: Option<Value>,
}

impl Folded {
    /// Takes a commit that begins where the one before ended.
    fn take(&mut self, commit: &Value) {
        assert!(self.at.as_ref().is_none_or(|at| *at == commit["from"]), "{commit} does not follow {:?}", self.at);
        assert!(offset(&commit["to"]) > offset(&commit["from"]), "{commit}");
        self.at = Some(commit["to"].clone());
        if commit["flushed"] == true {
            self.values.clear();
        }
        for delta in commit["deltas"].as_array().unwrap() {
            let id = delta["id"].as_str().unwrap().to_owned();
            let before = self.values.get(&id).copied().unwrap_or(0);
            assert_eq!(before + delta["delta"].as_i64().unwrap(), delta["value"].as_i64().unwrap_or(0), "{delta}");
            match delta["value"].as_i64() {
                Some(value) => self.values.insert(id, value),
                None => self.values.remove(&id),
            };
        }
    }

    fn of(commits: &[Value]) -> Folded {
        let mut folded = Folded::default();
        commits.iter().for_each(|commit| folded.take(commit));
        folded
    }

    fn get(&self, id: &str) -> Option<i64> {
        self.values.get(id).copied()
    }
}

#[test]
fn every_commit_is_told_with_what_it_did() {
    let node = TestNode::start();
    let mut subscriber = Subscriber::open(&node, "", None);
    let begin = subscriber.last_id.clone().unwrap();
    add(&node, "a");
    let token = sell(&node, 100);
    let commits = subscriber.commits_to(&token);
    assert_eq!(commits[0]["from"], begin);
    let folded = Folded::of(&commits);
    assert_eq!((folded.get("a"), folded.get("stock:i1"), folded.values.len()), (Some(1), Some(-100), 2));
    for commit in &commits {
        assert_eq!((&commit["partition"], &commit["generation"]), (&json!(0), &json!(0)), "{commit}");
        assert_eq!(commit["rules"], json!(RULES), "{commit}");
        assert_eq!(commit["digest"].as_str().map(str::len), Some(32), "{commit}");
        assert!(commit["logTime"].as_str().unwrap().ends_with('Z') && commit["exceptions"] == json!([]), "{commit}");
    }
    assert_eq!(subscriber.last_id.as_deref(), Some(token.as_str()));
    node.send("DELETE", "/v1/counters/a", &[], b"").ok();
    assert_eq!(subscriber.commit()["deltas"], json!([{"id": "a", "delta": -1, "value": null}]));
}

#[test]
fn only_counters_that_match_are_told_and_every_commit_is() {
    let node = TestNode::start();
    let mut subscriber = Subscriber::open(&node, "?match=s*", None);
    add(&node, "a");
    let first = subscriber.commit();
    assert_eq!(first["deltas"], json!([]));
    sell(&node, 1);
    let second = subscriber.commit();
    assert_eq!(second["deltas"], json!([{"id": "stock:i1", "delta": -1, "value": -1}]));
    assert_eq!(first["to"], second["from"]);
}

#[test]
fn a_correction_is_told_with_its_reason_once_readers_see_it() {
    let node = TestNode::start();
    let mut subscriber = Subscriber::open(&node, "", None);
    let number = propose(&node);
    assert_eq!(subscriber.commit()["deltas"], json!([]), "a proposal changes nothing");
    let applied = node.post(&format!("/v1/corrections/{number}/apply"), "").ok();
    let Some(Told::Correction(told)) = subscriber.next() else { panic!("the correction comes first") };
    assert_eq!((node.value("a"), node.value("b")), (-1, 2), "whoever is told reads it");
    assert_eq!(
        told,
        json!({
            "generation": 1, "number": number, "cause": "proposal", "kind": "adjust", "reason": "bots", "author": "ops",
            "appliedBy": "anonymous", "at": applied["appliedAt"], "deltaCount": 2, "deltas": applied["deltas"],
        })
    );
    let commit = subscriber.commit();
    assert_eq!((&commit["to"], &commit["generation"]), (&applied["token"], &json!(1)));
    let deltas = json!([{"id": "a", "delta": -1, "value": -1}, {"id": "b", "delta": 2, "value": 2}]);
    assert_eq!(commit["deltas"], deltas);
    node.post(&format!("/v1/corrections/{number}/revert"), "").ok();
    let Some(Told::Correction(told)) = subscriber.next() else { panic!("a revert is a correction") };
    assert_eq!((&told["cause"], &told["reverts"], &told["generation"]), (&json!("revert"), &json!(number), &json!(2)));
}

#[test]
fn a_subscriber_that_comes_back_sees_every_commit_once() {
    let node = TestNode::start();
    let node = &node;
    let (writers, writes) = (3, 60);
    let total: usize = (0..writers).flat_map(|writer| (0..writes).map(move |n| 1 + (writer + n) % 3)).sum();
    let mut last_id = Subscriber::open(node, "", None).last_id.unwrap();
    let mut folded = Folded::default();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || (0..writes).for_each(|n| drop(sell(node, 1 + (writer + n) % 3))));
        }
        // It is cut off again and again, while everybody writes.
        while folded.get("stock:i1") != Some(-(total as i64)) {
            let mut subscriber = Subscriber::open(node, "?from=1-0-0", Some(&last_id));
            folded.take(&subscriber.commit());
            last_id = subscriber.last_id.clone().unwrap();
        }
    });
}

#[test]
fn a_position_inside_a_commit_is_told_all_of_it() {
    let node = TestNode::start();
    let mut subscriber = Subscriber::open(&node, "", None);
    let token: Position = sell(&node, 10).parse().unwrap();
    let whole = subscriber.commit();
    let inside = Position { offset: token.offset - 4, ..token };
    assert_eq!(Subscriber::open(&node, &format!("?from={inside}"), None).commit(), whole);
}

#[test]
fn a_position_that_cannot_be_followed_is_refused_with_the_reason() {
    let node = TestNode::start();
    let mut subscriber = Subscriber::open(&node, "", None);
    let end: Position = add(&node, "a").parse().unwrap();
    subscriber.commits_to(&end.to_string());
    let refused =
        |position: &str| read_answer(&mut Subscriber::connect(&node, &format!("?from={position}"), None)).unwrap();
    for position in ["", "7", "1-0", "1-0-x", "1-0-1-1"] {
        refused(position).problem(400, "invalid-parameter");
    }
    assert!(refused("1-3-0").problem(400, "invalid-parameter").contains("log 3"));
    for beyond in [Position { offset: end.offset + 1, ..end }, Position { epoch: 2, ..end }] {
        let answer = refused(&beyond.to_string());
        assert!(answer.problem(409, "position-unknown").contains("beyond the end of the log"));
        assert_eq!(answer.json()["end"], end.to_string());
    }
    let both = read_answer(&mut Subscriber::connect(&node, "?from=1-0-0", Some("x"))).unwrap();
    assert!(both.problem(400, "invalid-parameter").contains("Last-Event-ID is x"));

    // Positions of an earlier life are as good as they were.
    let node = node.restarted();
    let token: Position = add(&node, "a").parse().unwrap();
    assert_eq!(token.epoch, 2);
    let commits = Subscriber::open(&node, &format!("?from={end}"), None).commits_to(&token.to_string());
    assert_eq!(commits[0]["from"], end.to_string());
    assert_eq!(commits.last().unwrap()["deltas"], json!([{"id": "a", "delta": 1, "value": 2}]));
    // This one was never given to anybody: the first life ended before it.
    let lost = Position { epoch: 1, ..token };
    let answer = read_answer(&mut Subscriber::connect(&node, &format!("?from={lost}"), None)).unwrap();
    assert!(answer.problem(409, "position-unknown").contains("was lost"), "{answer:?}");
}

#[test]
fn a_position_from_before_anybody_listened_is_gone() {
    let node = TestNode::start();
    let token = add(&node, "a");
    let refused = read_answer(&mut Subscriber::connect(&node, "?from=1-0-0", None)).unwrap();
    let detail = refused.problem(410, "position-gone");
    assert!(detail.contains("GET /v1/snapshot") && detail.contains("nobody listened"), "{detail}");
    // From here on somebody does.
    assert_eq!(refused.json()["oldest"], token);
    let later = add(&node, "a");
    let commits = Subscriber::open(&node, &format!("?from={token}"), None).commits_to(&later);
    assert_eq!(commits[0]["deltas"], json!([{"id": "a", "delta": 1, "value": 2}]));
}

#[test]
fn entries_that_do_not_simply_count_are_told_where_they_stand() {
    let node = TestNode::start();
    let mut subscriber = Subscriber::open(&node, "", None);
    let header = [("idempotency-key", "k")];
    node.send("POST", "/v1/counters/a/increment", &header, b"").ok();
    let first = subscriber.commit();
    node.send("POST", "/v1/counters/a/increment", &header, b"").ok();
    let commit = subscriber.commit();
    assert_eq!((&first["exceptions"], &commit["deltas"]), (&json!([]), &json!([])));
    assert_eq!(commit["exceptions"], json!([{"at": first["to"], "counter": "a", "fate": "duplicate"}]));
}

#[test]
fn event_ids_that_come_again_are_told_with_what_the_audit_has() {
    let config = "counters: [{counterName: paid, mode: persistent, rules: [{on: ad, op: increment}]}, \
                  {counterName: shown, mode: persistent, dimensions: [ad], rules: [{on: ad, op: increment}]}]";
    let node = TestNode::start_with(|options| options.config = Some(config.to_owned()));
    let mut subscriber = Subscriber::open(&node, "", None);
    let ad = |id: &str, ad: &str| json!({"type": "ad", "eventId": id, "dimensions": {"ad": ad}}).to_string();
    let first = node.post("/v1/events", ad("e1", "a")).ok();
    let counted = subscriber.commits_to(first["token"].as_str().unwrap());
    assert!(counted.iter().all(|commit| commit.get("audit").is_none()), "{counted:?}");
    let again = node.post("/v1/events", [ad("e1", "a"), ad("e2", "a"), ad("e1", "b")].join("\n")).ok();
    let commits = subscriber.commits_to(again["token"].as_str().unwrap());
    let commit = commits.last().unwrap();
    let at = |back: u64| {
        let end: Position = again["token"].as_str().unwrap().parse().unwrap();
        Position { offset: end.offset - back, ..end }.to_string()
    };
    let audit = node.get("/v1/duplicates").ok();
    let row = |at: String, row: &Value| json!({"at": at, "eventId": "e1", "firstSeen": row["firstSeen"], "conflict": row["conflict"]});
    let (conflict, repeat) = (&audit["duplicates"][0], &audit["duplicates"][1]);
    assert_eq!((&repeat["conflict"], &conflict["conflict"]), (&json!(false), &json!(true)), "{audit}");
    assert_eq!(commit["audit"], json!([row(at(3), repeat), row(at(1), conflict)]), "{commit}");
    assert_eq!(commit["exceptions"].as_array().map(Vec::len), Some(4), "an entry of each counter for each: {commit}");
    assert!(commit.get("auditCount").is_none(), "these are all: {commit}");
}

/// Schedule 17.
#[test]
fn a_subscriber_that_never_reads_holds_no_disk_and_is_told_that_its_position_is_gone() {
    let bytes_max = 6 << 20;
    let node = TestNode::start_with(|options| {
        options.commits.bytes_max = bytes_max;
        options.checkpoint_log_bytes = 1 << 20;
    });
    let silent = Subscriber::open(&node, "", None);
    let position = silent.last_id.clone().unwrap();
    let comes_back = || read_head(&mut Subscriber::connect(&node, "", Some(&position))).unwrap().status;
    // Commits of a MiB and more; old ones are looked after every few seconds.
    let item = |n: usize| json!({"type": "item.sold", "dimensions": {"item": format!("{n:01000}")}}).to_string();
    let body = (0..1_200).map(item).collect::<Vec<_>>().join("\n");
    let mut sent = 0;
    while comes_back() == 200 {
        node.post("/v1/events", &body).ok();
        sent += 1;
        assert!(sent < 1_000, "it never goes");
    }
    let refused = read_answer(&mut Subscriber::connect(&node, "", Some(&position))).unwrap();
    let detail = refused.problem(410, "position-gone");
    assert!(detail.contains("GET /v1/snapshot"), "{detail}");
    assert_eq!(node.get("/readyz").status, 200);
    drop(silent);
}

#[test]
fn a_client_that_goes_makes_room_for_another() {
    let node = TestNode::start_with(|options| options.http_options.subscribers_max = 2);
    let first = Subscriber::open(&node, "", None);
    let mut second = Subscriber::open(&node, "", None);
    let refused = read_answer(&mut Subscriber::connect(&node, "", None)).unwrap();
    assert!(refused.problem(503, "busy").contains("2 subscriptions are open"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(first);
    // Its place is free when the server has noticed, long before a heartbeat would fail.
    while read_head(&mut Subscriber::connect(&node, "", None)).unwrap().status != 200 {
        std::thread::yield_now();
    }
    add(&node, "a");
    assert_eq!(second.commit()["deltas"], json!([{"id": "a", "delta": 1, "value": 1}]));
}

#[test]
fn a_quiet_subscription_is_kept_alive() {
    let node = TestNode::start_with(|options| {
        options.http_options.heartbeat = Duration::from_millis(20);
        options.http_options.idle_timeout = Duration::from_millis(200);
    });
    let mut subscriber = Subscriber::open(&node, "", None);
    for _ in 0..30 {
        assert_eq!(subscriber.next(), Some(Told::Comment("nothing new".to_owned())));
    }
    add(&node, "a");
    assert_eq!(subscriber.commit()["deltas"], json!([{"id": "a", "delta": 1, "value": 1}]));
}

#[test]
fn a_node_that_stops_ends_its_subscriptions_cleanly() {
    let node = TestNode::start();
    let mut subscriber = Subscriber::open(&node, "", None);
    let mut busy = Subscriber::open(&node, "", None);
    add(&node, "a");
    let stopping = Spawner::thread("stop", move || node.stop()).unwrap();
    while subscriber.next().is_some() {}
    while busy.next().is_some() {}
    stopping.join().unwrap();
}

#[test]
fn what_is_not_durable_is_not_told() {
    let node = TestNode::start_with(|options| {
        options.durability = NodeDurability::None;
        options.http_options.heartbeat = Duration::from_millis(20);
    });
    let mut subscriber = Subscriber::open(&node, "", None);
    let written = add(&node, "a");
    // The token of a write that is not durable yet is a position to wait at.
    let mut behind = Subscriber::open(&node, &format!("?from={written}"), None);
    for _ in 0..5 {
        assert_eq!(subscriber.next(), Some(Told::Comment("nothing new".to_owned())));
    }
    // Corrections are durable whatever the node promises, and so is everything before them.
    let number = propose(&node);
    let applied = node.post(&format!("/v1/corrections/{number}/apply"), "").ok();
    let mut folded = Folded::default();
    while folded.at.as_ref() != Some(&applied["token"]) {
        match subscriber.next() {
            Some(Told::Commit(commit)) => folded.take(&commit),
            Some(_) => {}
            None => panic!("it ends"),
        }
    }
    assert_eq!((folded.get("a"), folded.get("b")), (Some(0), Some(2)));
    while !matches!(behind.next(), Some(Told::Commit(_))) {}
}
