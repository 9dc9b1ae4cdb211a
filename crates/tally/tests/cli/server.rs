//! What a person types, and what they get.

use crate::support::{Served, stderr, stdout, tally};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

#[test]
fn what_was_added_is_there_after_a_stop_and_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    assert!(server.banner.contains("sync: an answer means that it is on disk"), "{}", server.banner);
    assert_eq!(stdout(&server.client(&["add", "visits"])), "1\n");
    assert_eq!(stdout(&server.client(&["add", "visits", "10"])), "11\n");
    assert_eq!(stdout(&server.client(&["add", "visits", "-2"])), "9\n");
    let (code, rest) = server.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.ends_with("stopped\n"), "{rest}");

    let server = Served::on(dir.path());
    assert_eq!(stdout(&server.client(&["get", "visits"])), "9\n");
    assert_eq!(stdout(&server.client(&["get", "visits", "nobody"])), "visits  9\nnobody  (none)\n");
    assert_eq!(server.stop(Signal::INT).0, Some(0));
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    let data = dir.path().to_str().unwrap();
    let second = tally(&["serve", "--data", data, "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(1));
    let text = stderr(&second);
    assert!(text.contains(data) && text.contains("in use") && text.contains("--data"), "{text}");
    assert_eq!(stdout(&server.client(&["add", "still-counting"])), "1\n");
}

#[test]
fn every_door_for_other_machines_needs_a_secret_or_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let base = ["--memory", "256MiB", "--data", data.to_str().unwrap()];
    for command in ["serve", "demo"] {
        for (public, other, what, fix) in [
            ("--http", "--resp", "correct and delete", "--http-token-file"),
            ("--resp", "--http", "FLUSHALL included", "--password-file"),
        ] {
            let addresses = [command, public, "0.0.0.0:0", other, "127.0.0.1:0"];
            let refused = tally(&[&addresses[..], if command == "serve" { &base } else { &[] }].concat());
            let text = stderr(&refused);
            assert_eq!(refused.status.code(), Some(1), "{text}");
            assert!(text.contains(what) && text.contains(fix) && text.contains("--insecure"), "{text}");
        }
    }
    assert!(!data.exists(), "nothing was begun");
    let mut insecure = Command::new(env!("CARGO_BIN_EXE_tally"));
    insecure.args(["serve", "--insecure", "--resp", "0.0.0.0:0", "--http", "0.0.0.0:0"]).args(base);
    let open = Served::run(&mut insecure, Stdio::null());
    assert!(open.banner.contains("no password") && open.banner.contains("no token"), "{}", open.banner);
    open.stop(Signal::TERM);

    let token = dir.path().join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let secret = dir.path().join("password");
    std::fs::write(&secret, "sesame\n").unwrap();
    let files = ["--http-token-file", token.to_str().unwrap(), "--password-file", secret.to_str().unwrap()];
    let base = ["serve", "--memory", "256MiB", "--data", data.to_str().unwrap(), "--metrics", "127.0.0.1:0"];
    let server = Served::start(&[&base[..], &files].concat());
    for said in ["asks for a token", "asks for a password", "/metrics  no token"] {
        assert!(server.banner.contains(said), "{said}: {}", server.banner);
    }
    assert!(stderr(&server.client(&["add", "visits"])).contains("--password-file"));
    let counted = server.client(&["add", "visits", "--password-file", secret.to_str().unwrap()]);
    assert_eq!(stdout(&counted), "1\n");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Served::on(dir.path());
    let data = other.path().to_str().unwrap();
    let second = tally(&["serve", "--data", data, "--http", "127.0.0.1:0", "--resp", &server.resp]);
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains(&server.resp), "{}", stderr(&second));
}

#[test]
fn a_wrong_configuration_is_shown_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counters.yaml");
    std::fs::write(&file, "counters:\n  - counterName: views\n    mode: displai\n").unwrap();
    for command in [&["check"][..], &["serve", "--data", dir.path().to_str().unwrap(), "--config"]] {
        let output = tally(&[command, &[file.to_str().unwrap()]].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("counters.yaml:3:11") && text.contains("mode: displai"), "{text}");
    }
}

#[test]
fn a_right_configuration_is_summed_up_with_its_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counters.yaml");
    let yaml = "\
counters:
  - {counterName: views, mode: display, dimensions: [video], rules: [{on: seen, op: increment}]}
  - counterName: plays
    mode: display
    dedup: {by: [seq, device, session], window: 90s}
    lateness: {every: 5m}
    rules: [{on: played, op: increment}]
  - {counterName: hits, mode: display, dedup: none, durability: none, rules: [{on: hit, op: increment}]}
  - counterName: likes
    mode: transition
    dimensions: [content]
    entity: [user, content]
    rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]
  - {counterName: online, mode: transition, floorAtZero: true, rules: [{on: came, op: increment}]}
  - {counterName: paid, mode: persistent, rules: [{on: bought, op: increment}]}
  - {counterName: stock, mode: simple}
