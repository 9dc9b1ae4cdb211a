//! Trends that are told in advance, and who is told of drift that lasts.

use crate::support::{Served, exchange, stderr, stdout, tally};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const YAML: &str = "counters: [{counterName: likes, mode: transition, dimensions: [video], entity: [user, video], rules: [{on: liked, op: increment}]}]";

/// A bound on a test that fails, not on one that passes.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(dir: &Path, more: &[&str]) -> (Served, String) {
    let (config, data) = (dir.join("c.yaml"), dir.join("data"));
    std::fs::write(&config, YAML).unwrap();
    let [config, data] = [&config, &data].map(|path| path.to_str().unwrap());
    let args = [&["serve", "--memory", "256MiB", "--data", data, "--config", config], more].concat();
    let server = Served::start_with(&args, Stdio::null());
    let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let http = http.trim_end_matches('/').to_owned();
    (server, http)
}

fn ask(http: &str, method: &str, path: &str, body: &str) -> serde_json::Value {
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: {http}\r\nconnection: close\r\ncontent-type: application/json\r\n");
    let answer = exchange(http, &format!("{head}content-length: {}\r\n\r\n{body}", body.len()));
    assert!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn a_trend_is_told_in_advance_listed_and_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, http) = start(dir.path(), &[]);
    let anomalies = |args: &[&str]| tally(&[&["anomalies"], args, &["--server", &http]].concat());
    let told = |args: &[&str]| {
        let output = anomalies(args);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(told(&[]), "no rate has jumped; what is usual is not known yet\n");
    let line = "1  likes:*  from 2026-11-18T18:00:00.000Z to 2099-01-01T00:00:00.000Z, up to 50 times: the final\n";
    let from_to =
        ["--from", "2026-11-18T18:00:00Z", "--to", "2099-01-01T00:00:00Z", "--reason", "the final", "--factor", "50"];
    let wrong = anomalies(&[&["expect", "likes:*"], &from_to[..]].concat());
    assert!(stderr(&wrong).contains("by 400 days at most"), "{}", stderr(&wrong));
    let from_to = from_to.map(|word| if word == "2099-01-01T00:00:00Z" { "2026-12-01T00:00:00Z" } else { word });
    let line = line.replace("2099-01-01", "2026-12-01");
    assert_eq!(told(&[&["expect", "likes:*"], &from_to[..]].concat()), line);
    assert_eq!(told(&["expected"]), line);
    assert_eq!(told(&["forget", "1"]), line);
    assert_eq!(told(&["expected"]), "");
    assert!(stderr(&anomalies(&["forget", "1"])).contains("under the number 1"));
}

#[test]
fn drift_that_lasts_is_told_to_a_webhook_and_named_as_an_alert() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (_server, http) = start(dir.path(), &["--webhook", &url]);
    let events = (0..10).map(|n| format!(r#"{{"type":"liked","dimensions":{{"user":"u{n}","video":"a"}}}}"#));
    ask(&http, "POST", "/v1/events", &format!("[{}]", events.collect::<Vec<_>>().join(",")));
    let wrong = r#"{"reason":"a test","author":"test","kind":"restore","deltas":[{"id":"likes:a","delta":5}]}"#;
    let number = ask(&http, "POST", "/v1/corrections", wrong)["number"].clone();
    ask(&http, "POST", &format!("/v1/corrections/{number}/apply"), "");
    for run in 1..=3 {
        assert_eq!(
            ask(&http, "GET", "/v1/reconciliation?limit=1", "")["alerts"],
            serde_json::json!([]),
            "before {run}"
        );
        ask(&http, "POST", "/v1/reconciliation", "{}");
    }
    let known = ask(&http, "GET", "/v1/reconciliation?limit=1", "");
    assert_eq!((&known["alerts"], known["reports"].as_array().unwrap().len()), (&serde_json::json!(["likes"]), 1));
    let message = received(&listener);
    assert_eq!(message["kind"], "reconciliation", "{message}");
    let about = &message["reconciliation"];
    assert_eq!(
        (&about["counter"], &about["drift"], &about["runs"]),
        (&"likes".into(), &0.5.into(), &3.into()),
        "{about}"
    );
    assert_eq!((&about["differing"], &about["proposal"]), (&1.into(), &known["reports"][0]["proposal"]), "{about}");
}

/// The body of the next message, which is taken.
fn received(listener: &TcpListener) -> serde_json::Value {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    write!(stream, "HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn a_webhook_that_cannot_be_posted_to_is_refused_at_the_start() {
    let refused = |url: &str| stderr(&tally(&["serve", "--webhook", url]));
    assert!(refused("https://hooks.example.com/x").contains("Tally has no TLS"));
    assert!(refused("hooks").contains("it is no address; write one such as http://127.0.0.1:9000/tally"));
}
