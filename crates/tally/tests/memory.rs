//! A real server under each of the attacks that made it take gigabytes, and under floods of writes: it stays within a tenth and 64 MiB
//! of its `--memory`, and 64 MiB more with an archive, and goes on.
//!
//! Each sends some hundred megabytes over loopback; without its bound the server takes more than it may.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tally_core::limits::MEMORY_BYTES_MIN;
use tally_node::clock::Stopwatch;
use tally_node::memory::Shares;

const MIB: usize = 1 << 20;
const COUNTERS: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules: [{on: video.viewed, op: increment}]
  - counterName: impressions
    mode: persistent
    dimensions: [ad]
    rules: [{on: ad.shown, op: increment}]
";

/// Writes of some seconds, as arguments of `tally bench`.
const FLOODS: &[(&str, &[&str])] = &[
    (
        "200 connections with bodies of 1 MB over 10 M keys",
        &["--op", "events", "--connections", "200", "--events-per-request", "4000", "--keys", "10000000"],
    ),
    (
        "the same with a session for each event",
        &[
            "--op",
            "events",
            "--connections",
            "200",
            "--events-per-request",
            "4000",
            "--keys",
            "30000000",
            "--sessions",
            "100000000",
        ],
    ),
    (
        "64 connections with compact batches over 10 M keys",
        &["--op", "events", "--compact", "--connections", "64", "--events-per-request", "4000", "--keys", "10000000"],
    ),
    ("event ids", &["--op", "events", "--type", "ad.shown", "--dimension", "ad", "--ids", "--keys", "100000"]),
    ("INCR over 50 M keys", &["--keys", "50000000", "--keep"]),
];
const FLOOD_SECONDS: &str = "5";
/// For so long it may be busy with what was sent.
const BUSY_MAX: Duration = Duration::from_secs(30);

struct Server {
    child: Child,
    http: String,
    resp: String,
    has_archive: bool,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start(extra: &[&str]) -> Server {
        allow_many_connections();
        let dir = tempfile::tempdir().unwrap();
        let counters = dir.path().join("counters.yaml");
        std::fs::write(&counters, COUNTERS).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tally"))
            .args(["serve", "--memory", "256MiB", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--data"])
            .arg(dir.path().join("data"))
            .arg("--config")
            .arg(counters)
            .args(extra)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.ends_with("ready\n") {
            assert!(output.read_line(&mut banner).unwrap() > 0, "the server ended early:\n{banner}");
        }
        assert!(banner.contains("64.0 MiB of memory for all of them"), "{banner}");
        let address = |scheme: &str| {
            let rest = banner.split(scheme).nth(1).unwrap();
            rest.split_whitespace().next().unwrap().to_owned()
        };
        Server {
            http: address("http://"),
            resp: address("redis://"),
            child,
            has_archive: !extra.contains(&"none"),
            _dir: dir,
        }
    }

    fn http(&self) -> TcpStream {
        connect(&self.http)
    }

    fn resp(&self) -> TcpStream {
        connect(&self.resp)
    }

    /// The most memory that it had so far, without its code: that of a build for tests is large.
    fn peak_bytes(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is running");
            line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
        };
        bytes("VmHWM:") - bytes("RssFile:")
    }

    /// Runs the load generator against it.
    fn flood(&self, load: &[&str]) {
        let address = if load.contains(&"events") { &self.http } else { &self.resp };
        let flood = Command::new(env!("CARGO_BIN_EXE_tally"))
            .args(["bench", "--json", "--seconds", FLOOD_SECONDS, "--server", address])
            .args(load)
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&flood.stdout);
        assert!(report.contains("operations_per_second"), "{report}{}", String::from_utf8_lossy(&flood.stderr));
    }

    fn health(&self) -> String {
        let mut http = self.http();
        http.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        http.read_to_string(&mut answer).unwrap();
        answer
    }

    /// It has stayed within its bounds, and answers.
    #[track_caller]
    fn check(&self, attack: &str) {
        let mut redis = self.resp();
        redis.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 1];
        redis.read_exact(&mut reply).unwrap();
        let began = Stopwatch::start();
        let answer = loop {
            let answer = self.health();
            // What was sent may still be on its way in: then it says that one should come back.
            if !answer.starts_with("HTTP/1.1 503") || began.elapsed() > BUSY_MAX {
                break answer;
            }
        };
        assert!(answer.starts_with("HTTP/1.1 200"), "{attack}: {answer}");
        let peak_bytes = self.peak_bytes();
        eprintln!("{attack}: {} MiB at most", peak_bytes / MIB);
        let limit_bytes = Shares::resident_bytes_max(MEMORY_BYTES_MIN, self.has_archive) as usize;
        assert!(peak_bytes <= limit_bytes, "{attack}: {} MiB of {}", peak_bytes / MIB, limit_bytes / MIB);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The attackers are in this process, and so are their descriptors.
fn allow_many_connections() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(20_000);
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).unwrap();
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Sends as much as is taken without waiting long: a server that has enough closes, or stops reading.
fn send(stream: &mut TcpStream, bytes: &[u8]) {
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    if let Err(error) = stream.write_all(bytes) {
        let expected = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert!(expected.contains(&error.kind()), "{error}");
    }
}

