//! `POST /v1/events/stream`: many batches in one request, and an answer to each.

use crate::support::TestNode;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use tally_batch::{BatchEvent, Encoder, MEDIA_TYPE};
use tally_core::limits::HTTP_BATCHES_MAX;

/// A batch of so many views of one video, each with a seq of its own.
fn batch(video: &str, first_seq: u64, events: u64) -> Vec<u8> {
    let mut encoder = Encoder::new();
    for seq in first_seq..first_seq + events {
        let dimensions = &[("video", video), ("country", "DE")];
        let (session, seq) = (Some("s"), Some(seq));
        let event = BatchEvent { event_type: "video.viewed", session, seq, dimensions, ..BatchEvent::default() };
        encoder.push(&event).unwrap();
    }
    encoder.finish().unwrap()
}

/// A request whose body goes on, and what has been answered so far.
struct Streamed {
    connection: TcpStream,
    answer: BufReader<TcpStream>,
}

impl Streamed {
    fn open(node: &TestNode, query: &str) -> Streamed {
        let mut connection = node.connect();
        let head = format!(
            "POST /v1/events/stream{query} HTTP/1.1\r\nhost: t\r\ncontent-type: {MEDIA_TYPE}\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).unwrap();
        let mut answer = BufReader::new(connection.try_clone().unwrap());
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 200 OK\r\n");
        while line != "\r\n" {
            line.clear();
            answer.read_line(&mut line).unwrap();
        }
        Streamed { connection, answer }
    }

    fn send(&mut self, bytes: &[u8]) {
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        self.connection.write_all(&chunk).unwrap();
    }

    fn end(&mut self) {
        self.connection.write_all(b"0\r\n\r\n").unwrap();
    }

    /// The next line; `None` at the end of the answer. Each comes in a chunk of its own.
    fn line(&mut self) -> Option<Value> {
        let mut size = String::new();
        self.answer.read_line(&mut size).unwrap();
        let bytes = usize::from_str_radix(size.trim(), 16).unwrap_or_else(|_| panic!("{size:?}"));
        let mut chunk = vec![0; bytes + 2];
        self.answer.read_exact(&mut chunk).unwrap();
        (bytes > 0).then(|| serde_json::from_slice(&chunk).unwrap())
    }

    fn lines(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.line()).collect()
    }
}

#[test]
fn each_batch_is_answered_while_the_next_is_still_to_come() {
    let node = TestNode::start();
    let mut stream = Streamed::open(&node, "");
    for n in 0..5 {
        stream.send(&batch("a", n * 3, 3));
        let line = stream.line().unwrap();
        assert_eq!((&line["batch"], &line["status"], &line["counted"]), (&json!(n), &json!(200), &json!(6)));
        assert!(line["token"].is_string());
        assert_eq!(node.value("views:a"), 3 * (n as i64 + 1), "what is answered is there");
    }
    stream.end();
    assert_eq!(stream.lines(), [] as [Value; 0]);
    // The connection can be used again.
    stream.connection.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    let mut line = String::new();
    stream.answer.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
}

#[test]
fn batches_may_be_sent_ahead_and_cut_anywhere() {
    let node = TestNode::start();
    let batches: Vec<_> = (0..3 * HTTP_BATCHES_MAX as u64).map(|n| batch("a", n * 100, 100)).collect();
    for piece_bytes in [1_000_000, 5000, 7] {
        let mut stream = Streamed::open(&node, "");
        for piece in batches.concat().chunks(piece_bytes) {
            stream.send(piece);
        }
        stream.end();
        let lines = stream.lines();
        let numbers: Vec<_> = lines.iter().map(|line| line["batch"].as_u64().unwrap()).collect();
        assert!(numbers.into_iter().eq(0..batches.len() as u64), "{lines:?}");
        assert!(lines.iter().all(|line| line["received"] == 200));
    }
    assert_eq!(node.value("views:a"), 100 * batches.len() as i64);
}

#[test]
fn what_cannot_be_read_ends_the_answer_and_other_faults_do_not() {
    let node = TestNode::start();
    let nobody = {
        let mut encoder = Encoder::new();
        encoder.push(&BatchEvent { event_type: "", ..BatchEvent::default() }).unwrap();
        encoder.finish().unwrap()
    };
    let mut damaged = batch("b", 0, 1);
    *damaged.last_mut().unwrap() ^= 1;
    let cut = batch("b", 0, 1)[..20].to_vec();
    for (last, detail) in
        [(damaged, "checksum"), (b"{\"type\":\"video.viewed\"}".to_vec(), "no batch"), (cut, "all of it")]
    {
        let mut stream = Streamed::open(&node, "");
        for bytes in [&batch("a", 0, 1), &nobody, &batch("a", 1, 1), &last] {
            stream.send(bytes);
        }
        stream.end();
        let lines = stream.lines();
        let status: Vec<_> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
        assert_eq!(status, [200, 400, 200, 400], "{lines:?}");
        assert_eq!(
            (&lines[1]["type"], &lines[3]["type"]),
            (&json!("/problems/no-valid-event"), &json!("/problems/invalid-body"))
        );
        assert!(lines[3]["detail"].as_str().unwrap().contains(detail), "{}", lines[3]);
        assert_eq!(lines[3]["batch"], 3);
    }
    assert_eq!(node.value("views:a"), 2);
    assert_eq!(node.value("views:b"), 0);
}

#[test]
fn strict_is_for_each_batch_by_itself() {
    let node = TestNode::start();
    let mut stream = Streamed::open(&node, "?strict=true");
    let unheard = {
        let mut encoder = Encoder::new();
        encoder.push(&BatchEvent { event_type: "nobody.listens", ..BatchEvent::default() }).unwrap();
        encoder.finish().unwrap()
    };
    for bytes in [unheard, batch("a", 0, 1)] {
        stream.send(&bytes);
    }
    stream.end();
    let lines = stream.lines();
    assert_eq!((&lines[0]["status"], &lines[1]["status"]), (&json!(422), &json!(200)));
}

#[test]
fn a_stream_takes_batches_only_and_ends_when_the_node_stops() {
    let node = TestNode::start();
    let lines = node.send("POST", "/v1/events/stream", &[("content-type", "application/x-ndjson")], b"{}");
    assert!(lines.problem(415, "unsupported-media-type").contains(MEDIA_TYPE));
    let mut stream = Streamed::open(&node, "");
    stream.send(&batch("a", 0, 1));
    assert_eq!(stream.line().unwrap()["status"], 200);
    node.stop();
    assert_eq!(stream.lines(), [] as [Value; 0]);
}
