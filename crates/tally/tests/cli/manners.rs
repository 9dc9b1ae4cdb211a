//! What is expected of every command: pipes, exit codes, widths, JSON, names of hosts.

use crate::support::{Served, stderr, stdout, tally};
use rustix::process::Signal;
use std::io::Read;
use std::process::{Command, Output, Stdio};

const COMMANDS: [&str; 12] =
    ["serve", "demo", "check", "add", "get", "list", "top", "total", "encode", "bench", "inspect", "completions"];

/// Runs a command whose reader has gone already.
fn unread(args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tally"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut text = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut text).unwrap();
    Output { status: child.wait().unwrap(), stdout: Vec::new(), stderr: text }
}

#[test]
fn a_reader_who_has_seen_enough_is_no_reason_to_panic() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let config = dir.path().join("counters.yaml");
    std::fs::write(&config, "counters: [{counterName: stock, mode: simple}]").unwrap();
    let config = config.to_str().unwrap();
    let server = Served::on(&dir.path().join("data"));
    server.client(&["add", "visits"]);
    let log = dir.path().join("data/log");
    let log = log.to_str().unwrap();
    let segment = format!("{log}/000000000001.seg");
    let resp = &server.resp;
    for args in [
        &["inspect", log][..],
        &["inspect", &segment],
        &["inspect", &segment, "--json"],
        &["get", "visits", "--server", resp],
        &["add", "visits", "--server", resp],
        &["check", config],
        &["check", "--schema"],
        &["bench", "--server", resp, "--requests", "10", "--keys", "10"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
    ] {
        let output = unread(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{args:?}");
    }
    assert_eq!(server.client(&["get", "bench:*"]).status.code(), Some(3), "a run cleans up although nobody reads");
    server.stop(Signal::TERM);
    assert_eq!(unread(&["inspect", &format!("{data}/data")]).status.code(), Some(0));
}

#[test]
fn a_server_goes_on_when_nobody_reads_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let data = dir.path().to_str().unwrap();
    let server = Served::start_with(&["serve", "--memory", "256MiB", "--data", data], Stdio::from(writer));
    drop(reader);
    assert_eq!(stdout(&server.client(&["add", "visits"])), "1\n");
    let (code, rest) = server.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{rest}");
}

#[test]
fn what_is_not_there_has_an_exit_code_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    server.client(&["add", "views:v1", "3"]);
    server.client(&["add", "views:v2", "4"]);
    server.client(&["add", "view?:*", "1"]);

    let one = server.client(&["get", "nobody"]);
    assert_eq!((one.status.code(), &*stdout(&one)), (Some(3), ""), "a script gets nothing and knows why");
    assert!(stderr(&one).contains("there is no counter nobody"), "{}", stderr(&one));

    let none = server.client(&["get", "likes:*"]);
    assert_eq!((none.status.code(), &*stdout(&none)), (Some(3), ""));
    assert!(stderr(&none).contains("no counter matches likes:*"), "{}", stderr(&none));

    let matched = server.client(&["get", "views:*"]);
    assert_eq!((matched.status.code(), &*stdout(&matched)), (Some(0), "views:v1  3\nviews:v2  4\n"));
    let some = server.client(&["get", "views:v1", "nobody"]);
    assert_eq!((some.status.code(), &*stdout(&some)), (Some(3), "views:v1  3\nnobody    (none)\n"));
    let literal = server.client(&["get", "view?:*"]);
    assert_eq!(stdout(&literal), "view?:*  1\n", "only the star has a meaning");
    let first = server.client(&["get", "views:*", "--limit", "1"]);
    assert_eq!(stdout(&first), "views:v1  3\n");
    assert!(stderr(&first).contains("--limit"), "{}", stderr(&first));
}

