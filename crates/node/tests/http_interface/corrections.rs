//! Corrections over HTTP: proposed, previewed, applied, reverted, remembered.

use crate::support::{Answer, TestNode};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

fn add(node: &TestNode, id: &str, delta: i64) {
    node.post(&format!("/v1/counters/{id}/increment"), json!({"delta": delta}).to_string()).ok();
}

fn delete(node: &TestNode, path: &str) -> Answer {
    node.send("DELETE", path, &[], b"")
}

/// Proposes to change some counters and answers the number.
fn propose(node: &TestNode, reason: &str, deltas: &[(&str, i64)]) -> u64 {
    let deltas: Vec<_> = deltas.iter().map(|(id, delta)| json!({"id": id, "delta": delta})).collect();
    let body = json!({"reason": reason, "author": "ops", "deltas": deltas}).to_string();
    node.post("/v1/corrections", body).with_status(201)["number"].as_u64().unwrap()
}

fn apply(node: &TestNode, number: u64) -> Value {
    node.post(&format!("/v1/corrections/{number}/apply"), "").ok()
}

fn correct(node: &TestNode, reason: &str, deltas: &[(&str, i64)]) -> u64 {
    let number = propose(node, reason, deltas);
    apply(node, number);
    number
}

fn revert(node: &TestNode, number: u64) -> Answer {
    node.post(&format!("/v1/corrections/{number}/revert"), "")
}

/// What a generation last said about a counter: value and generation.
fn said(node: &TestNode, id: &str, generation: u64) -> (i64, u64) {
    let read = node.get(&format!("/v1/counters/{id}?generation={generation}")).ok();
    assert_eq!(read["kind"], "exact");
    (read["value"].as_i64().unwrap(), read["generation"].as_u64().unwrap())
}

fn numbers(page: &Value) -> Vec<u64> {
    page["corrections"].as_array().unwrap().iter().map(|correction| correction["number"].as_u64().unwrap()).collect()
}

#[test]
fn a_correction_is_proposed_previewed_applied_and_reverted() {
    let node = TestNode::start();
    add(&node, "stock:i1", 10);
    let body = json!({"reason": "miscounted", "author": "ops", "deltas": [
        {"id": "stock:%691", "bucket": "2026-11-15T18:59:00+00:00", "delta": -4},
        {"id": "likes", "delta": 7},
        {"id": "stock:i1", "delta": 1},
    ]});
    let proposal = node.post("/v1/corrections", body.to_string()).with_status(201);
    assert!(proposal["proposedAt"].is_string() && proposal["token"].is_string(), "{proposal}");
    let facts = |of: &Value| {
        ["number", "state", "cause", "generation", "reason", "author", "deltaCount"].map(|field| of[field].clone())
    };
    let expected = json!([1, "proposed", "proposal", null, "miscounted", "ops", 3]);
    assert_eq!(json!(facts(&proposal)), expected);
    let deltas = json!([
        {"id": "stock:i1", "bucket": "2026-11-15T18:59:00.000Z", "delta": -4},
        {"id": "likes", "delta": 7},
        {"id": "stock:i1", "delta": 1},
    ]);
    assert_eq!(proposal["deltas"], deltas);
    assert_eq!(json!(facts(&node.get("/v1/corrections/1").ok())), expected);

    let before_and_after = json!([
        {"id": "likes", "before": 0, "delta": 7, "after": 7},
        {"id": "stock:i1", "before": 10, "delta": -3, "after": 7},
    ]);
    for preview in [node.get("/v1/corrections/1/preview").ok(), node.post("/v1/corrections/1/preview", "").ok()] {
        assert_eq!(
            preview,
            json!({"number": 1, "state": "proposed", "generation": null, "counters": before_and_after})
        );
    }
    assert_eq!((node.value("stock:i1"), node.value("likes")), (10, 0), "nothing has changed yet");

    let applied = apply(&node, 1);
    assert_eq!(json!(facts(&applied)), json!([1, "applied", "proposal", 1, "miscounted", "ops", 3]));
    assert!(applied["appliedAt"].is_string() && applied["token"].is_string(), "{applied}");
    assert_eq!(applied["deltas"], deltas);
    let read = node.get("/v1/counters/stock:i1");
    assert_eq!(read.header("tally-generation"), Some("1"));
    assert_eq!((&read.ok()["value"], node.value("likes")), (&json!(7), 7));
    add(&node, "stock:i1", 100);
    let preview = node.get("/v1/corrections/1/preview").ok();
    assert_eq!(
        (&preview["generation"], &preview["counters"]),
        (&json!(1), &before_and_after),
        "as it was when it was made"
    );

    let why = json!({"reason": "it was right", "author": "audit"}).to_string();
    let reverted = node.post("/v1/corrections/1/revert", why).ok();
    assert_eq!(json!(facts(&reverted)), json!([2, "applied", "revert", 2, "it was right", "audit", 3]));
    assert_eq!(reverted["reverts"], 1);
    assert_eq!((node.value("stock:i1"), node.value("likes")), (110, 0), "what was counted since stays");
    let first = node.get("/v1/corrections/1").ok();
    assert_eq!((&first["state"], &first["revertedBy"]), (&json!("reverted"), &json!(2)));
}

