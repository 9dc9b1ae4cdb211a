//! The archive, as those see it who ask the server. What is in it others read as well (`cargo xtask archive`).

mod tables;

use crate::support::TestNode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tables::Tables;
use tally_node::assemble::Options;
use tally_node::clock::{Clock, Stopwatch};

fn with_archive(options: &mut Options) {
    options.archive = Some(options.data_dir.join("archive"));
}

fn start() -> TestNode {
    TestNode::start_with(with_archive)
}

fn view(node: &TestNode, seq: u64) {
    let event = json!({"type": "video.viewed", "session": "s", "seq": seq, "dimensions": {"video": "a"}});
    node.post("/v1/events", event.to_string()).ok();
}

fn offset(position: &Value) -> u64 {
    position.as_str().unwrap().rsplit('-').next().unwrap().parse().unwrap()
}

#[test]
fn a_flush_answers_when_everything_acknowledged_is_in_the_archive() {
    let node = start();
    let mut before = 0;
    for seq in 0..3 {
        view(&node, seq);
        let applied = node.node().engine().applied().offset;
        let flushed = node.post("/v1/archive/flush", "").ok();
        assert!(offset(&flushed["position"]) >= applied, "{flushed}, applied {applied}");
        assert!(offset(&flushed["position"]) > before, "{flushed}, before {before}");
        before = offset(&flushed["position"]);
    }
    let status = node.get("/v1/archive").ok();
    assert_eq!((offset(&status["position"]), status["digest"].as_str().unwrap().len()), (before, 32), "{status}");
    assert_eq!(status["events"], 3, "{status}");
}

#[test]
fn an_archive_goes_on_where_it_was_after_a_restart_and_after_a_crash() {
    let node = start();
    view(&node, 1);
    node.post("/v1/archive/flush", "").ok();
    view(&node, 2); // Acknowledged, and not in the archive when the server ends.
    let node = node.restart(with_archive);
    view(&node, 3);
    let flushed = node.post("/v1/archive/flush", "").ok();
    let crashed = node.after_a_crash(with_archive);
    view(&crashed, 4);
    let again = crashed.post("/v1/archive/flush", "").ok();
    assert!(offset(&again["position"]) > offset(&flushed["position"]), "{again}");
    assert_eq!(crashed.value("views:a"), 4);
    let restarted = crashed.restart(with_archive);
    // A start looks at all files, so it knows how many events there are.
    restarted.post("/v1/archive/flush", "").ok();
    assert_eq!(restarted.get("/v1/archive").ok()["events"], 4);
}

#[test]
fn without_an_archive_both_say_how_to_get_one() {
    let node = TestNode::start();
    assert!(node.get("/v1/archive").problem(404, "no-archive").contains("--archive none"));
    node.post("/v1/archive/flush", "").problem(404, "no-archive");
}

/// No memory of repeats, which would hold the log as well; and small segments, so that something of it can be freed.
fn simple(options: &mut Options) {
    let yaml = "counters: [{counterName: hits, mode: simple, rules: [{on: hit, op: increment}]}]";
    options.config = Some(yaml.to_owned());
    options.log.segment_bytes = 64 << 10;
}

/// The same under another version.
fn simple_by_other_rules(options: &mut Options) {
    simple(options);
    let rules = "rules: [{on: hit, op: increment}, {on: miss, op: decrement}]";
    options.config = Some(format!("counters: [{{counterName: hits, mode: simple, {rules}}}]"));
}

/// More than a segment of them.
fn hit(node: &TestNode) {
    let events: Vec<Value> = (0..1000).map(|n| json!({"type": "hit", "dimensions": {"n": n}})).collect();
    for _ in 0..5 {
        node.post("/v1/events", json!(events).to_string()).ok();
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Stopwatch::start();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        std::thread::yield_now();
    }
}

#[test]
fn what_the_archive_does_not_have_is_not_freed() {
    let node = TestNode::start_with(|options| {
        simple(options);
        with_archive(options);
    });
    let had = offset(&node.post("/v1/archive/flush", "").ok()["position"]);
    hit(&node);
    // The checkpoint of a stop has everything, and the archive only what it was asked for.
    let node = node.restart(|options| {
        simple(options);
        with_archive(options);
    });
    assert!(node.node().engine().log_needed_from() <= had);
    let flushed = offset(&node.post("/v1/archive/flush", "").ok()["position"]);
    wait_until("what is there to be free", || node.node().engine().log_needed_from() > had && flushed > had);
}

