//! Rates that jump, from a client's point of view, and who is told of them.

use super::support::{PATIENCE, TestNode};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use tally_node::assemble::Options;
use tally_node::clock::{Clock, Hands, Stopwatch};
use tally_node::webhook::WebhookOptions;
use tally_node::worker::Spawner;

const YAML: &str = "
anomalies: {factor: 10, least: 50}
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules: [{on: video.viewed, op: increment}]
";
const NOON_MS: u64 = 1_700_049_600_000;
const MINUTE_MS: u64 = 60_000;

/// A node whose time passes as the test says.
struct Watched {
    node: TestNode,
    hands: Arc<Hands>,
    seq: u64,
}

impl Watched {
    fn start(change: impl FnOnce(&mut Options)) -> Watched {
        let (clock, hands) = Clock::settable(NOON_MS);
        let node = TestNode::start_with(|options| {
            options.config = Some(YAML.to_owned());
            options.clock = clock;
            change(options);
        });
        Watched { node, hands, seq: 0 }
    }

    /// Counts for some keys in this minute, and lets it pass.
    fn minute(&mut self, views: &[(&str, u64)], named: &[(&str, u64)]) {
        for (video, count) in views {
            let event = |n: u64| json!({"type": "video.viewed", "session": "s", "seq": self.seq + n, "dimensions": {"video": video}});
            let events: Vec<Value> = (0..*count).map(event).collect();
            self.node.post("/v1/events", json!(events).to_string()).ok();
            // What is sent again counts for nothing, here as there.
            self.node.post("/v1/events", json!(events).to_string()).ok();
            self.seq += count;
        }
        for (id, delta) in named {
            self.node.post(&format!("/v1/counters/{id}/increment"), json!({"delta": delta}).to_string()).ok();
        }
        self.hands.pass(MINUTE_MS);
    }

    /// Some quiet minutes, one in which two keys jump, and the beginning of the next.
    fn jump(&mut self) {
        for _ in 0..6 {
            self.minute(&[("a", 10)], &[("visits", 8)]);
        }
        self.minute(&[("a", 200), ("b", 20)], &[("visits", 90)]);
        self.minute(&[("a", 10)], &[]);
    }

    fn anomalies(&self, count: usize) -> Vec<Value> {
        until("anomalies", || {
            self.node.node().engine().commits().hurry();
            let found = self.node.get("/v1/anomalies").ok()["anomalies"].as_array().unwrap().clone();
            (found.len() >= count).then_some(found)
        })
    }
}

/// A start years later.
fn again(options: &mut Options) {
    options.config = Some(YAML.to_owned());
    options.accept_clock = true;
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let since = Stopwatch::start();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "{what} never came");
        std::thread::yield_now();
    }
}

#[test]
fn a_rate_that_jumps_is_told_with_its_key_before_and_after_and_what_did_not_count_is_left_out() {
    let mut watched = Watched::start(|_| {});
    let empty = watched.node.get("/v1/anomalies").ok();
    assert_eq!(empty, json!({"rule": {"factor": 10, "least": 50}, "warm": false, "anomalies": []}));
    watched.jump();
    let found = watched.anomalies(2);
    let told = |anomaly: &Value| (anomaly["id"].clone(), anomaly["after"].clone(), anomaly["counter"].clone());
    let minute = "2023-11-15T12:06:00.000Z";
    let mut all: Vec<_> = found.iter().map(told).collect();
    all.sort_by_key(|(id, ..)| id.to_string());
    assert_eq!(all, [(json!("views:a"), json!(200), json!("views")), (json!("visits"), json!(90), Value::Null)]);
    for anomaly in &found {
        let before = anomaly["before"].as_f64().unwrap();
        assert!((7.0..=10.0).contains(&before) && anomaly["beforeAtMost"] == false, "{anomaly}");
        assert_eq!((&anomaly["minute"], &anomaly["expected"]), (&json!(minute), &Value::Null), "{anomaly}");
    }
    let metrics = watched.node.get("/metrics");
    for line in [r#"tally_anomalies_total{counter="views"} 1"#, r#"tally_anomalies_total{counter=""} 1"#] {
        assert!(metrics.text().contains(line), "{line}");
    }
    let newest = watched.node.get("/v1/anomalies?limit=1").ok();
    assert_eq!(newest["anomalies"], json!([found[0]]));
    // They are there after a restart, which knows nothing of rates.
    let node = watched.node.restart(again);
    assert_eq!(node.get("/v1/anomalies").ok()["anomalies"], json!(found));
}

