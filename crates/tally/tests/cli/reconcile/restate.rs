//! Restating a range of time: what a bug has counted twice, and what other rules would have counted.

use super::{Asked, exchange, stderr, stdout, tally};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;
use std::time::UNIX_EPOCH;
use tally_node::clock::{rfc3339, wall_ms};

const YAML: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video], dedup: {by: [session, seq], window: 60s},
     rollups: [[country, hour]], rules: [{on: viewed, op: increment}]}
  - {counterName: plays, mode: display, dimensions: [video], dedup: none, rules: [{on: viewed, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video],
     rollups: [[hour]], rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: stock, mode: simple, dimensions: [item], rules: [{on: bought, op: increment}]}
";

impl Asked {
    fn restate(&self, args: &[&str]) -> Output {
        tally(&[&["restate", "--server", &self.http], args].concat())
    }

    fn restated(&self, args: &[&str]) -> Value {
        let output = self.restate(&[args, &["--json"]].concat());
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
    }

    fn value(&self, id: &str) -> i64 {
        self.get(&format!("/v1/counters/{id}"))["value"].as_i64().unwrap()
    }

    fn view(&self, video: &str, seqs: std::ops::Range<u64>) {
        self.view_at(video, seqs, wall_ms());
    }

    fn view_at(&self, video: &str, seqs: std::ops::Range<u64>, at_ms: u64) {
        let at = rfc3339(at_ms);
        let event = |seq: u64| json!({"type": "viewed", "occurredAt": at, "session": video, "seq": seq, "dimensions": {"video": video}});
        self.post("/v1/events", &Value::from_iter(seqs.map(event)).to_string());
    }

    /// The counters that keep differing, and whether metrics say so of views.
    fn alerts(&self) -> (Value, bool) {
        let metrics =
            exchange(&self.http, &format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.http));
        let is_told = metrics.contains("tally_reconciliation_alert{counter=\"views\"} 1");
        (self.get("/v1/reconciliation")["alerts"].clone(), is_told)
    }

    /// A server whose views count twice for some seconds, and 30 of them that did, in three hours.
    fn with_double_counts(dir: &Path) -> Asked {
        for seconds in [5, 20, 60] {
            let dir = dir.join(seconds.to_string());
            std::fs::create_dir(&dir).unwrap();
            let now = dir.metadata().unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
            let planted = format!("views 0 {}", now.as_millis() + seconds * 1000);
            let asked = Asked::start_planted(&dir, YAML, Some(&planted));
            let at_ms = wall_ms();
            (1..=3).for_each(|hour| asked.view_at("a", hour * 10..hour * 10 + 10, at_ms - hour * 3_600_000));
            if asked.value("views:a") == 60 {
                return asked;
            }
        }
        panic!("a server takes longer than a minute to start");
    }

    /// The lines of the commits that come from now on.
    fn followed(&self) -> impl Iterator<Item = std::io::Result<String>> {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        write!(stream, "GET /v1/commits HTTP/1.1\r\nhost: {}\r\n\r\n", self.http).unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert!(lines.any(|line| line.unwrap() == ": subscribed"));
        lines
    }

    /// Waits until views are counted once.
    fn wait_for_the_end_of_double_counts(&self) {
        let is_counted_once = |seq: u64| {
            let before = self.get("/v1/counters/views:probe")["value"].as_i64().unwrap_or(0);
            self.view("probe", seq..seq + 1);
            self.value("views:probe") == before + 1
        };
        self.view("probe", 0..1);
        assert!((1..100_000).any(is_counted_once));
    }
}

