//! Tops of an hour and a day, and by the values of a dimension, over HTTP: against all that was sent, through restarts and crashes.

use crate::support::TestNode;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tally_node::assemble::Options;

const CONFIG: &str = "
counters:
  - {counterName: views, mode: simple, dimensions: [video], rules: [{on: viewed, op: increment}, {on: undone, op: decrement}],
     rollups: [[country], [country, hour]], maxCardinality: {country: 50}}
  - {counterName: plays, mode: simple, dimensions: [video], rules: [{on: viewed, op: increment}, {on: undone, op: decrement}],
     rollups: [[country, device, minute]]}
  - {counterName: all, mode: simple, rules: [{on: viewed, op: increment}, {on: undone, op: decrement}], rollups: [[hour]]}
  - {counterName: flat, mode: simple, dimensions: [video], rules: [{on: viewed, op: increment}]}
";

const HOUR_MS: i64 = 3_600_000;

fn configured(options: &mut Options) {
    options.config = Some(CONFIG.to_owned());
}

fn cut_often(options: &mut Options) {
    configured(options);
    options.checkpoint_log_bytes = 8192;
}

/// Everything that was counted: when, which video, where, how much.
#[derive(Default)]
struct Sent(Vec<(i64, String, &'static str, i64)>);

const COUNTRIES: [&str; 3] = ["DE", "US", "FR"];

impl Sent {
    fn send(&mut self, node: &TestNode, changes: impl Iterator<Item = (i64, String, &'static str, i64)>) {
        let event = |(at_ms, video, country, delta): &(i64, String, &str, i64)| {
            let at = Timestamp::from_millisecond(*at_ms).unwrap().to_string();
            let kind = if *delta < 0 { "undone" } else { "viewed" };
            json!({"type": kind, "occurredAt": at, "delta": delta.abs(), "dimensions": {"video": video, "country": country}})
        };
        let changes: Vec<_> = changes.collect();
        let events: Vec<Value> = changes.iter().map(event).collect();
        let answer = node.post("/v1/events", serde_json::to_vec(&events).unwrap()).ok();
        assert_eq!(answer["rejected"], json!([]), "{answer}");
        self.0.extend(changes);
    }

    /// What videos came to since a time, for a country or for all.
    fn sums(&self, from_ms: i64, country: Option<&str>) -> BTreeMap<&str, i64> {
        let mut sums = BTreeMap::new();
        let counted =
            self.0.iter().filter(|(at_ms, _, of, _)| *at_ms >= from_ms && country.is_none_or(|country| *of == country));
        counted.for_each(|(_, video, _, delta)| *sums.entry(video.as_str()).or_default() += delta);
        sums
    }

    /// What is told is true; if it is said to be exact, nobody is missing, and otherwise the bound holds. Answers whether it is exact.
    fn check(&self, answer: &Value, counter: &str, from_ms: i64, country: Option<&str>, k: usize) -> bool {
        let sums = self.sums(from_ms, country);
        assert_eq!(answer["total"], sums.values().sum::<i64>(), "{answer}");
        let told: Vec<(&str, i64)> = answer["top"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                let id = row["id"].as_str().unwrap();
                (id.strip_prefix(counter).unwrap().trim_start_matches(':'), row["value"].as_i64().unwrap())
            })
            .collect();
        assert!(told.iter().all(|(video, value)| sums[video] == *value), "{answer}");
        let mut all: Vec<i64> = sums.values().copied().filter(|sum| *sum > 0).collect();
        all.sort_unstable_by_key(|sum| std::cmp::Reverse(*sum));
        all.truncate(k);
        let is_exact = answer["kind"] == "exact";
        let values: Vec<i64> = told.iter().map(|(_, value)| *value).collect();
        assert!(!is_exact || values == all, "{all:?} {answer}");
        let untold =
            sums.iter().filter(|(video, _)| !told.iter().any(|(known, _)| known == *video)).map(|(_, sum)| *sum).max();
        let bound =
            if is_exact { values.last().copied().unwrap_or(0) } else { answer["bound"].as_i64().unwrap_or(i64::MAX) };
        assert!(untold.unwrap_or(0) <= bound.max(0), "{untold:?} {answer}");
        is_exact
    }

    /// Looks at every window with and without groups; answers how many lists were not exact.
    fn check_all(&self, node: &TestNode, counter: &str, k: usize) -> usize {
        let mut estimates = 0;
        for window in ["1h", "24h"] {
            let answer = node.get(&format!("/v1/top/{counter}?window={window}&k={k}")).ok();
            let from_ms = answer["from"].as_str().unwrap().parse::<Timestamp>().unwrap().as_millisecond();
            estimates += usize::from(!self.check(&answer, counter, from_ms, None, k));
        }
        if counter != "views" {
            return estimates;
        }
        for window in ["1h", "24h", "all"] {
            let answer = node.get(&format!("/v1/top/{counter}?window={window}&by=country&k={k}")).ok();
            let from_ms = answer["from"].as_str().map_or(0, |from| from.parse::<Timestamp>().unwrap().as_millisecond());
            let groups = answer["groups"].as_array().unwrap();
            let totals: Vec<_> = groups.iter().map(|group| group["total"].as_i64().unwrap()).collect();
            assert!(totals.is_sorted_by(|a, b| a >= b), "{answer}");
            for group in groups {
                estimates += usize::from(!self.check(group, counter, from_ms, group["value"].as_str(), k));
            }
        }
        estimates
    }
}

fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Videos of which the first is viewed most, in this hour and in some before.
fn skewed(videos: i64) -> impl Iterator<Item = (i64, String, &'static str, i64)> {
    let now_ms = now_ms();
    (0..4 * videos).map(move |n| {
        let (video, hours_ago) = (n % videos, n / videos * 7);
        (now_ms - hours_ago * HOUR_MS, format!("v{video}"), COUNTRIES[(n % 3) as usize], 1 + 1000 / (video + 1))
    })
}

#[test]
fn tops_of_windows_and_values_are_those_of_all_that_was_sent_also_behind_restarts() {
    let (node, mut sent) = (TestNode::start_with(cut_often), Sent::default());
    sent.send(&node, skewed(300));
    let check = |node: &TestNode, sent: &Sent| {
        for (counter, k) in [("views", 10), ("views", 3), ("plays", 10), ("plays", 3)] {
            assert_eq!(sent.check_all(node, counter, k), 0, "{counter}");
        }
    };
    check(&node, &sent);
    check(&node.after_a_crash(cut_often), &sent);
    // Some fall behind others, in the hours where they stood.
    let now_ms = now_ms();
    sent.send(&node, (0..5).map(|n| (now_ms, format!("v{n}"), "DE", -900)));
    check(&node, &sent);
    let node = node.restart(cut_often);
    check(&node, &sent);
    sent.send(&node, skewed(20));
    check(&node, &sent);
    check(&node.after_a_crash(cut_often), &sent);
    node.send("DELETE", "/v1/counters/views:v1", &[], b"").ok();
    sent.0.retain(|(_, video, ..)| video != "v1");
    let top = node.get("/v1/top/views?window=24h&k=3").ok();
    assert!(top["kind"] == "exact" && !top["top"].to_string().contains("views:v1\""), "{top}");
}

#[test]
fn of_many_keys_the_few_that_stand_out_are_exact_and_those_that_are_alike_have_a_bound() {
    let (node, mut sent) = (TestNode::start_with(configured), Sent::default());
    let now_ms = now_ms();
    sent.send(&node, (0..8_000).map(|n| (now_ms, format!("u{n}"), COUNTRIES[n % 3], 1)));
    let estimates = sent.check_all(&node, "views", 10);
    assert!(estimates > 0, "nobody stands out, and not all are remembered");
    sent.send(&node, (0..15).map(|n| (now_ms, format!("big{n}"), "DE", 100 + n)));
    let answer = node.get("/v1/top/views?window=1h").ok();
    let from_ms = answer["from"].as_str().unwrap().parse::<Timestamp>().unwrap().as_millisecond();
    assert!(sent.check(&answer, "views", from_ms, None, 10), "{answer}");
}

#[test]
fn a_top_says_where_it_comes_from_and_what_is_missing() {
    let (node, mut sent) = (TestNode::start_with(configured), Sent::default());
    sent.send(&node, [(now_ms(), "a".to_owned(), "DE", 5), (now_ms(), "b".to_owned(), "DE", 7)].into_iter());
    let by = node.get("/v1/top/views?by=country&k=1").ok();
    assert_eq!((&by["rollup"], &by["by"], &by["window"]), (&json!(["country"]), &json!("country"), &json!("all")));
    let group = json!({"value": "DE", "total": 12, "kind": "exact", "top": [{"id": "views:b", "value": 7}]});
    assert_eq!((&by["groups"], &by["kind"], &by["top"]), (&json!([group]), &json!("exact"), &Value::Null));
    let only = node.get("/v1/top/all?window=24h").ok();
    assert_eq!((&only["top"], &only["kind"]), (&json!([{"id": "all", "value": 12}]), &json!("exact")), "its only key");
    let late = CONFIG.replace("[[country], [country, hour]]", "[[country], [country, hour], [device, hour]]");
    let node = node.restart(|options| options.config = Some(late.clone()));
    let added = node.get("/v1/top/views?window=1h&by=device").ok();
    assert!(added["since"].is_string() && added["groups"] == json!([]) && added["kind"] == "exact", "{added}");
    for (path, named) in [
        ("flat?window=1h", "declare [hour] among the rollups of flat"),
        ("plays?window=24h&by=country", "declare [country, hour] among the rollups of plays"),
        ("plays?by=country", "declare [country] among the rollups of plays"),
        ("views?by=city", "declare [city] among the rollups of views"),
    ] {
        let detail = node.get(&format!("/v1/top/{path}")).problem(422, "not-rolled-up");
        assert!(detail.contains(named), "{path}: {detail}");
    }
    for (query, named) in [
        ("window=7d", "window is 7d; send all, 1h"),
        ("by=", "by is empty; send one dimension"),
        ("by=country,device", "by is country,device; send one dimension"),
    ] {
        let detail = node.get(&format!("/v1/top/views?{query}")).problem(400, "invalid-parameter");
        assert!(detail.contains(named), "{query}: {detail}");
    }
}
