//! How far an archive is, from a shell.

use super::query::Asked;
use crate::support::{Served, stderr, stdout, tally};
use std::process::Output;

fn archive(command: &str, args: &[&str], http: &str) -> Output {
    tally(&[&["archive", command, "--server", http], args].concat())
}

#[test]
fn how_far_an_archive_is_is_told_and_a_flush_waits_for_what_came_before_it() {
    let asked = Asked::start();
    let event = r#"{"type":"shown","eventId":"4","dimensions":{"ad":"b","country":"DE"}}"#;
    asked.post("/v1/events", event);
    let status = stdout(&archive("status", &[], &asked.http));
    assert!(status.contains("behind     1 records\n") && status.contains("has        4 events in "), "{status}");
    let flushed = stdout(&archive("flush", &[], &asked.http));
    assert!(flushed.contains("behind     0 records\n") && flushed.contains("has        5 events in "), "{flushed}");
    let json: serde_json::Value = serde_json::from_str(&stdout(&archive("status", &["--json"], &asked.http))).unwrap();
    assert_eq!((&json["lagRecords"], &json["events"]), (&0.into(), &5.into()), "{json}");
    assert!(flushed.contains(json["position"].as_str().unwrap()), "{flushed}{json}");
}

#[test]
fn a_server_without_an_archive_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let status = archive("status", &[], http.trim_end_matches('/'));
    assert!(!status.status.success() && stderr(&status).contains("archive"), "{}", stderr(&status));
}
