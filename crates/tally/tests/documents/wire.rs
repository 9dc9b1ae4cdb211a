//! A node in this process, and questions to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tally_node::assemble::{Node, Options};
use tempfile::TempDir;

const YAML: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video], lateness: {allowed: 10s}, rules: [{on: video.viewed, op: increment}]}
  - {counterName: paid, mode: persistent, rollups: [[hour]], rules: [{on: order.paid, op: increment}]}
probes: {every: 10s}
";

pub struct Asked {
    node: Option<Node>,
    _dir: TempDir,
}

impl Asked {
    pub fn start() -> Asked {
        let dir = tempfile::tempdir().unwrap();
        let any_port = Some("127.0.0.1:0".parse().unwrap());
        let mut options =
            Options { http: any_port, resp: any_port, http_threads: 1, ..Options::new(dir.path().join("data")) };
        options.config = Some(YAML.to_owned());
        options.archive = Some(dir.path().join("archive"));
        options.sql = Some(|parts| tally_sql::make_with(env!("CARGO_BIN_EXE_tally").as_ref(), parts));
        options.backup = Some((&*dir.path().join("backups")).into());
        let urls = vec!["http://127.0.0.1:9/".parse().unwrap()];
        options.webhooks = tally_node::webhook::WebhookOptions { urls, secret: None };
        options.log.segment_bytes = 16 << 20;
        Asked { node: Some(Node::start(options).unwrap()), _dir: dir }
    }

    fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    /// The body of an answer.
    pub fn get(&self, path: &str, headers: &str) -> String {
        self.http(&format!("GET {path} HTTP/1.1\r\n{headers}"), "").1
    }

    pub fn post(&self, path: &str, body: &str) -> String {
        self.http(&format!("POST {path} HTTP/1.1\r\ncontent-type: application/json\r\n"), body).1
    }

    /// Head and body of an answer.
    pub fn http(&self, head: &str, body: &str) -> (String, String) {
        let address = self.node().http_addr().unwrap();
        let rest = format!("host: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let answer = exchange(address, &format!("{head}{rest}"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        (head.to_owned(), body.to_owned())
    }

    /// All that is answered to lines of the Redis protocol.
    pub fn resp(&self, commands: &str) -> String {
        exchange(self.node().resp_addr().unwrap(), &format!("{commands}\r\nQUIT\r\n"))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.node.take().map(Node::stop);
    }
}

fn exchange(address: SocketAddr, question: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(question.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
