//! Where Redis's tests come from: the source package of the distribution's own redis-server.

use crate::install;
use crate::shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the client of the tests does beside: see there.
const WORDS: &str = include_str!("words.tcl");

/// What happens behind a test that fails: see there.
const TIDY: &str = include_str!("tidy.tcl");

/// Fetches and unpacks the source unless it is there, and lets its tests speak of integers; answers its directory.
pub fn prepare() -> Result<PathBuf> {
    let source = fetch()?;
    amend(&source.join("tests/support/redis.tcl"), |text| text + WORDS)?;
    amend(&source.join("tests/support/test.tcl"), |text| text + TIDY)?;
    // It starts no server of its own, so it can be told of one that runs.
    amend(&source.join("tests/unit/info.tcl"), |text| text.replace("\"external:skip\"", ""))?;
    Ok(source)
}

/// Changes a file, from what it was originally.
fn amend(path: &Path, change: impl Fn(String) -> String) -> Result<()> {
    let original = path.with_extension("tcl.orig");
    if !original.exists() {
        fs::copy(path, &original)?;
    }
    Ok(fs::write(path, change(fs::read_to_string(&original)?))?)
}

fn fetch() -> Result<PathBuf> {
    install::tcl()?;
    let place = shell::target_dir()?.join("redis-suite");
    if let Some(source) = unpacked(&place) {
        return Ok(source);
    }
    fs::create_dir_all(place.join("lists/partial"))?;
    fs::create_dir_all(place.join("sources.list.d"))?;
    copy_sources(&place)?;
    apt_get(&place, &["update"])?;
    apt_get(&place, &["source", "--download-only", "redis"])?;
    let archive = find(&place, |name| name.ends_with(".orig.tar.gz")).context("apt-get source brought no archive")?;
    let archive = archive.to_str().context("the target directory is UTF-8")?;
    shell::run("tar", &["--extract", "--file", archive, "--directory", place.to_str().unwrap_or(".")])?;
    unpacked(&place).context("the archive has no Redis in it")
}

fn unpacked(place: &Path) -> Option<PathBuf> {
    find(place, |name| name.starts_with("redis-")).filter(|source| source.join("runtest").is_file())
}

fn find(place: &Path, wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(place).ok()?.flatten();
    entries.map(|entry| entry.path()).find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&wanted))
}

/// The machine's own package sources, asked for sources: the system's lists stay as they are.
fn copy_sources(place: &Path) -> Result<()> {
    let list = fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    fs::write(place.join("sources.list"), list.replace("deb ", "deb-src "))?;
    for entry in fs::read_dir("/etc/apt/sources.list.d")?.flatten() {
        let path = entry.path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let (from, to) = match path.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => ("Types: deb\n", "Types: deb-src\n"),
            Some("list") => ("deb ", "deb-src "),
            _ => continue,
        };
        fs::write(place.join("sources.list.d").join(entry.file_name()), text.replace(from, to))?;
    }
    Ok(())
}

fn apt_get(place: &Path, args: &[&str]) -> Result<()> {
    let option = |name: &str, file: &str| format!("{name}={}", place.join(file).display());
    let options = [
        option("Dir::Etc::sourcelist", "sources.list"),
        option("Dir::Etc::sourceparts", "sources.list.d"),
        option("Dir::State::lists", "lists"),
    ];
    let mut command = Command::new("apt-get");
    command.arg("--quiet").args(options.iter().flat_map(|option| ["--option", option])).args(args).current_dir(place);
    let status = command.status().context("apt-get could not be started")?;
    anyhow::ensure!(status.success(), "`apt-get {}` failed: {status}", args.join(" "));
    Ok(())
}
