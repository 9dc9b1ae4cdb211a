//! `POST /v1/events`.

use crate::support::TestNode;
use serde_json::{Value, json};
use std::io::Write;

fn view(video: &str, country: &str) -> String {
    json!({"type": "video.viewed", "dimensions": {"video": video, "country": country}}).to_string()
}

#[track_caller]
fn check_balance(outcome: &Value) {
    let n = |name: &str| outcome[name].as_u64().unwrap();
    let boxes = ["counted", "duplicate", "conflict", "rejectedCount", "ignored", "late"];
    assert_eq!(n("received"), boxes.iter().map(|name| n(name)).sum::<u64>(), "{outcome}");
}

#[test]
fn an_object_an_array_and_lines_are_all_events() {
    let node = TestNode::start();
    let (a, b) = (view("a", "DE"), view("b", "DE"));
    let pretty = serde_json::to_string_pretty(&serde_json::from_str::<Value>(&a).unwrap()).unwrap();
    for (body, content_type, events) in [
        (a.clone(), "application/json", 1),
        (pretty, "application/json", 1),
        (format!("[{a},\n {b}]"), "application/json", 2),
        (format!("{a}\n{b}\n"), "application/x-ndjson", 2),
        (format!("{a}\r\n\n{b}"), "application/json", 2),
    ] {
        let outcome = node.send("POST", "/v1/events", &[("content-type", content_type)], body.as_bytes()).ok();
        check_balance(&outcome);
        assert_eq!((&outcome["events"], &outcome["counted"]), (&json!(events), &json!(2 * events)), "{body}");
    }
    assert_eq!(node.value("views:a"), 5);
    assert_eq!(node.value("views:b"), 3);
    assert_eq!(node.value("countries:DE"), 8);
}

#[test]
fn events_in_protobuf_are_counted_like_lines() {
    let node = TestNode::start();
    let dimension = |name: &str, value: &str| {
        let (name_bytes, value_bytes) = (name.len() as u8, value.len() as u8);
        let entry = [&[0x0a, name_bytes], name.as_bytes(), &[0x12, value_bytes], value.as_bytes()].concat();
        [&[0x3a, entry.len() as u8], &entry[..]].concat()
    };
    let event = [&b"\x0a\x0cvideo.viewed\x30\x05"[..], &dimension("video", "a"), &dimension("country", "DE")].concat();
    let unnamed = b"\x0a\x00";
    let body = [&[0x0a, event.len() as u8], &event[..], &[0x0a, 2], unnamed].concat();
    let post = |body: &[u8]| node.send("POST", "/v1/events", &[("content-type", "application/x-protobuf")], body);
    let outcome = post(&body).ok();
    check_balance(&outcome);
    assert_eq!((&outcome["events"], &outcome["invalid"], &outcome["counted"]), (&json!(2), &json!(1), &json!(2)));
    assert_eq!((node.value("views:a"), node.value("countries:DE")), (5, 5));
    post(&body[..body.len() - 1]).problem(400, "invalid-body");
    assert_eq!(node.value("views:a"), 5, "of a body that is cut off nothing counts");
}

#[test]
fn compressed_events_are_counted() {
    let node = TestNode::start();
    let body: String = (0..1000).map(|n| view(&format!("v{}", n % 10), "DE") + "\n").collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(body.as_bytes(), 3).unwrap();
    for (encoding, body) in [("gzip", &gzip), ("zstd", &zstd)] {
        let outcome = node.send("POST", "/v1/events", &[("content-encoding", encoding)], body).ok();
        assert_eq!((&outcome["events"], &outcome["counted"]), (&json!(1000), &json!(2000)), "{encoding}");
        let cut = node.send("POST", "/v1/events", &[("content-encoding", encoding)], &body[..body.len() - 5]);
        cut.problem(400, "invalid-body");
    }
    node.send("POST", "/v1/events", &[("content-encoding", "br")], &gzip).problem(415, "unsupported-encoding");
    assert_eq!(node.value("views:v3"), 200);
}

