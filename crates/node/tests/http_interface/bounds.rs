//! What strangers can make grow or keep busy has a bound, and those who behave do not feel it.

use crate::support::{Answer, PATIENCE, TestNode, read_answer, read_head};
use serde_json::json;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tally_core::limits::HTTP_READ_BUFFER_BYTES_MAX;
use tally_node::clock::Stopwatch;

/// Longer than any test that passes takes.
const LONG: Duration = Duration::from_secs(600);
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n";
const EVENT: &str = "{\"type\":\"video.viewed\",\"dimensions\":{\"video\":\"a\"}}\n";

/// Sends a request on a new connection and reads the answer's status.
fn healthy(stream: &mut TcpStream) -> bool {
    stream.write_all(HEALTH).is_ok() && read_answer(stream).is_some_and(|answer| answer.status == 200)
}

/// Begins a request, whose body never ends.
fn begin(node: &TestNode, headers: &str, body: &[u8]) -> TcpStream {
    let mut stream = node.connect();
    let typed = "content-type: application/x-ndjson\r\ncontent-length: 33000000\r\n";
    let head = format!("POST /v1/events HTTP/1.1\r\nhost: t\r\n{typed}{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

/// A node that does not listen long to those whom it has refused.
fn small_node(client_bytes: u64) -> TestNode {
    TestNode::start_with(|options| {
        options.client_bytes = Some(client_bytes);
        options.http_options.linger = Duration::from_millis(10);
    })
}

/// The answer to a request that was refused; `None` if the server waits for the rest of it.
fn answer_or_silence(stream: &mut TcpStream) -> Option<Answer> {
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.peek(&mut [0]).ok().map(|_| read_answer(stream).unwrap())
}

#[test]
fn an_answer_is_there_although_the_next_request_has_begun() {
    let node = TestNode::start();
    let mut stream = node.connect();
    stream.write_all(&[HEALTH, b"GET /healthz HT"].concat()).unwrap();
    assert_eq!(read_answer(&mut stream).unwrap().status, 200);
    stream.write_all(b"TP/1.1\r\nhost: t\r\n\r\n").unwrap();
    assert_eq!(read_answer(&mut stream).unwrap().status, 200);
}

#[test]
fn a_head_that_cannot_be_read_is_answered_with_the_reason() {
    let node = TestNode::start();
    for head in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost t\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
    ] {
        let mut stream = node.connect();
        stream.write_all(head).unwrap();
        let detail = read_answer(&mut stream).unwrap_or_else(|| panic!("{head:?}")).problem(400, "invalid-head");
        assert!(detail.contains("cannot be read: "), "{detail}");
        let mut rest = Vec::new();
        assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0, "the connection ends");
    }
    let long = "x".repeat(HTTP_READ_BUFFER_BYTES_MAX + 1);
    for (head, status, slug) in [
        (format!("GET /healthz HTTP/1.1\r\nhost: t\r\nx: {long}"), 431, "head-too-large"),
        (format!("GET /{long}"), 414, "uri-too-long"),
    ] {
        let mut stream = node.connect();
        // The server may answer and close while this is written.
        let _ = stream.write_all(head.as_bytes());
        read_answer(&mut stream).unwrap_or_else(|| panic!("{slug}")).problem(status, slug);
    }
}

#[test]
fn a_head_that_comes_too_slowly_is_told_so() {
    let node = TestNode::start_with(|options| options.http_options.head_timeout = Duration::from_millis(200));
    let mut stream = node.connect();
    stream.write_all(b"GET /healthz HT").unwrap();
    read_answer(&mut stream).unwrap().problem(408, "timeout");
}

#[test]
fn what_is_only_announced_takes_no_room() {
    let node = TestNode::start_with(|options| options.client_bytes = Some(2 << 20));
    let _begun: Vec<TcpStream> = (0..40).map(|_| begin(&node, "", b"{")).collect();
    assert_eq!(node.post("/v1/events", EVENT.repeat(1000)).ok()["counted"], 1000);
}

#[test]
fn a_request_that_finds_no_room_is_told_to_come_back() {
    let node = small_node(8 << 20);
    // Some such find room, but not many.
    let filler = format!("{{\"type\":\"{}", " ".repeat(200_000));
    let large = EVENT.repeat(5_000);
    let mut held = Vec::new();
    let refused = loop {
        assert!(held.len() < 100, "there is no bound");
        let mut stream = begin(&node, "", format!("{large}{filler}").as_bytes());
        match answer_or_silence(&mut stream) {
            Some(answer) => break answer,
            None => held.push(stream),
        }
    };
    refused.problem(503, "busy");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(!held.is_empty());
    assert_eq!(node.post("/v1/events", EVENT).ok()["counted"], 1, "small requests still find room");
}

#[test]
fn a_request_for_which_there_never_is_room_is_too_large() {
    let node = TestNode::start_with(|options| options.client_bytes = Some(1 << 20));
    let detail = node.post("/v1/events", EVENT.repeat(30_000)).problem(413, "too-large");
    assert!(detail.contains("786432") && detail.contains("--memory"), "{detail}");
}

