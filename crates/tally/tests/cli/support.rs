//! The binary, and a server of it.

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

pub fn tally(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tally")).args(args).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Sends a question and reads until the other side has nothing more to say.
pub fn exchange(address: &str, question: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(question.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Both sides of a terminal: what it shows is read from the first, and a process has the second.
pub fn terminal() -> (File, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let inside = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (File::from(terminal), inside)
}

/// A served data directory; killed when dropped.
pub struct Served {
    child: Child,
    output: BufReader<ChildStdout>,
    pub banner: String,
    pub resp: String,
}

impl Served {
    pub fn start(command: &[&str]) -> Served {
        Served::start_with(command, Stdio::null())
    }

    pub fn start_with(command: &[&str], stderr: Stdio) -> Served {
        Served::start_with_env(command, &[], stderr)
    }

    pub fn start_with_env(command: &[&str], env: &[(&str, &str)], stderr: Stdio) -> Served {
        let ports = ["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
        let mut tally = Command::new(env!("CARGO_BIN_EXE_tally"));
        Served::run(tally.args(command).args(ports).envs(env.iter().copied()), stderr)
    }

    /// Whatever command ends in a server.
    pub fn run(command: &mut Command, stderr: Stdio) -> Served {
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.ends_with("ready\n") {
            assert!(output.read_line(&mut banner).unwrap() > 0, "the server ended early:\n{banner}");
        }
        let resp = banner.split("redis://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let resp = resp.unwrap_or_default().to_owned();
        Served { child, output, banner, resp }
    }

    pub fn on(data: &Path) -> Served {
        Served::start(&["serve", "--memory", "256MiB", "--data", data.to_str().unwrap()])
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn client(&self, args: &[&str]) -> Output {
        tally(&[args, &["--server", &self.resp]].concat())
    }

    /// Asks the server to stop; answers its exit code and what it still printed.
    pub fn stop(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