";
    std::fs::write(&file, yaml).unwrap();
    let output = tally(&["check", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = format!("{}: 7 counters declared{UNDERSTOOD}", file.display());
    assert_eq!(stdout(&output), expected);
}

const UNDERSTOOD: &str = "
  views:{video}  display, fed by seen
    dedup        by session, seq within 1m; events without them count (default)
    lateness     none: events count whenever they come
    floorAtZero  false
    durability   as the node
  plays  display, fed by played
    dedup        by device, session, seq within 90s; events need them
    lateness     allowed 10s, corrected up to 2h every 5m, older restated every 1d
    floorAtZero  false
    durability   as the node
  hits  display, fed by hit
    dedup        none: every event counts
    lateness     none: events count whenever they come
    floorAtZero  false
    durability   none
  likes:{content}  transition, fed by liked, unliked (decrement)
    entity       user, content
    floorAtZero  false
    durability   as the node
  online  transition, fed by came
    entity       none: every event counts as it comes
    floorAtZero  true: reads show 0 for a sum below it
    durability   as the node
  paid  persistent, fed by bought
    idempotency  each eventId once, forever; events need one
    lateness     none: events count whenever they come
    floorAtZero  false
    durability   sync
  stock  simple
    floorAtZero  false
    durability   as the node
  idempotency of direct writes: keys are known for 1d, at most 10000000
";

#[test]
fn the_schema_in_the_docs_is_the_one_the_program_prints() {
    let output = tally(&["check", "--schema"]);
    assert!(output.status.success(), "{}", stderr(&output));
    // After a change: tally check --schema > docs/formats/config.schema.json
    assert_eq!(stdout(&output), include_str!("../../../../docs/formats/config.schema.json"));
    assert_eq!(tally(&["check", "--schema", "counters.yaml"]).status.code(), Some(2));
    assert_eq!(tally(&["check"]).status.code(), Some(2));
}

#[test]
fn inspect_shows_the_records_of_a_segment_and_the_counters_of_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    server.client(&["add", "visits", "7"]);
    let segment = dir.path().join("log/000000000001.seg");
    let live = stdout(&tally(&["inspect", segment.to_str().unwrap()]));
    assert!(live.contains("add      visits +7"), "{live}");

    let data = dir.path().to_str().unwrap();
    assert!(stderr(&tally(&["inspect", data])).contains("another Tally"), "a store in use is refused");
    server.stop(Signal::TERM);
    let store = stdout(&tally(&["inspect", data]));
    assert!(store.contains("visits  7"), "{store}");
}

#[test]
fn data_files_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Served::on(&data);
    server.client(&["add", "visits"]);
    server.stop(Signal::TERM);
    let mut seen = 0;
    for_each_file(&data, &mut |path, metadata| {
        assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", path.display());
        seen += 1;
    });
    assert!(seen > 10, "{seen} files");
}

#[test]
fn inspect_changes_nothing_whether_the_directory_is_whole_or_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Served::on(&data);
    server.client(&["add", "visits", "7"]);
    server.stop(Signal::TERM);
    let inspect = || {
        let before = files(&data);
        let output = tally(&["inspect", data.to_str().unwrap()]);
        assert!(files(&data) == before, "inspect has changed something");
        output
    };
    assert!(stdout(&inspect()).contains("visits  7"));
    let current = std::fs::read(data.join("store/CURRENT")).unwrap();
    std::fs::remove_file(data.join("store/CURRENT")).unwrap();
    assert_eq!(inspect().status.code(), Some(1));
    std::fs::write(data.join("store/CURRENT"), "generation 7\n").unwrap();
    assert_eq!(inspect().status.code(), Some(1));
    std::fs::write(data.join("store/CURRENT"), current).unwrap();
    std::fs::write(data.join("store/gen-1/keyspaces/1/current"), "").unwrap();
    assert_eq!(inspect().status.code(), Some(1));
}

/// Every file with its bytes and the time of its last change.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let mut files = Vec::new();
    for_each_file(dir, &mut |path, metadata| {
        let bytes = if metadata.is_file() { std::fs::read(path).unwrap() } else { Vec::new() };
        files.push((path.to_owned(), bytes, metadata.modified().unwrap()));
    });
    files.sort();
    files
}

fn for_each_file(dir: &Path, visit: &mut dyn FnMut(&Path, &std::fs::Metadata)) {
    visit(dir, &dir.metadata().unwrap());
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { for_each_file(&path, visit) } else { visit(&path, &path.metadata().unwrap()) }
    }
}

