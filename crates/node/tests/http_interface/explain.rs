//! Where numbers come from: `explain`, `/v1/balance` and `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::TestNode;
use serde_json::{Value, json};
use tally_core::ledger::{Grounds, Remedy};
use tempfile::TempDir;

const YAML: &str = "
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    dedup: {by: [session, seq], window: 60s}
    lateness: {allowed: 10s, corrected: 2h, every: 7d}
    rules: [{on: viewed, op: increment}]
  - counterName: watching
    mode: display
    dimensions: [video]
    floorAtZero: true
    rules: [{on: joined, op: increment}, {on: left, op: decrement}]
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video],
     rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: bills, mode: persistent, dimensions: [customer], rules: [{on: billed, op: increment}]}
  - {counterName: stock, mode: simple, dimensions: [item], rules: [{on: sold, op: decrement}]}
";

fn start(dir: &TempDir) -> TestNode {
    TestNode::start_with(|options| {
        options.data_dir = dir.path().to_owned();
        options.config = Some(YAML.to_owned());
    })
}

fn ago(seconds: i64) -> String {
    let now_ms = i64::try_from(tally_node::clock::wall_ms()).unwrap();
    jiff::Timestamp::from_millisecond(now_ms - seconds * 1000).unwrap().to_string()
}

fn view(video: &str, seq: u64, occurred_at: &str) -> String {
    let dimensions = json!({"video": video});
    json!({"type": "viewed", "session": "s", "seq": seq, "occurredAt": occurred_at, "dimensions": dimensions})
        .to_string()
}

fn send(node: &TestNode, events: &[String]) -> Value {
    node.post("/v1/events", events.join("\n")).ok()
}

fn explain(node: &TestNode, id: &str) -> Value {
    let explanation = node.get(&format!("/v1/counters/{id}/explain")).ok();
    assert_eq!(explanation["holds"], true, "{explanation:#}");
    for check in explanation["checks"].as_array().unwrap() {
        assert_eq!((&check["left"], &check["holds"]), (&check["right"], &json!(true)), "{check}");
    }
    let n = |name: &str| explanation[name].as_i64().unwrap();
    let base = explanation["base"]["value"].as_i64().unwrap_or(0);
    assert_eq!(n("value"), base + n("sinceBase"), "{explanation:#}");
    assert_eq!(n("value"), n("counted") + n("corrected"), "{explanation:#}");
    explanation
}

fn correct(node: &TestNode, id: &str) -> u64 {
    let (ids, grounds) = (vec![id.as_bytes().to_vec()], Grounds::new("a test run", "me"));
    let remedy = Remedy::Clear { ids, grounds, if_generation: None };
    pollster::block_on(node.node().engine().correct(remedy)).unwrap().generation
}

#[test]
fn a_number_is_traced_to_its_base_its_boxes_and_what_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(&dir);
    let (now, late) = (ago(0), ago(600));
    let events: Vec<_> =
        (0..5).map(|seq| view("a", seq, &now)).chain([view("a", 0, &now), view("a", 9, &late)]).collect();
    let outcome = send(&node, &events);
    assert_eq!((&outcome["counted"], &outcome["duplicate"], &outcome["late"]), (&json!(5), &json!(1), &json!(1)));

    let fresh = explain(&node, "views:a");
    assert_eq!((&fresh["value"], &fresh["shown"], &fresh["counted"]), (&json!(5), &json!(5), &json!(5)));
    assert_eq!((&fresh["base"], &fresh["sinceBase"]), (&Value::Null, &json!(5)));
    assert_eq!(fresh["boxes"]["key"], json!({"duplicate": 1, "late": 1}));
    let counter = &fresh["boxes"]["counter"];
    assert_eq!((&counter["received"], &counter["counted"], &counter["late"]), (&json!(7), &json!(5), &json!(1)));
    let [parked] = fresh["parked"].as_array().unwrap().as_slice() else { panic!("{fresh}") };
    assert_eq!((&parked["delta"], &parked["entries"]), (&json!(1), &json!(1)));
    assert!(parked["bucket"].as_str().unwrap() <= late.as_str(), "{parked}");
    assert!(parked["due"].as_str().unwrap() > now.as_str(), "{parked}");
    assert!(fresh["watermark"].as_str().unwrap().starts_with(&now[..19]), "{now}: {fresh}");

    // The same after a restart, of which the last checkpoint is the base, and with more on top of it.
    node.stop();
    let node = start(&dir);
    let restarted = explain(&node, "views:a");
    assert_eq!((&restarted["base"]["value"], &restarted["sinceBase"]), (&json!(5), &json!(0)));
    assert_eq!(restarted["base"]["position"], restarted["positions"]["checkpoint"]);
    for same in ["value", "boxes", "parked", "watermark"] {
        assert_eq!(restarted[same], fresh[same], "{same}");
    }
    send(&node, &[view("a", 1, &now), view("a", 20, &now)]);
    let later = explain(&node, "views:a");
    assert_eq!((&later["value"], &later["sinceBase"]), (&json!(6), &json!(1)));
    assert_eq!(later["boxes"]["key"], json!({"duplicate": 2, "late": 1}));
}