#[test]
fn what_is_no_correction_is_refused_by_name() {
    let node = TestNode::start();
    let body = |deltas: Value| json!({"reason": "why", "author": "who", "deltas": deltas});
    let one = |delta: Value| body(json!([{"id": "a", "delta": 1}, delta]));
    for (body, slug, named) in [
        (json!({"author": "who", "deltas": []}), "invalid-body", "missing field `reason`"),
        (json!({"reason": "", "author": "who", "deltas": []}), "invalid-field", "reason is \"\""),
        (json!({"reason": "x".repeat(1025), "author": "who", "deltas": []}), "invalid-field", "reason is \"xxx"),
        (json!({"reason": "why", "author": "y".repeat(257), "deltas": []}), "invalid-field", "author is \"yyy"),
        (body(json!([])), "invalid-field", "deltas is []"),
        (one(json!({"id": "b", "delta": 0})), "invalid-field", "deltas[1].delta is 0"),
        (one(json!({"id": "b", "delta": 1.5})), "invalid-field", "deltas[1].delta is 1.5"),
        (one(json!({"id": "b", "delta": i64::MIN})), "invalid-field", "deltas[1].delta is -9223372036854775808"),
        (one(json!({"id": "b"})), "invalid-body", "missing field `delta`"),
        (one(json!({"id": "b", "delta": 1, "bukket": 1})), "unknown-field", "bukket"),
        (one(json!({"id": "b", "delta": 1, "bucket": "noon"})), "invalid-field", "deltas[1].bucket is noon"),
        (one(json!({"id": "views", "delta": 1})), "invalid-id", "deltas[1].id: "),
    ] {
        let answer = node.post("/v1/corrections", body.to_string());
        let detail = answer.problem(400, slug);
        assert!(detail.contains(named), "{detail}");
        assert!(!named.starts_with("deltas[1]") || answer.json()["index"] == 1, "{answer:?}");
    }
    let many = body(json!(vec![json!({"id": "a", "delta": 1}); 100_001])).to_string();
    assert!(node.post("/v1/corrections", many).problem(413, "too-large").contains("100000"));
    assert_eq!(node.get("/v1/corrections").ok(), json!({"corrections": []}));

    let huge = propose(&node, "too much", &[("a", i64::MAX), ("a", 1)]);
    assert!(node.get(&format!("/v1/corrections/{huge}/preview")).problem(409, "overflow").contains("a is 0"));
    assert!(node.post(&format!("/v1/corrections/{huge}/apply"), "").problem(409, "overflow").contains("\"a\""));
    assert_eq!(node.get(&format!("/v1/corrections/{huge}")).ok()["state"], "proposed");
    node.post(&format!("/v1/corrections/{huge}/apply"), r#"{"reason":"me"}"#).problem(400, "unknown-field");
    for query in ["limit=0", "before=x", "page=2"] {
        node.get(&format!("/v1/corrections?{query}")).problem(400, "invalid-parameter");
    }
    assert!(node.get("/v1/corrections/first").problem(400, "invalid-field").contains("first"));
}

#[test]
fn each_step_is_taken_once_and_in_order() {
    let node = TestNode::start();
    let unknown = node.post("/v1/corrections/9/apply", "").problem(404, "not-found");
    assert!(unknown.contains("no correction 9"), "{unknown}");
    for path in ["/v1/corrections/9", "/v1/corrections/9/preview"] {
        node.get(path).problem(404, "not-found");
    }
    let first = propose(&node, "first", &[("a", 5)]);
    assert!(revert(&node, first).problem(409, "correction-state").contains("is proposed"));
    apply(&node, first);
    let again = node.post(&format!("/v1/corrections/{first}/apply"), "");
    assert!(again.problem(409, "correction-state").contains("is applied already, as generation 1"));
    assert_eq!((&again.json()["state"], &again.json()["generation"]), (&json!("applied"), &json!(1)));
    delete(&node, &format!("/v1/corrections/{first}")).problem(409, "correction-state");

    let undo = revert(&node, first).ok()["number"].as_u64().unwrap();
    assert_eq!(node.value("a"), 0);
    let twice = revert(&node, first).problem(409, "correction-state");
    assert!(twice.contains(&format!("reverted by correction {undo}")), "{twice}");
    let redo = revert(&node, undo).ok();
    assert_eq!(
        (&redo["reverts"], &redo["reason"], node.value("a")),
        (&json!(undo), &json!("revert of correction 2"), 5)
    );

    let other = propose(&node, "other", &[("a", 1)]);
    assert_eq!(delete(&node, &format!("/v1/corrections/{other}")).ok(), json!({"number": other, "state": "withdrawn"}));
    delete(&node, &format!("/v1/corrections/{other}")).problem(404, "not-found");
    node.post(&format!("/v1/corrections/{other}/apply"), "").problem(404, "not-found");
    assert_eq!(node.value("a"), 5);
}

#[test]
fn open_proposals_are_bounded() {
    let node = TestNode::start();
    let last = (0..100).fold(0, |_, _| propose(&node, "one of many", &[("a", 1)]));
    let body = json!({"reason": "why", "author": "who", "deltas": [{"id": "a", "delta": 1}]}).to_string();
    assert!(node.post("/v1/corrections", &body).problem(409, "too-many-proposals").contains("100 proposals"));
    delete(&node, &format!("/v1/corrections/{last}")).ok();
    assert_eq!(node.post("/v1/corrections", body).with_status(201)["number"], last + 1);
}

#[test]
fn a_page_of_corrections_has_a_next_only_if_there_is_one() {
    let node = TestNode::start();
    let withdraw = |number: u64| drop(delete(&node, &format!("/v1/corrections/{number}")).ok());
    let pages = |limit: usize| {
        let page = node.get(&format!("/v1/corrections?limit={limit}")).ok();
        (numbers(&page), page["next"].as_u64())
    };
    withdraw(propose(&node, "the first", &[("a", 1)]));
    let kept = correct(&node, "kept", &[("a", 1)]);
    assert_eq!(pages(1), (vec![kept], None), "below it there is only what was withdrawn");
    // A gap that is longer than what is looked at in one turn.
    let gap: Vec<u64> = (0..40).map(|_| propose(&node, "gone", &[("a", 1)])).collect();
    gap.into_iter().for_each(withdraw);
    let young = correct(&node, "young", &[("a", 1)]);
    assert_eq!(pages(1), (vec![young], Some(young)));
    assert_eq!(pages(2), (vec![young, kept], None));
    let behind = node.get(&format!("/v1/corrections?limit=1&before={young}")).ok();
    assert_eq!((numbers(&behind), &behind["next"]), (vec![kept], &Value::Null));
}

#[test]
fn corrections_are_listed_newest_first_from_memory_and_store_alike() {
    let node = TestNode::start();
    for n in 1..=20 {
        correct(&node, &format!("number {n}"), &[("a", n)]);
    }
    let open = propose(&node, "open", &[("a", 1)]);
    let withdrawn = propose(&node, "withdrawn", &[("a", 1)]);
    delete(&node, &format!("/v1/corrections/{withdrawn}")).ok();
    let node = node.restarted();
    // The proposal is applied behind younger ones, and what is reverted is in the store.
    let young = correct(&node, "young", &[("a", 1)]);
    apply(&node, open);
    revert(&node, 7).ok();
    let expected: Vec<u64> = (1..=young + 1).rev().filter(|number| *number != withdrawn).collect();
    let all = node.get("/v1/corrections").ok();
    assert_eq!((numbers(&all), &all["next"]), (expected.clone(), &Value::Null));
    for limit in [1, 3, 16, 17] {
        let mut seen = Vec::new();
        let mut next = String::new();
        while seen.len() < expected.len() {
            let page = node.get(&format!("/v1/corrections?limit={limit}{next}")).ok();
            assert!(numbers(&page).len() <= limit, "{page}");
            seen.extend(numbers(&page));
            next = format!("&before={}", page["next"]);
        }
        assert_eq!(seen, expected, "{limit} at a time");
        assert_eq!(next, "&before=null", "there is a next only if there is something left for it");
    }
    let by_number = |number: u64| {
        let found = all["corrections"].as_array().unwrap().iter().find(|correction| correction["number"] == number);
        let found = found.unwrap();
        assert!(found.get("deltas").is_none(), "a list has no deltas: {found}");
        ["state", "cause", "reason", "generation"].map(|field| found[field].clone())
    };
    assert_eq!(json!(by_number(1)), json!(["applied", "proposal", "number 1", 1]));
    assert_eq!(json!(by_number(7)), json!(["reverted", "proposal", "number 7", 7]));
    assert_eq!(json!(by_number(open)), json!(["applied", "proposal", "open", 22]));
    assert_eq!(json!(by_number(young + 1)), json!(["applied", "revert", "revert of correction 7", 23]));
}

#[test]
fn an_earlier_generation_says_what_it_last_said() {
    let node = TestNode::start();
    add(&node, "a", 10);
    correct(&node, "first", &[("a", 5), ("b", 1)]);
    add(&node, "a", 2);
    // A checkpoint in between: some steps are in the store, others in memory.
    let node = node.restarted();
    correct(&node, "of another counter", &[("b", 1)]);
    add(&node, "a", 1);
    correct(&node, "third", &[("a", -8), ("a", -2)]);
    add(&node, "a", 4);
    for node in [node.after_a_crash(|_| {}), node] {
        let values: Vec<_> = (0..=3).map(|generation| said(&node, "a", generation)).collect();
        assert_eq!(values, [(10, 0), (18, 1), (18, 1), (12, 3)]);
        assert_eq!((said(&node, "b", 0), said(&node, "b", 1), said(&node, "b", 3)), ((0, 0), (1, 1), (2, 2)));
        assert_eq!(said(&node, "never", 2), (0, 0));
        let beyond = node.get("/v1/counters/a?generation=4");
        assert!(beyond.problem(404, "unknown-generation").contains("the newest one is 3"));
        assert_eq!(beyond.json()["newest"], 3);

        let history = node.get("/v1/counters/a/history").ok();
        let facts = |generation: &Value| {
            let fields = ["generation", "number", "cause", "reason", "author", "before", "delta", "after"];
            assert!(generation["at"].is_string(), "{generation}");
            fields.map(|field| generation[field].clone())
        };
        let generations: Vec<_> = history["generations"].as_array().unwrap().iter().map(facts).collect();
        let expected =
            json!([[3, 3, "proposal", "third", "ops", 18, -10, 8], [1, 1, "proposal", "first", "ops", 10, 5, 15]]);
        assert_eq!((json!(generations), &history["id"]), (expected, &json!("a")));
        let page = node.get("/v1/counters/a/history?limit=1").ok();
        assert_eq!((&page["generations"][0]["generation"], &page["next"]), (&json!(3), &json!(3)));
        let page = node.get("/v1/counters/a/history?limit=1&before=3").ok();
        assert_eq!((&page["generations"][0]["generation"], &page["next"]), (&json!(1), &Value::Null), "the last page");
        assert_eq!(node.get("/v1/counters/a/history?limit=2").ok()["next"], Value::Null, "as many as there are");
        assert_eq!(node.get("/v1/counters/never/history").ok()["generations"], json!([]));
    }
}

#[test]
fn a_declared_counter_is_cleared_by_a_correction() {
    let node = TestNode::start();
    add(&node, "stock:i1", 10);
    let cleared = delete(&node, "/v1/counters/stock:i1?reason=stocktaking&author=anna").ok();
    assert_eq!(
        ["id", "cleared", "counters", "generation", "number"].map(|field| cleared[field].clone()),
        [json!("stock:i1"), json!(true), json!(1), json!(1), json!(1)]
    );
    assert!(cleared["token"].is_string(), "{cleared}");
    let correction = node.get("/v1/corrections/1").ok();
    assert_eq!(
        ["cause", "reason", "author", "deltas"].map(|field| correction[field].clone()),
        [json!("clear"), json!("stocktaking"), json!("anna"), json!([{"id": "stock:i1", "delta": -10}])]
    );
    assert_eq!((node.value("stock:i1"), said(&node, "stock:i1", 0)), (0, (10, 0)));
    assert_eq!(node.get("/v1/counters/stock:i1").ok()["generation"], 1);
    let again = delete(&node, "/v1/counters/stock:i1").ok();
    assert_eq!(again, json!({"id": "stock:i1", "cleared": false, "counters": 0}));
    assert_eq!(node.get("/v1/corrections/1").ok()["reason"], "stocktaking");
    revert(&node, 1).ok();
    assert_eq!(node.value("stock:i1"), 10, "clearing can be reverted");
    delete(&node, "/v1/counters/stock:i1?raeson=x").problem(400, "invalid-parameter");
    delete(&node, "/v1/counters/stock:i1?reason=").problem(400, "invalid-field");
    delete(&node, "/v1/counters/stock:i1:i2").problem(400, "invalid-id");
    assert_eq!(node.value("stock:i1"), 10);
}

#[test]
fn the_bare_name_of_a_declared_counter_clears_all_its_keys_at_once() {
    let node = TestNode::start();
    for (id, value) in [("stock:i1", 1), ("stock:i2", -20), ("stock:i3", 0), ("stocks", 300), ("stock2:i1", 4000)] {
        add(&node, id, value);
    }
    let cleared = delete(&node, "/v1/counters/stock").ok();
    assert_eq!((&cleared["id"], &cleared["counters"], &cleared["generation"]), (&json!("stock"), &json!(2), &json!(1)));
    let values = ["stock:i1", "stock:i2", "stock:i3", "stocks", "stock2:i1"].map(|id| node.value(id));
    assert_eq!(values, [0, 0, 0, 300, 4000]);
    assert_eq!(node.get("/v1/corrections/1").ok()["reason"], "cleared");
    assert_eq!(delete(&node, "/v1/counters/stock").ok()["cleared"], false);
}

#[test]
fn a_counter_with_a_floor_is_cleared_to_a_true_zero() {
    let yaml =
        "counters:\n  - {counterName: seats, mode: simple, floorAtZero: true, rules: [{on: left, op: decrement}]}\n";
    let node = TestNode::start_with(|options| options.config = Some(yaml.to_owned()));
    node.post("/v1/events", r#"{"type":"left","delta":3}"#).ok();
    assert_eq!(delete(&node, "/v1/counters/seats").ok()["cleared"], true);
    let history = node.get("/v1/counters/seats/history").ok();
    assert_eq!((&history["generations"][0]["before"], &history["generations"][0]["after"]), (&json!(-3), &json!(0)));
    add(&node, "seats", 1);
    assert_eq!(node.value("seats"), 1, "nothing is owed any more");
}

#[test]
fn a_counter_with_too_many_keys_to_clear_at_once_says_so() {
    let node = TestNode::start();
    for part in 0..2 {
        let event = |key| format!("{{\"type\":\"item.sold\",\"dimensions\":{{\"item\":\"{part}-{key}\"}}}}\n");
        node.post("/v1/events", (0..50_001).map(event).collect::<String>()).ok();
    }
    let detail = delete(&node, "/v1/counters/stock").problem(422, "too-many-counters");
    assert!(detail.contains("100000") && detail.contains("key by key"), "{detail}");
    assert_eq!(node.get("/v1/corrections").ok(), json!({"corrections": []}));
}

#[test]
fn a_large_preview_comes_in_pages() {
    let node = TestNode::start();
    let ids: Vec<_> = (0..250).map(|n| format!("page:{n:03}")).collect();
    let deltas: Vec<_> = ids.iter().rev().map(|id| (id.as_str(), 1)).collect();
    let number = propose(&node, "many", &deltas);
    for applied in [false, true] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = node.get(&format!("/v1/corrections/{number}/preview?limit=100{after}")).ok();
            let counters = page["counters"].as_array().unwrap();
            assert!(counters.iter().all(|counter| (&counter["before"], &counter["after"]) == (&json!(0), &json!(1))));
            seen.extend(counters.iter().map(|counter| counter["id"].as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(seen, ids);
        if !applied {
            apply(&node, number);
        }
    }
}

#[test]
fn readers_never_see_half_a_correction() {
    let node = TestNode::start();
    add(&node, "first", 1_000_000);
    // Much lies between the two, so that there is time to look in the middle.
    let between: Vec<_> = (0..5_000).map(|n| format!("between:{n}")).collect();
    let moved = |from, to| {
        let between = between.iter().map(|id| (id.as_str(), 1));
        std::iter::once((from, -7)).chain(between).chain([(to, 7)]).collect::<Vec<_>>()
    };
    let proposals: Vec<_> = (0..40)
        .map(|n| match n % 2 {
            0 => propose(&node, "to and fro", &moved("first", "last")),
            _ => propose(&node, "to and fro", &moved("last", "first")),
        })
        .collect();
    let done = AtomicBool::new(false);
    let node = &node;
    std::thread::scope(|scope| {
        let read = || {
            let mut sums = Vec::new();
            while !done.load(Ordering::Acquire) {
                let read = node.post("/v1/counters/get", r#"{"ids":["first","last"]}"#).ok();
                sums.push([0, 1].map(|index| read["counters"][index]["value"].as_i64().unwrap()));
            }
            sums
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        proposals.iter().for_each(|number| drop(apply(node, *number)));
        done.store(true, Ordering::Release);
        let seen: Vec<_> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
        let half = seen.iter().find(|values| values.iter().sum::<i64>() != 1_000_000);
        assert_eq!(half, None, "among {} reads", seen.len());
    });
    assert_eq!((node.value("first"), node.value("last"), node.value("between:0")), (1_000_000, 0, 40));
}

#[test]
fn proposals_corrections_and_steps_survive_a_crash_and_a_restart() {
    let node = TestNode::start();
    add(&node, "a", 100);
    correct(&node, "before", &[("a", 1)]);
    let open = propose(&node, "open", &[("a", 10)]);
    revert(&node, 1).ok();
    let check = |node: &TestNode| {
        assert_eq!(node.value("a"), 100);
        assert_eq!([said(node, "a", 0), said(node, "a", 1), said(node, "a", 2)], [(100, 0), (101, 1), (100, 2)]);
        assert_eq!(numbers(&node.get("/v1/corrections").ok()), [3, 2, 1]);
        let states = [1, open, 3].map(|number| node.get(&format!("/v1/corrections/{number}")).ok()["state"].clone());
        assert_eq!(states, ["reverted", "proposed", "applied"].map(Value::from));
        assert_eq!(node.get("/v1/corrections/1/preview").ok()["counters"][0]["before"], 100);
    };
    check(&node);
    let crashed = node.after_a_crash(|_| {});
    check(&crashed);
    let stopped = crashed.restarted();
    check(&stopped);
    // Numbers and generations go on where they were.
    let applied = apply(&stopped, open);
    assert_eq!((&applied["generation"], stopped.value("a")), (&json!(3), 110));
    assert_eq!(propose(&stopped, "next", &[("a", 1)]), 4);
    let again = stopped.after_a_crash(|_| {});
    assert_eq!((again.value("a"), said(&again, "a", 2)), (110, (100, 2)));
    assert_eq!(numbers(&again.get("/v1/corrections").ok()), [4, 3, 2, 1]);
}

#[test]
fn a_body_that_means_something_else_is_refused_by_name() {
    let node = TestNode::start();
    for (body, named) in [
        (r#"["why","who",[]]"#, "invalid type: sequence, expected an object"),
        (r#"{"reason":null,"author":"who","deltas":[]}"#, "reason: invalid type: null"),
        (r#"{"reason":"why","author":"who","deltas":[["a",null,5]]}"#, "deltas: invalid type: sequence"),
        (
            r#"{"reason":"why","author":"who","deltas":[{"id":"a","bucket":null,"delta":5}]}"#,
            "deltas: bucket: invalid type",
        ),
        (r#"{"reason":"a","reason":"b","author":"who","deltas":[]}"#, "duplicate field `reason`"),
    ] {
        let detail = node.post("/v1/corrections", body).problem(400, "invalid-body");
        assert!(detail.starts_with(named), "{body}: {detail}");
    }
    let detail = node.post("/v1/corrections", r#"{"reason":"why","author":"who","deltas":[{"id":"","delta":5}]}"#);
    assert!(detail.problem(400, "invalid-id").contains("the id is empty"));
    let number = propose(&node, "why", &[("a", 1)]);
    node.post(&format!("/v1/corrections/{number}/apply"), "").ok();
    for body in ["[]", r#"{"reason":null}"#, "null"] {
        node.post(&format!("/v1/corrections/{number}/revert"), body).problem(400, "invalid-body");
    }
    assert_eq!(node.value("a"), 1);
}

#[test]
fn a_correction_says_whether_it_adjusts_or_restores() {
    let node = TestNode::start();
    add(&node, "stock:a", 10);
    let propose = |kind: Option<&str>, delta: i64| {
        let mut body = json!({"reason": "why", "author": "who", "deltas": [{"id": "stock:a", "delta": delta}]});
        if let Some(kind) = kind {
            body["kind"] = kind.into();
        }
        node.post("/v1/corrections", body.to_string())
    };
    for (kind, told) in [(None, "adjust"), (Some("adjust"), "adjust"), (Some("restore"), "restore")] {
        let proposal = propose(kind, 5).with_status(201);
        assert_eq!(proposal["kind"], told);
        assert_eq!(apply(&node, proposal["number"].as_u64().unwrap())["kind"], told);
    }
    assert_eq!(revert(&node, 3).ok()["kind"], "restore", "it is for what it reverts");
    propose(Some("restore"), 7).with_status(201);
    apply(&node, 5);
    assert_eq!(delete(&node, "/v1/counters/stock:a?author=me").ok()["cleared"], true);
    let node = node.after_a_crash(|_| {});
    let kinds = |of: &Value, list: &str| -> Vec<Value> {
        of[list].as_array().unwrap().iter().map(|row| row["kind"].clone()).collect()
    };
    let expected = ["adjust", "restore", "restore", "restore", "adjust", "adjust"].map(Value::from);
    assert_eq!(kinds(&node.get("/v1/corrections").ok(), "corrections"), expected);
    assert_eq!(kinds(&node.get("/v1/counters/stock:a/history").ok(), "generations"), expected);
    let explained = node.get("/v1/counters/stock:a/explain").ok();
    assert_eq!(kinds(&explained, "corrections"), expected);
    assert_eq!((&explained["corrected"], &explained["restored"]), (&json!(-10), &json!(7)));
    assert_eq!((&explained["sums"]["corrected"], &explained["sums"]["restored"]), (&json!(-10), &json!(7)));
    assert_eq!(explained["holds"], true, "{explained:#}");
    for kind in ["count", "Adjust", ""] {
        let body = json!({"reason": "why", "author": "who", "kind": kind, "deltas": [{"id": "a", "delta": 1}]});
        let refused = node.post("/v1/corrections", body.to_string()).problem(400, "invalid-body");
        assert!(refused.starts_with("kind: unknown variant"), "{refused}");
        assert!(refused.contains("`adjust` or `restore`"), "{refused}");
    }
}
