//! Series over patterns and several series at once: the same as the sums of single ones, at one moment.

use crate::support::TestNode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use tally_node::assemble::Options;

const CONFIG: &str = "
counters:
  - {counterName: views, mode: simple, dimensions: [video], rules: [{on: viewed, op: increment}],
     rollups: [[country, hour], [device]], maxCardinality: {device: 2}}
  - {counterName: likes, mode: simple, dimensions: [video], rules: [{on: liked, op: increment}], rollups: [[hour]], timezone: Asia/Kolkata}
  - {counterName: flat, mode: simple, dimensions: [video], rules: [{on: viewed, op: increment}]}
";

const NIGHT: &str = "from=2026-11-16T18:00:00Z&to=2026-11-16T22:00:00Z&step=1h";

fn configured(options: &mut Options) {
    options.config = Some(CONFIG.to_owned());
}

/// A checkpoint every few events.
fn cut_often(options: &mut Options) {
    configured(options);
    options.checkpoint_log_bytes = 4096;
}

fn viewed(video: &str, country: &str, device: &str, hour: u8) -> Value {
    let dimensions = json!({"video": video, "country": country, "device": device});
    json!({"type": "viewed", "occurredAt": format!("2026-11-16T{hour:02}:10:00Z"), "dimensions": dimensions})
}

fn send(node: &TestNode, events: &[Value]) {
    let answer = node.post("/v1/events", serde_json::to_vec(events).unwrap()).ok();
    assert_eq!(answer["rejected"], json!([]), "{answer}");
}

fn sample(node: &TestNode) {
    let videos = ["v1", "v2", "v30", "w1"];
    let events = (0..200u8).map(|n| {
        let (country, device) = (["DE", "US", "FR"][usize::from(n % 3)], format!("d{}", n % 5));
        viewed(videos[usize::from(n) % videos.len()], country, &device, 18 + n % 4)
    });
    send(node, &events.collect::<Vec<_>>());
    send(node, &[json!({"type": "liked", "occurredAt": "2026-11-16T18:40:00Z", "dimensions": {"video": "v1"}})]);
}

/// By step and part, with what all of a point comes to under no name.
fn numbers(series: &Value) -> BTreeMap<(String, String), i64> {
    let mut numbers = BTreeMap::new();
    for point in series["points"].as_array().unwrap() {
        let at = point["at"].as_str().unwrap();
        let parts = point["parts"].as_object().into_iter().flatten();
        for (name, value) in parts.chain([(&String::new(), &point["value"])]) {
            *numbers.entry((at.to_owned(), name.clone())).or_default() += value.as_i64().unwrap();
        }
    }
    numbers.retain(|_, value| *value != 0);
    numbers
}

fn check_sum(node: &TestNode, pattern: &str, ids: &[&str], query: &str) {
    let all = node.get(&format!("/v1/counters/{pattern}/series?{query}")).ok();
    let mut sums = BTreeMap::new();
    for id in ids {
        for (at, value) in numbers(&node.get(&format!("/v1/counters/{id}/series?{query}")).ok()) {
            *sums.entry(at).or_default() += value;
        }
    }
    assert!(!sums.is_empty());
    assert_eq!((numbers(&all), &all["keys"]), (sums, &json!(ids.len())), "{pattern} {query}");
}

fn check_sample(node: &TestNode) {
    for query in [&format!("{NIGHT}&by=country"), NIGHT, "by=device", ""] {
        check_sum(node, "views:v*", &["views:v1", "views:v2", "views:v30"], query);
        check_sum(node, "views:*1", &["views:v1", "views:w1"], query);
    }
}

#[test]
fn a_pattern_is_the_sum_of_the_keys_that_match_also_behind_restarts() {
    let node = TestNode::start_with(configured);
    sample(&node);
    check_sample(&node);
    let node = node.restart(configured);
    check_sample(&node);
    sample(&node);
    send(&node, &[viewed("v4", "DE", "d1", 18)]);
    let all = node.get("/v1/counters/views:v*/series").ok();
    assert_eq!((&all["keys"], &all["points"][0]["value"]), (&json!(4), &json!(301)), "some in the store, some new");
    node.send("DELETE", "/v1/counters/views:v1", &[], b"").ok();
    let kept = ["views:v1", "views:v2", "views:v30", "views:v4"];
    check_sum(&node, "views:v*", &kept, &format!("{NIGHT}&by=country"));
    assert_eq!(node.get("/v1/counters/views:x*/series").ok()["points"], json!([]), "no key matches");
}

#[test]
fn a_star_alone_is_the_counter_as_a_whole() {
    let node = TestNode::start_with(configured);
    sample(&node);
    let query = format!("series?{NIGHT}&by=country");
    let whole = node.get(&format!("/v1/counters/views/{query}")).ok();
    assert_eq!(node.get(&format!("/v1/counters/views:*/{query}")).ok(), whole);
    assert_eq!(whole["id"], "views");
}