#[test]
fn corrections_are_listed_and_a_floor_shows_its_debt() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(&dir);
    let watch = |kind: &str| json!({"type": kind, "dimensions": {"video": "a"}}).to_string();
    send(&node, &[watch("left"), watch("left"), watch("joined")]);
    let owing = explain(&node, "watching:a");
    assert_eq!(
        (&owing["value"], &owing["shown"], &owing["floor"]),
        (&json!(-1), &json!(0), &json!({"atZero": true, "debt": 1}))
    );

    assert_eq!(correct(&node, "watching:a"), 1);
    send(&node, &[watch("joined"), watch("joined"), watch("joined")]);
    // One correction in the store and one in memory.
    node.stop();
    let node = start(&dir);
    assert_eq!(correct(&node, "watching:a"), 2);
    send(&node, &[watch("joined")]);
    let corrected = explain(&node, "watching:a");
    assert_eq!(
        (&corrected["value"], &corrected["generation"], &corrected["corrected"]),
        (&json!(1), &json!(2), &json!(-2))
    );
    assert_eq!((&corrected["counted"], &corrected["correctionsTotal"]), (&json!(3), &json!(2)));
    let rows: Vec<_> = corrected["corrections"].as_array().unwrap().iter().collect();
    let steps: Vec<_> = rows.iter().map(|row| (&row["generation"], &row["before"], &row["delta"])).collect();
    assert_eq!(steps, [(&json!(2), &json!(3), &json!(-3)), (&json!(1), &json!(-1), &json!(1))]);
    assert_eq!((&rows[0]["cause"], &rows[0]["reason"]), (&json!("clear"), &json!("a test run")));
}

#[test]
fn counters_that_nobody_declared_or_counted_are_explained_too() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(&dir);
    node.post("/v1/counters/adhoc/increment", r#"{"delta":4}"#).ok();
    let adhoc = explain(&node, "adhoc");
    assert_eq!((&adhoc["value"], &adhoc["boxes"], &adhoc["exists"]), (&json!(4), &Value::Null, &json!(true)));
    assert!(adhoc["note"].as_str().unwrap().contains("ad-hoc"), "{adhoc}");
    let nothing = explain(&node, "bills:nobody");
    assert_eq!((&nothing["value"], &nothing["exists"], &nothing["note"]), (&json!(0), &json!(false), &Value::Null));
    node.get("/v1/counters/bills/explain").problem(400, "invalid-id");
}

#[test]
fn what_is_explained_while_checkpoints_come_and_go_is_never_counted_twice() {
    let node = TestNode::start_with(|options| {
        options.config = Some(YAML.to_owned());
        options.checkpoint_log_bytes = 1;
    });
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for n in 0..200 {
                let event =
                    json!({"eventId": format!("e{}", n % 20), "type": "billed", "dimensions": {"customer": "c"}});
                send(&node, &[event.to_string()]);
            }
        });
        let mut seen = 0;
        while !sending.is_finished() {
            let bill = explain(&node, "bills:c");
            let counter = &bill["boxes"]["counter"];
            let duplicates = bill["boxes"]["key"]["duplicate"].as_i64().unwrap_or(0);
            assert_eq!(
                (duplicates, bill["value"].as_i64()),
                (counter["duplicate"].as_i64().unwrap(), counter["counted"].as_i64()),
                "{bill:#}"
            );
            assert!(duplicates >= seen, "{bill:#}");
            seen = duplicates;
        }
        sending.join().unwrap();
    });
    assert_eq!(explain(&node, "bills:c")["boxes"]["key"], json!({"duplicate": 180}));
}

/// Something for every box of every stream.
fn fill_all_boxes(node: &TestNode) {
    let late = view("a", 50, &ago(600));
    let like = |kind: &str, user: &str| json!({"type": kind, "dimensions": {"user": user, "video": "a"}}).to_string();
    let bill =
        |customer: &str| json!({"eventId": "e1", "type": "billed", "dimensions": {"customer": customer}}).to_string();
    let keyless = json!({"type": "sold", "dimensions": {}}).to_string();
    let events = [
        view("a", 1, &ago(0)),
        view("a", 1, &ago(0)),
        late,
        like("liked", "u"),
        like("liked", "u"),
        like("unliked", "w"),
        bill("c"),
        bill("c"),
        bill("other"),
        keyless,
    ];
    let outcome = send(node, &events);
    assert_eq!(outcome["received"], 10, "{outcome}");
    let once = |delta| {
        let body = json!({"delta": delta}).to_string();
        node.send("POST", "/v1/counters/stock:i/increment", &[("idempotency-key", "k")], body.as_bytes())
    };
    once(1).ok();
    assert_eq!(once(1).ok()["repeated"], true);
    once(2).problem(409, "idempotency-conflict");
}

