//! Roll-ups that were added later are filled from the archive, beside a server that had them all the time.

use super::by_time::{YAML, traffic};
use super::{Asked, stderr, stdout, tally};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tally_node::clock::Stopwatch;

/// With a board by country; and late entries count within seconds.
fn full() -> String {
    let yaml = YAML.replace("[[country, hour], [day]]", "[[country, hour], [day], [country]]");
    yaml.replace("corrected: 2h", "corrected: 2h, every: 1s, restated: 1s")
}

/// The same counters without roll-ups.
fn bare() -> String {
    let full = full();
    let lines = full.lines().map(|line| match line.find("rollups: ") {
        Some(at) => line[..at].to_owned() + &line[line.find("rules: ").expect("it has rules")..],
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl Asked {
    /// Roll-ups that lack what was before them, and why they are not filled.
    fn lacking(&self) -> Vec<(String, Value)> {
        let config = self.get("/v1/config");
        let of = |counter: &Value| {
            let all = counter["rollups"].as_array().unwrap().clone();
            let lacking = all.into_iter().filter(|rollup| !rollup["since"].is_null());
            let name = counter["counterName"].as_str().unwrap().to_owned();
            lacking.map(|rollup| (format!("{name} {}", rollup["by"]), rollup["notFilled"].clone())).collect::<Vec<_>>()
        };
        config["counters"].as_array().unwrap().iter().flat_map(of).collect()
    }

    fn until(&self, what: &str, holds: impl Fn(&Asked) -> bool) {
        let begun = Stopwatch::start();
        while !holds(self) {
            assert!(begun.elapsed() < Duration::from_secs(120), "{what}: {:?}", self.lacking());
            std::thread::yield_now();
        }
    }

    fn until_filled(&self) {
        self.until("everything is filled", |asked| asked.lacking().is_empty());
    }

    fn until_all_has_counted(&self) {
        self.until("no late entry waits", |asked| {
            asked.get("/v1/counters/impressions/series?step=1d")["provisional"]["parked"] == 0
        });
    }

    fn is_filling(&self) -> bool {
        let workers = self.get("/v1/workers");
        let mut all = workers["workers"].as_array().unwrap().iter();
        all.any(|worker| worker["progress"].as_str().is_some_and(|words| words.starts_with("filling")))
    }

    fn restarted(self, dir: &Path, yaml: &str, signal: Signal) -> Asked {
        self.server.stop(signal);
        Asked::start(dir, yaml)
    }

    /// What every roll-up says of the time before now.
    fn parts(&self) -> Vec<Value> {
        let range = "from=2026-09-01T00:00:00Z&to=2026-11-15T00:00:00Z";
        let questions = [
            ("views:a", "step=1h&by=country"),
            ("views", "step=1h&by=country"),
            ("views:b%253Ac", "step=1d"),
            ("minutes:d", "step=15m"),
            ("minutes", "step=15m"),
            ("months", "step=1mo&by=country"),
            ("likes:a", "step=1h"),
            ("likes", "step=1h"),
            ("saves:d", "step=1h"),
            ("impressions:a", "step=1d&by=country"),
            ("impressions", "step=1d&by=country"),
        ];
        let ask = |(id, more): (&str, &str)| {
            let series = self.get(&format!("/v1/counters/{id}/series?{range}&{more}"));
            assert_eq!((&series["source"], &series["since"]), (&"rollup".into(), &Value::Null), "{id} {more}");
            series["points"].clone()
        };
        questions.map(ask).to_vec()
    }
}

fn verifies(dir: &Path) {
    let output = tally(&["verify", dir.join("data").to_str().unwrap()]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn a_roll_up_that_is_added_later_says_what_it_would_if_it_had_always_been_there() {
    let (dir, twin_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (asked, twin) = (Asked::start(dir.path(), &bare()), Asked::start(twin_dir.path(), &full()));
    for asked in [&asked, &twin] {
        asked.post("/v1/events", &traffic(0));
        asked.post("/v1/events", &traffic(0));
        asked.correct_in("adjust", "views:a", r#""bucket":"2026-10-02T10:10:00Z","delta":7"#);
        asked.correct_in("adjust", "impressions:a", r#""bucket":"2026-10-02T10:10:00Z","delta":-2"#);
    }
    let asked = asked.restarted(dir.path(), &full(), Signal::KILL);
    asked.post("/v1/events", &traffic(0).replace("liked", "seen"));
    twin.post("/v1/events", &traffic(0).replace("liked", "seen"));
    asked.until_filled();
    [&asked, &twin].iter().for_each(|asked| asked.until_all_has_counted());
    for (filled, always) in asked.parts().iter().zip(twin.parts()) {
        assert_eq!(*filled, always);
    }
    // Likes from before are taken back where they were counted.
    let off = |user: u64| format!(r#"{{"type":"unliked","dimensions":{{"user":"u{user}","video":"a"}}}}"#);
    let off: Vec<String> = (0..30).map(off).collect();
    for asked in [&asked, &twin] {
        asked.post("/v1/events", &format!("[{}]", off.join(",")));
    }
    assert_eq!(asked.parts(), twin.parts());
    asked.agrees();
    for question in ["by=country&k=3", "by=country&window=24h&k=2", "window=24h"] {
        let top = |asked: &Asked| asked.get(&format!("/v1/top/views?{question}"));
        let told = |top: Value| ["kind", "groups", "top", "total", "since"].map(|field| top[field].clone());
        assert_eq!(told(top(&asked)), told(top(&twin)), "{question}");
        assert_eq!(top(&asked)["kind"], "exact", "{question}");
    }
    asked.server.stop(Signal::TERM);
    verifies(dir.path());
}

#[test]
fn a_server_that_is_killed_while_it_fills_goes_on_and_nothing_is_added_twice() {
    let (dir, twin_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut asked, twin) = (Asked::start(dir.path(), &bare()), Asked::start(twin_dir.path(), &full()));
    for round in 0..3 {
        asked.post("/v1/events", &traffic(round));
        twin.post("/v1/events", &traffic(round));
    }
    asked = asked.restarted(dir.path(), &full(), Signal::KILL);
    for _ in 0..6 {
        asked.until("something is filled", |asked| asked.is_filling() || asked.lacking().is_empty());
        asked = asked.restarted(dir.path(), &full(), Signal::KILL);
    }
    asked.until_filled();
    [&asked, &twin].iter().for_each(|asked| asked.until_all_has_counted());
    assert_eq!(asked.parts(), twin.parts());
    asked.agrees();
    asked.server.stop(Signal::TERM);
    verifies(dir.path());
}

#[test]
fn values_beyond_a_limit_are_other_in_what_is_filled_as_they_came_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = |rollups: &str| {
        format!(
            "counters:\n  - {{counterName: views, mode: display, dimensions: [video], dedup: none, {rollups}, rules: [{{on: viewed, op: increment}}]}}\n"
        )
    };
    let asked = Asked::start(dir.path(), &yaml("rollups: [[hour]]"));
    let post = |asked: &Asked, countries: &[&str]| {
        let event = |country: &&str| {
            format!(
                r#"{{"type":"viewed","occurredAt":"2026-09-01T10:00:00Z","dimensions":{{"video":"a","country":"{country}"}}}}"#
            )
        };
        let events: Vec<String> = countries.iter().map(event).collect();
        asked.post("/v1/events", &format!("[{}]", events.join(",")));
    };
    // In no other order than that of the log the first two are these.
    post(&asked, &["Z", "A", "M", "Z", "B", "M", "M"]);
    let asked =
        asked.restarted(dir.path(), &yaml("rollups: [[country, hour]], maxCardinality: {country: 2}"), Signal::TERM);
    asked.until_filled();
    post(&asked, &["B", "A"]);
    let series = asked.get("/v1/counters/views:a/series?by=country&from=2026-09-01T00:00:00Z&to=2026-09-02T00:00:00Z");
    assert_eq!(series["source"], "rollup");
    assert_eq!(series["points"][0]["parts"], serde_json::json!({"Z": 2, "A": 2, "other": 5}), "{series}");
    asked.server.stop(Signal::TERM);
    verifies(dir.path());
}

#[test]
fn what_was_counted_by_name_or_cleared_before_is_in_the_parts_for_that_and_they_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), "counters: []\n");
    asked.post("/v1/counters/plays:a/increment", r#"{"delta":5}"#);
    // What has the bare name is nobody's key.
    asked.post("/v1/counters/plays/increment", r#"{"delta":7}"#);
    let yaml = |rollups: &str| {
        format!(
            "counters:\n  - {{counterName: plays, mode: display, dimensions: [video], dedup: none, {rollups}rules: [{{on: played, op: increment}}]}}\n"
        )
    };
    let asked = asked.restarted(dir.path(), &yaml(""), Signal::TERM);
    let played = |asked: &Asked, video: &str, country: &str| {
        let event = format!(r#"{{"type":"played","dimensions":{{"video":"{video}","country":"{country}"}}}}"#);
        asked.post("/v1/events", &event);
    };
    ["a", "b"].iter().for_each(|video| played(&asked, video, "DE"));
    asked.delete("/v1/counters/plays:b");
    played(&asked, "b", "US");
    asked.correct("adjust", "plays:a", 3);
    let asked = asked.restarted(dir.path(), &yaml("rollups: [[country]], "), Signal::TERM);
    asked.until_filled();
    played(&asked, "a", "FR");
    let parts = |id: &str| asked.get(&format!("/v1/counters/{id}/series?by=country"))["points"][0]["parts"].clone();
    assert_eq!(parts("plays:a"), serde_json::json!({"(none)": 5, "DE": 1, "FR": 1, "(correction)": 3}));
    assert_eq!(parts("plays:b"), serde_json::json!({"DE": 1, "US": 1, "(correction)": -1}));
    assert_eq!(parts("plays"), serde_json::json!({"(none)": 5, "DE": 2, "US": 1, "FR": 1, "(correction)": 2}));
    // What is cleared when it is filled begins anew.
    asked.delete("/v1/counters/plays:b");
    played(&asked, "b", "US");
    assert_eq!(parts("plays:b"), serde_json::json!({"US": 1}));
}

#[test]
fn why_a_roll_up_is_not_filled_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = |rollups: &str| {
        format!(
            "counters:\n  - {{counterName: stock, mode: simple, dimensions: [item], {rollups}rules: [{{on: bought, op: increment}}]}}\n  \
             - {{counterName: hits, mode: display, dedup: none, archive: none, {rollups}rules: [{{on: bought, op: increment}}]}}\n  \
             - {{counterName: sold, mode: display, dedup: none, rules: [{{on: bought, op: increment}}]}}\n"
        )
    };
    let asked = Asked::start(dir.path(), &yaml(""));
    asked.post("/v1/events", r#"{"type":"bought","dimensions":{"item":"nails"}}"#);
    let asked = asked.restarted(dir.path(), &yaml("rollups: [[day]], "), Signal::TERM);
    asked.until("it is said why", |asked| asked.lacking().iter().all(|(_, why)| why.is_string()));
    let lacking = asked.lacking();
    assert_eq!(lacking.len(), 2, "{lacking:?}");
    assert!(lacking[0].1.as_str().unwrap().contains("written by its name as well"), "{lacking:?}");
    assert!(lacking[1].1.as_str().unwrap().contains("its archive is none"), "{lacking:?}");
}
