//! Trends that are told in advance, and who is told of drift that lasts.

use crate::support::{Served, exchange, stderr, stdout, tally};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tally_node::clock::{Stopwatch, rfc3339, wall_ms};

const YAML: &str = "counters: [{counterName: likes, mode: transition, dimensions: [video], entity: [user, video], rules: [{on: liked, op: increment}]}]";

/// A bound on a test that fails, not on one that passes.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(dir: &Path, more: &[&str]) -> (Served, String) {
    start_with_env(dir, more, &[])
}

fn start_with_env(dir: &Path, more: &[&str], env: &[(&str, &str)]) -> (Served, String) {
    let (config, data) = (dir.join("c.yaml"), dir.join("data"));
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(&config, YAML).unwrap();
    let [config, data] = [&config, &data].map(|path| path.to_str().unwrap());
    let args = [&["serve", "--memory", "256MiB", "--data", data, "--config", config], more].concat();
    let server = Served::start_with_env(&args, env, Stdio::null());
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
    let days_ahead = |days: u64| rfc3339(wall_ms() + days * 86_400_000);
    let (from, to, too_far) = (days_ahead(1), days_ahead(13), days_ahead(500));
    let expect = |to| ["expect", "likes:*", "--from", &from, "--to", to, "--reason", "the final", "--factor", "50"];
    let wrong = anomalies(&expect(&too_far));
    assert!(stderr(&wrong).contains("by 400 days at most"), "{}", stderr(&wrong));
    let line = format!("1  likes:*  from {from} to {to}, up to 50 times: the final\n");
    assert_eq!(told(&expect(&to)), line);
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
    let known = drift(&http);
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let message = received(&stream, &stream);
    assert_eq!(message["kind"], "reconciliation", "{message}");
    let about = &message["reconciliation"];
    assert_eq!(
        (&about["counter"], &about["drift"], &about["hours"]),
        (&"likes".into(), &0.5.into(), &serde_json::Value::Null),
        "{about}"
    );
    assert_eq!((&about["differing"], &about["proposal"]), (&1.into(), &known["reports"][0]["proposal"]), "{about}");
}

/// Makes a counter wrong until it is an alert, and answers what is known of it.
fn drift(http: &str) -> serde_json::Value {
    let events = (0..10).map(|n| format!(r#"{{"type":"liked","dimensions":{{"user":"u{n}","video":"a"}}}}"#));
    ask(http, "POST", "/v1/events", &format!("[{}]", events.collect::<Vec<_>>().join(",")));
    let wrong = r#"{"reason":"a test","author":"test","kind":"restore","deltas":[{"id":"likes:a","delta":5}]}"#;
    let number = ask(http, "POST", "/v1/corrections", wrong)["number"].clone();
    ask(http, "POST", &format!("/v1/corrections/{number}/apply"), "");
    for run in 1..=3 {
        assert_eq!(ask(http, "GET", "/v1/reconciliation?limit=1", "")["alerts"], serde_json::json!([]), "before {run}");
        ask(http, "POST", "/v1/reconciliation", "{}");
    }
    let known = ask(http, "GET", "/v1/reconciliation?limit=1", "");
    assert_eq!((&known["alerts"], known["reports"].as_array().unwrap().len()), (&serde_json::json!(["likes"]), 1));
    known
}

#[test]
fn a_webhook_behind_tls_is_told_if_somebody_vouches_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("certificate.pem"), dir.path().join("key.pem"));
    let mut make = Command::new("openssl");
    make.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=a receiver of tests"]);
    make.args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]);
    make.arg("-keyout").arg(&key).arg("-out").arg(&certificate).stderr(Stdio::null());
    assert!(make.status().expect("`cargo xtask test` installs what the tests need").success());
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut receiver = Command::new("openssl");
    receiver.args(["s_server", "-quiet", "-accept", &address, "-key"]).arg(&key).arg("-cert").arg(&certificate);
    let mut receiver = receiver.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let url = format!("https://{address}/hook");
    let (stranger, http) = start(&dir.path().join("stranger"), &["--webhook", &url]);
    drift(&http);
    let began = Stopwatch::start();
    let workers = || ask(&http, "GET", "/v1/workers", "").to_string();
    while !workers().contains("invalid peer certificate") {
        assert!(began.elapsed() < PATIENCE, "{}", workers());
        std::thread::yield_now();
    }
    drop(stranger);
    let trusted = [("SSL_CERT_FILE", certificate.to_str().unwrap())];
    let (_server, http) = start_with_env(&dir.path().join("friend"), &["--webhook", &url], &trusted);
    drift(&http);
    let message = received(receiver.stdout.as_mut().unwrap(), receiver.stdin.as_mut().unwrap());
    assert_eq!(message["reconciliation"]["counter"], "likes", "{message}");
    receiver.kill().unwrap();
    receiver.wait().unwrap();
}

/// The body of the next message, which is taken.
fn received(from: impl Read, mut to: impl Write) -> serde_json::Value {
    let mut reader = BufReader::new(from);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    write!(to, "HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn a_webhook_that_cannot_be_posted_to_is_refused_at_the_start() {
    let refused = |url: &str| stderr(&tally(&["serve", "--webhook", url]));
    assert!(refused("ftp://hooks.example.com/x").contains("only https:// and http:// can be posted to"));
    assert!(refused("hooks").contains("it is no address; write one such as https://hooks.example.com/tally"));
}
