//! Counting again by buckets of time: what is in the wrong one is found, though the key as a whole is right.

use super::{Asked, stderr, stdout, tally};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use tally_node::clock::{rfc3339, wall_ms};

pub(super) const YAML: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video], dedup: {by: [session, seq], window: 60s},
     rollups: [[country, hour], [day]], timezone: Asia/Kolkata, rules: [{on: viewed, op: increment}]}
  - {counterName: minutes, mode: display, dimensions: [video], dedup: none,
     rollups: [[minute]], rules: [{on: viewed, op: increment}]}
  - {counterName: months, mode: display, dedup: none,
     rollups: [[country, month]], timezone: America/New_York, rules: [{on: viewed, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user],
     rollups: [[hour]], rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: saves, mode: transition, dimensions: [video], entity: [user, video],
     rollups: [[hour]], rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: impressions, mode: persistent, dimensions: [ad], lateness: {allowed: 10s, corrected: 2h},
     rollups: [[country, day]], timezone: Europe/Berlin, rules: [{on: shown, op: increment}, {on: refunded, op: decrement}]}
  - {counterName: plays, mode: display, dimensions: [video], dedup: none, rules: [{on: viewed, op: increment}]}
";

/// Events of many times and orders, around the change of clocks in Berlin and New York: some twice, some late, some undone.
pub(super) fn traffic(round: u64) -> String {
    let mut events = Vec::new();
    for n in 0..300_u64 {
        let (id, video) = (round * 1000 + n, ["a", "b:c", "d"][n as usize % 3]);
        let at = match n % 5 {
            0 => String::new(),
            _ => format!(
                r#""occurredAt":"2026-{:02}-{:02}T{:02}:{:02}:30Z","#,
                9 + n % 3,
                1 + n % 28,
                n % 24,
                n * 7 % 60
            ),
        };
        let country = ["", r#","country":"DE""#, r#","country":"US""#][n as usize % 3];
        for _ in 0..if n % 7 == 0 { 2 } else { 1 } {
            events.push(format!(
                r#"{{"type":"viewed",{at}"session":"s{}","seq":{id},"dimensions":{{"video":"{video}"{country}}}}}"#,
                n % 5
            ));
            let kind = if n % 9 == 0 { "refunded" } else { "shown" };
            events
                .push(format!(r#"{{"type":"{kind}",{at}"eventId":"e{id}","dimensions":{{"ad":"{video}"{country}}}}}"#));
        }
        let kind = if n % 4 == 0 { "unliked" } else { "liked" };
        events.push(format!(r#"{{"type":"{kind}",{at}"dimensions":{{"user":"u{}","video":"{video}"}}}}"#, n * 31 % 41));
    }
    format!("[{}]", events.join(","))
}

impl Asked {
    fn report(&self, args: &[&str]) -> Value {
        let output = self.reconcile(&[args, &["--json"]].concat());
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
    }
}

impl Asked {
    /// A server with a new data directory, whose archive begins with a base.
    fn moved(self, from: &Path, to: &Path) -> Asked {
        assert_eq!(self.server.stop(Signal::TERM).0, Some(0));
        let [data, moved, new] = [from.join("data"), from.join("moved"), to.join("data")];
        let [data, moved, new] = [&data, &moved, &new].map(|path| path.to_str().unwrap());
        for command in [["export", moved, "--data", data], ["import", moved, "--data", new]] {
            let done = tally(&command);
            assert!(done.status.success(), "{}", stderr(&done));
        }
        Asked::start(to, YAML)
    }
}

fn counter<'r>(report: &'r Value, name: &str) -> &'r Value {
    report["counters"].as_array().unwrap().iter().find(|counter| counter["counter"] == name).unwrap()
}

#[test]
fn every_bucket_of_every_mode_agrees_with_the_recount_through_time_zones_late_events_and_corrections() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(0));
    asked.post("/v1/events", &traffic(1));
    let report = asked.report(&[]);
    assert!(counter(&report, "impressions")["live"].as_i64() > Some(0), "{report}");
    asked.agrees();
    asked.correct_in("adjust", "views:a", r#""bucket":"2026-10-02T10:10:00Z","delta":7"#);
    asked.correct("adjust", "views:d", 3);
    let number = asked.correct_in("adjust", "impressions:a", r#""bucket":"2026-10-02T10:10:00Z","delta":2"#);
    asked.post(&format!("/v1/corrections/{number}/revert"), "{}");
    let number = asked.correct_in("adjust", "months", r#""delta":2"#);
    asked.post(&format!("/v1/corrections/{number}/revert"), "{}");
    asked.post("/v1/events", &traffic(1));
    let text = asked.agrees();
    for name in ["views", "minutes", "months", "likes", "saves", "impressions", "plays"] {
        assert!(text.contains(&format!("{name}: ")) && !text.contains(&format!("{name}: not")), "{text}");
    }
    let report = asked.report(&[]);
    let buckets = |name: &str| counter(&report, name)["buckets"].clone();
    assert_eq!(
        ["views", "minutes", "months", "plays"].map(buckets),
        ["hour".into(), "hour".into(), "month".into(), Value::Null]
    );
    let hours = counter(&report, "views")["hours"].as_array().unwrap();
    assert!(hours.len() == 24 && hours.iter().all(|hour| hour["drift"] == 0.0 && hour["live"] == hour["recount"]));
    assert!(hours.iter().all(|hour| hour["at"].as_str().unwrap().contains(":30:00.000Z")), "{hours:?}");
}

#[test]
fn a_server_that_was_moved_agrees_with_its_new_archive_from_where_it_began() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(0));
    let asked = asked.moved(dir.path(), other.path());
    let began = asked.post("/v1/archive/flush", "");
    assert!(asked.get("/v1/archive")["logTime"].as_str() > Some("2026"), "{began}");
    asked.agrees();
    asked.post("/v1/events", &traffic(1));
    let report = asked.report(&[]);
    let differing = |name: &str| counter(&report, name)["differing"].as_u64();
    let names = ["views", "minutes", "months", "saves", "impressions", "plays"];
    assert_eq!(names.map(differing), [Some(0); 6], "{report}");
    // Who likes one video no longer likes the one before, and which one that was may have been said before the move.
    let text = asked.agrees();
    assert!(text.contains("likes: not compared: an entity that goes on or off takes away from the key"), "{text}");
}

#[test]
fn a_correction_that_restores_what_is_wrong_in_the_base_is_expected_and_one_of_which_nobody_can_tell_leaves_its_key_out()
 {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(0));
    let before = r#""bucket":"2026-10-02T10:10:00Z","delta""#;
    asked.correct_in("restore", "minutes:a", &format!("{before}:5"));
    asked.correct("restore", "plays:a", 7);
    let asked = asked.moved(dir.path(), other.path());
    asked.agrees();
    asked.correct_in("restore", "minutes:a", &format!("{before}:-5"));
    asked.correct("restore", "plays:a", -7);
    let text = asked.agrees();
    assert!(text.contains("1 keys not compared: a correction restored them without naming a bucket"), "{text}");
    // What is behind the base was counted there, and is looked at as ever.
    let behind = format!(r#""bucket":"{}","delta":3"#, rfc3339((wall_ms() / 60_000 + 2) * 60_000));
    asked.correct_in("restore", "minutes:d", &behind);
    assert_eq!(counter(&asked.report(&[]), "minutes")["differing"], 1);
}

#[test]
fn an_entry_in_the_wrong_bucket_is_found_by_the_hour_and_put_where_it_belongs() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(0));
    // Nothing changes as a whole: one hour has what belongs to another.
    asked.correct_in("restore", "views:a", r#""bucket":"2026-10-02T10:10:00Z","delta":5"#);
    asked.correct_in("restore", "views:a", r#""bucket":"2026-10-02T12:10:00Z","delta":-5"#);
    asked.correct("restore", "plays:a", 1);
    let report = asked.report(&[]);
    let views = counter(&report, "views");
    assert_eq!((&views["differing"], &views["difference"], &views["live"]), (&1.into(), &10.into(), &views["recount"]));
    let told = views["differences"].as_array().unwrap();
    let at: Vec<&str> = told.iter().map(|it| it["bucket"].as_str().unwrap()).collect();
    assert_eq!(at, ["2026-10-02T09:30:00.000Z", "2026-10-02T11:30:00.000Z"], "{views}");
    let drifts = views["hours"].as_array().unwrap().iter().filter(|hour| hour["difference"] == 5);
    assert_eq!(drifts.count(), 2, "{views}");
    // A time that does not touch them.
    let elsewhere = asked.report(&["views", "--from", "2026-10-03T00:00:00Z", "--to", "2026-10-04T00:00:00Z"]);
    assert_eq!(counter(&elsewhere, "views")["differing"], 0, "{elsewhere}");
    assert!(counter(&elsewhere, "views")["live"].as_i64() > Some(0), "{elsewhere}");
    let there = asked.reconcile(&["--from", "2026-10-02T10:00:00Z", "--to", "2026-10-02T10:01:00Z"]);
    let text = stdout(&there);
    assert!(text.contains("views:a at 2026-10-02T09:30:00.000Z  ") && !text.contains("11:30"), "{text}");
    assert!(text.contains("plays: it has no roll-up by time, so all of it was compared"), "{text}");
    assert_eq!(there.status.code(), Some(3), "{text}");
    let applied = asked.reconcile(&["--apply", "--author", "ops"]);
    assert_eq!(applied.status.code(), Some(0), "{}", stdout(&applied));
    asked.agrees();
    let metrics = super::exchange(
        &asked.http,
        &format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", asked.http),
    );
    assert!(metrics.contains("tally_reconciliation_hour_drift_ratio{counter=\"views\"} 0"), "{metrics}");
}

/// What a series says, point by point and part by part.
fn points(series: &Value) -> &Vec<Value> {
    series["points"].as_array().unwrap()
}

#[test]
fn a_series_that_no_roll_up_has_comes_from_the_archive_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(0));
    asked.post("/v1/archive/flush", "");
    asked.correct_in("adjust", "views:a", r#""bucket":"2026-10-02T10:10:00Z","delta":7"#);
    asked.post("/v1/archive/flush", "");
    let range = "from=2026-09-01T00:00:00Z&to=2026-11-30T00:00:00Z";
    let series = |id: &str, more: &str| asked.get(&format!("/v1/counters/{id}/series?{range}&{more}"));
    // No roll-up has the device; day by day it comes to what the roll-up says.
    let rolled = series("views:a", "step=1d&by=country");
    let archived = series("views:a", "step=1d&by=country,device");
    assert_eq!((&rolled["source"], &archived["source"]), (&"rollup".into(), &"archive".into()));
    assert!(archived["archivedTo"].is_string() && archived["asOf"].is_string(), "{archived}");
    let values =
        |series: &Value| points(series).iter().map(|it| (it["at"].clone(), it["value"].clone())).collect::<Vec<_>>();
    assert_eq!(values(&rolled), values(&archived));
    assert!(points(&rolled).len() > 10, "{rolled}");
    let minutes = series("views", "step=30m&by=country");
    assert_eq!(minutes["source"], "archive");
    let whole = |series: &Value| points(series).iter().map(|it| it["value"].as_i64().unwrap()).sum::<i64>();
    assert_eq!(whole(&minutes), whole(&series("views", "step=1d&by=country")));
    let parts = |series: &Value, name: &str| {
        points(series).iter().map(|it| it["parts"][name].as_i64().unwrap_or(0)).sum::<i64>()
    };
    let by_country = series("views", "step=1d&by=country");
    for name in ["DE", "US", "(none)", "(correction)"] {
        assert_eq!(parts(&minutes, name), parts(&by_country, name), "{name}");
    }
    assert_eq!(parts(&minutes, "(correction)"), 7);
    // A counter without roll-ups, and likes in the hour in which they were turned on.
    assert_eq!(asked.get("/v1/counters/plays:a")["value"], whole(&series("plays:a", "step=1h")));
    let halves = series("likes", "step=30m");
    assert_eq!((&halves["source"], whole(&halves)), (&"archive".into(), whole(&series("likes", "step=1h"))));
}

#[test]
fn a_roll_up_that_is_added_later_is_filled_from_the_archive() {
    let dir = tempfile::tempdir().unwrap();
    let before = YAML.replace("rollups: [[country, hour], [day]], timezone: Asia/Kolkata,", "");
    let asked = Asked::start(dir.path(), &before);
    asked.post("/v1/events", &traffic(0));
    asked.server.stop(rustix::process::Signal::KILL);
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(1));
    asked.post("/v1/archive/flush", "");
    let series = asked.get("/v1/counters/views:a/series?from=2026-09-01T00:00:00Z&step=1d&by=country");
    assert_eq!(series["source"], "archive", "{series}");
    let total: i64 = points(&series).iter().map(|it| it["value"].as_i64().unwrap()).sum();
    assert_eq!(asked.get("/v1/counters/views:a")["value"], total);
    asked.agrees();
}

#[test]
fn what_happened_before_1970_is_in_the_first_bucket_by_the_recount_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let counter = |unit: &str| {
        format!(
            "  - {{counterName: {unit}s, mode: persistent, dimensions: [k], rollups: [[{unit}]], rules: [{{on: e, op: increment}}]}}\n"
        )
    };
    let yaml = ["minute", "hour", "day", "week", "month"].map(counter).concat();
    let asked = Asked::start(dir.path(), &format!("counters:\n{yaml}"));
    let times = ["0001-01-01T00:00:00Z", "1500-05-05T00:00:00Z", "1677-09-22T00:00:00Z", "1677-09-25T00:00:00Z"];
    let times = [&times[..], &["1969-12-31T23:59:59Z", "1970-01-02T00:00:00Z", "2026-09-17T00:00:00Z"]].concat();
    let event = |(n, at): (usize, &&str)| {
        format!(r#"{{"type":"e","eventId":"x{n}","occurredAt":"{at}","dimensions":{{"k":"a"}}}}"#)
    };
    let events: Vec<String> = times.iter().enumerate().map(event).collect();
    asked.post("/v1/events", &format!("[{}]", events.join(",")));
    let text = asked.agrees();
    assert!(text.contains("months: 1 keys, 7 in all"), "{text}");
    let series = asked.get("/v1/counters/weeks:a/series?by=x&step=1w&from=2026-09-01T00:00:00Z");
    assert_eq!(points(&series)[0]["value"], 1, "{series}");
}

#[test]
fn buckets_begin_where_clocks_are_put_back_and_forward_as_they_do_by_the_recount() {
    let dir = tempfile::tempdir().unwrap();
    // Clocks that show midnight twice or not at all, that change by half an hour or by a day, and offsets with seconds.
    let buckets = [
        ("day", "Atlantic/Azores", "2026-10-25"),
        ("day", "America/Havana", "2026-11-01"),
        ("month", "America/Havana", "2026-11-01"),
        ("day", "Asia/Beirut", "2026-03-29"),
        ("hour", "Australia/Lord_Howe", "2026-10-03"),
        ("hour", "Australia/Lord_Howe", "2026-04-04"),
        ("day", "Pacific/Apia", "2011-12-30"),
        ("hour", "Asia/Kathmandu", "1985-12-31"),
        ("hour", "Africa/Monrovia", "1972-01-07"),
        ("day", "Africa/Monrovia", "1971-06-01"),
        ("week", "Pacific/Auckland", "1970-01-01"),
    ];
    let (mut yaml, mut events) = ("counters:\n".to_owned(), Vec::new());
    for (index, (unit, zone, day)) in buckets.iter().enumerate() {
        yaml += &format!(
            "  - {{counterName: c{index}, mode: display, dedup: none, rollups: [[{unit}]], timezone: {zone}, rules: [{{on: e{index}, op: increment}}]}}\n"
        );
        for minutes in (0..24 * 60).step_by(10) {
            let at = format!("{day}T{:02}:{:02}:30Z", minutes / 60, minutes % 60);
            events.push(format!(r#"{{"type":"e{index}","occurredAt":"{at}"}}"#));
        }
    }
    let asked = Asked::start(dir.path(), &yaml);
    asked.post("/v1/events", &format!("[{}]", events.join(",")));
    let text = asked.agrees();
    assert_eq!(text.matches("144 in all: as counted again").count(), buckets.len(), "{text}");
}
