//! Bad input: a clear error or a closed connection, bounded memory, and the server goes on.

use crate::support::{TestNode, read_answer};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tally_core::limits::HTTP_DRAIN_BYTES_MAX;

/// Longer than any test that passes takes.
const LONG: Duration = Duration::from_secs(600);

#[track_caller]
fn check_alive(node: &TestNode) {
    assert_eq!(node.get("/readyz").status, 200);
}

/// Whether the server has closed the connection; waits for it.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset is a close, too.
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

#[test]
fn a_compressed_bomb_is_stopped() {
    let node = TestNode::start();
    let line = vec![b' '; 1 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    for _ in 0..100 {
        gzip.write_all(&line).unwrap();
        zstd.write_all(&line).unwrap();
    }
    for (encoding, bomb) in [("gzip", gzip.finish().unwrap()), ("zstd", zstd.finish().unwrap())] {
        assert!(bomb.len() < 1 << 20);
        let answer = node.send("POST", "/v1/events", &[("content-encoding", encoding)], &bomb);
        let detail = answer.problem(413, "too-large");
        assert!(detail.contains("33554432"), "{detail}");
    }
    let small = zstd::encode_all(&[b' '; 100_000][..], 3).unwrap();
    let answer = node.send("POST", "/v1/counters/a/increment", &[("content-encoding", "zstd")], &small);
    answer.problem(413, "too-large");
    check_alive(&node);
}

#[test]
fn a_body_beyond_the_limit_is_refused_before_it_is_sent() {
    let node = TestNode::start();
    let mut stream = node.connect();
    stream
        .write_all(
            b"POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\nexpect: 100-continue\r\n\r\n",
        )
        .unwrap();
    read_answer(&mut stream).unwrap().problem(413, "too-large");
    check_alive(&node);
}

#[test]
fn who_sends_too_much_without_asking_gets_to_read_why() {
    let node = TestNode::start();
    let mut stream = node.connect();
    let bytes = 33 << 20;
    stream
        .write_all(format!("POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n").as_bytes())
        .unwrap();
    stream.write_all(&vec![b' '; bytes]).unwrap();
    read_answer(&mut stream).unwrap().problem(413, "too-large");
}

#[test]
fn too_many_events_are_refused_whole() {
    let node = TestNode::start();
    let body = "{\"type\":\"video.viewed\",\"dimensions\":{\"video\":\"a\"}}\n".repeat(100_001);
    let detail = node.post("/v1/events", body).problem(413, "too-large");
    assert!(detail.contains("100000"), "{detail}");
    assert_eq!(node.get("/v1/counters/views:a").ok()["exists"], false);
}

#[test]
fn strange_json_is_an_error_of_its_event() {
    let node = TestNode::start();
    let digits = "9".repeat(200_000);
    let deep = format!("{{\"type\":\"video.viewed\",\"payload\":{}", "[".repeat(100_000));
    let deep_closed = format!("{{\"type\":\"x\",\"payload\":{}1{}}}", "[".repeat(1000), "]".repeat(1000));
    let long_line = format!("{{\"type\":\"{}\"}}", "x".repeat(300_000));
    let mut body = Vec::new();
    for line in [
        format!("{{\"type\":\"video.viewed\",\"seq\":{digits}}}"),
        format!("{{\"type\":\"video.viewed\",\"delta\":{digits}}}"),
        format!("{{\"type\":\"video.viewed\",\"delta\":1e{digits}}}"),
        deep,
        deep_closed,
        long_line,
        r#"{"type":"video.viewed","delta":Infinity}"#.to_owned(),
        r#"{"type":"video.viewed","session":"\ud800"}"#.to_owned(),
        r#"{"type":null}"#.to_owned(),
    ] {
        body.extend_from_slice(line.as_bytes());
        body.push(b'\n');
    }
    body.extend_from_slice(b"{\"type\":\"\xff\"}\n");
    body.extend_from_slice(br#"{"type":"video.viewed","dimensions":{"video":"good"}}"#);
    let outcome = node.post("/v1/events", body).ok();
    assert_eq!(
        (&outcome["events"], &outcome["invalid"], &outcome["counted"]),
        (&json!(11), &json!(10), &json!(1)),
        "{outcome}"
    );
    assert!(outcome.to_string().len() < 10_000, "an answer does not repeat what it was sent");
    assert_eq!(node.value("views:good"), 1);
}

#[test]
fn a_truncated_body_counts_nothing() {
    let node = TestNode::start();
    let line = "{\"type\":\"video.viewed\",\"dimensions\":{\"video\":\"cut\"}}\n";
    let mut stream = node.connect();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        line.len() * 10
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(line.repeat(9).as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(is_closed(&mut stream));
    assert_eq!(node.get("/v1/counters/views:cut").ok()["exists"], false);
}

#[test]
fn what_is_no_http_is_closed() {
    let node = TestNode::start();
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nthis is no frame at all, and far too long to be one",
    ] {
        let mut stream = node.connect();
        stream.write_all(garbage).unwrap();
        assert!(is_closed(&mut stream), "{}", String::from_utf8_lossy(garbage));
    }
    check_alive(&node);
}

#[test]
fn a_head_without_end_is_refused() {
    let node = TestNode::start();
    let mut stream = node.connect();
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ");
    let filler = [b'x'; 64 * 1024];
    // The server may close while this is written.
    for _ in 0..64 {
        if stream.write_all(&filler).is_err() {
            break;
        }
    }
    assert!(is_closed(&mut stream));
    check_alive(&node);
}

#[test]
fn slow_senders_are_let_go() {
    let short = Duration::from_millis(200);
    let node = TestNode::start_with(|options| {
        let http = &mut options.http_options;
        (http.head_timeout, http.body_idle_timeout, http.idle_timeout) = (short, short, short);
    });
    let mut silent = node.connect();
    let mut half_a_head = node.connect();
    half_a_head.write_all(b"GET /healthz HT").unwrap();
    let mut half_a_preface = node.connect();
    half_a_preface.write_all(b"PRI * HTTP/2.0\r\n").unwrap();
    let mut idle = node.connect();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    assert_eq!(read_answer(&mut idle).unwrap().status, 200);
    let mut half_a_body = node.connect();
    half_a_body
        .write_all(
            b"POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        )
        .unwrap();
    read_answer(&mut half_a_body).unwrap().problem(408, "timeout");
    for (stream, name) in [
        (&mut silent, "silent"),
        (&mut half_a_head, "half a head"),
        (&mut half_a_preface, "half a preface"),
        (&mut idle, "idle"),
        (&mut half_a_body, "half a body"),
    ] {
        assert!(is_closed(stream), "{name}");
    }
    check_alive(&node);
}

/// A node that soon loses patience with a body, and listens for `linger` to a sender whom it has refused.
fn impatient_node(linger: Duration) -> TestNode {
    TestNode::start_with(|options| {
        options.http_options.body_timeout = Duration::from_millis(300);
        options.http_options.linger = linger;
    })
}

/// Begins a request and writes all the time, until there is an answer to read.
fn trickle(node: &TestNode) -> TcpStream {
    let mut stream = node.connect();
    // More than a trickle can bring within the time.
    let head =
        b"POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 30000000\r\n\r\n";
    stream.write_all(head).unwrap();
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.peek(&mut [0]) {
            Ok(1) => break,
            Ok(_) => panic!("closed without an answer"),
            Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error} instead of an answer"),
            Err(_) => {
                let _ = stream.write(b" ");
                std::thread::yield_now();
            }
        }
    }
    stream.set_nonblocking(false).unwrap();
    stream
}

/// Writes until the server has closed the connection on it; answers how many bytes that took.
#[track_caller]
fn write_until_cut_off(stream: &mut TcpStream, piece: &[u8]) -> usize {
    let mut written = 0;
    loop {
        match stream.write(piece) {
            Ok(bytes) => written += bytes,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
                return written;
            }
        }
    }
}

