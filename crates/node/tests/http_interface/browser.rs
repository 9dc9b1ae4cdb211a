//! A page of another site in a real browser (Chromium, headless) tries what such pages can try.
//!
//! The page is served by an attacker who also passes on whatever the page asks of its own server: for the browser and for Tally
//! that is what a page sees that has moved its name to Tally's address (DNS rebinding).

use crate::support::TestNode;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tally_node::worker::Spawner;

const PAGE: &str = include_str!("browser/attack.html");

/// A bound on a failing test; a passing one waits for the page's word.
const PATIENCE: Duration = Duration::from_secs(120);

struct Browser(Child, #[expect(dead_code, reason = "it is removed with it")] tempfile::TempDir);

impl Browser {
    fn open(url: &str) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let child = Command::new("chromium")
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--no-proxy-server", "--host-resolver-rules=MAP *.test 127.0.0.1"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromium is missing; cargo xtask test installs it (Debian: apt-get install chromium)");
        Browser(child, profile)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves the page at `/` and passes on everything else to the victim, byte for byte.
fn attack(listener: TcpListener, page: String, victim: SocketAddr) {
    serve(listener, move |mut stream, head| {
        if head.starts_with("GET / ") {
            answer(&mut stream, "text/html", &page);
            return;
        }
        let mut to = TcpStream::connect(victim).unwrap();
        to.write_all(head.as_bytes()).unwrap();
        let (mut back_from, mut back_to) = (to.try_clone().unwrap(), stream.try_clone().unwrap());
        let back = Spawner::thread("back", move || std::io::copy(&mut back_from, &mut back_to)).unwrap();
        let _ = std::io::copy(&mut stream, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
        let _ = back.join();
    });
}

/// Where the page tells what it has seen.
fn collect(listener: TcpListener, told: SyncSender<Value>) {
    serve(listener, move |mut stream, head| {
        let (head, begin) = head.split_once("\r\n\r\n").unwrap();
        let length = head.lines().filter_map(|line| line.split_once(": ")).find(|(name, _)| *name == "Content-Length");
        let mut body = begin.as_bytes().to_vec();
        let missing = length.map_or(0, |(_, length)| length.parse::<usize>().unwrap()) - body.len();
        let mut rest = vec![0; missing];
        stream.read_exact(&mut rest).unwrap();
        body.extend(rest);
        answer(&mut stream, "text/plain", "thanks");
        let _ = told.send(serde_json::from_slice(&body).unwrap());
    });
}

/// A thread for each connection, with what came up to the end of the first head.
fn serve(listener: TcpListener, handle: impl Fn(TcpStream, String) + Clone + Send + 'static) {
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let handle = handle.clone();
            let hear = move || {
                let mut stream = stream;
                let (mut head, mut piece) = (Vec::new(), [0; 4096]);
                while !head.windows(4).any(|window| window == b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(n @ 1..) => head.extend_from_slice(&piece[..n]),
                        // Browsers open connections that they never use.
                        _ => return,
                    }
                }
                handle(stream, String::from_utf8(head).unwrap());
            };
            Spawner::thread("connection", hear).unwrap();
        }
    };
    Spawner::thread("listener", accept).unwrap();
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn answer(stream: &mut TcpStream, content_type: &str, body: &str) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let _ = stream.write_all((head + body).as_bytes());
}

fn seen(told: &Receiver<Value>) -> Value {
    told.recv_timeout(PATIENCE).expect("the page tells what it has seen")
}

#[test]
fn a_page_of_another_site_in_a_browser_changes_and_reads_nothing() {
    let node = TestNode::start();
    node.post("/v1/counters/secret/increment", r#"{"delta":4711}"#).ok();
    let (tell, told) = sync_channel(2);
    let ((collector, collector_port), (attacker, attacker_port)) = (listen(), listen());
    collect(collector, tell);
    let friend = TestNode::start_with(|options| {
        options.http_options.access.origins = vec![format!("http://friend.test:{attacker_port}").parse().unwrap()];
    });
    let page = PAGE
        .replace("VICTIM", &node.address.port().to_string())
        .replace("FRIEND", &friend.address.port().to_string())
        .replace("COLLECTOR", &collector_port.to_string());
    attack(attacker, page, node.address);
    let browser = Browser::open(&format!("http://evil.test:{attacker_port}/"));
    let saw = seen(&told);
    drop(browser);

    for (way, answer) in saw["rebound"].as_object().unwrap() {
        assert_eq!(answer["status"], 421, "{way}: {saw:#}");
        assert!(!answer["text"].as_str().unwrap().contains("4711"), "{way}: {saw:#}");
    }
    assert_eq!(saw["rebound"].as_object().unwrap().len(), 4, "{saw:#}");
    for (way, answer) in saw["foreign"].as_object().unwrap() {
        assert!(["opaque", "failed", "sent"].contains(&answer.as_str().unwrap()), "{way}: {saw:#}");
    }
    let refused = |slug: &str| {
        let lines = node.get("/metrics").text().to_owned();
        let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        let with = |line: &&str| line.starts_with("tally_http_requests_total{") && line.contains(slug);
        lines.lines().filter(with).map(count).sum::<u64>()
    };
    assert!(refused(r#"status="403""#) >= 8, "the page has asked: {saw:#}");
    assert!(refused(r#"status="421""#) >= 4, "{saw:#}");
    let all = node.get("/v1/counters/*/aggregate").ok();
    assert_eq!((&all["value"], &all["counters"]), (&json!(4711), &json!(1)), "{saw:#}");
    assert_eq!(node.get("/v1/corrections").ok()["corrections"], json!([]));

    assert!(saw["friend"].is_string(), "evil.test is not friend.test: {saw:#}");

    // The same page under the name that an operator has allowed: it counts and reads, so it does ask as it should.
    let browser = Browser::open(&format!("http://friend.test:{attacker_port}/"));
    let saw = seen(&told);
    drop(browser);
    assert_eq!(saw["friend"], json!({"increment": 1, "read": 1}), "{saw:#}");
    assert_eq!(friend.value("invited"), 1);
}
