//! Counting again from the archive, and what differs.

mod by_time;
mod cleared;
mod fill;
mod proposals;
mod restate;

use crate::support::{Served, exchange, stderr, stdout, tally};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Output, Stdio};

const YAML: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video, country], dedup: {by: [session, seq], window: 60s},
     rules: [{on: viewed, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video],
     rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: impressions, mode: persistent, dimensions: [ad], lateness: {allowed: 10s, corrected: 2h},
     rules: [{on: shown, op: increment}, {on: refunded, op: decrement}]}
  - {counterName: stock, mode: simple, dimensions: [item], rules: [{on: bought, op: increment}]}
";

struct Asked {
    server: Served,
    http: String,
}

impl Asked {
    fn start(dir: &Path, yaml: &str) -> Asked {
        Asked::start_planted(dir, yaml, None)
    }

    /// With a bug that makes a counter count twice at some log times.
    fn start_planted(dir: &Path, yaml: &str, planted: Option<&str>) -> Asked {
        let (config, data) = (dir.join("c.yaml"), dir.join("data"));
        std::fs::write(&config, yaml).unwrap();
        let [config, data] = [&config, &data].map(|path| path.to_str().unwrap());
        let args = ["serve", "--memory", "256MiB", "--data", data, "--config", config];
        let planted: Vec<(&str, &str)> =
            planted.iter().map(|planted| ("TALLY_PLANTED_DOUBLE_COUNT", *planted)).collect();
        let server = Served::start_with_env(&args, &planted, Stdio::null());
        let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        Asked { http: http.trim_end_matches('/').to_owned(), server }
    }

