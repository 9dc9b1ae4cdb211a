//! Probes of the binary: no SQL meets them, and `kill -9` does not confuse them.

use crate::support::{Served, exchange, stderr, stdout, tally};
use rustix::process::Signal;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tally_node::clock::Stopwatch;

const YAML: &str = "
counters:
  - {counterName: bills, mode: persistent, dimensions: [shop], rollups: [[country, hour]], rules: [{on: paid, op: increment}]}
";
const PROBES: &str = "probes: {every: 1s}\n";

struct Asked {
    server: Served,
    http: String,
}

impl Asked {
    fn start(dir: &Path, yaml: &str) -> Asked {
        let (config, data) = (dir.join("c.yaml"), dir.join("data"));
        std::fs::write(&config, yaml).unwrap();
        let [config, data] = [&config, &data].map(|path| path.to_str().unwrap());
        let command = ["serve", "--memory", "256MiB", "--data", data, "--config", config];
        let server = Served::start_with(&command, Stdio::null());
        let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        Asked { http: http.trim_end_matches('/').to_owned(), server }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> serde_json::Value {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.http);
        let body = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let answer = exchange(&self.http, &(head + &body));
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn sql(&self, statement: &str) -> String {
        let answer = self.ask("POST", "/v1/sql", &serde_json::json!({ "query": statement }).to_string());
        assert!(answer["rows"].is_array(), "{statement}: {answer}");
        answer["rows"].to_string()
    }

    /// Waits until so many probes have got to a stage.
    fn wait_for(&self, stage: usize, complete: u64) -> serde_json::Value {
        let began = Stopwatch::start();
        loop {
            let probes = self.ask("GET", "/v1/probes", "");
            if probes["stages"][stage]["complete"].as_u64() >= Some(complete) {
                return probes;
            }
            assert!(began.elapsed() < Duration::from_secs(120), "no probe came: {probes}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn no_question_in_sql_meets_a_probe() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let with = Asked::start(dirs[0].path(), &format!("{YAML}{PROBES}"));
    let without = Asked::start(dirs[1].path(), YAML);
    with.wait_for(1, 2);
    for asked in [&with, &without] {
        for (id, shop) in [("1", "a"), ("2", "a"), ("1", "a"), ("3", "b")] {
            let dimensions = format!(r#"{{"shop":"{shop}","country":"DE"}}"#);
            asked.ask(
                "POST",
                "/v1/events",
                &format!(r#"{{"type":"paid","eventId":"{id}","dimensions":{dimensions}}}"#),
            );
        }
        asked.ask("POST", "/v1/archive/flush", "");
    }
    with.wait_for(3, 2);
    for statement in [
        "select id, value from counters order by id",
        "select counter, received, counted, duplicate from boxes order by counter",
        "select id, counter, rollup, value from parts order by id, rollup",
        "select type, event_id, stream from events order by type, event_id",
        "select counter, fate, event_id from fates order by counter, fate, event_id",
        "select counter, value from base order by counter",
    ] {
        assert_eq!(with.sql(statement), without.sql(statement), "{statement}");
    }
    let refused = with.ask("POST", "/v1/sql", r#"{"query":"select * from probes"}"#);
    assert_eq!(refused["type"], "/problems/invalid-query", "{refused}");
}

#[test]
fn probes_go_on_through_kill_9_and_can_be_switched_off_and_on() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = format!("{YAML}{PROBES}");
    for _ in 0..2 {
        let asked = Asked::start(dir.path(), &yaml);
        let probes = asked.wait_for(1, 2);
        assert_eq!((&probes["wrong"], &probes["lastProblem"]), (&0.into(), &serde_json::Value::Null), "{probes}");
        asked.server.stop(Signal::KILL);
    }
    let asked = Asked::start(dir.path(), YAML);
    assert_eq!(asked.ask("GET", "/v1/probes", "")["type"], "/problems/no-probes");
    asked.server.stop(Signal::TERM);
    let asked = Asked::start(dir.path(), &yaml);
    let probes = asked.wait_for(1, 2);
    assert_eq!(probes["wrong"], 0, "{probes}");
}

#[test]
fn a_configuration_that_takes_what_is_reserved_is_refused_where_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("c.yaml");
    std::fs::write(&config, "counters:\n  - counterName: $probe\n    mode: simple\n").unwrap();
    let output = tally(&["check", config.to_str().unwrap()]);
    let said = stderr(&output) + &stdout(&output);
    assert!(!output.status.success() && said.contains("what the server counts its probes by"), "{said}");
}