#[test]
fn a_trickle_does_not_keep_a_request_open_for_ever() {
    let node = impatient_node(LONG);
    let mut stream = trickle(&node);
    read_answer(&mut stream).unwrap().problem(408, "timeout");
    assert!(is_closed(&mut stream), "the server is through with it, whether or not it goes on listening");
}

#[test]
fn who_writes_on_after_the_answer_still_gets_to_read_it() {
    let node = impatient_node(LONG);
    let mut late = trickle(&node);
    late.write_all(&vec![b' '; 8 << 20]).unwrap();
    read_answer(&mut late).unwrap().problem(408, "timeout");

    let mut lost = node.connect();
    lost.write_all(
        b"POST /nothing HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 8388608\r\n\r\n",
    )
    .unwrap();
    lost.write_all(&vec![b' '; 8 << 20]).unwrap();
    read_answer(&mut lost).unwrap().problem(404, "not-found");
}

#[test]
fn a_refused_sender_who_never_stops_is_cut_off_after_some_bytes() {
    let node = impatient_node(LONG);
    let mut stream = node.connect();
    stream.write_all(b"POST /nothing HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n").unwrap();
    let written = write_until_cut_off(&mut stream, &[b' '; 64 * 1024]);
    // What the kernel holds for both sides comes on top.
    assert!(written < 2 * HTTP_DRAIN_BYTES_MAX, "{written}");
    check_alive(&node);
}

#[test]
fn a_refused_sender_who_never_stops_is_cut_off_after_some_time() {
    let node = impatient_node(Duration::from_millis(100));
    let mut stream = trickle(&node);
    let written = write_until_cut_off(&mut stream, b" ");
    assert!(written < HTTP_DRAIN_BYTES_MAX, "it was the bytes that ended it, not the time");
    check_alive(&node);
}

#[test]
fn connections_beyond_the_limit_are_told_so() {
    let node = TestNode::start_with(|options| {
        options.http_options.connections_max = 2;
        options.http_options.linger = LONG;
    });
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = node.connect();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        assert_eq!(read_answer(&mut stream).unwrap().status, 200);
        held.push(stream);
    }
    let mut refused = node.connect();
    refused.write_all(&vec![b' '; 8 << 20]).unwrap();
    read_answer(&mut refused).unwrap().problem(503, "busy");
    drop(held);
    // The places become free when the server has noticed.
    loop {
        let mut stream = node.connect();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n");
        if read_answer(&mut stream).is_some_and(|answer| answer.status == 200) {
            break;
        }
    }
}
