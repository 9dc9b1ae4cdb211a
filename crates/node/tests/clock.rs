//! A node whose wall clock is set ahead and back: what has a time to live, a key that is known, a window that passes.

#![allow(clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use tally_node::assemble::{Node, Options, StartError};
use tally_node::clock::{Clock, Hands};
use tally_node::engine::{RecoveryError, Trouble};

const NOON_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const YEAR_MS: u64 = 365 * DAY_MS;
const CONFIG: &str = "\
counters:
  - counterName: views
    mode: display
    dedup: none
    lateness: {allowed: 1s, corrected: 1h, every: 1s}
    rules: [{on: viewed, op: increment}]
";

struct Tally {
    node: Node,
    hands: Arc<Hands>,
    client: BufReader<TcpStream>,
}

fn options(dir: &Path, wall_ms: u64) -> (Options, Arc<Hands>) {
    let (clock, hands) = Clock::settable(wall_ms);
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let options = Options {
        http: Some(any),
        resp: Some(any),
        http_threads: 1,
        config: Some(CONFIG.to_owned()),
        memory_bytes: 256 << 20,
        clock,
        ..Options::new(dir)
    };
    (options, hands)
}

impl Tally {
    fn start(dir: &Path, wall_ms: u64) -> Tally {
        let (options, hands) = options(dir, wall_ms);
        Tally::started(options, hands)
    }

    fn started(options: Options, hands: Arc<Hands>) -> Tally {
        let node = Node::start(options).unwrap();
        let client = BufReader::new(TcpStream::connect(node.resp_addr().unwrap()).unwrap());
        Tally { node, hands, client }
    }

    /// What a command answers: its line, and the lines of what it holds.
    fn ask(&mut self, command: &str) -> String {
        self.client.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.client.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        match line.split_at(1) {
            ("$", "-1") => "nil".to_owned(),
            ("$", _) => self.answer(),
            ("*", count) => (0..count.parse().unwrap()).map(|_| self.answer()).collect::<Vec<_>>().join(" "),
            _ => line,
        }
    }

    /// Lets the wall clock say something else until the node has noticed.
    fn set_wall(&mut self, wall_ms: u64) {
        let apart = self.is_in_trouble();
        self.hands.set_wall(wall_ms);
        self.until(|tally| tally.is_in_trouble() != apart);
    }

    fn is_in_trouble(&self) -> bool {
        self.node.engine().troubles().lasting().iter().any(|(trouble, _)| *trouble == Trouble::Clock)
    }

    /// The node looks at its clock every 50 ms.
    fn until(&mut self, holds: impl Fn(&mut Tally) -> bool) {
        while !holds(self) {
            std::thread::yield_now();
        }
    }

