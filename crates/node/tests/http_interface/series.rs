//! Roll-ups and series over HTTP: what parts come to, through restarts and crashes, and what is refused.

use crate::support::TestNode;
use serde_json::{Value, json};
use tally_node::assemble::Options;

const CONFIG: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video], dedup: none, rules: [{on: video.viewed, op: increment}],
     rollups: [[country], [country, device], [country, hour], [day]], maxCardinality: {device: 2}}
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video],
     rules: [{on: liked, op: increment}, {on: unliked, op: decrement}], rollups: [[country]]}
  - {counterName: bare, mode: simple, rules: [{on: video.viewed, op: increment}], rollups: [[hour]], timezone: Asia/Kolkata}
  - {counterName: flat, mode: simple, dimensions: [video], rules: [{on: video.viewed, op: increment}]}
";

fn configured(options: &mut Options) {
    options.config = Some(CONFIG.to_owned());
}

fn node() -> TestNode {
    TestNode::start_with(configured)
}

fn view(video: &str, country: &str, device: &str, at: &str) -> Value {
    json!({"type": "video.viewed", "occurredAt": at, "dimensions": {"video": video, "country": country, "device": device}})
}

fn send(node: &TestNode, events: &[Value]) {
    let answer = node.post("/v1/events", serde_json::to_vec(events).unwrap()).ok();
    assert_eq!(answer["rejected"], json!([]), "{answer}");
}

fn sample(node: &TestNode) {
    send(
        node,
        &[
            view("a", "DE", "tv", "2026-11-16T18:10:00Z"),
            view("a", "DE", "web", "2026-11-16T18:50:00Z"),
            view("a", "US", "tv", "2026-11-16T19:00:00Z"),
            view("a", "US", "watch", "2026-11-16T21:59:59Z"),
            view("b", "FR", "tv", "2026-11-16T18:00:00Z"),
        ],
    );
}

const NIGHT: &str = "from=2026-11-16T18:00:00Z&to=2026-11-16T22:00:00Z";

fn points(node: &TestNode, id: &str, query: &str) -> Value {
    node.get(&format!("/v1/counters/{id}/series?{query}")).ok()["points"].clone()
}

fn check_sample(node: &TestNode) {
    let hours = json!([
        {"at": "2026-11-16T18:00:00.000Z", "value": 2, "parts": {"DE": 2}},
        {"at": "2026-11-16T19:00:00.000Z", "value": 1, "parts": {"US": 1}},
        {"at": "2026-11-16T21:00:00.000Z", "value": 1, "parts": {"US": 1}},
    ]);
    assert_eq!(points(node, "views:a", &format!("{NIGHT}&step=1h&by=country")), hours);
    let whole = points(node, "views", &format!("{NIGHT}&step=6h&by=country"));
    assert_eq!(
        whole,
        json!([{"at": "2026-11-16T18:00:00.000Z", "value": 5, "parts": {"DE": 2, "US": 2, "FR": 1}}]),
        "the counter as a whole"
    );
    let devices = points(node, "views:a", "by=country,device");
    let parts = json!({"DE|tv": 1, "DE|web": 1, "US|tv": 1, "US|other": 1});
    assert_eq!(devices, json!([{"at": "1970-01-01T00:00:00.000Z", "value": 4, "parts": parts}]), "two devices at most");
    assert_eq!(
        points(node, "views:a", &format!("{NIGHT}&step=1d")),
        json!([{"at": "2026-11-16T00:00:00.000Z", "value": 4}])
    );
}

#[test]
fn parts_are_there_at_once_and_behind_restarts_and_crashes() {
    let node = node();
    sample(&node);
    check_sample(&node);
    let crashed = node.after_a_crash(configured);
    check_sample(&crashed);
    drop(crashed);
    let node = node.restart(configured);
    check_sample(&node);
    send(&node, &[view("a", "DE", "tv", "2026-11-16T18:30:00Z")]);
    let hour = "from=2026-11-16T18:00:00Z&to=2026-11-16T19:00:00Z&step=1h&by=country";
    let joined = json!([{"at": "2026-11-16T18:00:00.000Z", "value": 3, "parts": {"DE": 3}}]);
    assert_eq!(points(&node, "views:a", hour), joined, "what the store has and what memory has since");
}

