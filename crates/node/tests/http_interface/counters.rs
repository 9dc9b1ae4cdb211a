//! Counters by their ids.

use crate::support::TestNode;
use serde_json::json;

#[test]
fn a_counter_is_added_to_read_and_deleted() {
    let node = TestNode::start();
    assert_eq!(node.post("/v1/counters/likes/increment", "").ok()["value"], 1);
    let changed = node.post("/v1/counters/likes/increment", r#"{"delta":41}"#).ok();
    assert_eq!((&changed["value"], &changed["status"]), (&json!(42), &json!("ok")));
    assert!(changed["token"].as_str().unwrap().parse::<tally_core::position::Position>().is_ok(), "{changed}");
    assert_eq!(node.post("/v1/counters/likes/decrement", r#"{"delta":2}"#).ok()["value"], 40);

    let read = node.get("/v1/counters/likes");
    assert_eq!(read.header("cache-control"), Some("max-age=1"));
    assert_eq!(read.header("tally-generation"), Some("0"));
    assert_eq!(read.header("tally-staleness-ms"), Some("0"));
    let envelope = read.ok();
    assert_eq!(
        (&envelope["id"], &envelope["value"], &envelope["kind"]),
        (&json!("likes"), &json!(40), &json!("exact"))
    );
    let etag = read.header("etag").unwrap();
    let again = node.send("GET", "/v1/counters/likes", &[("if-none-match", etag)], b"");
    assert_eq!((again.status, again.header("etag"), again.body.len()), (304, Some(etag), 0));

    for deleted in [true, false] {
        let answer = node.send("DELETE", "/v1/counters/likes", &[], b"").ok();
        assert_eq!((&answer["id"], &answer["deleted"]), (&json!("likes"), &json!(deleted)));
        assert!(answer["token"].is_string(), "{answer}");
    }
    node.send("DELETE", "/v1/counters/likes?reason=why", &[], b"").problem(400, "invalid-parameter");
    let gone = node.get("/v1/counters/likes").ok();
    assert_eq!((&gone["value"], &gone["exists"]), (&json!(0), &json!(false)));
}

#[test]
fn ids_may_be_any_text() {
    let node = TestNode::start();
    for (path, id) in [("a%2Fb", "a/b"), ("caf%C3%A9%20%25", "café %"), ("get", "get"), ("x%00y", "x\0y")] {
        node.post(&format!("/v1/counters/{path}/increment"), "").ok();
        let read = node.get(&format!("/v1/counters/{path}")).ok();
        assert_eq!((&read["id"], &read["value"]), (&json!(id), &json!(1)), "{path}");
    }
    node.get("/v1/counters/%FF").problem(400, "invalid-id");
    node.get("/v1/counters/50%").problem(400, "invalid-id");
    node.get(&format!("/v1/counters/{}", "x".repeat(4096))).ok();
    node.get(&format!("/v1/counters/{}", "x".repeat(4097))).problem(400, "invalid-id");
}

#[test]
fn an_increment_that_means_something_else_counts_nothing() {
    let node = TestNode::start();
    for (body, slug, named) in [
        ("[]", "invalid-body", "invalid type: sequence, expected an object"),
        ("[5]", "invalid-body", "invalid type: sequence, expected an object"),
        ("null", "invalid-body", "invalid type: null, expected an object"),
        (r#"{"delta":null}"#, "invalid-field", "delta is null; send an integer"),
        (r#"{"delta":1,"delta":1}"#, "invalid-body", "duplicate field `delta`"),
    ] {
        for way in ["increment", "decrement"] {
            let detail = node.post(&format!("/v1/counters/likes/{way}"), body).problem(400, slug);
            assert!(detail.starts_with(named), "{body}: {detail}");
        }
    }
    let detail = node.post("/v1/counters//increment", "").problem(400, "invalid-id");
    assert!(detail.starts_with("the id is empty"), "{detail}");
    node.post("/v1/counters/get", r#"{"ids":[""]}"#).problem(400, "invalid-id");
    node.post("/v1/counters/get", r#"[["likes"]]"#).problem(400, "invalid-body");
    node.post("/v1/counters/get", r#"{"ids":["likes"],"wait_ms":null}"#).problem(400, "invalid-body");
    assert_eq!(node.get("/v1/counters/likes").ok()["exists"], false);
    assert_eq!(node.get("/v1/counters/*/aggregate").ok()["counters"], 0);
}

#[test]
fn a_pattern_is_canonical_as_ids_are() {
    let node = TestNode::start();
    let shown = r#"{"type":"video.viewed","dimensions":{"video":"A:1","country":"DE"}}"#;
    node.post("/v1/events", shown).ok();
    // In a path the % of an id is %25.
    let sum = node.get("/v1/counters/views:%2541%253a*/aggregate").ok();
    assert_eq!((&sum["pattern"], &sum["value"]), (&json!("views:A%3A*"), &json!(1)));
    node.get("/v1/counters/views:%25zz*/aggregate").problem(400, "invalid-id");
}

#[test]
fn many_counters_are_read_in_the_order_of_the_request() {
    let node = TestNode::start();
    node.post("/v1/counters/b/increment", r#"{"delta":2}"#).ok();
    let read = node.post("/v1/counters/get", r#"{"ids":["b","a","b"]}"#).ok();
    let counters: Vec<_> = read["counters"].as_array().unwrap().iter().map(|c| (&c["id"], &c["value"])).collect();
    assert_eq!(counters, [(&json!("b"), &json!(2)), (&json!("a"), &json!(0)), (&json!("b"), &json!(2))]);
    assert_eq!(node.post("/v1/counters/get", r#"{"ids":[]}"#).ok(), json!({"counters": []}));

    node.post("/v1/counters/get", "").problem(400, "invalid-body");
    node.post("/v1/counters/get", r#"{"ids":[1]}"#).problem(400, "invalid-body");
    node.post("/v1/counters/get", r#"{"ids":[],"id":"a"}"#).problem(400, "unknown-field");
    node.post("/v1/counters/get", r#"{"ids":["views"]}"#).problem(400, "invalid-id");
    let many = json!({"ids": vec!["a"; 10_001]}).to_string();
    let detail = node.post("/v1/counters/get", many).problem(413, "too-large");
    assert!(detail.contains("10000"), "{detail}");
}

#[test]
fn a_change_that_is_not_understood_changes_nothing() {
    let node = TestNode::start();
    let path = "/v1/counters/a/increment";
    assert!(node.post(path, r#"{"delta":1.5}"#).problem(400, "invalid-field").contains("delta is 1.5"));
    assert!(node.post(path, r#"{"dleta":1}"#).problem(400, "unknown-field").contains("dleta"));
    node.post(path, r#"{"delta":9223372036854775808}"#).problem(400, "invalid-field");
    node.post(path, r#"{"delta":NaN}"#).problem(400, "invalid-body");
    node.post("/v1/counters/a/decrement", format!("{{\"delta\":{}}}", i64::MIN)).problem(400, "invalid-field");
    node.send("POST", path, &[("idempotency-key", "")], b"").problem(400, "invalid-field");
    node.get("/v1/counters/a?consistency=sometimes").problem(400, "invalid-parameter");
    node.get("/v1/counters/a?generation=x").problem(400, "invalid-parameter");
    assert_eq!(node.get("/v1/counters/a?consistency=latest").ok()["exists"], false);
}

#[test]
fn a_sum_beyond_64_bits_is_refused() {
    let node = TestNode::start();
    node.post("/v1/counters/a/increment", format!("{{\"delta\":{}}}", i64::MAX)).ok();
    node.post("/v1/counters/a/increment", "").problem(409, "overflow");
    assert_eq!(node.value("a"), i64::MAX);
    node.post("/v1/counters/ab/increment", "").ok();
    let detail = node.get("/v1/counters/a*/aggregate").problem(409, "overflow");
    assert!(detail.contains("9223372036854775808"), "{detail}");
}

#[test]
fn declared_counters_keep_their_contracts() {
    let node = TestNode::start();
    let detail = node.post("/v1/counters/views:v1/increment", "").problem(409, "counts-events");
    assert!(detail.contains("/v1/events"), "{detail}");
    assert_eq!(node.post("/v1/counters/stock:i1/increment", r#"{"delta":10}"#).ok()["value"], 10);
    node.post("/v1/events", r#"{"type":"item.sold","dimensions":{"item":"i1"},"delta":3}"#).ok();
    assert_eq!(node.value("stock:i1"), 7);
    let detail = node.get("/v1/counters/views:v1:DE").problem(400, "invalid-id");
    assert!(detail.contains("views:<video>"), "{detail}");
}

#[test]
fn the_key_of_a_declared_counter_has_its_own_encoding() {
    let node = TestNode::start();
    node.post("/v1/events", r#"{"type":"video.viewed","dimensions":{"video":"a:b"}}"#).ok();
    let read = node.get("/v1/counters/views:a%253Ab").ok();
    assert_eq!((&read["id"], &read["value"]), (&json!("views:a%3Ab"), &json!(1)));
}

#[test]
fn a_pattern_adds_up_what_matches() {
    let node = TestNode::start();
    for (id, delta) in [("page:a:1", 1), ("page:a:2", 20), ("page:b:1", 300), ("pages", 4000)] {
        node.post(&format!("/v1/counters/{id}/increment"), format!("{{\"delta\":{delta}}}")).ok();
    }
    for (pattern, value, counters) in [
        ("page:*", 321, 3),
        ("page:*:1", 301, 2),
        ("*:a:*", 21, 2),
        ("*", 4321, 4),
        ("pages", 4000, 1),
        ("none*", 0, 0),
    ] {
        let sum = node.get(&format!("/v1/counters/{pattern}/aggregate")).ok();
        assert_eq!((&sum["value"], &sum["counters"]), (&json!(value), &json!(counters)), "{pattern}");
        assert_eq!((&sum["pattern"], &sum["kind"]), (&json!(pattern), &json!("exact")));
    }
    node.send("DELETE", "/v1/counters/pages", &[], b"").ok();
    assert_eq!(node.get("/v1/counters/*/aggregate").ok()["value"], 321);
}
