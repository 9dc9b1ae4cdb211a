//! What a person is told who starts a server with another configuration, or with a wrong one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

const VIEWS: &str =
    "counters:\n  - {counterName: views, mode: display, dimensions: [video], rules: [{on: seen, op: increment}]}\n";

fn serve(dir: &Path, config: &str, args: &[&str]) -> Command {
    let file = dir.join("counters.yaml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.args(["serve", "--memory", "256MiB", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
    command.arg("--data").arg(dir.join("data")).arg("--config").arg(file).args(args);
    command
}

/// What a start prints until it is ready; then it is stopped.
fn starts(dir: &Path, config: &str, args: &[&str]) -> String {
    let mut child = serve(dir, config, args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut banner = String::new();
    while !banner.ends_with("ready\n") {
        assert!(output.read_line(&mut banner).unwrap() > 0, "the server ended early:\n{banner}");
    }
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    banner
}

/// What a start says that is refused, without the directory's name.
fn refused(dir: &Path, config: &str, args: &[&str]) -> String {
    let output = serve(dir, config, args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap().replace(&format!("{}/", dir.display()), "")
}

#[test]
fn a_start_says_what_its_configuration_changes_and_refuses_what_it_would_lose() {
    let dir = tempfile::tempdir().unwrap();
    let banner = starts(dir.path(), VIEWS, &[]);
    assert!(banner.contains("  declared    added views\n"), "{banner}");
    assert!(!starts(dir.path(), VIEWS, &[]).contains("  declared    "), "nothing has changed");
    let likes = VIEWS.replace("views", "likes");
    assert_eq!(
        refused(dir.path(), &likes, &[]),
        "error: Tally cannot start\n  why: the configuration no longer declares views, which this data directory counts\n  \
         fix: Name the right file with --config. To remove them, start with --remove views; nothing is deleted.\n"
    );
    let banner = starts(dir.path(), &likes, &["--remove", "views"]);
    assert!(banner.contains("  declared    added likes; removed views\n"), "{banner}");
}

#[test]
fn a_start_says_where_the_archive_is_and_how_long_it_keeps_what() {
    let dir = tempfile::tempdir().unwrap();
    let line = |banner: String| banner.lines().find_map(|line| line.strip_prefix("  archive     ").map(str::to_owned));
    let data = dir.path().join("data").canonicalize().unwrap_or_else(|_| dir.path().join("data"));
    let here = format!("{}/archive, keeps 90d, 0 B now", data.display());
    assert_eq!(line(starts(dir.path(), VIEWS, &["--archive", "none"])), None);
    assert!(!data.join("archive").exists());
    assert_eq!(line(starts(dir.path(), VIEWS, &[])), Some(here));
    let other = dir.path().join("other");
    let kept =
        line(starts(dir.path(), &format!("archive: {{keep: 2y}}\n{VIEWS}"), &["--archive", other.to_str().unwrap()]));
    assert!(kept.is_some_and(|kept| kept.contains("/other, keeps 2y, ")), "it is somewhere else");
    assert_eq!(line(starts(dir.path(), &format!("archive: none\n{VIEWS}"), &[])), None);
}

#[test]
fn an_archive_that_cannot_be_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let text = refused(dir.path(), VIEWS, &["--archive", file.to_str().unwrap()]);
    assert!(text.contains("--archive file: it is a file"), "{text}");
    let strange = serve(dir.path(), VIEWS, &["--archive"]).arg(OsStr::from_bytes(b"strange-\xff")).output().unwrap();
    assert_eq!(strange.status.code(), Some(1), "{strange:?}");
    assert!(String::from_utf8_lossy(&strange.stderr).contains("its name is not UTF-8"), "{strange:?}");
    let text = refused(dir.path(), VIEWS, &["--archive", "none", "--sign-key", "key"]);
    assert!(text.contains("--sign-key signs the roots of the archive"), "{text}");
    assert!(!dir.path().join("data").exists());
}

#[test]
fn an_empty_configuration_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for blank in ["", "# nothing yet\n", "---\n\n"] {
        let text = refused(dir.path(), blank, &[]);
        assert!(text.starts_with("error: counters.yaml: the configuration is empty\n"), "{text}");
    }
}

#[test]
fn a_changed_meaning_is_blamed_on_the_configuration_and_not_on_the_data() {
    let dir = tempfile::tempdir().unwrap();
    starts(dir.path(), VIEWS, &[]);
    assert_eq!(
        refused(dir.path(), &VIEWS.replace("[video]", "[video, country]"), &[]),
        "error: counters.yaml:2:53: the configuration is not valid\n  \
         why: counter \"views\" was declared with dimensions: [video] and would now have dimensions: [video, country], \
         which changes what its numbers mean\n    \
         2 |   - {counterName: views, mode: display, dimensions: [video, country], rules: [{on: seen, op: increment}]}\n      \
         |                                                     ^\n  \
         fix: Declare it under another name, or write dimensions: [video] again.\n"
    );
}

#[test]
fn all_errors_of_a_configuration_are_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = "counters:\n  - counterName: views\n    mode: displai\n    rules: [{on: seen, op: +1}]\n";
    assert_eq!(
        refused(dir.path(), config, &[]),
        "error: counters.yaml: the configuration has 2 errors\n  \
         counters.yaml:3:11: \"displai\" is not a mode\n    3 |     mode: displai\n      |           ^\n    \
         fix: Did you mean \"display\"?\n  \
         counters.yaml:4:28: \"+1\" is not an op: by how much an event counts is its own \"delta\"\n    \
         4 |     rules: [{on: seen, op: +1}]\n      |                            ^\n    fix: Write op: increment.\n"
    );
}