    fn get(&self, path: &str) -> String {
        self.http(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    fn send_event(&self, event: &str) -> String {
        let head = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close";
        self.http(&format!("{head}\r\nContent-Length: {}\r\n\r\n{event}", event.len()))
    }

    fn http(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.node.http_addr().unwrap()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn at(ms: u64) -> String {
    jiff::Timestamp::from_millisecond(ms as i64).unwrap().to_string()
}

#[test]
fn one_write_while_the_clock_is_a_day_fast_shortens_no_time_to_live() {
    let dir = tempfile::tempdir().unwrap();
    let mut tally = Tally::start(dir.path(), NOON_MS);
    assert_eq!(tally.ask("INCR old"), ":1");
    assert_eq!(tally.ask("EXPIRE old 3600"), ":1");
    tally.set_wall(NOON_MS + DAY_MS);
    assert!(tally.get("/readyz").contains("clock: the clock of this machine has leapt ahead of the time of the log"));
    let metrics = tally.get("/metrics");
    assert!(metrics.contains("tally_clock_ahead_seconds 86400.0"), "{metrics}");
    assert!(metrics.contains("tally_trouble{kind=\"clock\"} 1"), "{metrics}");
    assert_eq!(tally.ask("INCR fast"), ":1");
    assert_eq!(tally.ask("SET short 1 EX 20"), "+OK");
    tally.set_wall(NOON_MS);
    for command in ["EXPIRE fast 10", "PEXPIRE fast 10000"] {
        assert_eq!(tally.ask(command), ":1");
        assert_eq!(tally.ask("TTL fast"), ":10");
    }
    assert_eq!(tally.ask("TTL old"), ":3600", "the leap was not believed");
    tally.hands.pass(9_999);
    assert_eq!(tally.ask("GET fast"), "1");
    tally.hands.pass(1);
    assert_eq!(tally.ask("GET fast"), "nil", "and time passes");
    tally.hands.pass(10_000);
    assert_eq!(tally.ask("GET short"), "nil");
    tally.node.stop().unwrap();
}

#[test]
fn a_clock_that_falls_back_a_day_stops_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut tally = Tally::start(dir.path(), NOON_MS + DAY_MS);
    assert_eq!(tally.ask("INCR fast"), ":1");
    tally.set_wall(NOON_MS);
    assert!(tally.get("/readyz").contains("clock: the clock of this machine is 1d behind the time of the log"));
    assert_eq!(tally.ask("SET short 1 EX 10"), "+OK");
    assert_eq!(tally.ask("TTL short"), ":10");
    tally.hands.pass(9_000);
    assert_eq!(tally.ask("GET short"), "1");
    tally.hands.pass(2_000);
    assert_eq!(tally.ask("GET short"), "nil");
    tally.node.stop().unwrap();
}

#[test]
fn a_start_with_a_clock_that_can_hardly_be_right_is_refused_unless_it_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let mut tally = Tally::start(dir.path(), NOON_MS);
    assert_eq!(tally.ask("INCR a"), ":1");
    tally.node.stop().unwrap();
    for wall_ms in [NOON_MS - DAY_MS, NOON_MS + 32 * DAY_MS] {
        let refused = Node::start(options(dir.path(), wall_ms).0).map(|_| ()).unwrap_err();
        assert!(matches!(refused, StartError::Recovery(RecoveryError::Clock(_))), "{refused}");
    }
    let (options, hands) = options(dir.path(), NOON_MS - DAY_MS);
    let mut tally = Tally::started(Options { accept_clock: true, ..options }, hands);
    assert_eq!(tally.ask("SET a 1 EX 10"), "+OK");
    tally.hands.pass(11_000);
    assert_eq!(tally.ask("GET a"), "nil", "time goes on from the end of the log");
    tally.node.stop().unwrap();
}

#[test]
fn a_key_is_known_though_the_clock_is_three_days_fast_at_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let ask = |tally: &mut Tally| tally.ask("TALLY.INCRBY paid 5 ID order-1");
    let mut tally = Tally::start(dir.path(), NOON_MS);
    assert!(ask(&mut tally).starts_with(":5 +counted"));
    tally.node.stop().unwrap();
    let mut tally = Tally::start(dir.path(), NOON_MS + 3 * DAY_MS);
    tally.until(|tally| tally.is_in_trouble());
    // The thread that forgets keys has been round when the writer has heard from it.
    tally.ask("INCR other");
    assert!(ask(&mut tally).starts_with(":5 +repeated"));
    tally.node.stop().unwrap();
    let mut tally = Tally::start(dir.path(), NOON_MS + 2_000);
    assert!(ask(&mut tally).starts_with(":5 +repeated"), "and after a replay");
    tally.node.stop().unwrap();
}

#[test]
fn what_is_given_an_hour_after_a_weekend_lives_for_an_hour() {
    let dir = tempfile::tempdir().unwrap();
    let mut tally = Tally::start(dir.path(), NOON_MS);
    assert_eq!(tally.ask("SET before 1 EX 86400"), "+OK");
    tally.node.stop().unwrap();
    let mut tally = Tally::start(dir.path(), NOON_MS + 3 * DAY_MS);
    assert_eq!(tally.ask("SET seconds 1 EX 30"), "+OK");
    assert_eq!(tally.ask("SET hour 1 EX 3600"), "+OK");
    assert_eq!(tally.ask("TTL hour"), ":3600");
    let happened = at(NOON_MS + 3 * DAY_MS - 500);
    let sent = tally.send_event(&format!(r#"{{"type":"viewed","occurredAt":"{happened}"}}"#));
    assert!(sent.contains(r#""counted":1"#), "a sender with a right clock is heard: {sent}");
    tally.hands.pass(30_000);
    assert_eq!(tally.ask("GET seconds"), "nil");
    assert_eq!(tally.ask("GET before"), "1", "the clock is not believed yet");
    tally.hands.pass(30_000);
    tally.until(|tally| tally.ask("GET before") == "nil");
    assert_eq!(tally.ask("TTL hour"), ":3540");
    tally.hands.pass(3_540_000);
    assert_eq!(tally.ask("GET hour"), "nil");
    tally.node.stop().unwrap();
}

#[test]
fn late_entries_do_not_wait_a_year_after_one_write_a_year_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let mut tally = Tally::start(dir.path(), NOON_MS);
    tally.set_wall(NOON_MS + YEAR_MS);
    assert!(tally.send_event(r#"{"type":"viewed"}"#).contains(r#""counted":1"#));
    tally.set_wall(NOON_MS);
    let late = format!(r#"{{"type":"viewed","occurredAt":"{}"}}"#, at(NOON_MS - 60_000));
    assert!(tally.send_event(&late).contains(r#""late":1"#));
    tally.hands.pass(2_000);
    tally.until(|tally| tally.ask("GET views") == "2");
    tally.node.stop().unwrap();
}
