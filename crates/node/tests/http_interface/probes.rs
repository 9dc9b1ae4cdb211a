//! Probes of a running node: what they are told to have come to, and who may send them.

mod hidden;

use crate::support::TestNode;
use serde_json::{Value, json};
use std::time::Duration;
use tally_node::assemble::{Node, Options};
use tally_node::clock::Stopwatch;

const YAML: &str = "
counters: [{counterName: bills, mode: persistent, rules: [{on: paid, op: increment}]}]
probes: {every: 1s, within: 10s, archivedWithin: 60s}
";

fn probing(options: &mut Options) {
    options.config = Some(YAML.to_owned());
    options.archive = Some(options.data_dir.join("archive"));
}

/// Asks again and again until the answer is as it should be.
#[track_caller]
fn wait_for(node: &TestNode, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Stopwatch::start();
    loop {
        let probes = node.get("/v1/probes").ok();
        if holds(&probes) {
            return probes;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{what} never came: {probes}");
        std::thread::yield_now();
    }
}

fn stage<'a>(probes: &'a Value, name: &str) -> &'a Value {
    probes["stages"].as_array().unwrap().iter().find(|stage| stage["stage"] == name).unwrap()
}

fn complete(probes: &Value, name: &str) -> u64 {
    stage(probes, name)["complete"].as_u64().unwrap()
}