#[test]
fn an_archive_that_was_switched_off_for_a_while_goes_on_behind_a_base_of_its_own() {
    let node = TestNode::start_with(|options| {
        simple(options);
        with_archive(options);
    });
    hit(&node);
    let had = offset(&node.post("/v1/archive/flush", "").ok()["position"]);
    // Without it the log goes when a checkpoint has it, and with it what was declared meanwhile.
    let node = node.restart(simple_by_other_rules);
    hit(&node);
    let node = node.restart(simple_by_other_rules);
    wait_until("the end of a segment", || node.node().engine().log().start().offset > had);
    let node = node.restart(|options| {
        simple_by_other_rules(options);
        with_archive(options);
    });
    // What comes before its base is in that, and no row.
    node.post("/v1/archive/flush", "").ok();
    hit(&node);
    node.post("/v1/archive/flush", "").ok();
    let tables = Tables::read(&node);
    let bases = tables.bases();
    assert!(bases.len() == 1 && bases[0] > had, "what is before the gap has no base any more: {bases:?}, had {had}");
    assert_eq!(tables.worth("hits"), BTreeMap::from([("hits".to_owned(), node.value("hits"))]));
    assert_eq!(tables.events.len(), 10_000, "what was there stays, and what was not is not");
    assert_eq!(tables::versions(&node), [1, 2], "what counts behind the gap is written down");
}

#[test]
fn nobody_who_needs_no_archive_has_one() {
    let none = |more: &str| {
        let yaml =
            format!("{more}\ncounters: [{{counterName: hits, mode: simple, rules: [{{on: hit, op: increment}}]}}]");
        TestNode::start_with(move |options| {
            with_archive(options);
            options.config = Some(yaml);
        })
    };
    none("archive: none").get("/v1/archive").problem(404, "no-archive");
    none("archive: {keep: 2h}").get("/v1/archive").ok();
    let undeclared = TestNode::start_with(|options| {
        with_archive(options);
        options.config = None;
    });
    undeclared.get("/v1/archive").problem(404, "no-archive");
    assert!(!undeclared.path().join("archive").exists());
}

#[test]
fn events_of_counters_that_can_do_without_are_not_archived() {
    let yaml = "counters:
  - {counterName: pings, mode: simple, archive: none, rules: [{on: ping, op: increment}, {on: both, op: increment}]}
  - {counterName: hits, mode: simple, rules: [{on: hit, op: increment}, {on: both, op: increment}]}";
    let node = TestNode::start_with(|options| {
        with_archive(options);
        options.config = Some(yaml.to_owned());
    });
    for kind in ["ping", "both", "hit", "unknown"] {
        node.post("/v1/events", json!({"type": kind}).to_string());
    }
    node.post("/v1/archive/flush", "").ok();
    let kinds: Vec<String> = Tables::read(&node).events.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["both", "hit", "unknown"], "what nobody listens to is an event all the same");
}