#[test]
fn what_a_bug_has_counted_twice_is_found_restated_and_published_with_these_commands_alone() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::with_double_counts(dir.path());
    asked.wait_for_the_end_of_double_counts();
    asked.view("b", 0..10);
    assert_eq!((asked.value("views:a"), asked.value("views:b"), asked.value("plays:a")), (60, 10, 30));
    assert_eq!(asked.alerts(), (json!([]), false));
    let found = asked.reconcile(&[]);
    assert_eq!(found.status.code(), Some(3), "{}", stdout(&found));
    let named = stdout(&found);
    let named = named.lines().filter(|line| line.contains("views:a at ") && line.ends_with("  20 instead of 10"));
    assert_eq!(named.count(), 3, "{}", stdout(&found));
    assert_eq!(asked.alerts(), (json!(["views"]), true));

    let proposed = asked.restate(&["--from", "-5h", "--counter", "views"]);
    let text = stdout(&proposed);
    assert!(
        text.matches("  20 becomes 10 (-10)").count() == 3 && text.contains("(restore) is proposed"),
        "{text}{}",
        stderr(&proposed)
    );
    assert_eq!(asked.value("views:a"), 60, "nothing has changed yet");
    let mut commits = asked.followed();
    let made = asked.restated(&["--from", "-5h", "--apply", "--author", "ops", "--reason", "counted twice"]);
    assert_eq!((&made["kind"], &made["applied"]), (&json!("restore"), &json!(true)), "{made}");
    let not_restated = made["counters"][1]["notRestated"].as_str().unwrap();
    assert!(not_restated.contains("no roll-up by time"), "{made}");

    assert_eq!((asked.value("views:a"), asked.value("views:b")), (30, 10));
    let history = asked.get("/v1/counters/views:a/history");
    let last = &history["generations"][0];
    let told = ["generation", "kind", "reason", "appliedBy", "delta", "after"].map(|name| last[name].clone());
    let generation = made["generation"].clone();
    let expected = [generation, "restore".into(), "counted twice".into(), "ops".into(), (-30).into(), 30.into()];
    assert_eq!(told, expected, "{history}");
    assert_eq!(asked.get("/v1/counters/views:a?generation=0")["value"], 60);
    assert!(commits.any(|line| line.unwrap() == "event: count_correction"), "whoever follows was told");
    asked.agrees();
    assert_eq!(asked.alerts(), (json!([]), false));
}

/// Each view twice, and replays, in two hours.
fn traffic() -> String {
    let mut events = Vec::new();
    for n in 0..40u64 {
        let hour = 10 + n % 2;
        let rest = format!(
            r#""occurredAt":"2026-11-02T{hour}:20:00Z","session":"s","seq":{n},"dimensions":{{"video":"a","country":"DE"}}}}"#
        );
        events.push(format!(r#"{{"type":"viewed",{rest}"#));
        events.push(format!(r#"{{"type":"viewed",{rest}"#));
        events.push(format!(r#"{{"type":"replayed",{rest}"#).replace("\"session\":\"s\"", "\"session\":\"r\""));
        events.push(format!(
            r#"{{"type":"loved","occurredAt":"2026-11-02T{hour}:20:00Z","dimensions":{{"user":"u{n}","video":"a"}}}}"#
        ));
    }
    format!("[{}]", events.join(","))
}

#[test]
fn a_range_can_be_judged_by_other_rules_and_a_recount_expects_that_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic());
    assert_eq!((asked.value("views:a"), asked.value("plays:a")), (40, 80));
    // Replays count as well, and views however often they come; loves are likes.
    let config = YAML
        .replace("dedup: {by: [session, seq], window: 60s}", "dedup: none")
        .replace(
            "rules: [{on: viewed, op: increment}]",
            "rules: [{on: viewed, op: increment}, {on: replayed, op: increment}]",
        )
        .replace("rules: [{on: liked,", "rules: [{on: loved, op: increment}, {on: liked,");
    let file = dir.path().join("new.yaml");
    std::fs::write(&file, config).unwrap();
    let hour = ["--from", "2026-11-02T10:00:00Z", "--to", "2026-11-02T11:00:00Z", "--config", file.to_str().unwrap()];
    let text = stdout(&asked.restate(&hour));
    assert!(
        text.contains("views:a at 2026-11-02T10:00:00.000Z  20 becomes 60 (+40)") && !text.contains("11:00:00.000Z "),
        "{text}"
    );
    assert!(text.contains("plays:a  80 becomes 100 (+20)"), "{text}");
    assert!(text.contains("likes:a at 2026-11-02T10:00:00.000Z  0 becomes 20 (+20)"), "{text}");
    assert!(
        text.contains("stock: not restated: it is written by its name") && text.contains("(adjust) is proposed"),
        "{text}"
    );
    asked.agrees();
    let made = asked.restated(&[&hour[..], &["--apply", "--author", "ops"]].concat());
    assert_eq!((asked.value("views:a"), asked.value("plays:a"), asked.value("likes:a")), (80, 100, 20), "{made}");
    asked.agrees();
    asked.post(&format!("/v1/corrections/{}/revert", made["proposal"]), "{}");
    assert_eq!((asked.value("views:a"), asked.value("plays:a"), asked.value("likes:a")), (40, 80, 0));
    asked.agrees();
    let wrong = YAML.replace("dimensions: [video], dedup: {by", "dimensions: [video, device], dedup: {by");
    std::fs::write(&file, wrong).unwrap();
    let refused = asked.restate(&hour);
    assert!(stderr(&refused).contains("changes what its numbers mean"), "{}", stderr(&refused));
}

const ONCE_A_SESSION: &str = "dedup: {by: [session], window: 1h}";

/// Views of one session, of which other rules count the first alone.
fn of_one_session(rollups: &str, dedup: &str) -> String {
    format!(
        "counters:\n  - {{counterName: views, mode: display, {rollups}{dedup}, rules: [{{on: viewed, op: increment}}]}}\n"
    )
}

#[test]
fn rules_that_are_in_force_by_now_restate_what_came_before_them() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), &of_one_session("", "dedup: none"));
    asked.view("a", 0..10);
    asked.server.stop(rustix::process::Signal::KILL);
    let asked = Asked::start(dir.path(), &of_one_session("", ONCE_A_SESSION));
    let file = dir.path().join("new.yaml");
    std::fs::write(&file, of_one_session("", ONCE_A_SESSION)).unwrap();
    let made = asked.restated(&["--from", "2026-01-01T00:00:00Z", "--config", file.to_str().unwrap()]);
    assert_eq!(made["counters"][0]["delta"], -9, "{made}");
}

#[test]
fn other_rules_may_ask_for_a_field_that_was_never_declared_or_only_later() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = |by: &str| of_one_session("rollups: [[hour]], ", &format!("dedup: {{by: [{by}], window: 1h}}"));
    let view = |asked: &Asked, seqs: std::ops::Range<u64>| {
        let event = |seq: u64| json!({"type": "viewed", "session": format!("s{seq}"), "dimensions": {"device": format!("d{}", seq % 2)}});
        asked.post("/v1/events", &Value::from_iter(seqs.map(event)).to_string());
    };
    let file = dir.path().join("new.yaml");
    std::fs::write(&file, yaml("device")).unwrap();
    let restated = |asked: &Asked| {
        let made = asked.restated(&["--from", "-5h", "--config", file.to_str().unwrap()]);
        made["counters"][0]["delta"].clone()
    };
    let asked = Asked::start(dir.path(), &yaml("session"));
    view(&asked, 0..10);
    assert_eq!(restated(&asked), -8);
    asked.server.stop(rustix::process::Signal::KILL);
    let asked = Asked::start(dir.path(), &yaml("session, device"));
    view(&asked, 10..20);
    assert_eq!(restated(&asked), -18);
    asked.agrees();
}

