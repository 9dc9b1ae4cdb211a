//! `tally verify` on data directories that servers have left: what is whole is found to be so, and each planted fault is found and named.

mod plant;

use crate::support::{Served, exchange, stderr, stdout, tally};
use plant::{flip, only};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const YAML: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video, country], dedup: {by: [session, seq], window: 60s},
     rules: [{on: viewed, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video],
     rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: impressions, mode: persistent, dimensions: [ad], lateness: {allowed: 10s, corrected: 2h},
     rollups: [[country], [country, hour]], rules: [{on: shown, op: increment}, {on: refunded, op: decrement}]}
  - {counterName: stock, mode: simple, dimensions: [item], rules: [{on: bought, op: increment}]}
";

/// A server, and the directory that it leaves.
struct Asked {
    server: Served,
    http: String,
}

impl Asked {
    fn start(dir: &Path) -> Asked {
        Asked::start_by(dir, YAML)
    }

    fn start_by(dir: &Path, yaml: &str) -> Asked {
        let (config, data) = (dir.join("c.yaml"), dir.join("data"));
        std::fs::write(&config, yaml).unwrap();
        let [config, data] = [&config, &data].map(|path| path.to_str().unwrap());
        let command = ["serve", "--memory", "256MiB", "--data", data, "--config", config];
        let server = Served::start_with(&command, Stdio::null());
        let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        Asked { http: http.trim_end_matches('/').to_owned(), server }
    }

    fn post(&self, path: &str, body: &str) -> serde_json::Value {
        let head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.http);
        let body = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let answer = exchange(&self.http, &(head + &body));
        assert!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn flush(&self) {
        self.post("/v1/archive/flush", "");
    }

    fn stop(self, signal: Signal) {
        self.server.stop(signal);
    }
}

