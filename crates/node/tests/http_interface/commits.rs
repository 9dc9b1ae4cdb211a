//! The subscription to commits: complete, resumable, and gone when its client is.

use crate::support::{TestNode, read_answer, read_head};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tally_core::position::Position;
use tally_node::engine::Durability;
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

    fn from_the_beginning(node: &TestNode) -> Subscriber {
        Subscriber::open(node, "?from=1-0-0", None)
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

/// Checks that commits follow each other without a gap, and answers how many records and events they have.
fn check_seamless(commits: &[Value]) -> (u64, u64) {
    for pair in commits.windows(2) {
        assert_eq!(pair[0]["to"], pair[1]["from"], "{pair:?}");
    }
    for commit in commits {
        assert_eq!(offset(&commit["to"]) - offset(&commit["from"]), commit["records"].as_u64().unwrap(), "{commit}");
    }
    let sum = |field: &str| commits.iter().map(|commit| commit[field].as_u64().unwrap()).sum();
    (sum("records"), sum("events"))
}

#[test]
fn every_commit_is_told_with_what_it_has() {
    let node = TestNode::start();
    add(&node, "a");
    let token = sell(&node, 100);
    let mut subscriber = Subscriber::from_the_beginning(&node);
    let commits = subscriber.commits_to(&token);
    assert_eq!(commits[0]["from"], "1-0-0");
    // The declarations are a record, too.
    assert_eq!(check_seamless(&commits), (102, 100));
    assert!(commits.iter().all(|commit| commit["logTimeMs"].as_u64().unwrap() > 0));
    assert_eq!(subscriber.last_id.as_deref(), Some(token.as_str()));
    let token = add(&node, "a");
    let live = subscriber.commit();
    assert_eq!((&live["to"], &live["records"], &live["events"]), (&json!(token), &json!(1), &json!(0)));
}

#[test]
fn a_correction_is_told_with_its_reason_once_readers_see_it() {
    let node = TestNode::start();
    let mut subscriber = Subscriber::open(&node, "", None);
    let number = propose(&node);
    assert_eq!(subscriber.commit()["records"], 1);
    std::thread::scope(|scope| {
        let applied = scope.spawn(|| node.post(&format!("/v1/corrections/{number}/apply"), "").ok());
        let Some(Told::Correction(told)) = subscriber.next() else { panic!("the correction comes first") };
        assert_eq!((node.value("a"), node.value("b")), (-1, 2), "whoever is told reads it");
        let applied = applied.join().unwrap();
        assert_eq!(
            told,
            json!({
                "generation": 1, "number": number, "cause": "proposal", "reason": "bots", "author": "ops",
                "appliedBy": "anonymous", "at": applied["appliedAt"], "deltaCount": 2, "deltas": applied["deltas"],
            })
        );
        assert_eq!(subscriber.commit()["to"], applied["token"]);
    });
    node.post(&format!("/v1/corrections/{number}/revert"), "").ok();
    let Some(Told::Correction(told)) = subscriber.next() else { panic!("a revert is a correction") };
    assert_eq!((&told["cause"], &told["reverts"], &told["generation"]), (&json!("revert"), &json!(number), &json!(2)));
}

#[test]
fn a_subscriber_that_comes_back_sees_every_commit_once() {
    let node = TestNode::start();
    let node = &node;
    let writers = 3;
    let writes = 60;
    let mut commits = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || (0..writes).for_each(|n| drop(sell(node, 1 + (writer + n) % 3))));
        }
        // It is cut off again and again, while everybody writes.
        let mut last_id = "1-0-0".to_owned();
        let total =
            (0..writers).flat_map(|writer| (0..writes).map(move |n| 1 + (writer + n) % 3)).sum::<usize>() as u64;
        while commits.iter().map(|commit: &Value| commit["events"].as_u64().unwrap()).sum::<u64>() < total {
            let mut subscriber = Subscriber::open(node, "?from=1-0-0", Some(&last_id));
            for _ in 0..7 {
                commits.push(subscriber.commit());
                last_id = subscriber.last_id.clone().unwrap();
                if check_seamless(&commits).1 >= total {
                    break;
                }
            }
        }
        // One more than the events: the declarations.
        assert_eq!(check_seamless(&commits), (total + 1, total));
    });
}