#[test]
fn a_restatement_by_other_rules_is_made_once_however_often_it_is_asked_for() {
    for rollups in ["", "rollups: [[hour]], "] {
        let dir = tempfile::tempdir().unwrap();
        let asked = Asked::start(dir.path(), &of_one_session(rollups, "dedup: none"));
        asked.view("a", 0..10);
        let restate = |dedup: &str, more: &[&str]| {
            let file = dir.path().join("new.yaml");
            std::fs::write(&file, of_one_session(rollups, dedup)).unwrap();
            let range = ["--from", "2026-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z"];
            asked.restated(&[&range[..], &["--reason", "bots", "--config", file.to_str().unwrap()], more].concat())
        };
        let [first, second] = [(); 2].map(|()| restate(ONCE_A_SESSION, &[])["proposal"].clone());
        asked.post(&format!("/v1/corrections/{first}/apply"), "");
        assert_eq!(asked.value("views"), 1);
        let refused = super::exchange(
            &asked.http,
            &format!(
                "POST /v1/corrections/{second}/apply HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                asked.http
            ),
        );
        assert!(refused.starts_with("HTTP/1.1 409"), "what it was made from has changed: {refused}");
        let again = restate(ONCE_A_SESSION, &["--apply"]);
        assert_eq!((&again["counters"][0]["delta"], &again["proposal"]), (&json!(0), &Value::Null), "{again}");
        asked.agrees();
        // Yet other rules, and those of the time: what was done before makes way for them.
        let back = restate("dedup: none", &["--apply"]);
        assert_eq!((asked.value("views"), &back["counters"][0]["delta"]), (10, &json!(9)), "{back}");
        asked.post(&format!("/v1/corrections/{}/revert", back["proposal"]), "{}");
        assert_eq!(restate(ONCE_A_SESSION, &[])["proposal"], Value::Null);
        asked.agrees();
    }
}