const KEPT: &str = "\
archive: {keep: 2h}
counters:
  - {counterName: views, mode: display, dimensions: [video], rules: [{on: viewed, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video],
     rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: impressions, mode: persistent, dimensions: [video], rules: [{on: shown, op: increment}]}";
const HOUR_MS: u64 = 3_600_000;

/// What is kept is what came in the last two hours; what is let go of has its worth in a base, and `fates` tell what a repeat is whose
/// first is gone.
#[test]
fn a_base_and_what_came_behind_it_are_what_counters_are_worth_after_old_hours_are_gone() {
    let (clock, hands) = Clock::settable(1_700_000_000_000 / HOUR_MS * HOUR_MS);
    let node = TestNode::start_with(|options| {
        with_archive(options);
        (options.clock, options.config) = (clock, Some(KEPT.to_owned()));
    });
    // A commit of the log is over when the clock has passed it.
    let flush = || {
        hands.pass(1_000);
        offset(&node.post("/v1/archive/flush", "").ok()["position"])
    };
    flush();
    let view = |seq: u64| json!({"type": "viewed", "session": "s", "seq": seq, "dimensions": {"video": "a"}});
    let like = |kind: &str, user: u64| json!({"type": kind, "dimensions": {"video": "a", "user": user.to_string()}});
    let shown = |id: u64| json!({"type": "shown", "eventId": id.to_string(), "dimensions": {"video": "a"}});
    for hour in 0..6 {
        hands.pass(HOUR_MS - 31_000);
        node.post("/v1/events", json!([view(hour), like("liked", hour), shown(hour)]).to_string()).ok();
        let flushed = flush();
        if hour > 0 {
            wait_until("a base", || Tables::read(&node).bases().last().is_some_and(|base| *base >= flushed));
        }
        // A repeat of what is before the base, by which it is known.
        hands.pass(30_000);
        node.post("/v1/events", json!([view(hour), shown(hour)]).to_string()).ok();
    }
    // And of what is gone: an id that counts forever, a state that is undone, and one that is as it was.
    node.post("/v1/events", json!([shown(0), like("unliked", 0), like("liked", 1)]).to_string()).ok();
    flush();
    let tables = Tables::read(&node);
    let bases = tables.bases();
    assert_eq!(bases.len(), 3, "{bases:?}");
    let first = tables.events[0].offset;
    assert!(0 < first && first < bases[0], "whole hours are gone, and one that is begun is not: {first}, {bases:?}");
    for (counter, worth) in [("views", 6), ("likes", 5), ("impressions", 6)] {
        let id = format!("{counter}:a");
        assert_eq!(node.value(&id), worth, "{id}");
        assert_eq!(tables.worth(counter), BTreeMap::from([(id, worth)]));
    }
    // What is proven begins with the base, or not before it.
    hands.pass(1_000);
    node.post("/v1/roots", "").ok();
    let proof = node.get("/v1/counters/impressions:a/proof").ok();
    assert_eq!((&proof["start"]["kind"], &proof["value"]), (&json!("base"), &json!(6)), "{}", proof["start"]);
    let why = node.get("/v1/counters/impressions:a/proof?from=-24h").problem(422, "not-provable");
    assert!(why.contains("let go of"), "{why}");
}

#[test]
fn a_time_in_which_events_were_not_archived_is_not_proven() {
    let billed = |more: &'static str| {
        move |options: &mut Options| {
            with_archive(options);
            let rules = "rules: [{on: used, op: increment}]";
            options.config = Some(format!("counters: [{{counterName: billed, mode: persistent, {more}{rules}}}]"));
        }
    };
    let node = TestNode::start_with(billed("archive: none, "));
    let used = |node: &TestNode, id: &str| {
        node.post("/v1/events", json!({"type": "used", "eventId": id}).to_string()).ok();
        node.post("/v1/roots", "").ok()
    };
    used(&node, "a");
    let node = node.restart(billed(""));
    used(&node, "b");
    assert_eq!(node.value("billed"), 2);
    let why = node.get("/v1/counters/billed/proof").problem(422, "not-provable");
    assert!(why.contains("were not archived under configuration 1"), "{why}");
}

#[test]
fn nothing_is_answered_from_the_archive_of_another_data_directory() {
    let other = start();
    view(&other, 1);
    other.post("/v1/roots", "").ok();
    let theirs = other.path().join("archive");
    let node = TestNode::start_with(|options| options.archive = Some(theirs));
    let why = node.get("/v1/roots").problem(503, "archive-failed");
    assert!(why.contains("another data directory"), "{why}");
}

#[test]
fn fates_say_why_an_entry_was_rejected() {
    let node = start();
    let lacking = json!({"type": "video.viewed", "session": "s", "seq": 1, "dimensions": {"country": "DE"}});
    node.post("/v1/events", lacking.to_string());
    view(&node, 2);
    view(&node, 2);
    node.post("/v1/archive/flush", "").ok();
    let fates = Tables::read(&node).fates;
    let of_views = fates.iter().filter(|((_, counter), _)| counter == "views").map(|(_, reason)| reason.as_deref());
    let reasons: Vec<Option<&str>> = of_views.collect();
    assert!(reasons.len() == 2 && reasons[1].is_none(), "a duplicate needs none: {reasons:?}");
    assert!(reasons[0].unwrap().contains("dimension \"video\", which the event does not have"), "{reasons:?}");
}

