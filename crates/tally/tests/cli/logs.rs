//! The log of the process: where it goes, in which form, in which colours.

use crate::support::{Served, exchange, stdout, terminal};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::process::{Command, Stdio};

/// What a server that starts and stops writes to a terminal.
fn on_a_terminal(change: impl FnOnce(&mut Command)) -> String {
    let (mut terminal, inside) = terminal();
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command
        .args(["serve", "--memory", "256MiB", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--data"])
        .arg(dir.path())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdout(Stdio::piped())
        .stderr(inside);
    change(&mut command);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next().expect("the server ended early").unwrap() != "ready" {}
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    lines.for_each(drop);
    child.wait().unwrap();
    let mut text = Vec::new();
    // A terminal that nobody writes to any more ends in an error.
    let _ = terminal.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn colours_are_for_terminals_whose_owner_wants_them() {
    let coloured = on_a_terminal(|_| {});
    assert!(coloured.contains("\x1b[") && coloured.contains("started"), "{coloured:?}");
    for plain in [
        on_a_terminal(|command| _ = command.env("NO_COLOR", "1")),
        on_a_terminal(|command| _ = command.env("TERM", "dumb")),
    ] {
        assert!(!plain.contains('\x1b') && plain.contains("started"), "{plain:?}");
    }
}

#[test]
fn a_log_in_json_has_an_object_on_each_line() {
    let dir = tempfile::tempdir().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let data = dir.path().to_str().unwrap();
    let server = ["serve", "--memory", "256MiB", "--log-format", "json", "--data", data];
    let server = Served::start_with(&server, Stdio::from(writer));
    assert_eq!(stdout(&server.client(&["add", "visits"])), "1\n");
    server.stop(Signal::TERM);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("{message:?} was not said in\n{text}"))
    };
    assert_eq!(said("started")["level"], "INFO");
    assert_eq!(said("started")["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(said("a checkpoint was taken")["counters"], 1);
    assert!(said("stopped")["timestamp"].is_string());
}

/// A server whose log is read, as JSON, when it has stopped.
struct Logged {
    server: Served,
    log: PipeReader,
}

impl Logged {
    fn start(args: &[&str]) -> Logged {
        let (log, writer) = std::io::pipe().unwrap();
        let base = ["serve", "--memory", "256MiB", "--log-format", "json"];
        Logged { server: Served::start_with(&[&base[..], args].concat(), Stdio::from(writer)), log }
    }

    fn resp(&self, lines: &str) -> String {
        exchange(&self.server.resp, &format!("{lines}QUIT\r\n"))
    }

    fn http(&self) -> &str {
        self.server.banner.split("http://").nth(1).unwrap().split_whitespace().next().unwrap()
    }

    /// A request with these fields in its head.
    fn get(&self, path: &str, fields: &str) -> String {
        exchange(self.http(), &format!("GET {path} HTTP/1.1\r\n{fields}connection: close\r\n\r\n"))
    }

    fn post(&self, path: &str, body: &str) -> String {
        let address = self.http();
        let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
        exchange(address, &format!("{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
    }

    fn stop(mut self) -> Vec<serde_json::Value> {
        self.server.stop(Signal::TERM);
        let mut text = String::new();
        self.log.read_to_string(&mut text).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[track_caller]
fn said<'l>(lines: &'l [serde_json::Value], message: &str) -> &'l serde_json::Value {
    let found = lines.iter().find(|line| line["message"] == message);
    found.unwrap_or_else(|| panic!("{message:?} was not said in {lines:#?}"))
}

#[test]
fn whoever_empties_a_server_or_guesses_its_password_is_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let logged = Logged::start(&["--data", dir.path().to_str().unwrap(), "--password", "sesame"]);
    for _ in 0..50 {
        logged.resp("AUTH guess\r\n");
    }
    assert!(logged.resp("AUTH sesame\r\nINCR a\r\nINCR b\r\n").contains(":1"));
    assert!(logged.resp("AUTH sesame\r\nFLUSHALL\r\n").contains("+OK"));
    let lines = logged.stop();
    let guess = said(&lines, "a client has given a wrong password");
    assert!(guess["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{guess}");
    let guesses = lines.iter().filter(|line| line["message"] == "a client has given a wrong password").count();
    assert!(guesses < 50, "a stranger cannot fill a disk with lines");
    let flush = said(&lines, "a client has flushed all counters");
    assert_eq!(
        (&flush["level"], &flush["command"], &flush["counters"]),
        (&"WARN".into(), &"flushall".into(), &2.into())
    );
}

#[test]
fn what_changes_the_meaning_of_numbers_is_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("counters.yaml");
    let yaml = "
counters:
  - {counterName: sold, mode: persistent, rules: [{on: order, op: increment}]}
  - {counterName: left, mode: persistent, rules: [{on: order, op: decrement}]}
  - {counterName: paid, mode: persistent, rules: [{on: payment, op: increment}, {on: refund, op: decrement}]}
";
    std::fs::write(&config, yaml).unwrap();
    let data = dir.path().join("data");
    let logged = Logged::start(&["--data", data.to_str().unwrap(), "--config", config.to_str().unwrap()]);
    for id in ["e1", "e1", "e2"] {
        logged.post("/v1/events", &format!(r#"{{"type":"refund","eventId":"{id}"}}"#));
    }
    for _ in 0..2 {
        logged.post("/v1/events", r#"{"type":"order","eventId":"e3"}"#);
    }
    let proposal = r#"{"reason":"a test","author":"ann","deltas":[{"id":"sold","delta":2}]}"#;
    assert!(logged.post("/v1/corrections", proposal).contains("proposed"));
    assert!(logged.post("/v1/corrections/1/apply", "").contains("applied"));
    let lines = logged.stop();
    assert_eq!(said(&lines, "declarations are in force")["counters"], 3);
    assert_eq!(said(&lines, "a correction was proposed")["author"], "ann");
    let applied = said(&lines, "a correction was applied");
    assert_eq!((&applied["generation"], &applied["reason"]), (&1.into(), &"a test".into()));
    let again = lines.iter().filter(|line| line["message"] == "an event id came again");
    let again: Vec<_> =
        again.map(|line| (line["counterName"].as_str().unwrap(), line["op"].as_str().unwrap())).collect();
    assert_eq!(again, [("paid", "DEC"), ("sold,left", "INC,DEC")], "{lines:#?}");
}

#[test]
fn whoever_is_not_let_in_over_http_is_in_the_log_with_where_they_come_from() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let (open, guarded) = (dir.path().join("open"), dir.path().join("guarded"));
    let open = Logged::start(&["--data", open.to_str().unwrap()]);
    let guarded = Logged::start(&["--data", guarded.to_str().unwrap(), "--http-token-file", token.to_str().unwrap()]);
    for _ in 0..50 {
        assert!(guarded.get("/v1/counters/a", "host: x\r\nauthorization: Bearer guess\r\n").contains(" 401 "));
        assert!(open.get("/v1/counters/a", "host: evil.example\r\n").contains(" 421 "));
        assert!(open.get("/v1/counters/b", "host: localhost\r\norigin: https://evil.example\r\n").contains(" 403 "));
    }
    assert!(guarded.get("/v1/counters/a", "host: x\r\n").contains(" 401 "));
    let (open, guarded) = (open.stop(), guarded.stop());
    let check = |lines: &[serde_json::Value], message: &str, path: &str| {
        let line = said(lines, message).clone();
        assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert_eq!((&line["path"], &line["level"], &line["method"]), (&path.into(), &"WARN".into(), &"GET".into()));
        let times = lines.iter().filter(|line| line["message"] == message).count();
        assert!(times < 50, "a page in a loop cannot fill a disk with lines");
        line
    };
    check(&guarded, "a client has given a wrong token", "/v1/counters/a");
    let host = check(&open, "a request under a foreign name was refused", "/v1/counters/a");
    assert_eq!(host["host"], "evil.example");
    let page = check(&open, "a page of another site was refused", "/v1/counters/b");
    assert_eq!(page["origin"], "https://evil.example");
}
