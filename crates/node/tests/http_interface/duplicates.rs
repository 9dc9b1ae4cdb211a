//! `GET /v1/duplicates`: the audit of event ids that came again.

use crate::support::TestNode;
use serde_json::{Value, json};
use tally_node::assemble::Options;
use tempfile::TempDir;

const YAML: &str = "
counters:
  - {counterName: impressions, mode: persistent, dimensions: [ad], rules: [{on: ad.shown, op: increment}]}
  - {counterName: spend, mode: persistent, dimensions: [campaign], rules: [{on: ad.shown, op: increment}]}
  - {counterName: clicks, mode: persistent, dimensions: [ad], rules: [{on: ad.clicked, op: increment}]}
";

fn start(dir: &TempDir) -> TestNode {
    TestNode::start_with(|options| {
        options.data_dir = dir.path().to_owned();
        options.config = Some(YAML.to_owned());
    })
}

fn event(id: &str, kind: &str, ad: &str) -> String {
    json!({"eventId": id, "type": kind, "dimensions": {"ad": ad, "campaign": "c"}}).to_string()
}

fn list(node: &TestNode, query: &str) -> Value {
    node.get(&format!("/v1/duplicates{query}")).ok()
}

fn ids(page: &Value) -> Vec<&str> {
    page["duplicates"].as_array().unwrap().iter().map(|row| row["eventId"].as_str().unwrap()).collect()
}

/// All pages, one after the other.
fn walk(node: &TestNode, query: &str, limit: usize) -> Vec<String> {
    let (mut found, mut before) = (Vec::new(), String::new());
    loop {
        let page = list(node, &format!("?limit={limit}{query}{before}"));
        assert!(ids(&page).len() <= limit);
        found.extend(ids(&page).into_iter().map(str::to_owned));
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => return found,
        }
    }
}

