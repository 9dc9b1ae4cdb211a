//! The binary on a machine whose clock is set ahead and back, by libfaketime.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A data directory, and a clock beside it.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { dir: tempfile::tempdir().unwrap() };
        machine.set_clock("+0");
        machine
    }

    /// By how much the wall clock is off from now on, such as `+1d`. The new text comes as a whole.
    fn set_clock(&self, off: &str) {
        std::fs::write(self.dir.path().join("next"), off).unwrap();
        std::fs::rename(self.dir.path().join("next"), self.dir.path().join("clock")).unwrap();
    }

    fn serve(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
        command.args(["serve", "--memory", "256MiB", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--data"]);
        command.arg(self.dir.path().join("data")).args(args);
        command.env("LD_PRELOAD", libfaketime()).env("FAKETIME_TIMESTAMP_FILE", self.dir.path().join("clock"));
        // Only the wall clock can be set.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_NO_CACHE", "1");
        command
    }

    fn refused(&self) -> Output {
        let output = self.serve(&[]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        output
    }

    fn start(&self, args: &[&str]) -> Served {
        let mut child = self.serve(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.ends_with("ready\n") {
            assert!(output.read_line(&mut banner).unwrap() > 0, "the server ended early:\n{banner}");
        }
        let address = |scheme: &str| {
            let rest = banner.split(scheme).nth(1).unwrap();
            rest.split(|c: char| c.is_whitespace() || c == '/').next().unwrap().to_owned()
        };
        Served { http: address("http://"), resp: address("redis://"), child }
    }
}

/// Where Debian has it, whatever the machine.
fn libfaketime() -> PathBuf {
    let places = std::fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let library = Path::new("faketime/libfaketimeMT.so.1");
    let mut found = places.map(|place| place.join(library)).filter(|path| path.exists());
    found.next().expect("libfaketime is missing: `cargo xtask test` installs what the tests need")
}

struct Served {
    child: Child,
    http: String,
    resp: String,
}

impl Served {
    fn redis(&self, command: &str) -> String {
        let mut stream = BufReader::new(TcpStream::connect(&self.resp).unwrap());
        stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn readiness(&self) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn until_ready_says(&self, what: &str, says: bool) {
        while self.readiness().contains(what) != says {
            std::thread::yield_now();
        }
    }

    fn stop(mut self) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_clock_that_is_set_ahead_and_back_ends_nothing_early() {
    let machine = Machine::new();
    let server = machine.start(&[]);
    assert_eq!(server.redis("SET old 1 EX 3600"), "+OK");
    machine.set_clock("+1d");
    server.until_ready_says("clock: the clock of this machine has leapt ahead", true);
    assert_eq!(server.redis("INCR fast"), ":1");
    machine.set_clock("+0");
    server.until_ready_says("clock:", false);
    assert_eq!(server.redis("EXPIRE fast 100"), ":1");
    for (counter, seconds) in [("old", 3_400..=3_600), ("fast", 1..=100)] {
        let left = server.redis(&format!("TTL {counter}"));
        assert!(
            left.strip_prefix(':').is_some_and(|left| seconds.contains(&left.parse().unwrap())),
            "{counter}: {left}"
        );
    }
    server.stop();
}

#[test]
fn a_start_a_day_in_the_past_is_refused_in_words_unless_it_is_accepted() {
    let machine = Machine::new();
    let server = machine.start(&[]);
    assert_eq!(server.redis("INCR a"), ":1");
    server.stop();
    machine.set_clock("-2d");
    let text = String::from_utf8(machine.refused().stderr).unwrap();
    assert!(text.contains("why: the clock of this machine is 1d 23h behind the last write"), "{text}");
    assert!(text.contains("fix: Set the clock.") && text.contains("--accept-clock"), "{text}");
    let server = machine.start(&["--accept-clock"]);
    assert_eq!(server.redis("INCR a"), ":2");
    server.until_ready_says("clock: the clock of this machine is", true);
    server.stop();
}