#[test]
fn inspect_of_something_else_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let output = tally(&["inspect", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("neither a log nor a store"), "{}", stderr(&output));
}

#[test]
fn a_client_without_a_server_is_told_what_to_do() {
    let output = tally(&["get", "visits", "--server", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("tally serve"), "{}", stderr(&output));
}

#[test]
fn an_empty_password_lets_nobody_in_because_nothing_starts() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let serve = ["serve", "--memory", "256MiB", "--data", data.to_str().unwrap()];
    let by_flag = tally(&[&serve[..], &["--password", ""]].concat());
    let by_variable = Command::new(env!("CARGO_BIN_EXE_tally")).args(serve).env("TALLY_PASSWORD", "").output().unwrap();
    for refused in [by_flag, by_variable] {
        assert_eq!(refused.status.code(), Some(1));
        let text = stderr(&refused);
        assert!(text.contains("password") && text.contains("empty"), "{text}");
    }
    assert!(!data.exists(), "nothing was begun");
}

#[test]
fn a_password_file_that_is_named_wins_over_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("password"));
    std::fs::write(&file, "right\n").unwrap();
    let named = ["--password-file", file.to_str().unwrap()];
    let (serve, elsewhere) =
        (["serve", "--memory", "256MiB", "--data", data.to_str().unwrap()], [("TALLY_PASSWORD", "wrong")]);
    let server = Served::start_with_env(&[&serve[..], &named].concat(), &elsewhere, Stdio::null());
    let add = |args: &[&str]| {
        let mut tally = Command::new(env!("CARGO_BIN_EXE_tally"));
        tally.args(["add", "visits", "--server", &server.resp]).args(args).envs(elsewhere).output().unwrap()
    };
    assert_eq!(stdout(&add(&named)), "1\n");
    assert!(stderr(&add(&[])).contains("WRONGPASS"), "without one the variable is taken");
    assert_eq!(
        add(&["--password", "right", named[0], named[1]]).status.code(),
        Some(2),
        "of two flags nobody knows which"
    );
}

#[test]
fn clients_leave_descriptors_to_the_log_and_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let limited = format!(
        "ulimit -n 256 && exec {} serve --memory 256MiB --data {} --http 127.0.0.1:0 --resp 127.0.0.1:0",
        env!("CARGO_BIN_EXE_tally"),
        dir.path().display()
    );
    let server = Served::run(Command::new("sh").args(["-c", &limited]), Stdio::null());
    assert!(server.banner.contains("37 over HTTP, 90 over the Redis protocol"), "{}", server.banner);
    let silent: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(&server.resp).unwrap()).collect();
    for _ in 0..3 {
        assert!(server.client(&["add", "visits"]).status.success());
    }
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    assert!(open <= 256 - 64, "{open} of 256 descriptors are in use");
    drop(silent);
    assert_eq!(stdout(&server.client(&["get", "visits"])), "3\n");
}

#[test]
fn inspect_shows_commits_and_names_what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let server = Served::on(dir.path());
        server.client(&["add", "visits", "7"]);
        server.stop(Signal::TERM);
    }
    let (commits, segment) = (dir.path().join("commits"), dir.path().join("commits/000000000001.seg"));
    let before = files(&commits);
    let shown = stdout(&tally(&["inspect", commits.to_str().unwrap()]));
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.len() >= 4 && lines[0].starts_with("1-0-0 to 1-0-"), "{shown}");
    assert!(lines[0].contains("generation 0, rules ") && lines[0].contains(", nobody followed  "), "{shown}");
    assert!(lines.last().unwrap().starts_with("every commit that is here"), "{shown}");
    let one = stdout(&tally(&["inspect", "--json", "--limit", "1", segment.to_str().unwrap()]));
    let commit: serde_json::Value = serde_json::from_str(&one).unwrap();
    assert_eq!((&commit["from"], &commit["exceptions"], &commit["deltas"]), (&"1-0-0".into(), &0.into(), &().into()));
    assert!(lines[0].ends_with(commit["digest"].as_str().unwrap()), "{one}");
    assert!(files(&commits) == before, "inspect has changed something");

    // A bit of the first commit flips: what was written behind it proves that it was there.
    let mut image = before.iter().find(|(path, ..)| *path == segment).unwrap().1.clone();
    image[4096 + 60] ^= 1;
    std::fs::write(&segment, image).unwrap();
    let damaged = tally(&["inspect", commits.to_str().unwrap()]);
    assert_eq!(damaged.status.code(), Some(1));
    let (named, told) = (stdout(&damaged), stderr(&damaged));
    assert!(named.contains("DAMAGED") && named.contains("at byte 4096, where record 0 is expected"), "{named}");
    assert!(told.contains("are damaged") && told.contains("remove its directory commits/"), "{told}");
}
