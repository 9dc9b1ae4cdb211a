//! `tally bench`, small.

use crate::support::{Served, stderr, stdout, tally};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};

#[test]
fn a_run_of_the_load_generator_counts_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    let run = |args: &[&str]| {
        let output = tally(&[&["bench", "--json", "--server", &server.resp, "--keys", "100", "--keep"], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str::<serde_json::Value>(stdout(&output).lines().last().unwrap()).unwrap()
    };
    let report = run(&["--preload", "--requests", "5000", "--connections", "5", "--pipeline", "7", "--dist", "one"]);
    assert_eq!(report["groups"][0]["operations"], 5000);
    assert_eq!(report["errors"], 0);
    assert_eq!(
        stdout(&server.client(&["get", "bench:00000000", "bench:00000099"])),
        "bench:00000000  5001\nbench:00000099  1\n"
    );
    let mix = run(&["--op", "mix", "--requests", "5000", "--readers", "3"]);
    assert_eq!(mix["groups"].as_array().unwrap().len(), 2, "{mix}");
}

#[test]
fn a_run_whose_answers_are_errors_fails() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    let biggest = i64::MAX.to_string();
    server.client(&["add", "v:0", &biggest]);
    let output =
        tally(&["bench", "--server", &server.resp, "--keys", "1", "--key-pattern", "v:%01d", "--requests", "10"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("overflow"), "{}", stdout(&output));
}

#[test]
fn a_run_leaves_a_server_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    server.client(&["add", "mine", "7"]);
    let run = ["bench", "--server", &server.resp, "--keys", "5000", "--preload", "--requests", "9000"];
    let output = tally(&run);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&server.client(&["get", "*"])), "mine  7\n");

    // Counters that a person has named are theirs.
    let output = tally(&[&run[..], &["--key-pattern", "page:%08d"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(server.client(&["get", "page:00004999"]).status.code(), Some(0));
}

#[test]
fn a_run_that_is_interrupted_cleans_up_and_says_what_it_measured() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    let mut run = Command::new(env!("CARGO_BIN_EXE_tally"))
        .args(["bench", "--json", "--server", &server.resp, "--keys", "5000", "--seconds", "600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Bounded by the run itself: it counts from the beginning.
    while stdout(&server.client(&["get", "bench:*", "--limit", "1"])).is_empty() {
        assert!(run.try_wait().unwrap().is_none(), "the run ended early");
    }
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert!(report["groups"][0]["operations"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(server.client(&["get", "bench:*"]).status.code(), Some(3), "nothing is left");
}