#[test]
fn every_command_that_answers_does_so_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Served::on(&data);
    let lines = |output: &Output| -> Vec<serde_json::Value> {
        stdout(output)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    };
    let json = serde_json::json!({"id": "visits", "value": 5});
    assert_eq!(lines(&server.client(&["add", "visits", "5", "--json"])), std::slice::from_ref(&json));
    let none = serde_json::json!({"id": "nobody", "value": null});
    assert_eq!(lines(&server.client(&["get", "visits", "nobody", "--json"])), [json, none]);
    let log = data.join("log");
    let segments = lines(&tally(&["inspect", log.to_str().unwrap(), "--json"]));
    assert_eq!(segments[0]["from"], 0, "{segments:?}");
    let records = lines(&tally(&["inspect", log.join("000000000001.seg").to_str().unwrap(), "--json"]));
    let added = records.iter().find(|record| record["record"] == "add").unwrap();
    assert_eq!(added["text"], "visits +5", "{records:?}");
    server.stop(Signal::TERM);
    let store = lines(&tally(&["inspect", data.to_str().unwrap(), "--json"]));
    assert!(store[0]["checkpoint"].is_string(), "{store:?}");
    assert_eq!(store[1], serde_json::json!({"id": "visits", "value": 5, "expires": null}), "{store:?}");

    let config = dir.path().join("counters.yaml");
    std::fs::write(&config, "counters: [{counterName: sold, mode: simple, rules: [{on: sale, op: decrement}]}]")
        .unwrap();
    let check = lines(&tally(&["check", config.to_str().unwrap(), "--json"]));
    assert_eq!(check[0]["counters"][0]["rules"][0], serde_json::json!({"on": "sale", "op": "decrement"}), "{check:?}");
    assert_eq!(check[0]["idempotency"]["keep"], "1d");
}

#[test]
fn a_host_may_be_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_tally"))
        .args(["serve", "--memory", "256MiB", "--data", data, "--http", "localhost:0", "--resp", "localhost:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut banner = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    while !banner.ends_with("ready\n") {
        let read = std::io::BufRead::read_line(&mut output, &mut banner).unwrap();
        assert!(read > 0, "the server ended early:\n{banner}");
    }
    let port = banner.split("redis://127.0.0.1:").nth(1).unwrap().split_whitespace().next().unwrap();
    let added = tally(&["add", "visits", "--server", &format!("localhost:{port}")]);
    assert_eq!(stdout(&added), "1\n", "{}", stderr(&added));
    let measured = tally(&["bench", "--server", &format!("localhost:{port}"), "--requests", "10"]);
    assert!(measured.status.success(), "{}", stderr(&measured));
    server.kill().unwrap();
    server.wait().unwrap();
    let refused = tally(&["serve", "--data", data, "--http", "nobody-has-this-name.invalid:1"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("localhost:7070"), "{}", stderr(&refused));
}

#[test]
fn the_banner_says_where_the_data_really_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_tally"))
        .args(["serve", "--memory", "256MiB", "--data", "here", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut banner = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    while !banner.contains("data  ") {
        assert!(std::io::BufRead::read_line(&mut output, &mut banner).unwrap() > 0, "{banner}");
    }
    let wanted = dir.path().canonicalize().unwrap().join("here");
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(banner.contains(wanted.to_str().unwrap()), "{banner}");
}

/// The help of a command, as wide as a terminal of so many columns makes it.
fn help(command: Option<&str>, columns: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tally"))
        .args(command)
        .arg("--help")
        .env("COLUMNS", columns)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    stdout(&output)
}

#[test]
fn help_fits_on_a_terminal_of_80_columns() {
    for command in std::iter::once(None).chain(COMMANDS.map(Some)) {
        let text = help(command, "80");
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{command:?}: {long:#?}");
        // Examples stand in columns: they must fit as they are written, not be broken.
        let examples = |text: &str| text.split_once("\nExamples:").map(|(_, rest)| rest.to_owned());
        assert_eq!(examples(&text), examples(&help(command, "100")), "{command:?}: an example is too wide");
    }
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = tally(&["completions", shell]);
        assert!(output.status.success(), "{}", stderr(&output));
        let script = stdout(&output);
        assert!(COMMANDS.iter().all(|command| script.contains(command)) && script.contains("durability"), "{script}");
    }
    let checked = Command::new("bash").args(["-n", "-c", &stdout(&tally(&["completions", "bash"]))]).output().unwrap();
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert_eq!(tally(&["completions", "nosuchshell"]).status.code(), Some(2));
}