    fn get(&self, path: &str) -> serde_json::Value {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.http);
        let answer = exchange(&self.http, &head);
        assert!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn post(&self, path: &str, body: &str) -> serde_json::Value {
        let head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.http);
        let body = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let answer = exchange(&self.http, &(head + &body));
        assert!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn delete(&self, path: &str) {
        let head = format!("DELETE {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.http);
        let answer = exchange(&self.http, &head);
        assert!(answer.starts_with("HTTP/1.1 2"), "{path}: {answer}");
    }

    /// Changes what a counter is worth; `restore` claims that this is what was counted, which nobody believes who counts again.
    fn correct(&self, kind: &str, id: &str, delta: i64) {
        self.correct_in(kind, id, &format!(r#""delta":{delta}"#));
    }

    /// The same with a bucket; answers the number of the correction.
    fn correct_in(&self, kind: &str, id: &str, delta: &str) -> u64 {
        let proposal =
            format!(r#"{{"reason":"a test","author":"test","kind":"{kind}","deltas":[{{"id":"{id}",{delta}}}]}}"#);
        let number = self.post("/v1/corrections", &proposal)["number"].as_u64().unwrap();
        self.post(&format!("/v1/corrections/{number}/apply"), "");
        number
    }

    fn reconcile(&self, args: &[&str]) -> Output {
        tally(&[&["reconcile", "--server", &self.http], args].concat())
    }

    fn agrees(&self) -> String {
        let output = self.reconcile(&[]);
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        stdout(&output)
    }
}

/// Events of all modes: some twice, some late, some undone, some rejected; keys that have to be escaped.
fn traffic(round: u64) -> String {
    let mut events = Vec::new();
    for n in 0..200_u64 {
        let (id, video) = (round * 1000 + n, ["a", "b:c", "50%", "d"][n as usize % 4]);
        let twice = if n % 7 == 0 { 2 } else { 1 };
        for _ in 0..twice {
            events.push(format!(
                r#"{{"type":"viewed","session":"s{}","seq":{id},"dimensions":{{"video":"{video}","country":"DE"}}}}"#,
                n % 5
            ));
            let kind = if n % 9 == 0 { "refunded" } else { "shown" };
            let late = if n % 11 == 0 { r#""occurredAt":"2026-11-01T10:00:00Z","# } else { "" };
            events.push(format!(r#"{{"type":"{kind}",{late}"eventId":"e{id}","dimensions":{{"ad":"{video}"}}}}"#));
        }
        let kind = if n % 3 == 0 { "unliked" } else { "liked" };
        events.push(format!(r#"{{"type":"{kind}","dimensions":{{"user":"u{}","video":"{video}"}}}}"#, n % 23));
        events.push(r#"{"type":"bought","dimensions":{"item":"nails"}}"#.to_owned());
    }
    events.push(r#"{"type":"viewed","session":"s","seq":1,"dimensions":{"video":"no country"}}"#.to_owned());
    format!("[{}]", events.join(","))
}

#[test]
fn a_recount_agrees_with_every_mode_through_repeats_late_events_corrections_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(0));
    asked.post("/v1/events", &traffic(1));
    asked.correct("adjust", "views:a:DE", -7);
    let text = asked.agrees();
    for counter in ["views: 4 keys", "likes: ", "impressions: 4 keys"] {
        assert!(text.contains(counter), "{text}");
    }
    assert!(text.contains("stock: not compared: it is written by its name"), "{text}");
    asked.server.stop(Signal::KILL);
    // A counter more, and another type for one that is there: events are judged by the rules of their time.
    let more =
        YAML.replace("{on: viewed, op: increment}", "{on: viewed, op: increment}, {on: replayed, op: increment}");
    let more = more + "  - {counterName: plays, mode: display, dedup: none, rules: [{on: viewed, op: increment}]}\n";
    let asked = Asked::start(dir.path(), &more);
    asked.post("/v1/events", &traffic(1));
    asked.post("/v1/events", &traffic(2).replace("viewed", "replayed"));
    asked.post("/v1/events", &traffic(3));
    let text = asked.agrees();
    assert!(text.contains("plays: 1 keys, 460 in all"), "{text}");
}

/// Dimensions that differ in the case of their letters, that no column can be called by, and that are called as a recount might call what
/// it reckons.
const NAMES: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [Video, own_window, window_before], dedup: {by: [session, seq], window: 60s},
     rollups: [[hour]], rules: [{on: viewed, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [video, is_on, own_id], entity: [last_offset, was_on],
     rollups: [[hour]], rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: impressions, mode: persistent, dimensions: [nth, VIDEO, a.b, Hour], rollups: [[day]],
     rules: [{on: shown, op: increment}]}
";

#[test]
fn dimensions_may_be_called_anything() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), NAMES);
    let names = ["Video", "video", "VIDEO", "own_window", "window_before", "is_on", "own_id", "last_offset", "was_on"];
    let names = || names.into_iter().chain(["nth", "a.b", "Hour", "own_time", "key_0", "id", "value", "bucket"]);
    let mut events = Vec::new();
    for n in 0..60_u64 {
        let dimensions: Vec<String> = names().map(|name| format!(r#""{name}":"{name}{}""#, n % 3)).collect();
        for kind in ["viewed", "shown", if n % 4 == 0 { "unliked" } else { "liked" }] {
            let (session, id, dimensions) = (n % 5, n % 40, dimensions.join(","));
            events.push(format!(
                r#"{{"type":"{kind}","eventId":"e{id}","session":"s{session}","seq":{id},"dimensions":{{{dimensions}}}}}"#
            ));
        }
    }
    asked.post("/v1/events", &format!("[{}]", events.join(",")));
    let text = asked.agrees();
    for counter in ["views: 3 keys", "likes: ", "impressions: 3 keys"] {
        assert!(text.contains(counter), "{text}");
    }
    // By the rules of another version each event is judged as ever.
    asked.server.stop(Signal::KILL);
    let asked = Asked::start(dir.path(), &NAMES.replace("60s", "120s"));
    asked.post("/v1/events", &format!("[{}]", events.join(",").replace(r#""eventId":"e"#, r#""eventId":"f"#)));
    asked.agrees();
}

#[test]
fn what_differs_is_named_key_by_key_and_put_right_by_a_correction() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(0));
    asked.agrees();
    asked.correct("restore", "views:a:DE", 5);
    asked.correct("restore", "impressions:b%3Ac", -2);
    let differs = asked.reconcile(&[]);
    let text = stdout(&differs);
    assert_eq!(differs.status.code(), Some(3), "{text}");
    assert!(text.contains("views:a:DE  55 instead of 50") && text.contains("impressions:b%3Ac  "), "{text}");
    assert!(text.contains("is proposed"), "{text}");
    let one = asked.reconcile(&["likes"]);
    assert_eq!((one.status.code(), stdout(&one).lines().count()), (Some(0), 2), "{}", stdout(&one));
    let applied = asked.reconcile(&["--apply", "--author", "ops", "--json"]);
    assert_eq!(applied.status.code(), Some(0), "{}", stderr(&applied));
    let report: serde_json::Value = serde_json::from_str(&stdout(&applied)).unwrap();
    assert!(report["applied"] == true && report["proposal"].is_u64(), "{report}");
    assert_eq!(report["counters"][0]["differences"][0]["id"], "views:a:DE", "{report}");
    asked.agrees();
    let wrong = asked.reconcile(&["vews"]);
    assert!(stderr(&wrong).contains("did you mean views"), "{}", stderr(&wrong));
}

#[test]
fn a_counter_whose_archive_was_none_before_is_not_compared_with_what_came_since() {
    let dir = tempfile::tempdir().unwrap();
    let counter = |more: &str| {
        let rest = "rules: [{on: viewed, op: increment}]";
        format!("counters:\n  - {{counterName: views, mode: display, dedup: none, {more}{rest}}}\n")
    };
    let view = |asked: &Asked, times: usize| {
        asked.post("/v1/events", &format!("[{}]", [r#"{"type":"viewed"}"#].repeat(times).join(",")))
    };
    let asked = Asked::start(dir.path(), &counter("archive: none, "));
    view(&asked, 10);
    asked.server.stop(Signal::KILL);
    let asked = Asked::start(dir.path(), &counter(""));
    view(&asked, 3);
    let text = asked.agrees();
    assert!(text.contains("views: not compared: some of its events were not archived"), "{text}");
    let head = format!(
        "GET /v1/counters/views/series?step=1h&from=-1d HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
        asked.http
    );
    let series = exchange(&asked.http, &head);
    assert!(series.starts_with("HTTP/1.1 4"), "it has only some of them: {series}");
}

#[test]
fn an_event_without_a_session_counts_by_a_recount_as_soon_as_events_need_none() {
    let dir = tempfile::tempdir().unwrap();
    let views = |dedup: &str| {
        format!("counters:\n  - {{counterName: views, mode: display, {dedup}rules: [{{on: viewed, op: increment}}]}}\n")
    };
    let view = |asked: &Asked| {
        asked.post("/v1/events", r#"[{"type":"viewed"},{"type":"viewed","session":"s","seq":1}]"#);
    };
    // The fields and the window are those that a counter has if nothing is said of them.
    let asked = Asked::start(dir.path(), &views("dedup: {by: [session, seq], window: 60s}, "));
    view(&asked);
    asked.server.stop(Signal::KILL);
    let asked = Asked::start(dir.path(), &views(""));
    view(&asked);
    let text = asked.agrees();
    assert!(text.contains("views: 1 keys, 2 in all: as counted again"), "{text}");
}

#[test]
fn an_id_that_a_counter_without_an_archive_has_claimed_is_claimed_for_a_recount_too() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = "counters:
  - {counterName: a, mode: persistent, archive: none, rules: [{on: ea, op: increment}]}
  - {counterName: b, mode: persistent, rules: [{on: eb, op: increment}]}\n";
    let asked = Asked::start(dir.path(), yaml);
    for (kind, id) in [("ea", "x"), ("eb", "x"), ("eb", "y"), ("eb", "y")] {
        asked.post("/v1/events", &format!(r#"{{"type":"{kind}","eventId":"{id}"}}"#));
    }
    let text = asked.agrees();
    assert!(text.contains("b: 1 keys, 1 in all"), "{text}");
}

#[test]
fn keys_that_come_to_more_than_64_bits_together_are_added_up_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = "counters:\n  - {counterName: v, mode: display, dimensions: [k], rollups: [[hour]], rules: [{on: e, op: increment}]}\n";
    let asked = Asked::start(dir.path(), yaml);
    let delta = (1i64 << 62) - 10;
    ["v:a", "v:b", "v:c"].iter().for_each(|id| asked.correct("adjust", id, delta));
    let text = asked.agrees();
    let output = stdout(&asked.reconcile(&["--json"]));
    let sum = (3 * i128::from(delta)).to_string();
    // Once as a whole and once in the hour, as counted and as counted again.
    let told: Vec<&str> = output.split([':', ',', '}', ' ', '\n']).filter(|word| *word == sum).collect();
    assert_eq!(told.len(), 4, "{text}{output}");
}

#[test]
fn a_counter_that_was_counted_by_name_before_it_was_declared_is_not_compared_and_keeps_its_value() {
    let views =
        "  - {counterName: views, mode: display, dimensions: [v], dedup: none, rules: [{on: viewed, op: increment}]}\n";
    let other = "  - {counterName: other, mode: display, rules: [{on: viewed, op: increment}]}\n";
    for before in ["counters: []\n".to_owned(), format!("counters:\n{other}")] {
        let dir = tempfile::tempdir().unwrap();
        let asked = Asked::start(dir.path(), &before);
        asked.post("/v1/counters/views:a/increment", r#"{"delta":5}"#);
        asked.server.stop(Signal::KILL);
        let asked = Asked::start(dir.path(), &format!("counters:\n{other}{views}"));
        asked.post("/v1/events", r#"{"type":"viewed","dimensions":{"v":"a"}}"#);
        let text = asked.agrees();
        assert!(
            text.contains(
                "views: not compared: its keys were counted by name while it was not declared, to 5 together"
            ),
            "{text}"
        );
        assert!(text.contains("other: 1 keys, 1 in all: as counted again"), "{text}");
    }
}
