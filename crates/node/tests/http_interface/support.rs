//! A node on a port of its own and a client that can be as rude as a test needs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tally_node::assemble::{Node, Options};
use tempfile::TempDir;

pub const YAML: &str = "
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules: [{on: video.viewed, op: increment}]
  - counterName: countries
    mode: display
    dimensions: [country]
    rules: [{on: video.viewed, op: increment}]
  - counterName: stock
    mode: simple
    dimensions: [item]
    rules: [{on: item.sold, op: decrement}]
";

/// No test waits longer than this for a byte; it is a bound on a failing test, not on a passing one.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct TestNode {
    node: Option<Node>,
    pub address: SocketAddr,
    dir: Option<TempDir>,
}

impl TestNode {
    pub fn start() -> TestNode {
        TestNode::start_with(|_| {})
    }

    pub fn start_with(change: impl FnOnce(&mut Options)) -> TestNode {
        TestNode::open(tempfile::tempdir().unwrap(), change)
    }

    /// Stops the node and starts another one on its data.
    pub fn restart(mut self, change: impl FnOnce(&mut Options)) -> TestNode {
        self.node.take().unwrap().stop().unwrap();
        TestNode::open(self.dir.take().unwrap(), change)
    }

    pub fn open(dir: TempDir, change: impl FnOnce(&mut Options)) -> TestNode {
        let mut options = Options::new(dir.path());
        options.http = Some("127.0.0.1:0".parse().unwrap());
        options.http_threads = 2;
        options.http_options.access.hosts = vec!["t".parse().unwrap()];
        options.config = Some(YAML.to_owned());
        options.log.segment_bytes = 16 << 20;
        change(&mut options);
        let node = Node::start(options).unwrap_or_else(|error| panic!("{error}"));
        TestNode { address: node.http_addr().unwrap(), node: Some(node), dir: Some(dir) }
    }

    /// Stops in good order, which takes a checkpoint, and starts again.
    pub fn restarted(self) -> TestNode {
        self.restart(|_| {})
    }

    /// Another node on what this one has on its disk at this moment: what a power cut would leave.
    pub fn after_a_crash(&self, change: impl FnOnce(&mut Options)) -> TestNode {
        let dir = tempfile::tempdir().unwrap();
        copy(self.dir.as_ref().unwrap().path(), dir.path());
        TestNode::open(dir, change)
    }

    pub fn connect(&self) -> TcpStream {
        connect_to(self.address)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("POST", path, &[], body.as_ref())
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let is_typed = body.is_empty() || headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let json = ("content-type", "application/json");
        let headers = headers.iter().chain((!is_typed).then_some(&json));
        let extra: String = headers.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n{extra}\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses early may close before it has read everything.
        let _ = stream.write_all(body);
        let answer = if method == "HEAD" { read_head(&mut stream) } else { read_answer(&mut stream) };
        answer.expect("an answer")
    }

    /// Sends one command to the node's other port and answers the reply, line by line.
    pub fn resp(&self, command: &str, lines: usize) -> Vec<String> {
        let mut stream = connect_to(self.node().resp_addr().unwrap());
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        BufReader::new(stream).lines().take(lines).map(Result::unwrap).collect()
    }

    pub fn value(&self, id: &str) -> i64 {
        let answer = self.get(&format!("/v1/counters/{id}"));
        answer.json()["value"].as_i64().unwrap_or_else(|| panic!("{answer:?}"))
    }

    /// Its data directory.
    pub fn path(&self) -> &std::path::Path {
        self.dir.as_ref().unwrap().path()
    }

    pub fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    pub fn stop(self) {
        self.stopped();
    }

    /// Stops in good order; answers the data directory.
    pub fn stopped(mut self) -> TempDir {
        self.node.take().unwrap().stop().unwrap();
        self.dir.take().unwrap()
    }
}

pub fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            let _ = node.stop();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir_all(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            match std::fs::copy(entry.path(), &to) {
                // It was there for a moment, under a name that nobody looks at.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        lines.filter_map(|line| line.split_once(':')).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Checks that this is a problem of the given type, and answers its `detail`.
    #[track_caller]
    pub fn problem(&self, status: u16, slug: &str) -> String {
        assert_eq!(self.status, status, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["type"], format!("/problems/{slug}"), "{body}");
        assert_eq!(body["status"], status);
        assert!(body["title"].is_string());
        body["detail"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn ok(&self) -> Value {
        self.with_status(200)
    }

    #[track_caller]
    pub fn with_status(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        self.json()
    }
}

/// Reads one answer; `None` if the connection is closed before it begins.
pub fn read_answer(stream: &mut TcpStream) -> Option<Answer> {
    let mut answer = read_head(stream)?;
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    answer.body.resize(length, 0);
    stream.read_exact(&mut answer.body).unwrap();
    Some(answer)
}

/// Reads an answer without its body, and not a byte further.
pub fn read_head(stream: &mut TcpStream) -> Option<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Some(Answer { status, head, body: Vec::new() })
}