#[test]
fn a_repeated_event_is_dropped_and_written_to_the_audit() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(&dir);
    assert_eq!(list(&node, ""), json!({"total": 0, "duplicates": []}));
    let first = event("e1", "ad.shown", "a7");
    node.post("/v1/events", &first).ok();
    let outcome = node.post("/v1/events", format!("{first}\n{}", event("e1", "ad.shown", "a8"))).ok();
    assert_eq!((&outcome["duplicate"], &outcome["conflict"], &outcome["counted"]), (&json!(2), &json!(2), &json!(0)));
    assert_eq!((node.value("impressions:a7"), node.value("impressions:a8"), node.value("spend:c")), (1, 0, 1));

    // The answer says which events they were, and what stood there before.
    for (list, index) in [("duplicates", 0), ("conflicts", 1)] {
        let shown = outcome[list].as_array().unwrap();
        let counters: Vec<_> = shown.iter().map(|again| (&again["index"], &again["counter"])).collect();
        assert_eq!(counters, [(&json!(index), &json!("impressions")), (&json!(index), &json!("spend"))], "{outcome}");
        assert_eq!(shown[0]["firstContentHash"].as_str().unwrap().len(), 16);
        assert!(shown[0]["firstSeen"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        assert_eq!(
            shown[0]["firstContentHash"], outcome["duplicates"][0]["firstContentHash"],
            "of the first, not of this"
        );
    }

    let page = list(&node, "");
    assert_eq!(page["total"], 2);
    let [conflict, duplicate] = page["duplicates"].as_array().unwrap().as_slice() else { panic!("{page}") };
    assert_eq!((&conflict["conflict"], &duplicate["conflict"]), (&json!(true), &json!(false)));
    assert_eq!(conflict["dimensions"], json!({"ad": "a8", "campaign": "c"}));
    assert_eq!((&duplicate["eventId"], &duplicate["type"]), (&json!("e1"), &json!("ad.shown")));
    assert_eq!((&duplicate["delta"], &duplicate["counters"]), (&json!(1), &json!(["impressions", "spend"])));
    for row in [conflict, duplicate] {
        let time = |name: &str| row[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(time("firstSeen") <= time("seenAgain"), "{row}");
        assert_eq!(row["firstSeen"].as_str().unwrap().len(), "2026-11-15T18:00:00.000Z".len(), "{row}");
    }
    assert_eq!(duplicate["position"]["offset"], conflict["position"]["offset"], "they came in one batch");
    assert!(duplicate["position"]["index"].as_u64() < conflict["position"]["index"].as_u64());
}

/// The `first` of the newest row.
fn first(node: &TestNode, query: &str) -> Value {
    let mut first = list(node, query)["duplicates"][0]["first"].clone();
    let seen_at = first.as_object_mut().unwrap().remove("seenAt").unwrap();
    assert!(seen_at.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{seen_at}");
    first
}

#[test]
fn the_audit_has_what_came_first_beside_what_came_again() {
    let declared = |options: &mut Options| options.config = Some(YAML.to_owned());
    let node = TestNode::start_with(declared);
    let billed = |id: &str, ad: &str, delta: i64, more: &str| {
        let kind = if delta > 0 { "ad.shown" } else { "ad.clicked" };
        format!(
            r#"{{"eventId":"{id}","type":"{kind}","delta":{delta},"dimensions":{{"ad":"{ad}","campaign":"c"}}{more}}}"#
        )
    };
    let long = "x".repeat(300);
    let more = r#","session":"s","seq":7,"occurredAt":"2026-11-15T18:00:00Z","payload":{"any":"thing"}"#;
    node.post("/v1/events", billed("e1", "a7", 1, more)).ok();
    node.post("/v1/events", billed("e2", &long, -1, "")).ok();
    let again = |node: &TestNode| {
        let outcome = node.post("/v1/events", billed("e1", "a8", -1, "") + "\n" + &billed("e2", &long, -1, "")).ok();
        assert_eq!((&outcome["conflict"], &outcome["duplicate"]), (&json!(1), &json!(1)), "{outcome}");
        let (hash_1, hash_2) =
            (&outcome["conflicts"][0]["firstContentHash"], &outcome["duplicates"][0]["firstContentHash"]);
        let conflict = first(node, "?conflict=true");
        assert_eq!(
            conflict,
            json!({"type": "ad.shown", "dimensions": {"ad": "a7", "campaign": "c"}, "delta": 1,
                "occurredAt": "2026-11-15T18:00:00.000Z", "contentHash": hash_1})
        );
        let dimensions = json!({"ad": long, "campaign": "c"});
        let expected = json!({"type": "ad.clicked", "dimensions": dimensions, "delta": -1, "contentHash": hash_2});
        assert_eq!(first(node, "?conflict=false"), expected);
        let page = list(node, "?conflict=true");
        let row = &page["duplicates"][0];
        assert_eq!((&row["dimensions"]["ad"], &row["delta"]), (&json!("a8"), &json!(-1)));
        assert_ne!(row["contentHash"], row["first"]["contentHash"]);
        assert_eq!(row["firstSeen"], row["first"]["seenAt"]);
        list(node, "")["total"].as_u64().unwrap()
    };
    assert_eq!(again(&node), 2);
    // From the log alone, from a checkpoint, and from a checkpoint and the log behind it.
    assert_eq!(again(&node.after_a_crash(declared)), 4);
    let node = node.restart(declared);
    assert_eq!(again(&node), 4);
    assert_eq!(again(&node.after_a_crash(declared)), 6);
}

#[test]
fn many_first_contents_are_found_page_by_page_wherever_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(&dir);
    let send = |node: &TestNode, ids: std::ops::Range<u32>, ad: &str| {
        let events = ids.map(|n| event(&format!("e{n}"), "ad.shown", &format!("{ad}{n}")));
        node.post("/v1/events", events.collect::<Vec<_>>().join("\n")).ok()
    };
    send(&node, 0..3000, "first");
    node.stop();
    let node = start(&dir);
    send(&node, 3000..6000, "first");
    assert_eq!(send(&node, 1000..5000, "again")["conflict"], 8000);
    let mut before = String::new();
    let mut seen = 0;
    loop {
        let page = list(&node, &format!("?limit=1000{before}"));
        for row in page["duplicates"].as_array().unwrap() {
            let n = &row["eventId"].as_str().unwrap()[1..];
            assert_eq!(row["first"]["dimensions"]["ad"], format!("first{n}"), "{row}");
            assert_eq!(row["dimensions"]["ad"], format!("again{n}"), "{row}");
            seen += 1;
        }
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, 4000);
}

#[test]
fn pages_lead_from_memory_into_the_store_and_miss_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = start(&dir);
    let mut sent = Vec::new();
    for life in 0..3 {
        for n in 0..20 {
            let id = format!("e{}", n % 7);
            let kind = if n % 7 == 3 { "ad.clicked" } else { "ad.shown" };
            // In every life but the first all of them were seen before.
            if life > 0 || n >= 7 {
                sent.push(id.clone());
            }
            node.post("/v1/events", event(&id, kind, "a")).ok();
        }
        // What was in memory goes to the store, and the next round comes on top of it.
        if life < 2 {
            node.stop();
            node = start(&dir);
        }
    }
    sent.reverse();
    for limit in [1, 7, sent.len(), 1000] {
        assert_eq!(walk(&node, "", limit), sent, "{limit}");
    }
    assert_eq!(list(&node, "?limit=1")["total"], sent.len());
    let of = |id: &str| sent.iter().filter(|sent| *sent == id).cloned().collect::<Vec<_>>();
    for limit in [1, 3, 100] {
        assert_eq!(walk(&node, "&eventId=e2", limit), of("e2"));
        assert_eq!(walk(&node, "&counter=clicks", limit), of("e3"));
        assert_eq!(walk(&node, "&eventId=e2&counter=clicks", limit), [""; 0]);
        assert_eq!(walk(&node, "&eventId=never", limit), [""; 0]);
        assert_eq!(walk(&node, "&conflict=true", limit), [""; 0]);
    }
    assert_eq!(walk(&node, "&conflict=false&counter=spend", 4).len(), sent.len() - of("e3").len());
}

#[test]
fn a_question_that_is_not_understood_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(&dir);
    for (query, named) in [
        ("?limit=0", "limit is 0; send 1 to 1000"),
        ("?limit=1001", "limit is 1001"),
        ("?conflict=maybe", "conflict is maybe; send true or false"),
        ("?before=yesterday", "before is yesterday; send the next of another page"),
        ("?event=e1", "the parameter event is not known; there is eventId, counter, conflict, limit, before"),
        ("?eventId=a&eventId=b", "eventId is b; say it once"),
    ] {
        let detail = node.get(&format!("/v1/duplicates{query}")).problem(400, "invalid-parameter");
        assert!(detail.starts_with(named), "{query}: {detail}");
    }
}