/// Events of all modes: some twice, some late, some undone, some rejected.
fn traffic(round: u64) -> String {
    let mut events = Vec::new();
    for n in 0..60_u64 {
        let (id, video) = (round * 1000 + n, ["a", "b:c", "50%", "d"][n as usize % 4]);
        let twice = if n % 7 == 0 { 2 } else { 1 };
        for _ in 0..twice {
            events.push(format!(
                r#"{{"type":"viewed","session":"s{}","seq":{id},"dimensions":{{"video":"{video}","country":"DE"}}}}"#,
                n % 5
            ));
            let kind = if n % 9 == 0 { "refunded" } else { "shown" };
            let late = if n % 11 == 0 { r#""occurredAt":"2026-11-01T10:00:00Z","# } else { "" };
            let country = ["DE", "FR"][n as usize % 2];
            events.push(format!(
                r#"{{"type":"{kind}",{late}"eventId":"e{id}","payload":{{"n":{n}}},"dimensions":{{"ad":"{video}","country":"{country}"}}}}"#
            ));
        }
        let kind = if n % 3 == 0 { "unliked" } else { "liked" };
        events.push(format!(r#"{{"type":"{kind}","dimensions":{{"user":"u{}","video":"{video}"}}}}"#, n % 23));
        events.push(r#"{"type":"bought","dimensions":{"item":"nails"}}"#.to_owned());
    }
    events.push(r#"{"type":"viewed","session":"s","seq":1,"dimensions":{"video":"no country"}}"#.to_owned());
    format!("[{}]", events.join(","))
}

/// A directory that a server has left in order, with everything in its archive.
fn left(dir: &Path) -> PathBuf {
    let asked = Asked::start(dir);
    asked.post("/v1/events", &traffic(0));
    asked.flush();
    asked.post("/v1/events", &traffic(1));
    asked.flush();
    asked.stop(Signal::TERM);
    dir.join("data")
}

fn correct(asked: &Asked) {
    let proposal = r#"{"reason":"a test","author":"test","deltas":[{"id":"views:a:DE","delta":-7}]}"#;
    let number = asked.post("/v1/corrections", proposal)["number"].clone();
    asked.post(&format!("/v1/corrections/{number}/apply"), "");
}

fn verify(data: &Path) -> Output {
    tally(&["verify", data.to_str().unwrap(), "--memory", "256MiB"])
}

fn agrees(data: &Path) -> String {
    let output = verify(data);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// The findings of a verification that finds something, as it prints them for programs.
fn findings(data: &Path) -> Vec<serde_json::Value> {
    let output = tally(&["verify", data.to_str().unwrap(), "--memory", "256MiB", "--json"]);
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<_> = lines.into_iter().filter(|line| line.get("finding").is_some()).collect();
    assert_eq!(output.status.code(), Some(3), "{found:#?}{}", stderr(&output));
    assert!(found.iter().all(|finding| finding["fix"].as_str().is_some_and(|fix| !fix.is_empty())), "{found:#?}");
    found
}

fn says(found: &[serde_json::Value], check: &str, what: &str) -> bool {
    found.iter().any(|finding| finding["check"] == check && finding["finding"].as_str().unwrap().contains(what))
}

#[test]
fn what_servers_have_left_through_kills_corrections_and_clears_is_as_it_should_be() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path());
    asked.post("/v1/events", &traffic(0));
    correct(&asked);
    asked.flush();
    asked.post("/v1/events", &traffic(1));
    asked.stop(Signal::KILL);
    agrees(&dir.path().join("data"));
    let asked = Asked::start(dir.path());
    asked.post("/v1/events", &traffic(1));
    asked.post("/v1/events", &traffic(2));
    asked.server.client(&["add", "visits", "41"]);
    let busy = verify(&dir.path().join("data"));
    assert_eq!(busy.status.code(), Some(1));
    assert!(stderr(&busy).contains("a server is running on it"), "{}", stderr(&busy));
    asked.stop(Signal::TERM);
    let text = agrees(&dir.path().join("data"));
    for said in
        ["log        ", "commits    ", "store      ", "events     ", "event ids  ", "recount    ", "parts      "]
    {
        assert!(text.contains(said), "{text}");
    }
    assert!(!text.contains("not looked at"), "{text}");
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("tally-verify")).count(), 0, "the clone is gone");
    let unrelated = dir.path().join("unrelated");
    std::fs::create_dir(&unrelated).unwrap();
    std::fs::write(unrelated.join("notes"), "of somebody else").unwrap();
    for none in [dir.path().join("nowhere"), unrelated] {
        let none = tally(&["verify", none.to_str().unwrap()]);
        assert_eq!(none.status.code(), Some(1), "{}", stdout(&none));
        assert!(stderr(&none).contains("there is no data directory at"), "{}", stderr(&none));
    }
    let data = dir.path().join("data");
    let typo = tally(&["verify", data.to_str().unwrap(), "--archive", "/no/such/place"]);
    assert_eq!(typo.status.code(), Some(1), "{}", stdout(&typo));
    assert!(stderr(&typo).contains("there is no directory /no/such/place"), "{}", stderr(&typo));
}

#[test]
fn a_verification_that_is_interrupted_leaves_no_clone() {
    let dir = tempfile::tempdir().unwrap();
    let (data, scratch) = (left(dir.path()), dir.path().join("scratch"));
    std::fs::create_dir(&scratch).unwrap();
    let clones = || std::fs::read_dir(&scratch).unwrap().count();
    for signal in [Signal::INT, Signal::TERM] {
        let [data, scratch] = [&data, &scratch].map(|path| path.to_str().unwrap());
        let mut verifying = Command::new(env!("CARGO_BIN_EXE_tally"));
        let args = ["verify", data, "--memory", "256MiB", "--scratch", scratch];
        let mut verifying = verifying.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while clones() == 0 && verifying.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        kill_process(Pid::from_raw(verifying.id() as i32).unwrap(), signal).unwrap();
        verifying.wait().unwrap();
        assert_eq!(clones(), 0, "{signal:?}");
    }
}

#[test]
fn damage_of_the_table_of_probes_is_found_and_a_damaged_version_of_any_table_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start_by(dir.path(), &format!("probes: {{every: 1h}}{YAML}"));
    asked.post("/v1/events", &traffic(0));
    let probes = |asked: &Asked| {
        let question = format!("GET /v1/probes HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", asked.http);
        exchange(&asked.http, &question)
    };
    while !probes(&asked).contains(r#""stage":"applied","complete":1"#) {
        std::thread::yield_now();
    }
    asked.flush();
    asked.stop(Signal::TERM);
    let data = dir.path().join("data");
    flip(&only(&data.join("archive/probes/data"), "parquet"), -6);
    let version = only(&data.join("archive/corrections/metadata"), "metadata.json");
    flip(&version, 0);
    let found = findings(&data);
    assert!(says(&found, "archive", "archive/probes/data/"), "{found:#?}");
    let version = version.file_name().unwrap().to_str().unwrap();
    assert!(says(&found, "archive", version), "{found:#?}");
}

#[test]
fn a_flipped_bit_in_each_kind_of_file_is_found_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let whole = left(dir.path());
    let asked = Asked::start(dir.path());
    correct(&asked);
    asked.flush();
    asked.stop(Signal::TERM);
    agrees(&whole);
    let cases: [(&str, &str, i64, &str); 14] = [
        // A batch that others follow, and one of commits.
        ("log", "seg", 4096 + 300, "log"),
        ("commits", "seg", 4096 + 100, "commits"),
        ("", "TALLY", 20, "identity"),
        ("store", "CURRENT", 12, "store"),
        ("store/gen-1/keyspaces", "current", 3, "store"),
        ("store/gen-1/keyspaces", "tables", 200, "store"),
        ("archive/events/data", "parquet", 900, "events"),
        ("archive/fates/data", "parquet", -6, "archive"),
        ("archive/corrections/data", "parquet", -6, "archive"),
        ("archive/configurations/data", "parquet", -6, "archive"),
        ("archive/chain/data", "parquet", -6, "archive"),
        ("archive/events/metadata", "m0.avro", 3, "archive"),
        ("archive/events/metadata", "metadata.json", 2, "archive"),
        ("archive", "catalog.sqlite", 30, "archive"),
    ];
    let found_in = |find: &dyn Fn(&Path) -> PathBuf, at: i64, check: &str| {
        let data = dir.path().join("damaged");
        plant::copy(&whole, &data);
        let file = find(&data);
        flip(&file, at);
        let found = findings(&data);
        let name = file.strip_prefix(&data).unwrap().display();
        assert!(found.iter().any(|finding| finding["check"] == check), "{name}: {found:#?}");
        std::fs::remove_dir_all(&data).unwrap();
    };
    for (place, end, at, check) in cases {
        found_in(&|data| only(&data.join(place), end), at, check);
    }
    found_in(&plant::manifest_list, 3, "archive");
}