#[test]
fn a_probe_is_followed_from_the_front_door_to_the_archive() {
    let node = TestNode::start_with(|options| {
        probing(options);
        // Its own token is asked of nobody else.
        options.http_options.access.token = None;
    });
    let probes = wait_for(&node, "a probe that is told", |probes| complete(probes, "told") >= 2);
    assert_eq!((&probes["wrong"], &probes["lastProblem"]), (&json!(0), &Value::Null), "{probes}");
    assert_eq!(probes["oldest"]["awaited"], json!(["archived"]), "{probes}");
    node.post("/v1/archive/flush", "").ok();
    let probes = wait_for(&node, "a probe in the archive", |probes| complete(probes, "archived") >= 2);
    for stage in probes["stages"].as_array().unwrap() {
        let numbers = ["complete", "missing", "underWay"].map(|name| stage[name].as_u64().unwrap());
        assert_eq!(numbers.iter().sum::<u64>(), probes["sent"], "each probe ends once at each stage: {probes}");
        assert_eq!(numbers[1], 0, "{probes}");
        let [p50, p99, max] = ["p50Ms", "p99Ms", "maxMs"].map(|name| stage[name].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{stage}");
    }
    let metrics = node.get("/metrics");
    for line in ["tally_probes_wrong_total{what=\"value\"} 0", "tally_probes_missing_total{stage=\"told\"} 0"] {
        assert!(metrics.text().contains(line), "{line} is missing in\n{}", metrics.text());
    }
    assert!(!metrics.text().contains("tally_probe_seconds_count{stage=\"archived\"} 0"), "{}", metrics.text());
    let workers = node.get("/v1/workers").ok();
    assert!(workers["workers"].as_array().unwrap().iter().any(|worker| worker["name"] == "probe"), "{workers}");
}

#[test]
fn one_that_is_known_is_sent_again_and_is_a_duplicate() {
    let node = TestNode::start_with(probing);
    let probes = wait_for(&node, "a repeat", |probes| probes["repeated"].as_u64() >= Some(1));
    assert_eq!(probes["wrong"], 0, "{probes}");
}

#[test]
fn an_archive_that_stands_still_is_told_and_the_other_stages_go_on() {
    let node = TestNode::start_with(|options| {
        probing(options);
        options.config = Some(YAML.replace("archivedWithin: 60s", "archivedWithin: 3s"));
        // A directory in the place of its catalog: it cannot be opened.
        std::fs::create_dir_all(options.data_dir.join("archive/catalog.sqlite")).unwrap();
    });
    let missing =
        |probes: &Value| stage(probes, "archived")["missing"].as_u64() >= Some(2) && complete(probes, "told") >= 2;
    let probes = wait_for(&node, "a probe that is missing in the archive", missing);
    for name in ["acknowledged", "applied", "told"] {
        assert_eq!(stage(&probes, name)["missing"], 0, "{probes}");
        assert!(complete(&probes, name) >= 2, "{probes}");
    }
    assert_eq!((complete(&probes, "archived"), &probes["wrong"]), (0, &json!(0)), "{probes}");
    let metrics = node.get("/metrics");
    assert!(!metrics.text().contains("tally_probes_missing_total{stage=\"archived\"} 0"), "{}", metrics.text());
}

#[test]
fn after_a_crash_a_probe_that_was_under_way_counts_once_and_none_is_lost() {
    let seldom = |options: &mut Options| {
        probing(options);
        options.config = Some(YAML.replace("every: 1s", "every: 5s"));
    };
    let mut node = TestNode::start_with(seldom);
    for _ in 0..2 {
        wait_for(&node, "a probe", |probes| complete(probes, "applied") >= 2);
        // Of before anything else is copied: what a crash leaves of it is never ahead of the log.
        let known = std::fs::read(node.path().join("PROBES")).unwrap();
        let crashed = node.after_a_crash(|options| {
            seldom(options);
            std::fs::write(options.data_dir.join("PROBES"), &known).unwrap();
        });
        let probes = wait_for(&crashed, "probes after a crash", |probes| complete(probes, "told") >= 2);
        assert_eq!((&probes["wrong"], &probes["lastProblem"]), (&json!(0), &Value::Null), "{probes}");
        assert!(probes["repeated"].as_u64() >= Some(1), "a start begins with one that is known: {probes}");
        node = crashed;
    }
}

#[test]
fn a_loss_behind_an_acknowledgement_is_seen_by_the_next_start() {
    let node = TestNode::start_with(probing);
    wait_for(&node, "a probe", |probes| complete(probes, "applied") >= 1);
    let crashed = node.after_a_crash(|options| {
        probing(options);
        // As if more had been acknowledged than the log has.
        let text = "number 1000\nvalue 1000\n";
        tally_storage::label::write(&options.data_dir.join("PROBES"), text).unwrap();
    });
    // What the counter is worth, and that the last one is not known; from there on it counts as it must.
    let probes = wait_for(&crashed, "what follows", |probes| complete(probes, "applied") >= 2);
    let said = probes["lastProblem"]["text"].as_str().unwrap();
    assert!(said.contains("probe 1000 was sent again, and was Counted") && probes["wrong"] == 2, "{probes}");
}

#[test]
fn nobody_else_sends_an_event_of_their_type() {
    let node = TestNode::start_with(probing);
    wait_for(&node, "a probe", |probes| complete(probes, "applied") >= 1);
    // The first is read in full, the second as one that looks like others.
    for event in [r#"{"type":"$probe","eventId":"1"}"#, r#"{"eventId":"1","type":"$pro\u0062e"}"#] {
        for _ in 0..2 {
            let refused = node.post("/v1/events", event).problem(400, "no-valid-event");
            assert!(refused.contains(r#"field "type": $probe is sent by the server alone"#), "{refused}");
        }
        let bearer = ("authorization", "Bearer 0123456789abcdef0123456789abcdef");
        node.send("POST", "/v1/events", &[bearer], event.as_bytes()).problem(400, "no-valid-event");
    }
    let both = node.post("/v1/events", r#"[{"type":"paid","eventId":"1"},{"type":"$probe","eventId":"2"}]"#).ok();
    assert_eq!((&both["counted"], &both["invalid"]), (&json!(1), &json!(1)), "{both}");
    assert_eq!(wait_for(&node, "nothing", |_| true)["wrong"], 0);
}

#[test]
fn probes_pass_where_a_token_is_asked_for() {
    let node = TestNode::start_with(|options| {
        probing(options);
        options.http_options.access.token = tally_node::frontend::Password::new("sesame");
    });
    let metrics = |node: &TestNode| {
        let answer = node.send("GET", "/v1/probes", &[("authorization", "Bearer sesame")], b"");
        complete(&answer.ok(), "applied")
    };
    let began = Stopwatch::start();
    while metrics(&node) == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "no probe came through");
        std::thread::yield_now();
    }
}

#[test]
fn without_http_they_go_straight_to_the_counters() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(dir.path());
    options.config = Some(YAML.to_owned());
    options.log.segment_bytes = 16 << 20;
    let node = Node::start(options).unwrap();
    let handle = node.engine().metrics().probes.seconds(tally_node::probe::Stage::Told);
    let began = Stopwatch::start();
    let told = || node.engine().metrics().encode().contains("tally_probe_seconds_count{stage=\"told\"} 1");
    while !told() {
        assert!(began.elapsed() < Duration::from_secs(60), "no probe was told");
        std::thread::yield_now();
    }
    drop(handle);
    node.stop().unwrap();
}

#[test]
fn without_the_setting_nothing_is_sent() {
    let node = TestNode::start();
    let detail = node.get("/v1/probes").problem(404, "no-probes");
    assert!(detail.contains("probes: {every: 10s}"), "{detail}");
    let refused = node.post("/v1/events", r#"{"type":"$probe"}"#).problem(400, "no-valid-event");
    assert!(refused.contains("sent by the server alone"), "{refused}");
}