#[test]
fn a_trend_that_was_told_in_advance_is_recorded_as_expected() {
    let mut watched = Watched::start(|_| {});
    let trend = json!({"match": "views:%61", "from": "2023-11-15T12:00:00Z", "to": "2023-11-15T13:00:00Z", "reason": "the final"});
    let made = watched.node.post("/v1/anomalies/expected", trend.to_string()).with_status(201);
    let whole = json!({"number": 1, "match": "views:a", "from": "2023-11-15T12:00:00.000Z", "to": "2023-11-15T13:00:00.000Z",
        "reason": "the final", "factor": null});
    assert_eq!(made, whole, "the pattern is canonical as ids are");
    watched.jump();
    let found = watched.anomalies(2);
    let views = found.iter().find(|anomaly| anomaly["id"] == "views:a").unwrap();
    assert_eq!(views["expected"], "the final");
    let metrics = watched.node.get("/metrics");
    assert!(metrics.text().contains("tally_anomalies_expected_total 1"));
    assert!(!metrics.text().contains(r#"tally_anomalies_total{counter="views"}"#));
    let node = watched.node.restart(again);
    assert_eq!(node.get("/v1/anomalies/expected").ok(), json!({"expected": [whole]}));
    assert_eq!(node.send("DELETE", "/v1/anomalies/expected/1", &[], b"").ok(), whole);
    assert_eq!(node.get("/v1/anomalies/expected").ok(), json!({"expected": []}));
    node.send("DELETE", "/v1/anomalies/expected/1", &[], b"").problem(404, "not-found");
}

#[test]
fn a_trend_that_cannot_be_meant_is_refused_by_field() {
    let node = TestNode::start();
    let with = |field: &str, value: Value| {
        let mut trend =
            json!({"match": "views:*", "from": "2023-11-15T12:00:00Z", "to": "2023-11-15T13:00:00Z", "reason": "it"});
        trend[field] = value;
        node.post("/v1/anomalies/expected", trend.to_string())
    };
    for (field, value, says) in [
        ("match", json!(""), "match is \"\"; send 1 to 4096 bytes of text"),
        ("reason", json!(" "), "reason is \" \"; send 1 to 1024 bytes"),
        ("from", json!("soon"), "from is soon; send a moment"),
        (
            "to",
            json!("2023-11-15T12:00:00Z"),
            "to is 2023-11-15T12:00:00Z; send a moment behind from, by 400 days at most",
        ),
        ("to", json!("2026-11-15T12:00:00Z"), "to is 2026-11-15T12:00:00Z; send a moment behind from"),
        ("factor", json!(1), "factor is 1; send a whole number from 2 to 1000000"),
    ] {
        let detail = with(field, value).problem(400, "invalid-field");
        assert!(detail.starts_with(says), "{detail}");
    }
    with("until", json!("x")).problem(400, "unknown-field");
    with("match", json!("views:%zz")).problem(400, "invalid-id");
    node.send("DELETE", "/v1/anomalies/expected/x", &[], b"").problem(400, "invalid-field");
}

#[test]
fn nobody_looks_for_what_nobody_wants_to_know() {
    let mut watched = Watched::start(|options| options.config = Some(YAML.replace("{factor: 10, least: 50}", "none")));
    watched.jump();
    let answer = watched.node.get("/v1/anomalies").ok();
    assert_eq!(answer, json!({"rule": null, "warm": false, "anomalies": []}));
}

/// What was posted: its head, and its body as JSON and as it came.
type Posted = (String, Value, Vec<u8>);

/// A receiver that fails so often before it takes anything.
fn receiver(failures: usize, posts: usize) -> (String, JoinHandle<Vec<Posted>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?key=1", listener.local_addr().unwrap());
    let receive = move || {
        let take = |n: usize| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert_ne!(reader.read_line(&mut head).unwrap(), 0);
            }
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap()];
            reader.read_exact(&mut body).unwrap();
            let status = if n < failures { "503 Service Unavailable" } else { "204 No Content" };
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").unwrap();
            (head.to_lowercase(), serde_json::from_slice(&body).unwrap(), body)
        };
        (0..posts).map(take).collect()
    };
    (url, Spawner::thread("receiver", receive).unwrap())
}

#[test]
fn a_webhook_that_fails_at_first_is_told_again_under_the_same_id_and_signed() {
    let (url, received) = receiver(1, 3);
    let webhooks = WebhookOptions { urls: vec![url.parse().unwrap()], secret: Some(Arc::from(&b"secret"[..])) };
    let mut watched = Watched::start(|options| options.webhooks = webhooks);
    watched.jump();
    let found = watched.anomalies(2);
    let posts = received.join().unwrap();
    assert_eq!(posts[0].1, posts[1].1, "it is tried again");
    assert_ne!(posts[1].1["id"], posts[2].1["id"]);
    for (head, message, body) in &posts {
        assert!(head.starts_with("post /hook?key=1 http/1.1\r\n"), "{head}");
        let id = message["id"].as_str().unwrap();
        assert!(head.contains(&format!("tally-message-id: {id}\r\n")), "{head}");
        let signature = head.lines().find_map(|line| line.strip_prefix("tally-signature: sha256=")).unwrap();
        assert_eq!(signature.len(), 64, "{head}");
        assert!(!body.is_empty());
        assert_eq!(message["kind"], "anomaly");
        assert!(found.contains(&message["anomaly"]), "{message}");
    }
    let line = until("word of it", || {
        let metrics = watched.node.get("/metrics").text().to_owned();
        metrics.contains("tally_webhook_delivered_total 2").then_some(metrics)
    });
    assert!(line.contains("tally_webhook_failures_total 1") && line.contains("tally_webhook_lapsed_total 0"));
    let workers = watched.node.get("/v1/workers").json();
    let webhook = workers["workers"].as_array().unwrap().iter().find(|worker| worker["name"] == "webhook-1").unwrap();
    assert_eq!((&webhook["errors"], &webhook["errorsInARow"]), (&json!(1), &json!(0)), "{webhook}");
    let why = webhook["lastError"]["text"].as_str().unwrap();
    assert!(why.ends_with("it answered 503 Service Unavailable") && !why.contains("key=1"), "{why}");
}

#[test]
fn a_node_stops_while_a_webhook_does_not_answer() {
    // It accepts nobody.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut watched = Watched::start(|options| {
        options.webhooks = WebhookOptions { urls: vec![url.parse().unwrap()], secret: None };
    });
    watched.jump();
    watched.anomalies(2);
    watched.node.stop();
}