#[test]
fn several_series_come_at_once_in_the_order_of_the_question() {
    let node = TestNode::start_with(configured);
    sample(&node);
    let ids = ["likes:v1", "views:v*", "views", "views:nobody"];
    let asked: String = ids.iter().map(|id| format!("id={id}&")).collect();
    let all = node.get(&format!("/v1/series?{asked}{NIGHT}")).ok();
    let single: Vec<Value> = ids.iter().map(|id| node.get(&format!("/v1/counters/{id}/series?{NIGHT}")).ok()).collect();
    assert_eq!(all["series"], json!(single));
    assert_eq!(all["series"][0]["timezone"], "Asia/Kolkata");
    let csv = node.get(&format!("/v1/series?id=views:w1&id=likes:v1&{NIGHT}&format=csv"));
    let likes = "likes:v1,2026-11-16T18:30:00.000Z,1\r\n";
    let views = "id,at,value\r\nviews:w1,2026-11-16T21:00:00.000Z,50\r\n";
    assert_eq!(csv.text(), format!("{views}{likes}"));
    let by = node.get("/v1/series?id=views:w1&by=device&format=csv&top=1");
    assert!(by.text().starts_with("id,at,device,value\r\nviews:w1,"), "{}", by.text());
}

#[test]
fn what_cannot_be_added_up_is_refused_with_what_to_do() {
    let node = TestNode::start_with(configured);
    sample(&node);
    for (path, kind, status, named) in [
        ("counters/v*/series", "invalid-id", 400, "may reach views"),
        ("counters/*/series", "invalid-id", 400, "may reach views, likes, flat"),
        ("counters/adhoc:x*/series", "invalid-id", 400, "adhoc:x* does not begin with the name of one"),
        ("counters/views:5%25*/series", "invalid-id", 400, "%25"),
        ("counters/flat:v*/series?step=1h", "not-rolled-up", 422, "declare [hour] among the rollups of flat"),
        ("series", "invalid-parameter", 400, "send one or more"),
        ("series?id=views&id=flat:a&step=1h", "not-rolled-up", 422, "declare [hour] among the rollups of flat"),
        ("series?id=views&step=1h&step=1d", "invalid-parameter", 400, "say it once"),
        ("series?id=views&match=x", "invalid-parameter", 400, "there is id, from"),
    ] {
        let detail = node.get(&format!("/v1/{path}")).problem(status, kind);
        assert!(detail.contains(named), "{path}: {detail}");
    }
    let many: String = (0..101).map(|n| format!("id=views:{n}&")).collect();
    let detail = node.get(&format!("/v1/series?{many}")).problem(400, "invalid-parameter");
    assert!(detail.contains("at most 100 are answered at once"), "{detail}");
}

#[test]
fn more_keys_than_are_added_up_are_refused_and_never_a_part_of_them() {
    let node = TestNode::start_with(configured);
    let fill = |from: u32, to: u32| {
        let events: Vec<_> = (from..to).map(|n| viewed(&format!("k{n}"), "DE", "d", 18)).collect();
        send(&node, &events);
    };
    fill(0, 1000);
    assert_eq!(node.get("/v1/counters/views:k*/series").ok()["points"][0]["value"], 1000);
    fill(1000, 1001);
    let problem = node.get("/v1/counters/views:k*/series");
    assert!(problem.problem(422, "too-many-counters").contains("more than 1000 keys match"), "{problem:?}");
    assert_eq!(problem.json()["limit"], 1000);
    // Two series share the bound.
    fill(1001, 1002);
    let both = node.get("/v1/series?id=views:k1*&id=views:k2*").ok();
    assert_eq!(both["series"][0]["keys"], 113);
    let all_by_their_last_digit: String = (0..10).map(|digit| format!("&id=views:k*{digit}")).collect();
    node.get(&format!("/v1/series?id=views:k1*{all_by_their_last_digit}")).problem(422, "too-many-counters");
}

/// Every batch counts four, two of them for keys that are new; so whatever moment a series is of, it comes to a multiple of four.
#[test]
fn a_pattern_is_of_one_moment_while_keys_come_and_checkpoints_are_taken() {
    const BATCHES: usize = 200;
    let node = TestNode::start_with(cut_often);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..BATCHES {
                let new = [format!("va{n}"), format!("vb{n}")];
                let videos = ["v1", "v2", &new[0], &new[1]];
                send(&node, &videos.map(|video| viewed(video, "DE", "tv", 18 + (n % 4) as u8)));
            }
            is_over.store(true, Ordering::Release);
        });
        let mut seen = 0;
        while !is_over.load(Ordering::Acquire) {
            let answer = node.get("/v1/series?id=views:v*&id=views&by=country").ok();
            let value = |at: usize| answer["series"][at]["points"][0]["value"].as_i64().unwrap_or(0);
            assert_eq!(value(0) % 4, 0, "{answer}");
            assert_eq!(value(0), value(1), "the keys and the counter as a whole, at one moment: {answer}");
            assert!(value(0) >= seen, "{answer}");
            seen = value(0);
        }
    });
    let whole = |node: &TestNode| node.get("/v1/counters/views:v*/series").ok()["points"][0]["value"].clone();
    assert_eq!(whole(&node), 4 * BATCHES);
    assert_eq!(whole(&node.after_a_crash(cut_often)), 4 * BATCHES);
}