#[test]
fn the_balance_holds_per_counter_per_stream_and_in_total_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(&dir);
    fill_all_boxes(&node);
    let balance = node.get("/v1/balance").ok();
    let boxes = ["received", "counted", "duplicate", "conflict", "rejected", "ignored", "late"];
    let numbers =
        |account: &Value| boxes.map(|name| account[name].as_i64().unwrap_or_else(|| panic!("{name} in {account}")));
    let counters: BTreeMap<_, _> =
        balance["counters"].as_array().unwrap().iter().map(|c| (c["counter"].as_str().unwrap(), numbers(c))).collect();
    assert_eq!(counters["views"], [3, 1, 1, 0, 0, 0, 1]);
    assert_eq!(counters["watching"], [0; 7]);
    assert_eq!(counters["likes"], [3, 1, 0, 0, 0, 2, 0]);
    assert_eq!(counters["bills"], [3, 1, 1, 1, 0, 0, 0]);
    assert_eq!(counters["stock"], [4, 1, 1, 1, 1, 0, 0]);
    assert_eq!(numbers(&balance["streams"]["display"]), counters["views"]);
    assert_eq!(numbers(&balance["total"]), [13, 4, 3, 2, 1, 2, 1]);
    assert_eq!((&balance["holds"], &balance["total"]["holds"]), (&json!(true), &json!(true)));

    node.stop();
    let node = start(&dir);
    let again = node.get("/v1/balance").ok();
    for same in ["total", "streams", "counters", "holds"] {
        assert_eq!(again[same], balance[same], "{same}");
    }
}

#[test]
fn the_metrics_show_the_balance_of_one_moment_under_the_names_people_know() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(&dir);
    fill_all_boxes(&node);
    let metrics = node.get("/metrics");
    let text = metrics.text();
    for line in [
        "tally_entries_received_total 13",
        r#"tally_entries_total{box="counted"} 4"#,
        "tally_entries_late 1",
        r#"tally_stream_entries_received_total{stream="transition"} 3"#,
        r#"tally_stream_entries_total{stream="transition",box="ignored"} 2"#,
        r#"tally_declared_entries_received_total{counter="bills",stream="persistent"} 3"#,
        r#"tally_declared_entries_total{counter="bills",stream="persistent",box="conflict"} 1"#,
        r#"tally_declared_entries_late{counter="views",stream="display"} 1"#,
        "counter_update_success_total 4",
        "duplicate_event_dropped_total 2",
        "counter_update_conflict_retries 0",
        "# TYPE projection_lag_seconds gauge",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    for level in ["tally_entries", "tally_stream_entries", "tally_declared_entries"] {
        let sum = |name: String| -> u64 {
            let samples = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(&name));
            samples.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        let boxed = sum(format!("{level}_total")) + sum(format!("{level}_late"));
        assert_eq!((sum(format!("{level}_received_total")), boxed), (13, 13), "{level}");
    }
}

#[test]
fn a_scrape_is_answered_although_the_writer_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(&dir);
    fill_all_boxes(&node);
    node.get("/metrics");
    // The writer stands still until we let it go on, as if its disk did.
    let (entered, inside) = flume::bounded(1);
    let (go_on, held) = flume::bounded::<()>(1);
    std::thread::scope(|scope| {
        let engine = node.node().engine().clone();
        let holding = scope.spawn(move || {
            pollster::block_on(engine.pending_of(Arc::new(move |_: &[u8]| {
                let _ = entered.try_send(());
                let _ = held.recv();
                false
            })))
        });
        inside.recv().unwrap();
        let metrics = node.get("/metrics");
        assert_eq!(metrics.status, 200);
        assert!(metrics.text().contains("tally_entries_received_total 13"), "{}", metrics.text());
        drop(go_on);
        holding.join().unwrap().unwrap();
    });
}

#[test]
fn late_entries_that_come_while_a_run_is_made_are_not_lost() {
    let node = TestNode::start_with(|options| options.config = Some(YAML.replace("every: 7d", "every: 1s")));
    send(&node, &[view("a", 0, &ago(0))]);
    let late = ago(600);
    let generation = || node.get("/v1/counters/views:a").ok()["generation"].as_u64().unwrap();
    let sent: u64 = std::thread::scope(|scope| {
        let senders = [1u64, 2, 3].map(|sender| {
            let (node, late, generation) = (&node, &late, &generation);
            scope.spawn(move || {
                let mut sent = 0;
                while generation() < 3 {
                    send(node, &[view("a", (sender << 32) + sent, late)]);
                    sent += 1;
                }
                sent
            })
        });
        senders.map(|sender| sender.join().unwrap()).iter().sum()
    });
    while explain(&node, "views:a")["parked"] != json!([]) {}
    assert_eq!(explain(&node, "views:a")["value"], sent + 1);
}