#[test]
fn the_window_of_a_decompressor_is_charged() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(23).unwrap();
    encoder.write_all(EVENT.repeat(1000).as_bytes()).unwrap();
    encoder.flush().unwrap();
    let begun = encoder.get_ref().clone();
    let node = small_node(16 << 20);
    let mut waiting = Vec::new();
    let refused = (0..3).filter_map(|_| {
        let mut stream = begin(&node, "content-encoding: zstd\r\n", &begun);
        let answer = answer_or_silence(&mut stream);
        waiting.push(stream);
        answer
    });
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused.len(), 2, "one window of 8 MiB fits into three quarters of 16 MiB");
    refused.iter().for_each(|answer| drop(answer.problem(503, "busy")));
    assert_eq!(node.post("/v1/events", EVENT).ok()["counted"], 1);
}

#[test]
fn a_body_that_takes_long_to_read_does_not_hold_up_the_others() {
    let node = TestNode::start_with(|options| options.http_threads = 1);
    let bomb = zstd::encode_all(&vec![b'\n'; 32 << 20][..], 3).unwrap();
    let mut slow = node.connect();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/x-ndjson\r\ncontent-encoding: zstd\r\ncontent-length: {}\r\n\r\n",
        bomb.len()
    );
    slow.write_all(&[head.as_bytes(), &bomb].concat()).unwrap();
    (0..3).for_each(|_| assert_eq!(node.get("/healthz").status, 200));
    slow.set_nonblocking(true).unwrap();
    let answered = slow.peek(&mut [0]);
    assert!(answered.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "the others waited for its end");
    slow.set_nonblocking(false).unwrap();
    read_answer(&mut slow).unwrap().problem(400, "invalid-body");
}

#[test]
fn slow_heads_and_bodies_keep_nobody_out() {
    let node = TestNode::start_with(|options| {
        options.http_options.connections_max = 4;
        options.http_options.head_timeout = LONG;
        options.http_options.idle_timeout = LONG;
    });
    let mut used = node.connect();
    assert!(healthy(&mut used));
    let mut strangers: Vec<TcpStream> = (0..8).map(|_| node.connect()).collect();
    strangers.iter_mut().for_each(|stream| drop(stream.write_all(b"GET /healthz HT")));
    strangers.extend((0..4).map(|_| begin(&node, "", b"{")));
    for _ in 0..8 {
        // Those before him are gone, and their places are free as soon as that is noticed.
        let began = Stopwatch::start();
        while !healthy(&mut node.connect()) {
            assert!(began.elapsed() < PATIENCE, "a newcomer gets a place");
        }
    }
    assert!(healthy(&mut used), "who has been answered keeps his place");
}

#[test]
fn one_address_does_not_take_every_place() {
    let node = TestNode::start_with(|options| {
        options.http_options.connections_max = 4;
        options.http_options.connections_per_address_max = Some(2);
    });
    let mut held: Vec<TcpStream> = (0..2).map(|_| node.connect()).collect();
    held.iter_mut().for_each(|stream| assert!(healthy(stream)));
    let mut third = node.connect();
    let detail = read_answer(&mut third).unwrap().problem(503, "busy");
    assert!(detail.contains("from this address"), "{detail}");
    let mut neighbour = connect_from("127.0.0.2:0", node.address, None);
    assert!(healthy(&mut neighbour));
}

/// Connects from an address of this machine, with a small buffer if wanted.
fn connect_from(from: &str, to: SocketAddr, receive_bytes: Option<usize>) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    if let Some(bytes) = receive_bytes {
        socket.set_recv_buffer_size(bytes).unwrap();
    }
    socket.bind(&from.parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Makes a correction that takes about a megabyte to tell.
fn correct_much(node: &TestNode) {
    let deltas: Vec<_> =
        (0..300).map(|n| json!({"id": format!("stock:{n:04}{}", "x".repeat(3500)), "delta": 1})).collect();
    let body = json!({"reason": "a test", "author": "test", "deltas": deltas}).to_string();
    let proposed = node.post("/v1/corrections", body);
    let number = proposed.with_status(201)["number"].as_u64().unwrap();
    assert!(node.post(&format!("/v1/corrections/{number}/apply"), "").status < 300);
}

#[test]
fn a_subscriber_that_does_not_read_is_cut_off() {
    let node = TestNode::start_with(|options| {
        options.http_options.subscribers_max = 1;
        options.http_options.write_timeout = Duration::from_millis(200);
        options.http_options.idle_timeout = LONG;
    });
    let mut deaf = connect_from("127.0.0.1:0", node.address, Some(4096));
    deaf.write_all(b"GET /v1/commits HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    assert_eq!(read_head(&mut deaf).unwrap().status, 200);
    (0..3).for_each(|_| correct_much(&node));
    loop {
        let mut next = node.connect();
        next.write_all(b"GET /v1/commits HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        if read_head(&mut next).unwrap().status == 200 {
            break;
        }
    }
}