#[test]
fn a_series_says_where_its_numbers_come_from() {
    let node = node();
    sample(&node);
    let body = node.get(&format!("/v1/counters/views:a/series?{NIGHT}&step=1h&by=country&top=1&fill=zero")).ok();
    let expected = json!({
        "id": "views:a", "from": "2026-11-16T18:00:00.000Z", "to": "2026-11-16T22:00:00.000Z", "step": "1h", "by": ["country"],
        "source": "rollup", "rollup": ["country", "hour"], "timezone": "UTC", "since": null, "generation": 0,
        "provisional": {"parked": 0},
        "points": [
            {"at": "2026-11-16T18:00:00.000Z", "value": 2, "parts": {"DE": 2}},
            {"at": "2026-11-16T19:00:00.000Z", "value": 1, "parts": {"(rest)": 1}},
            {"at": "2026-11-16T20:00:00.000Z", "value": 0, "parts": {}},
            {"at": "2026-11-16T21:00:00.000Z", "value": 1, "parts": {"(rest)": 1}},
        ],
    });
    assert_eq!(body, expected);
    let zone = node.get(&format!("/v1/counters/bare/series?{NIGHT}&step=1h")).ok();
    assert_eq!((&zone["timezone"], &zone["from"]), (&json!("Asia/Kolkata"), &json!("2026-11-16T17:30:00.000Z")));
    assert_eq!(zone["points"][0], json!({"at": "2026-11-16T17:30:00.000Z", "value": 2}));
}

