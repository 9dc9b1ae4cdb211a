//! `POST /v1/events` with compact batches.

use crate::support::{Answer, TestNode};
use serde_json::{Value, json};
use tally_batch::{BatchEvent, Encoder, MEDIA_TYPE};

fn view<'a>(dimensions: &'a [(&'a str, &'a str)], session: &'a str, seq: u64) -> BatchEvent<'a> {
    let (session, seq) = (Some(session), Some(seq));
    BatchEvent { event_type: "video.viewed", session, seq, dimensions, ..BatchEvent::default() }
}

fn encode(events: &[BatchEvent<'_>]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    for event in events {
        encoder.push(event).unwrap();
    }
    encoder.finish().unwrap()
}

fn send(node: &TestNode, batch: &[u8]) -> Answer {
    node.send("POST", "/v1/events", &[("content-type", MEDIA_TYPE)], batch)
}

fn as_json(event: &BatchEvent<'_>) -> Value {
    let dimensions: serde_json::Map<_, _> =
        event.dimensions.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    json!({"type": event.event_type, "session": event.session, "seq": event.seq, "dimensions": dimensions})
}

#[test]
fn a_batch_is_answered_as_the_same_events_in_json_are() {
    let (batches, lines) = (TestNode::start(), TestNode::start());
    let (both, one) = ([("video", "a"), ("country", "DE")], [("video", "b")]);
    let sold =
        BatchEvent { event_type: "item.sold", delta: Some(-3), dimensions: &[("item", "i")], ..BatchEvent::default() };
    let unknown = BatchEvent { event_type: "video.veiwed", session: Some("s"), seq: Some(1), ..BatchEvent::default() };
    let views = [view(&both, "s", 1), view(&one, "s", 2), view(&both, "s", 1), view(&both, "t", 1), unknown];
    let text: Vec<_> = views.iter().map(|event| as_json(event).to_string()).collect();
    let without_token = |answer: Answer| {
        let mut outcome = answer.ok();
        assert!(outcome["token"].is_string());
        outcome["token"].take();
        outcome
    };
    let batch = encode(&views);
    for _ in 0..2 {
        assert_eq!(without_token(send(&batches, &batch)), without_token(lines.post("/v1/events", text.join("\n"))));
    }
    assert_eq!(send(&batches, &encode(&[sold])).ok()["counted"], 1);
    assert_eq!((batches.value("views:a"), batches.value("views:b"), batches.value("stock:i")), (2, 1, 3));
    let batches = batches.restarted();
    assert_eq!((batches.value("views:a"), batches.value("countries:DE")), (2, 2));
}

#[test]
fn a_large_batch_comes_in_many_pieces_plain_or_compressed() {
    let node = TestNode::start();
    let names: Vec<_> = (0..50_000).map(|n| format!("v{}", n % 5000)).collect();
    let dimensions: Vec<_> = names.iter().map(|name| [("video", name.as_str()), ("country", "DE")]).collect();
    let events: Vec<_> = dimensions.iter().zip(1..).map(|(dimensions, seq)| view(dimensions, "s", seq)).collect();
    let batch = encode(&events);
    assert_eq!(send(&node, &batch).ok()["counted"], 100_000);
    let compressed = zstd::encode_all(batch.as_slice(), 1).unwrap();
    let headers = [("content-type", MEDIA_TYPE), ("content-encoding", "zstd")];
    assert_eq!(node.send("POST", "/v1/events", &headers, &compressed).ok()["duplicate"], 100_000);
    assert_eq!((node.value("views:v7"), node.value("countries:DE")), (10, 50_000));
}

#[test]
fn a_batch_that_is_not_what_was_sent_counts_nothing_and_says_why() {
    let node = TestNode::start();
    let batch = encode(&[view(&[("video", "a"), ("country", "DE")], "s", 1), view(&[("video", "a")], "s", 2)]);
    let with = |at: usize, byte: u8| {
        let mut bad = batch.clone();
        bad[at] = byte;
        bad
    };
    for (bad, status, kind, named) in [
        (b"{}".to_vec(), 400, "invalid-body", "should have 16 bytes"),
        (with(0, b'{'), 400, "invalid-body", "no batch"),
        (with(4, 9), 400, "invalid-body", "version is 9"),
        (with(11, 9), 413, "too-large", "are allowed"),
        (with(12, batch[12] ^ 1), 400, "invalid-body", "checksum"),
        (with(batch.len() - 1, 0), 400, "invalid-body", "checksum"),
        (batch[..batch.len() - 1].to_vec(), 400, "invalid-body", "all of it"),
        ([batch.as_slice(), &batch].concat(), 400, "invalid-body", "one batch per request"),
    ] {
        let detail = send(&node, &bad).problem(status, kind);
        assert!(detail.contains(named) && detail.contains("nothing of it was counted"), "{detail}");
    }
    assert_eq!(node.value("views:a"), 0);
    assert_eq!(send(&node, &batch).ok()["counted"], 3);
}

#[test]
fn a_bad_event_of_a_batch_is_named_and_strict_refuses_all() {
    let node = TestNode::start();
    let both = [("video", "a"), ("country", "DE")];
    let nobody = BatchEvent { session: Some(""), ..view(&both, "", 2) };
    let batch = encode(&[view(&both, "s", 1), nobody, view(&both, "s", 3)]);
    let headers = [("content-type", MEDIA_TYPE)];
    let refused = node.send("POST", "/v1/events?strict=true", &headers, &batch);
    assert!(refused.problem(422, "not-all-countable").contains("of 3 events 1 cannot be read"));
    let outcome = send(&node, &batch).ok();
    assert_eq!((&outcome["events"], &outcome["invalid"], &outcome["counted"]), (&json!(3), &json!(1), &json!(4)));
    let reason = r#"field "session": "" is empty; give it a value or leave it out"#;
    assert_eq!(outcome["rejected"], json!([{"index": 1, "counter": null, "reason": reason}]));
    assert!(send(&node, &encode(&[nobody])).problem(400, "no-valid-event").contains("none of 1 events"));
}
