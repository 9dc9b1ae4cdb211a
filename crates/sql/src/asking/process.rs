//! One process that answers one question. It is gone when this is dropped, and so is what it has spilled.

use crate::wire::{Heard, Listener, Task};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tally_node::clock::Stopwatch;
use tally_node::sql::ANSWER;

/// How often it is looked whether somebody still waits, and what the process takes.
const LOOK: Duration = Duration::from_millis(20);
/// Of what it says in the end.
const LAST_WORDS_BYTES: u64 = 16 << 10;
const LAST_WORDS_SHOWN: usize = 300;

pub struct Process {
    child: Child,
    listener: Listener,
    errors: File,
    _spill: Spill,
    looked: Stopwatch,
}

/// A directory that goes with who has it.
struct Spill(PathBuf);

impl Drop for Spill {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Process {
    pub fn start(program: &Path, task: &Task) -> io::Result<Process> {
        std::fs::create_dir_all(&task.spill)?;
        let spill = Spill(task.spill.clone());
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(LOOK))?;
        let listener = Listener::new(ours.try_clone()?);
        let errors = task.spill.join("errors");
        let (to_errors, errors) = (File::create(&errors)?, File::open(&errors)?);
        // From here on it is somebody's who waits for it.
        let child = Command::new(program)
            .arg(ANSWER)
            // Secrets are none of its business, and what it is to do it is told.
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(to_errors)
            // What a terminal says to the server is not meant for it.
            .process_group(0)
            .spawn()?;
        let process = Process { child, listener, errors, _spill: spill, looked: Stopwatch::start() };
        task.send(ours)?;
        Ok(process)
    }

    pub fn hear(&mut self) -> io::Result<Heard> {
        self.listener.hear()
    }

    /// What it has of the machine's memory for itself alone; looked at now and then.
    pub fn memory_bytes(&mut self) -> usize {
        if self.looked.elapsed() < LOOK {
            return 0;
        }
        self.looked = Stopwatch::start();
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap_or_default();
        let mut pages = pages.split(' ').skip(1).filter_map(|pages| pages.parse::<usize>().ok());
        let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
        resident.saturating_sub(shared) * rustix::param::page_size()
    }

    /// What it said before it ended, or how it did.
    pub fn last_words(mut self) -> String {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let mut words = Vec::new();
        let _ = (&self.errors).take(LAST_WORDS_BYTES).read_to_end(&mut words);
        let words = String::from_utf8_lossy(&words);
        let first: String = words.lines().filter(|line| !line.trim().is_empty()).take(2).collect::<Vec<_>>().join(" ");
        match first.is_empty() {
            true => status,
            false => first.chars().take(LAST_WORDS_SHOWN).collect(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; and it is nobody else as long as nobody has asked how.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