fn post_head(extra: &str) -> Vec<u8> {
    let head = "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n";
    format!("{head}{extra}\r\n").into_bytes()
}

/// Events that do not compress well, so that the log has large batches.
/// Answers where the log ends then.
fn write_large_batches(server: &Server) -> u64 {
    let mut end = 0;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    };
    for _ in 0..3 {
        let mut body = String::new();
        while body.len() < 20 * MIB {
            let payload: String = (0..60).map(|_| word()).collect();
            body.push_str(&format!("{{\"type\":\"t\",\"payload\":\"{payload}\"}}\n"));
        }
        let mut stream = server.http();
        stream.write_all(&post_head(&format!("connection: close\r\ncontent-length: {}\r\n", body.len()))).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        end = offset_behind(&answer, "\"token\":\"").expect("it has counted or not, but it is in the log");
    }
    end
}

/// The offset of the last position behind a mark.
fn offset_behind(text: &str, mark: &str) -> Option<u64> {
    let position = text.rsplit_once(mark)?.1;
    let offset = position.split('-').nth(2)?;
    offset.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn subscribe(server: &Server, query: &str) -> TcpStream {
    let mut stream = server.http();
    let head = format!("GET /v1/commits{query} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Reads until the subscription has come to a position of the log.
fn read_to(stream: &mut TcpStream, offset: u64) {
    let mut seen = String::new();
    while offset_behind(&seen, "id: ").is_none_or(|reached| reached < offset) {
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
}

#[test]
fn floods_of_writes() {
    for (name, load) in FLOODS {
        for archive in [&["--archive", "none"][..], &[]] {
            let server = Server::start(archive);
            server.flood(load);
            server.check(&format!("{name} {}", archive.join(" ")));
        }
    }
}

#[test]
fn subscribers_that_do_not_read() {
    let server = Server::start(&[]);
    // From here on it is written down what becomes of counters.
    read_to(&mut subscribe(&server, ""), 0);
    let end = write_large_batches(&server);
    // The first record is the configuration.
    let mut subscribers: Vec<TcpStream> = (0..128).map(|_| subscribe(&server, "?from=1-0-1")).collect();
    // All of them have read the log to its end when they have told its last commit.
    subscribers.iter_mut().for_each(|stream| read_to(stream, end));
    server.check("128 subscribers from the beginning");
}

#[test]
fn bodies_that_are_only_announced() {
    let server = Server::start(&[]);
    let begun = [post_head("content-length: 33000000\r\n"), b"{".to_vec()].concat();
    let mut senders: Vec<TcpStream> = (0..3000).map(|_| server.http()).collect();
    senders.iter_mut().for_each(|stream| send(stream, &begun));
    server.check("3,000 announced bodies");
}

#[test]
fn large_windows_for_decompression() {
    let server = Server::start(&[]);
    let mut encoder = zstd_encoder();
    let line = vec![b'\n'; MIB];
    (0..9).for_each(|_| encoder.write_all(&line).unwrap());
    encoder.flush().unwrap();
    let begun =
        [post_head("content-encoding: zstd\r\ncontent-length: 33000000\r\n"), encoder.get_ref().clone()].concat();
    let mut senders: Vec<TcpStream> = (0..300).map(|_| server.http()).collect();
    senders.iter_mut().for_each(|stream| send(stream, &begun));
    server.check("300 windows of 8 MiB");
}

fn zstd_encoder() -> zstd::stream::write::Encoder<'static, Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(23).unwrap();
    encoder
}

#[test]
fn strangers_with_unfinished_commands() {
    let server = Server::start(&["--password", "sesame"]);
    let argument = [&b"$12000\r\n"[..], &[b'x'; 12_000], b"\r\n"].concat();
    let unfinished = [&b"*10\r\n$4\r\nAUTH\r\n"[..], &argument.repeat(9)].concat();
    let mut strangers: Vec<TcpStream> = (0..4000).map(|_| server.resp()).collect();
    strangers.iter_mut().for_each(|stream| send(stream, &unfinished));
    server.check("4,000 strangers");
}

#[test]
fn unfinished_commands_and_unread_replies() {
    let server = Server::start(&[]);
    let argument = [&b"$1000000\r\n"[..], &vec![b'x'; 1_000_000], b"\r\n"].concat();
    let unfinished = [&b"*40\r\n$4\r\nMGET\r\n"[..], &argument.repeat(31)].concat();
    let mut senders: Vec<TcpStream> = (0..40).map(|_| server.resp()).collect();
    senders.iter_mut().for_each(|stream| send(stream, &unfinished));
    server.check("40 unfinished commands of 31 MB");
    drop(senders);

    let echo = [&b"*2\r\n$4\r\nECHO\r\n"[..], &argument].concat().repeat(10);
    let mut deaf: Vec<TcpStream> = (0..100).map(|_| server.resp()).collect();
    deaf.iter_mut().for_each(|stream| send(stream, &echo));
    server.check("100 that never read");
    drop(deaf);

    let named = [
        [&b"*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nlib-name\r\n"[..], &argument].concat(),
        [&b"*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nlib-ver\r\n"[..], &argument].concat(),
    ]
    .concat();
    let mut named_ones: Vec<TcpStream> = (0..400).map(|_| server.resp()).collect();
    named_ones.iter_mut().for_each(|stream| send(stream, &named));
    server.check("400 with long names");
}