#[test]
fn a_position_inside_a_commit_is_told_the_rest_of_it() {
    let node = TestNode::start();
    let token: Position = sell(&node, 10).parse().unwrap();
    let inside = Position { offset: token.offset - 4, ..token };
    let mut subscriber = Subscriber::open(&node, &format!("?from={inside}"), None);
    let commit = subscriber.commit();
    assert_eq!(
        (&commit["from"], &commit["to"], &commit["records"], &commit["events"]),
        (&json!(inside.to_string()), &json!(token.to_string()), &json!(4), &json!(4))
    );
}

#[test]
fn a_position_that_cannot_be_followed_is_refused_with_the_reason() {
    let node = TestNode::start();
    let end: Position = add(&node, "a").parse().unwrap();
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
    assert_eq!(check_seamless(&commits).0, token.offset - end.offset);
    // This one was never given to anybody: the first life ended before it.
    let lost = Position { epoch: 1, ..token };
    let answer = read_answer(&mut Subscriber::connect(&node, &format!("?from={lost}"), None)).unwrap();
    assert!(answer.problem(409, "position-unknown").contains("was lost"), "{answer:?}");
}

#[test]
fn a_position_that_the_log_has_forgotten_is_gone() {
    let node = TestNode::start_with(|options| {
        options.log.segment_bytes = 8 << 10;
        // Nothing that looks back at the log, as windows do.
        options.config = None;
    });
    let connect = |position: &str| Subscriber::connect(&node, &format!("?from={position}"), None);
    let refused = |position: &str| read_answer(&mut connect(position)).filter(|answer| answer.status != 200);
    // Segments are freed behind a checkpoint, which a walk over new ids takes, by a thread of their own.
    let answer = (0..).find_map(|round| {
        (0..50).for_each(|n| drop(add(&node, &format!("an_id_that_is_long_so_that_the_log_fills_up_{round}_{n}"))));
        node.get("/v1/counters/an_id*/aggregate").ok();
        refused("1-0-0")
    });
    let answer = answer.unwrap();
    let detail = answer.problem(410, "position-gone");
    let mut oldest = answer.json()["oldest"].as_str().unwrap().to_owned();
    assert!(detail.contains("GET /v1/corrections") && detail.contains(&oldest), "{detail}");
    // It may go on being freed for a while, also under the one who reads it.
    let first = loop {
        let problem = match refused(&oldest) {
            Some(answer) => answer.json(),
            None => match Subscriber::open(&node, &format!("?from={oldest}"), None).next() {
                Some(Told::Problem(problem)) => problem,
                told => break told,
            },
        };
        oldest = problem["oldest"].as_str().unwrap_or_else(|| panic!("{problem}")).to_owned();
    };
    let Some(Told::Commit(first)) = first else { panic!("{first:?} is no commit") };
    assert_eq!(first["from"], oldest);
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
    assert_eq!(second.commit()["records"], 1);
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
    assert_eq!(subscriber.commit()["records"], 1);
}

#[test]
fn a_node_that_stops_ends_its_subscriptions_cleanly() {
    let node = TestNode::start();
    let mut subscriber = Subscriber::open(&node, "", None);
    let mut busy = Subscriber::from_the_beginning(&node);
    let stopping = Spawner::thread("stop", move || node.stop()).unwrap();
    assert_eq!(subscriber.next(), None);
    while busy.next().is_some() {}
    stopping.join().unwrap();
}

#[test]
fn what_is_not_durable_is_not_told() {
    let node = TestNode::start_with(|options| {
        options.durability = Durability::None;
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
    assert_eq!(subscriber.commit()["to"], written);
    assert_eq!(subscriber.commit()["from"], written);
    assert!(matches!(subscriber.next(), Some(Told::Correction(_))));
    assert_eq!(subscriber.commit()["to"], applied["token"]);
    assert_eq!(behind.commit()["from"], written);
}
