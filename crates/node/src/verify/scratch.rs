//! A clone of a data directory that a node can be started on, and of which nothing leads back: files that are never written again are links,
//! all others are copies. It is removed when it is dropped.
//!
//! Tables of the store and files of the archive are written once; whoever has done with one removes its name, which here is that of a link.
//! Segments of both logs are used again when they are free, so they are copied.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tally_archive::{LOCK, catalog};
use tempfile::TempDir;

/// What a clone does without: the lock is one's own, and what questions have put aside is of no use.
const LEFT_OUT: [&str; 3] = ["LOCK", "spill", "archive"];

/// Attempts at removing a clone that is written to meanwhile.
const REMOVALS_MAX: usize = 100;

pub struct Scratch {
    directory: TempDir,
    /// Where what it clones is.
    data: PathBuf,
    of_archive: Option<PathBuf>,
}

/// What becomes of a file in the clone.
#[derive(Clone, Copy)]
enum As {
    Copy,
    Link,
    /// Only that there is one is of interest.
    Empty,
    Nothing,
}

/// What clones of this process are called by.
fn own_prefix() -> String {
    format!("tally-verify-{}-", std::process::id())
}

/// Removes the clones that this process has made in a directory, for one that has no time to end in order.
pub fn remove_clones(within: &Path) {
    let entries = fs::read_dir(within).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own_prefix())) {
        // Who is still writing to it may be a step ahead.
        for _ in 0..REMOVALS_MAX {
            if fs::remove_dir_all(entry.path()).is_ok() {
                break;
            }
        }
    }
}

impl Scratch {
    pub fn of(data: &Path, archive: Option<&Path>, within: &Path) -> io::Result<Scratch> {
        let directory = tempfile::Builder::new().prefix(&own_prefix()).tempdir_in(within)?;
        let of_archive = archive.map(Path::canonicalize).transpose()?;
        let scratch = Scratch { directory, data: data.canonicalize()?, of_archive };
        fs::create_dir(scratch.data())?;
        for entry in fs::read_dir(&scratch.data)? {
            let entry = entry?;
            let name = entry.file_name();
            if !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                clone(&entry.path(), &scratch.data().join(&name), &|path| of_data(path))?;
            }
        }
        if let Some(archive) = &scratch.of_archive {
            clone(archive, &scratch.directory.path().join("archive"), &|path| of_archive_file(path))?;
        }
        Ok(scratch)
    }

    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn archive(&self) -> Option<PathBuf> {
        self.of_archive.as_ref().map(|_| self.directory.path().join("archive"))
    }

    /// Words about the clone, as words about what it is a clone of.
    pub fn meant(&self, words: &str) -> String {
        let replaced = |words: String, clone: &Path, meant: &Path| {
            words.replace(&*clone.to_string_lossy(), &meant.to_string_lossy())
        };
        let words = replaced(words.to_owned(), &self.data(), &self.data);
        match (self.archive(), &self.of_archive) {
            (Some(clone), Some(meant)) => replaced(words, &clone, meant),
            _ => words,
        }
    }
}

fn clone(from: &Path, to: &Path, becomes: &dyn Fn(&Path) -> As) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            clone(&entry.path(), &to.join(entry.file_name()), becomes)?;
        }
        return Ok(());
    }
    match becomes(from) {
        As::Copy => fs::copy(from, to).map(drop),
        As::Link => symlink(from, to),
        As::Empty => fs::File::create(to).map(drop),
        As::Nothing => Ok(()),
    }
}

fn of_data(path: &Path) -> As {
    let is_table = path.parent().and_then(Path::file_name) == Some(OsStr::new("tables"));
    match path.extension().and_then(OsStr::to_str) {
        Some("spare") => As::Empty,
        Some("tmp") => As::Nothing,
        Some("discarded") => As::Link,
        _ if is_table => As::Link,
        _ => As::Copy,
    }
}

fn of_archive_file(path: &Path) -> As {
    let name = path.file_name().unwrap_or_default();
    let is_catalog = name.to_string_lossy().starts_with(catalog::FILE);
    match is_catalog {
        true => As::Copy,
        false if name == LOCK => As::Nothing,
        false => As::Link,
    }
}
