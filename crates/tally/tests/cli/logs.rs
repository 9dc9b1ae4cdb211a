//! The log of the process: where it goes, in which form, in which colours.

use crate::support::{Served, stdout};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// What a server that starts and stops writes to a terminal.
fn on_a_terminal(change: impl FnOnce(&mut Command)) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let inside = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
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
    let _ = std::fs::File::from(terminal).read_to_end(&mut text);
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