#[test]
fn an_archive_that_has_what_the_log_has_lost_is_not_gone_on_with() {
    let node = start();
    view(&node, 1);
    node.post("/v1/archive/flush", "").ok();
    let [older, longer] = [(); 2].map(|()| node.after_a_crash(|_| {}));
    view(&node, 2);
    node.post("/v1/archive/flush", "").ok();
    let directory = node.stopped();
    let newer = directory.path().join("archive");
    let refused = |older: &TestNode| {
        let why = older.post("/v1/archive/flush", "").problem(503, "archive-failed");
        assert!(why.contains("has what this log has not"), "{why}");
    };
    let older = older.restart(|options| options.archive = Some(newer.clone()));
    refused(&older);
    // Not either when something else is in its place.
    let older = older.restart(|_| {});
    view(&older, 3);
    let older = older.restart(|options| options.archive = Some(newer.clone()));
    refused(&older);
    drop(older);
    // Nor when what is there has gone past it in one commit.
    let event = |seq: u64| json!({"type": "video.viewed", "session": "s", "seq": seq, "dimensions": {"video": "a"}});
    longer.post("/v1/events", json!([event(3), event(4), event(5)]).to_string()).ok();
    let longer = longer.restart(|options| options.archive = Some(newer));
    refused(&longer);
}

#[test]
fn a_manifest_that_is_damaged_is_told_and_keeps_nothing_from_being_archived() {
    let node = start();
    for seq in 0..3 {
        view(&node, seq);
        node.post("/v1/archive/flush", "").ok();
    }
    let metadata = node.path().join("archive/events/metadata");
    let files = std::fs::read_dir(metadata).unwrap().map(|entry| entry.unwrap().path());
    let manifest = files.filter(|file| file.to_string_lossy().ends_with("-m0.avro")).min().unwrap();
    let node = node.restart(|options| {
        with_archive(options);
        std::fs::write(&manifest, "half a manifest").unwrap();
    });
    view(&node, 3);
    let flushed = node.post("/v1/archive/flush", "").ok();
    assert_eq!(flushed["events"], 4, "{flushed}");
    let trouble = flushed["trouble"].as_str().unwrap_or_default();
    assert!(trouble.contains(&*manifest.to_string_lossy()), "{flushed}");
}

/// The first file of events that is on disk.
fn first_file(node: &TestNode) -> PathBuf {
    let hours = node.path().join("archive/events/data/stream=simple");
    let hour = std::fs::read_dir(hours).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    std::fs::read_dir(hour).unwrap().map(|entry| entry.unwrap().path()).min().unwrap()
}

#[test]
fn what_was_let_go_of_leaves_the_disk_after_an_hour_whatever_keeps_commits_from_being_made() {
    let (clock, hands) = Clock::settable(1_700_000_000_000 / HOUR_MS * HOUR_MS);
    let node = TestNode::start_with(|options| {
        simple(options);
        with_archive(options);
        options.clock = clock;
        options.config = options.config.take().map(|config| format!("archive: {{keep: 1h}}\n{config}"));
    });
    let flush = || {
        node.post("/v1/events", json!({"type": "hit"}).to_string()).ok();
        hands.pass(1_000);
        node.post("/v1/archive/flush", "")
    };
    flush().ok();
    let file = first_file(&node);
    let is_named = || Tables::read(&node).events[0].offset == 1;
    while is_named() {
        hands.pass(HOUR_MS / 4);
        flush().ok();
    }
    // A disk on which no rows of the chain can be written, as a full one would be.
    let (chain, aside) = (node.path().join("archive/chain/data"), node.path().join("aside"));
    std::fs::rename(&chain, &aside).unwrap();
    std::fs::write(&chain, "in the way").unwrap();
    flush().problem(503, "archive-failed");
    assert!(file.exists(), "somebody may still be reading it");
    wait_until("the room that a commit needs", || {
        hands.pass(HOUR_MS / 4);
        !file.exists()
    });
    std::fs::remove_file(&chain).unwrap();
    std::fs::rename(&aside, &chain).unwrap();
    wait_until("the commit", || {
        hands.pass(60_000);
        flush().status == 200
    });
    assert_eq!(node.get("/v1/archive").ok()["trouble"], Value::Null);
}

#[test]
fn a_server_that_is_a_copy_of_another_leaves_the_archive_to_it_as_long_as_it_runs() {
    let node = start();
    view(&node, 1);
    node.post("/v1/archive/flush", "").ok();
    let archive = node.path().join("archive");
    let copy = node.after_a_crash(|options| options.archive = Some(archive.clone()));
    let why = copy.post("/v1/archive/flush", "").problem(503, "archive-failed");
    assert!(why.contains("another process writes") && why.contains(&*archive.to_string_lossy()), "{why}");
    view(&node, 2);
    let flushed = node.post("/v1/archive/flush", "").ok();
    assert_eq!(flushed["events"], 2, "{flushed}");
}
