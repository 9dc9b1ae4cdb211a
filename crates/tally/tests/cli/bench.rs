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
fn a_paced_run_takes_the_time_that_its_rate_says() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    let paced = ["--requests", "100", "--rate", "250", "--pipeline", "1", "--connections", "3"];
    let output = tally(&[&["bench", "--json", "--server", &server.resp][..], &paced].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["groups"][0]["operations"], 100);
    // The last of a hundred is due after 99 distances of 4 ms.
    assert!(report["seconds"].as_f64().unwrap() >= 0.396, "{report}");
}

#[test]
fn reads_over_http_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let run = |args: &[&str]| tally(&[&["bench", "--json", "--op", "http-get", "--server", http], args].concat());
    let output = run(&["--requests", "300", "--connections", "3", "--keys", "100"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert_eq!((&report["groups"][0]["name"], &report["groups"][0]["operations"]), (&"GET".into(), &300.into()));
    let output = run(&["--requests", "1", "--preload"]);
    assert!(stderr(&output).contains("--preload cannot be used over HTTP"), "{}", stderr(&output));
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

#[test]
fn a_guarded_server_is_measured_with_its_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let (secret, token) = (dir.path().join("password"), dir.path().join("token"));
    std::fs::write(&secret, "sesame\n").unwrap();
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    let (secret, token) = (secret.to_str().unwrap(), token.to_str().unwrap());
    let config = dir.path().join("counters.yaml");
    let views = "{counterName: views, mode: display, dimensions: [video], rules: [{on: video.viewed, op: increment}]}";
    std::fs::write(&config, format!("counters:\n  - {views}\n")).unwrap();
    let data = dir.path().join("data");
    let server = ["serve", "--memory", "256MiB", "--data", data.to_str().unwrap(), "--password-file", secret];
    let more = ["--http-token-file", token, "--config", config.to_str().unwrap()];
    let server = Served::start(&[&server[..], &more].concat());
    let run = ["bench", "--requests", "500", "--keys", "50", "--connections", "3"];
    let resp = [&run[..], &["--server", &server.resp]].concat();
    let http = server.banner.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    let events = [&run[..], &["--op", "events", "--server", http]].concat();
    for (run, flag, file) in [(resp, "--password-file", secret), (events, "--http-token-file", token)] {
        assert_eq!(tally(&run).status.code(), Some(1), "without the secret nobody is let in");
        let output = tally(&[&run[..], &[flag, file]].concat());
        assert!(output.status.success(), "{flag}: {}", stderr(&output));
    }
    let wrong = tally(&["bench", "--requests", "1", "--server", &server.resp, "--password", "wrong"]);
    assert!(stderr(&wrong).contains("WRONGPASS"), "{}", stderr(&wrong));
    let left = server.client(&["get", "bench:*", "--password-file", secret]);
    assert_eq!(left.status.code(), Some(3), "nothing is left");
}