#[test]
fn a_batch_that_is_dropped_from_the_archive_or_doubled_in_it_is_named_record_by_record() {
    let dir = tempfile::tempdir().unwrap();
    let data = left(dir.path());
    let doubled = dir.path().join("doubled");
    plant::copy(&data, &doubled);
    plant::drop_last_commit(&data);
    let found = findings(&data);
    assert!(says(&found, "events", "and the archive has not"), "{found:#?}");
    assert!(says(&found, "recount", "when it is counted again"), "{found:#?}");
    let records = plant::double_rows(&doubled, 5);
    let found = findings(&doubled);
    for record in records {
        assert!(says(&found, "events", &format!("the archive has record {record} twice")), "{found:#?}");
    }
}

#[test]
fn ids_that_the_store_has_lost_are_named_and_a_changed_value_is_put_right() {
    let dir = tempfile::tempdir().unwrap();
    let data = left(dir.path());
    let lost = dir.path().join("lost");
    plant::copy(&data, &lost);
    plant::lose_claims(&lost, &["e3", "e1004"]);
    let found = findings(&lost);
    assert!(says(&found, "event ids", r#"does not know the event id "e3""#), "{found:#?}");
    assert!(says(&found, "event ids", r#""e1004""#) && found.len() == 2, "{found:#?}");

    plant::change_value(&data, "views:a:DE", 5);
    plant::change_value(&data, "stock:nails", -1);
    let found = findings(&data);
    assert!(says(&found, "recount", "views:a:DE is worth"), "{found:#?}");
    assert!(says(&found, "parts", "the keys of stock add up to 119, and 120 was counted"), "{found:#?}");
    let views = found.iter().find(|finding| finding["key"] == "views:a:DE").unwrap();
    assert_eq!((&views["counter"], &views["expected"], &views["found"]), (&"views".into(), &"30".into(), &"35".into()));
    plant::change_value(&data, "stock:nails", 1);
    let asked = Asked::start(dir.path());
    let applied = tally(&["reconcile", "--server", &asked.http, "--apply"]);
    assert_eq!(applied.status.code(), Some(0), "{}{}", stdout(&applied), stderr(&applied));
    asked.flush();
    asked.stop(Signal::TERM);
    agrees(&data);
}
