//! What a scrape shows of what has happened.

use super::support::{Answer, TestNode};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.2";

fn with_resp() -> TestNode {
    TestNode::start_with(|options| options.resp = Some("127.0.0.1:0".parse().unwrap()))
}

/// Sends lines of the Redis protocol and reads until the node has answered all of them.
fn resp(node: &TestNode, lines: &str) -> String {
    let mut stream = TcpStream::connect(node.node().resp_addr().unwrap()).unwrap();
    stream.write_all(lines.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    answers
}

fn scrape(node: &TestNode) -> Answer {
    node.send("GET", "/metrics", &[("accept", PROMETHEUS)], b"")
}

/// The value of a sample, by all that stands before it.
#[track_caller]
fn sample(text: &str, name: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{name} is missing in\n{text}")).parse().unwrap()
}

#[test]
fn a_scraper_gets_the_format_that_it_asks_for() {
    let node = TestNode::start();
    let open = scrape(&node);
    assert_eq!(open.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(open.text().ends_with("# EOF\n") && open.text().contains("# TYPE tally_commits counter\n"));
    for plain in [node.get("/metrics"), node.send("GET", "/metrics", &[("accept", "text/plain")], b"")] {
        assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert!(plain.text().contains("# TYPE tally_commits_total counter\n"), "{}", plain.text());
        assert!(plain.text().contains("# TYPE tally_build_info gauge\n"), "{}", plain.text());
        assert!(!plain.text().contains("# EOF") && !plain.text().contains("# UNIT"), "{}", plain.text());
    }
}

#[test]
fn every_change_of_a_counter_is_a_success_however_it_came() {
    let node = with_resp();
    resp(&node, &"INCR a\r\n".repeat(500));
    resp(&node, "SET b 7\r\nSET b 8 NX\r\nDEL b\r\nDEL b\r\nGET a\r\nSET c 9223372036854775807\r\nINCR c\r\n");
    node.post("/v1/counters/a/increment", "").ok();
    node.post("/v1/events", r#"{"type":"video.viewed","dimensions":{"video":"v","country":"DE"}}"#).ok();
    // SET and DEL of b, SET of c, the increment, and two entries; not what was refused, read or not there.
    let text = scrape(&node).text().to_owned();
    for name in ["counter_update_success_total", "tally_updates_total"] {
        assert_eq!(sample(&text, name), 500.0 + 3.0 + 1.0 + 2.0, "{text}");
    }
}

#[test]
fn a_duplicate_event_is_one_however_many_counters_it_feeds() {
    let node = TestNode::start();
    let event = r#"{"type":"video.viewed","session":"s","seq":1,"dimensions":{"video":"v","country":"DE"}}"#;
    for _ in 0..3 {
        node.post("/v1/events", event).ok();
    }
    let text = scrape(&node).text().to_owned();
    assert_eq!(sample(&text, "tally_entries_total{box=\"duplicate\"}"), 4.0);
    assert_eq!(sample(&text, "duplicate_event_dropped_total"), 2.0);
    assert_eq!(sample(&text, "tally_duplicate_events_total"), 2.0);
}

#[test]
fn latencies_count_every_command_and_every_request() {
    let node = with_resp();
    resp(&node, &"INCR a\r\n".repeat(300));
    resp(&node, "GET a\r\nGET a\r\n");
    resp(&node, "PING\r\n");
    resp(&node, "KEYS *\r\n");
    node.get("/v1/counters/a").ok();
    let text = scrape(&node).text().to_owned();
    let count = |family| sample(&text, &format!("tally_resp_command_seconds_count{{family=\"{family}\"}}"));
    assert_eq!([count("write"), count("read"), count("walk"), count("other")], [300.0, 2.0, 1.0, 1.0], "{text}");
    let route = "tally_http_request_seconds_count{method=\"GET\",route=\"/v1/counters/{id}\"}";
    assert_eq!(sample(&text, route), 1.0);
    assert_eq!(sample(&text, "tally_queue_wait_seconds_count"), 0.0, "nothing was written over HTTP");
    assert!(sample(&text, "tally_commit_seconds_count") >= 1.0);
}

#[test]
fn the_lag_is_of_now_and_not_of_the_last_write() {
    let node = TestNode::start();
    for _ in 0..20 {
        node.post("/v1/counters/a/increment", "").ok();
    }
    let text = scrape(&node).text().to_owned();
    assert_eq!(sample(&text, "projection_lag_seconds"), 0.0, "nothing waits any more");
    assert_eq!(sample(&text, "tally_queue_wait_seconds_count"), 20.0);
}

#[test]
fn clients_are_counted_while_they_are_there() {
    let node = with_resp();
    let client = TcpStream::connect(node.node().resp_addr().unwrap()).unwrap();
    let clients = || {
        let text = scrape(&node).text().to_owned();
        let of = |protocol: &str| {
            let name = format!("tally_clients{{protocol=\"{protocol}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap_or(0)
        };
        (of("resp"), of("http"))
    };
    // The node takes a connection when it gets to it; each of these waits ends when it has.
    while clients().0 != 1 {}
    assert!(clients().1 >= 1, "whoever scrapes is a client");
    drop(client);
    while clients().0 != 0 {}
}

#[test]
fn disk_checkpoints_and_the_process_are_told() {
    let node = TestNode::start();
    node.post("/v1/counters/a/increment", "").ok();
    let before = scrape(&node).text().to_owned();
    assert_eq!(sample(&before, "tally_checkpoints_total"), 0.0);
    assert_eq!(sample(&before, "tally_checkpoint_timestamp_seconds"), 0.0);
    // A walk takes a checkpoint, since there is a new id.
    node.get("/v1/counters/a*/aggregate").ok();
    let text = scrape(&node).text().to_owned();
    assert_eq!(sample(&text, "tally_checkpoint_seconds_count"), 1.0);
    assert_eq!(sample(&text, "tally_checkpoint_failures_total"), 0.0);
    let started = sample(&text, "process_start_time_seconds");
    assert!(sample(&text, "tally_checkpoint_timestamp_seconds") >= started - 1.0, "{text}");
    assert!(sample(&text, "tally_log_bytes") >= (16 << 20) as f64, "{text}");
    assert!(sample(&text, "tally_store_bytes") > 0.0 && sample(&text, "tally_disk_free_bytes") > 0.0, "{text}");
    assert!(sample(&text, "process_resident_memory_bytes") > 1e6 && sample(&text, "process_open_fds") > 3.0);
    let version = format!("tally_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(sample(&text, &version), 1.0);
}

fn cut(node: &TestNode, protocol: &str, reason: &str) -> f64 {
    let name = format!("tally_connections_cut_total{{protocol=\"{protocol}\",reason=\"{reason}\"}}");
    // Not by a request: it would be cut off as well, if it were slow.
    sample(&node.node().engine().metrics().encode(), &name)
}

/// Reads until the node has closed the connection.
fn until_closed(stream: &mut TcpStream) {
    // A reset closes it as well.
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn connections_that_are_cut_off_are_counted_by_reason() {
    let node = TestNode::start_with(|options| {
        options.resp = Some("127.0.0.1:0".parse().unwrap());
        options.resp_options.clients_max = 1;
        options.resp_options.stall_timeout = Duration::from_millis(100);
        options.http_options.head_timeout = Duration::from_millis(100);
    });
    let resp = || TcpStream::connect(node.node().resp_addr().unwrap()).unwrap();
    for (protocol, reason) in [("http", "memory"), ("http", "no_place"), ("http", "displaced"), ("resp", "silent")] {
        assert_eq!(cut(&node, protocol, reason), 0.0, "there was none");
    }
    let mut stranger = resp();
    let mut known = resp();
    known.write_all(b"PING\r\n").unwrap();
    known.read_exact(&mut [0; 7]).unwrap();
    until_closed(&mut stranger);
    assert_eq!(cut(&node, "resp", "displaced"), 1.0);
    until_closed(&mut resp());
    assert_eq!(cut(&node, "resp", "no_place"), 1.0);
    known.write_all(&[&b"*2\r\n$4\r\nECHO\r\n$100000\r\n"[..], &[b'x'; 50_000]].concat()).unwrap();
    until_closed(&mut known);
    assert_eq!(cut(&node, "resp", "stalled"), 1.0);
    let mut slow = node.connect();
    slow.write_all(b"GET /healthz HT").unwrap();
    until_closed(&mut slow);
    assert_eq!(cut(&node, "http", "silent"), 1.0);
}

#[test]
fn connections_that_find_no_memory_are_counted() {
    let node = TestNode::start_with(|options| {
        options.resp = Some("127.0.0.1:0".parse().unwrap());
        options.client_bytes = Some(4 << 20);
    });
    let mut greedy = TcpStream::connect(node.node().resp_addr().unwrap()).unwrap();
    let argument = [&b"$1000000\r\n"[..], &vec![b'x'; 1_000_000], b"\r\n"].concat();
    // The node may have closed before it has read all of it.
    let _ = greedy.write_all(&[&b"*40\r\n$4\r\nMGET\r\n"[..], &argument.repeat(8)].concat());
    until_closed(&mut greedy);
    assert_eq!(cut(&node, "resp", "memory"), 1.0);
}