#[test]
fn a_bad_event_is_named_and_does_not_stop_the_good_ones() {
    let node = TestNode::start();
    let lines = [
        view("a", "DE"),
        r#"{"type":"video.viewed","dimensions":{"video":"a"}}"#.to_owned(),
        r#"{"type":"video.viewed","delta":NaN}"#.to_owned(),
        r#"{"typ":"video.viewed"}"#.to_owned(),
        r#"{"type":"nobody.listens"}"#.to_owned(),
        view("a", "FR"),
    ];
    let outcome = node.post("/v1/events", lines.join("\n")).ok();
    check_balance(&outcome);
    assert_eq!((&outcome["events"], &outcome["invalid"], &outcome["unmatched"]), (&json!(6), &json!(2), &json!(1)));
    assert_eq!(
        (&outcome["received"], &outcome["counted"], &outcome["rejectedCount"]),
        (&json!(6), &json!(5), &json!(1))
    );
    let rejected: Vec<_> =
        outcome["rejected"].as_array().unwrap().iter().map(|r| (&r["index"], r["counter"].as_str())).collect();
    assert_eq!(rejected, [(&json!(1), Some("countries")), (&json!(2), None), (&json!(3), None)]);
    assert_eq!(node.value("views:a"), 3);
}

#[test]
fn a_body_without_a_good_event_is_refused() {
    let node = TestNode::start();
    node.post("/v1/events", "").problem(400, "invalid-body");
    node.post("/v1/events", "[]").problem(400, "invalid-body");
    node.post("/v1/events", "hello").problem(400, "no-valid-event");
    node.post("/v1/events", b"\xff\xfe{}").problem(400, "no-valid-event");
    node.post("/v1/events", r#"{"type":"video.viewed","dimensions":{"#).problem(400, "no-valid-event");
    let answer = node.post("/v1/events", "{}\n{}");
    let detail = answer.problem(400, "no-valid-event");
    assert!(detail.contains("type"), "{detail}");
    assert_eq!(answer.json()["rejected"].as_array().unwrap().len(), 2);
}

#[test]
fn an_event_brings_a_small_delta_and_a_declared_counter_has_room_for_it() {
    let node = TestNode::start();
    let sold = |delta: i64| format!(r#"{{"type":"item.sold","dimensions":{{"item":"i"}},"delta":{delta}}}"#);
    let bound = 1i64 << 31;
    let outcome = node.post("/v1/events", [sold(bound), sold(bound + 1), sold(-bound)].join("\n")).ok();
    check_balance(&outcome);
    assert_eq!((&outcome["counted"], &outcome["invalid"]), (&json!(2), &json!(1)));
    let reason = outcome["rejected"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("delta") && reason.contains("from -2147483648 to 2147483648"), "{reason}");
    let increment = |delta: i64| node.post("/v1/counters/stock:i/increment", format!(r#"{{"delta":{delta}}}"#));
    increment((1 << 62) + 1).problem(409, "overflow");
    increment(1 << 62).ok();
    assert_eq!(node.post("/v1/events", sold(-bound)).ok()["counted"], json!(1), "there is always room for an event");
    assert_eq!(node.get("/v1/counters/stock:i").ok()["value"], json!((1i64 << 62) + bound));
}

#[test]
fn what_was_counted_shows_in_the_metrics() {
    let node = TestNode::start();
    node.post("/v1/events", format!("{}\nx\n", view("a", "DE"))).ok();
    node.post("/v1/events", "x").problem(400, "no-valid-event");
    node.get("/v1/events").problem(405, "method-not-allowed");
    node.get("/nowhere").problem(404, "not-found");
    let metrics = node.get("/metrics");
    for line in [
        "tally_events_total 3",
        "tally_events_invalid_total 2",
        "tally_entries_received_total 2",
        r#"tally_entries_total{box="counted"} 2"#,
        r#"tally_http_requests_total{method="POST",route="/v1/events",status="200"} 1"#,
        r#"tally_http_requests_total{method="POST",route="/v1/events",status="400"} 1"#,
        r#"tally_http_request_seconds_count{method="POST",route="/v1/events"} 2"#,
        r#"tally_http_requests_total{method="GET",route="/v1/events",status="405"} 1"#,
        r#"tally_http_requests_total{method="GET",route="other",status="404"} 1"#,
    ] {
        assert!(metrics.text().contains(line), "{line} is missing in\n{}", metrics.text());
    }
}

#[test]
fn a_misspelt_type_is_named_with_the_one_that_may_be_meant() {
    let node = TestNode::start();
    let veiwed = r#"{"type":"video.veiwed","dimensions":{"video":"a","country":"DE"}}"#;
    let body = format!("{}\n{veiwed}\n{veiwed}\n{{\"type\":\"purchase\"}}", view("a", "DE"));
    let outcome = node.post("/v1/events", &body).ok();
    check_balance(&outcome);
    assert_eq!((&outcome["unmatched"], &outcome["counted"]), (&json!(3), &json!(2)));
    let expected = json!([
        {"type": "video.veiwed", "events": 2, "index": 1, "nearest": "video.viewed"},
        {"type": "purchase", "events": 1, "index": 3},
    ]);
    assert_eq!(outcome["unmatchedTypes"], expected);
    let metrics = node.get("/metrics").text().to_owned();
    for line in [r#"tally_events_unmatched_by_type_total{type="video.veiwed"} 2"#, "tally_events_unmatched_total 3"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(node.post("/v1/events", view("a", "DE")).ok().get("unmatchedTypes").is_none());
    // Types are bounded, and so is what is said about them.
    let many: String = (0..300).map(|n| format!("{{\"type\":\"{n}{}\"}}\n", "x".repeat(1000))).collect();
    let outcome = node.post("/v1/events", many).ok();
    assert_eq!(outcome["unmatched"], 300);
    assert_eq!(outcome["unmatchedTypes"].as_array().unwrap().len(), 20);
    let lines = node.get("/metrics").text().lines().filter(|line| line.contains("unmatched_by_type_total{")).count();
    assert!(lines <= 101, "{lines}");
}

#[test]
fn a_strict_request_counts_all_or_nothing() {
    let node = TestNode::start();
    let good = view("a", "DE");
    for (bad, invalid, unmatched, rejected, named) in [
        ("nonsense", 1, 0, 0, "expected an object"),
        (r#"{"type":"video.veiwed"}"#, 0, 1, 0, "did you mean \"video.viewed\"?"),
        (r#"{"type":"video.viewed","dimensions":{"video":"a"}}"#, 0, 0, 1, "country"),
    ] {
        let answer = node.post("/v1/events?strict=true", format!("{good}\n{bad}"));
        let detail = answer.problem(422, "not-all-countable");
        assert!(detail.contains(named), "{detail}");
        let body = answer.json();
        let counts = ["events", "invalid", "unmatched", "rejectedCount"].map(|name| body[name].as_u64().unwrap());
        assert_eq!(counts, [2, invalid, unmatched, rejected], "{body}");
        assert_eq!(node.value("views:a"), 0, "{bad}");
        node.post("/v1/events?strict=false", bad);
    }
    node.post("/v1/events?strict=true", "[]").problem(400, "invalid-body");
    node.post("/v1/events?strict=yes", &good).problem(400, "invalid-parameter");
    let before = node.value("views:a");
    assert_eq!(node.post("/v1/events?strict=true", format!("{good}\n{good}")).ok()["counted"], 4);
    assert_eq!(node.value("views:a"), before + 2);
}

const STRICT_YAML: &str = "
counters:
  - {counterName: paid, mode: persistent, dimensions: [who], rules: [{on: paid, op: increment}]}
  - {counterName: stock, mode: simple, dimensions: [who], rules: [{on: sold, op: increment}]}
";

/// What a request that wants all or nothing is told, if it gets nothing: index, counter and reason of each fault.
fn faults(answer: &crate::support::Answer) -> Vec<(u64, String, String)> {
    answer.problem(422, "not-all-countable");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let body = answer.json();
    let fault = |fault: &Value| (fault["index"].as_u64().unwrap(), text(&fault["counter"]), text(&fault["reason"]));
    body["rejected"].as_array().unwrap().iter().map(fault).collect()
}

#[test]
fn a_strict_request_with_a_conflict_counts_nothing_and_can_be_sent_again() {
    let node = TestNode::start_with(|options| options.config = Some(STRICT_YAML.to_owned()));
    let paid = |id: &str, who: &str| json!({"eventId": id, "type": "paid", "dimensions": {"who": who}}).to_string();
    let sold = |who: &str, n: i64| json!({"type": "sold", "delta": n, "dimensions": {"who": who}}).to_string();
    let send = |events: &[String]| node.post("/v1/events?strict=true", events.join("\n"));
    let values = || ["paid:a", "paid:b", "stock:a"].map(|id| node.value(id));

    assert_eq!(send(&[paid("e1", "a"), sold("a", 5)]).ok()["counted"], 2);
    // A conflict with what stood before, and one within the request.
    let conflict = send(&[paid("e2", "b"), sold("a", 1), paid("e1", "b")]);
    let shown = faults(&conflict);
    assert_eq!((shown.len(), shown[0].0, &*shown[0].1), (1, 2, "paid"));
    assert!(shown[0].2.contains("another content"), "{shown:?}");
    assert_eq!(conflict.json()["conflict"], 1);
    let within = faults(&send(&[paid("e3", "a"), paid("e3", "b")]));
    assert_eq!((within.len(), within[0].0), (1, 1));
    assert_eq!(values(), [1, 0, 5], "nothing of it has counted");
    assert_eq!(node.get("/v1/duplicates").ok()["total"], 0, "nor come to the audit");
    let balance = node.get("/v1/balance").ok();
    assert_eq!((&balance["total"]["received"], &balance["holds"]), (&json!(2), &json!(true)));

    // What was refused is not claimed, and a repeat is no fault.
    let good = [paid("e2", "b"), paid("e3", "a"), sold("a", 1)];
    assert_eq!(send(&good).ok()["counted"], 3);
    let again = send(&good[..2]).ok();
    assert_eq!((&again["duplicate"], &again["counted"]), (&json!(2), &json!(0)));
    assert_eq!(values(), [2, 1, 6]);
    // Without strict the good ones count.
    let mixed = node.post("/v1/events", [paid("e1", "b"), paid("e5", "b")].join("\n")).ok();
    assert_eq!((&mixed["conflict"], &mixed["counted"]), (&json!(1), &json!(1)));
    let node = node.restart(|options| options.config = Some(STRICT_YAML.to_owned()));
    assert_eq!(["paid:a", "paid:b", "stock:a"].map(|id| node.value(id)), [2, 2, 6]);
}

#[test]
fn strict_requests_of_many_senders_are_each_whole() {
    let node = TestNode::start_with(|options| options.config = Some(STRICT_YAML.to_owned()));
    let outcomes: Vec<u16> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..8)
            .map(|sender| {
                let node = &node;
                scope.spawn(move || {
                    let event =
                        |id: String, who: &str| json!({"eventId": id, "type": "paid", "dimensions": {"who": who}});
                    // All want the same id, each with a content of its own, and one more for itself.
                    let who = format!("w{sender}");
                    let events = [event(format!("own{sender}"), "own"), event("wanted".into(), &who)];
                    node.post("/v1/events?strict=true", events.map(|event| event.to_string()).join("\n")).status
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|status| **status == 200).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|status| **status == 422).count(), 7, "{outcomes:?}");
    assert_eq!(node.value("paid:own"), 1);
}