#[test]
fn the_bytes_of_a_series_are_pinned() {
    let long = "a country with a long name";
    let node = node();
    let hour = "2026-11-16T18:00:00Z";
    send(&node, &["DE", "\"", long, "DE", "DE", "\""].map(|country| view("a", country, "tv", hour)));
    send(&node, &vec![view("a", "US", "tv", "2026-11-16T20:00:00Z"); 123]);
    let pinned = r#"{"id":"views:a","from":"2026-11-16T18:00:00.000Z","to":"2026-11-16T22:00:00.000Z","step":"1h","by":["country"],"source":"rollup","rollup":["country","hour"],"timezone":"UTC","since":null,"generation":0,"provisional":{"parked":0},"points":[{"at":"2026-11-16T18:00:00.000Z","value":6,"parts":{"DE":3,"\"":2,"a country with a long name":1}},{"at":"2026-11-16T20:00:00.000Z","value":123,"parts":{"US":123}}]}"#;
    let path = format!("/v1/counters/views:a/series?{NIGHT}&step=1h&by=country");
    assert_eq!(node.get(&path).text(), pinned, "from memory");
    let node = node.restart(configured);
    assert_eq!(node.get(&path).text(), pinned, "from the store");
    let empty = node.get(&format!("/v1/counters/views:b/series?{NIGHT}&step=1h&by=country"));
    assert!(empty.text().ends_with(r#""points":[]}"#), "{}", empty.text());
}

#[test]
fn a_series_as_csv_has_a_line_for_each_part() {
    let node = node();
    send(&node, &[view("a", "a,b", "tv", "2026-11-16T18:10:00Z"), view("a", "DE", "tv", "2026-11-16T18:10:00Z")]);
    let answer = node.get(&format!("/v1/counters/views:a/series?{NIGHT}&step=1h&by=country&format=csv"));
    assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8"));
    let at = "2026-11-16T18:00:00.000Z";
    assert_eq!(answer.text(), format!("at,country,value\r\n{at},DE,1\r\n{at},\"a,b\",1\r\n"));
    let plain =
        node.send("GET", &format!("/v1/counters/views:a/series?{NIGHT}&step=1d"), &[("accept", "text/csv")], b"");
    assert_eq!(plain.text(), "at,value\r\n2026-11-16T00:00:00.000Z,2\r\n");
    assert_eq!(plain.header("vary"), Some("accept"));
    let accept = [("accept", "text/csv;q=0.9, */*;q=0.1")];
    let also = node.send("GET", &format!("/v1/counters/views:a/series?{NIGHT}&step=1d"), &accept, b"");
    assert_eq!(also.text(), plain.text(), "as lists and the configuration read it");
}

#[test]
fn what_no_roll_up_can_answer_is_refused_with_the_one_to_declare() {
    let node = node();
    sample(&node);
    for (path, named) in [
        ("views:a/series?step=1m", "declare [minute] among the rollups of views"),
        ("views:a/series?step=1h&by=device", "declare [device, hour]"),
        ("views:a/series?step=1h&by=cuontry", "did you mean country? If not, declare [cuontry, hour]"),
        ("flat:a/series?step=1h", "declare [hour] among the rollups of flat"),
        ("flat:a/series", "declare [hour] among the rollups of flat"),
        ("adhoc/series?step=1h", "adhoc is not declared"),
    ] {
        let detail = node.get(&format!("/v1/counters/{path}")).problem(422, "not-rolled-up");
        assert!(detail.contains(named), "{path}: {detail}");
    }
    for (query, named) in [
        ("step=7m", "step is 7m"),
        ("from=yesterday", "from is yesterday"),
        ("from=2026-11-16T18:00:00+01:00", "write %2B for a +"),
        ("by=", "by is empty; send dimensions"),
        ("by=country,country", "each once"),
        ("step=1h&top=3", "top is 3; it is about parts"),
        ("from=2026-11-16T18:00:00Z&to=2026-11-16T18:00:00Z", "it must be later than from"),
        ("step=1h&fill=one", "fill is one; send zero"),
        ("step=1h&from=1990-01-01T00:00:00Z", "at most 10000 points"),
        ("by=country&format=xml", "format is xml"),
    ] {
        let detail = node.get(&format!("/v1/counters/views:a/series?{query}")).problem(400, "invalid-parameter");
        assert!(detail.contains(named), "{query}: {detail}");
    }
}

#[test]
fn likes_corrections_and_clears_move_the_parts_they_belong_to() {
    let node = node();
    let like = |kind: &str, user: &str, country: &str| {
        let at = format!("2026-11-16T18:00:{:02}Z", if kind == "liked" { 1 } else { 2 });
        json!({"type": kind, "occurredAt": at, "dimensions": {"video": "a", "user": user, "country": country}})
    };
    send(&node, &[like("liked", "u1", "DE"), like("liked", "u2", "US"), like("unliked", "u1", "FR")]);
    let parts = |node: &TestNode| points(node, "likes:a", "by=country")[0]["parts"].clone();
    assert_eq!(parts(&node), json!({"US": 1}), "it was counted in Germany, whatever the event says that undoes it");
    let deltas = json!({"reason": "fraud", "author": "me", "deltas": [{"id": "likes:a", "delta": 7}]});
    let proposed = node.post("/v1/corrections", deltas.to_string()).with_status(201);
    node.post(&format!("/v1/corrections/{}/apply", proposed["number"]), "{}").ok();
    assert_eq!(parts(&node), json!({"(correction)": 7, "US": 1}));
    let node = node.restart(configured);
    assert_eq!(parts(&node), json!({"(correction)": 7, "US": 1}));
    node.send("DELETE", "/v1/counters/likes:a", &[], b"").ok();
    assert_eq!(points(&node, "likes:a", "by=country"), json!([]));
    let node = node.restart(configured);
    assert_eq!(points(&node, "likes:a", "by=country"), json!([]));
    assert_eq!(node.value("likes:a"), 0);
}
