//! A control group of the kernel with a bound on memory: whoever goes beyond it is killed. Of either version, if one may be made
//! here.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the two versions are.
const UNIFIED: &str = "/sys/fs/cgroup";
const MEMORY: &str = "/sys/fs/cgroup/memory";
/// Who is in a group.
const MEMBERS: &str = "cgroup.procs";

pub struct Group {
    directory: PathBuf,
    files: &'static Files,
}

/// What the files of a version are called.
struct Files {
    root: &'static str,
    /// Set to the bound, in this order.
    bounds: &'static [&'static str],
    /// The most that there was, to be added up.
    peaks: &'static [&'static str],
    /// Has a line `oom_kill N`.
    kills: &'static str,
}

/// The memory of sockets is part of the group's.
const SECOND: Files = Files { root: UNIFIED, bounds: &["memory.max"], peaks: &["memory.peak"], kills: "memory.events" };

/// The memory of sockets is apart, and counted only where it has a bound.
const FIRST: Files = Files {
    root: MEMORY,
    bounds: &["memory.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"],
    peaks: &["memory.max_usage_in_bytes", "memory.kmem.tcp.max_usage_in_bytes"],
    kills: "memory.oom_control",
};

impl Group {
    /// `None` where it cannot be made: not root, or no controller of memory.
    pub fn make(bytes: u64) -> Option<Group> {
        [&SECOND, &FIRST].into_iter().find_map(|files| Group::try_make(files, bytes).ok())
    }

    fn try_make(files: &'static Files, bytes: u64) -> Result<Group> {
        let directory = Path::new(files.root).join(format!("tally-attack-{}", std::process::id()));
        fs::create_dir(&directory)?;
        let group = Group { directory, files };
        // Where only the first version is, this may be a plain directory.
        ensure!(group.directory.join(MEMBERS).exists(), "this is no control group");
        for bound in files.bounds {
            fs::write(group.directory.join(bound), bytes.to_string())?;
        }
        Ok(group)
    }

    /// A command that becomes `binary` inside the group.
    pub fn enclosing(&self, binary: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(self.directory.join(MEMBERS)).arg(binary);
        command
    }

    /// The most that it had, the page cache included, which the kernel takes back when it needs it.
    pub fn peak_bytes(&self) -> Result<u64> {
        self.files.peaks.iter().map(|file| Ok(self.read(file)?.trim().parse::<u64>()?)).sum()
    }

    pub fn has_killed(&self) -> Result<bool> {
        let text = self.read(self.files.kills)?;
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill ")).context("it counts no kills")?;
        Ok(kills.trim() != "0")
    }

    fn read(&self, file: &str) -> Result<String> {
        Ok(fs::read_to_string(self.directory.join(file))?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It goes when nobody is in it any more.
        let _ = fs::remove_dir(&self.directory);
    }
}
