//! What a write rests on, what a read is worth, and who corrected what.

use crate::support::TestNode;
use serde_json::{Value, json};
use tally_node::engine::NodeDurability;

const YAML: &str = "
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    dedup: none
    lateness: {allowed: 10s, corrected: 2h, every: 7d}
    rules: [{on: viewed, op: increment}]
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video],
     rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: safe, mode: simple, durability: sync}
  - {counterName: loose, mode: simple, durability: none}
";

fn start() -> TestNode {
    TestNode::start_with(|options| options.config = Some(YAML.to_owned()))
}

fn view(video: &str, seconds_ago: i64) -> String {
    let now_ms = i64::try_from(tally_node::clock::wall_ms()).unwrap();
    let occurred = jiff::Timestamp::from_millisecond(now_ms - seconds_ago * 1000).unwrap().to_string();
    json!({"type": "viewed", "occurredAt": occurred, "dimensions": {"video": video}}).to_string()
}

fn once(node: &TestNode, id: &str) -> u64 {
    let key = [("idempotency-key", id)];
    let written = node.send("POST", &format!("/v1/counters/{id}/increment"), &key, b"").ok();
    written["token"].as_str().unwrap().rsplit('-').next().unwrap().parse().unwrap()
}

#[test]
fn an_increment_with_an_id_is_as_durable_as_its_counter() {
    let node = TestNode::start_with(|options| {
        options.config = Some(YAML.to_owned());
        options.durability = NodeDurability::None;
    });
    let synced = || node.node().engine().log().synced_end().offset;
    let loose = once(&node, "loose");
    assert!(synced() < loose, "nobody asked for a sync");
    let safe = once(&node, "safe");
    assert!(synced() >= safe, "the counter says sync, with an id as without one");
}

#[test]
fn a_read_says_that_late_entries_wait_and_how_many() {
    let node = start();
    node.post("/v1/events", [view("a", 0), view("a", 600), view("a", 900), view("b", 700)].join("\n")).ok();
    let worth = |read: &Value| json!([read["value"], read["kind"], read["pending"]]);
    let read = node.get("/v1/counters/views:a");
    assert_eq!(worth(&read.ok()), json!([1, "provisional", 2]));
    assert_eq!(read.header("etag"), Some("\"0-1-2\""), "what is pending changes, so the tag does");
    let absent = node.get("/v1/counters/views:b").ok();
    assert_eq!((worth(&absent), &absent["exists"]), (json!([0, "provisional", 1]), &json!(false)));
    let many = node.post("/v1/counters/get", r#"{"ids":["views:a","views:c"]}"#).ok();
    let many: Vec<_> = many["counters"].as_array().unwrap().iter().map(worth).collect();
    assert_eq!(json!(many), json!([[1, "provisional", 2], [0, "exact", null]]));
    let sum = node.get("/v1/counters/views:*/aggregate").ok();
    assert_eq!(worth(&sum), json!([1, "provisional", 3]), "also for a key that does not exist yet");
    let explained = node.get("/v1/counters/views:a/explain").ok();
    assert_eq!((&explained["kind"], &explained["pending"]), (&json!("provisional"), &json!(2)));
    let node = node.restart(|options| options.config = Some(YAML.to_owned()));
    assert_eq!(worth(&node.get("/v1/counters/views:a").ok()), json!([1, "provisional", 2]), "after a restart as well");
}

#[test]
fn one_fast_clock_parks_nobody_elses_events() {
    let node = start();
    let outcome = node.post("/v1/events", [view("a", -299), view("a", 0), view("a", 5)].join("\n")).ok();
    assert_eq!((&outcome["counted"], &outcome["late"]), (&json!(3), &json!(0)));
}

fn like(node: &TestNode, kind: &str) {
    node.post("/v1/events", json!({"type": kind, "dimensions": {"user": "u", "video": "v"}}).to_string()).ok();
}

#[test]
fn like_clear_revert_unlike_is_nothing_through_restarts() {
    let node = start();
    like(&node, "liked");
    let cleared = node.send("DELETE", "/v1/counters/likes:v", &[], b"").ok();
    let node = node.restart(|options| options.config = Some(YAML.to_owned()));
    node.post(&format!("/v1/corrections/{}/revert", cleared["number"]), "").ok();
    assert_eq!(node.value("likes:v"), 1);
    let node = node.restart(|options| options.config = Some(YAML.to_owned()));
    like(&node, "unliked");
    assert_eq!(node.value("likes:v"), 0);
}

fn proposal(delta: i64, if_generation: Option<u64>) -> String {
    let mut body = json!({"reason": "recount", "author": "ann", "deltas": [{"id": "safe", "delta": delta}]});
    if let Some(generation) = if_generation {
        body["ifGeneration"] = generation.into();
    }
    body.to_string()
}

#[test]
fn who_proposed_and_who_applied_a_correction_and_when_is_kept() {
    let node = start();
    let proposed = node.post("/v1/corrections", proposal(3, None)).with_status(201);
    let applied = node.post("/v1/corrections/1/apply", r#"{"author":"bob"}"#).ok();
    let kept = node.get("/v1/corrections/1").ok();
    let restarted = node.restart(|options| options.config = None).get("/v1/corrections/1").ok();
    for made in [&applied, &kept, &restarted] {
        assert_eq!((&made["author"], &made["appliedBy"]), (&json!("ann"), &json!("bob")));
        assert_eq!((&made["proposedAt"], &made["appliedAt"]), (&proposed["proposedAt"], &applied["appliedAt"]));
    }
}

#[test]
fn two_people_who_correct_the_same_number_do_not_correct_it_twice() {
    let node = start();
    node.post("/v1/counters/safe/increment", "").ok();
    for _ in 0..2 {
        node.post("/v1/corrections", proposal(9, Some(0))).with_status(201);
    }
    node.post("/v1/corrections/1/apply", "").ok();
    let refused = node.post("/v1/corrections/2/apply", "");
    let detail = refused.problem(409, "generation-moved");
    assert!(detail.contains("\"safe\"") && detail.contains("generation is 1"), "{detail}");
    assert_eq!((&refused.json()["ifGeneration"], &refused.json()["generation"]), (&json!(0), &json!(1)));
    assert_eq!(node.value("safe"), 10);
    node.post("/v1/corrections", proposal(9, Some(0))).problem(409, "generation-moved");
    node.post("/v1/corrections", proposal(-4, None)).with_status(201);
    node.post("/v1/corrections/3/apply", r#"{"ifGeneration":0}"#).problem(409, "generation-moved");
    node.post("/v1/corrections/1/revert", r#"{"ifGeneration":0}"#).problem(409, "generation-moved");
    node.send("DELETE", "/v1/counters/safe?ifGeneration=0", &[], b"").problem(409, "generation-moved");
    assert_eq!(node.value("safe"), 10, "nothing of it has happened");
    node.post("/v1/corrections/3/apply", r#"{"ifGeneration":1,"author":"ann"}"#).ok();
    assert_eq!(node.value("safe"), 6);
}

#[test]
fn a_number_that_nobody_counted_is_seen() {
    let node = start();
    for user in ["u", "w"] {
        node.post("/v1/events", json!({"type": "liked", "dimensions": {"user": user, "video": "v"}}).to_string()).ok();
    }
    node.send("DELETE", "/v1/counters/likes:v", &[], b"").ok();
    like(&node, "liked");
    node.post("/v1/events", json!({"type": "liked", "dimensions": {"user": "x", "video": "w"}}).to_string()).ok();
    let explain = |node: &TestNode| node.get("/v1/counters/likes:v/explain").ok();
    let node = node.restart(|options| options.config = Some(YAML.to_owned()));
    let honest = explain(&node);
    assert_eq!((&honest["holds"], &honest["value"]), (&json!(true), &json!(0)), "{honest:#}");
    assert_eq!(honest["sums"], json!({"counted": 3, "corrected": -2, "keys": 2, "values": 1}));
    // As if somebody had set it while it was not declared.
    let engine = node.node().engine();
    let mut submission = tally_core::op::Submission::default();
    let (always, keep) = (tally_core::record::SetCondition::Always, tally_core::record::Expiry::Keep);
    submission.set(engine.hasher().key(b"likes:w"), b"likes:w", 41, always, keep);
    pollster::block_on(engine.submit(submission)).unwrap();
    let set = explain(&node);
    assert_eq!(set["holds"], false, "{set:#}");
    let failed: Vec<_> = set["checks"].as_array().unwrap().iter().filter(|check| check["holds"] == false).collect();
    assert_eq!((failed.len(), &failed[0]["left"], &failed[0]["right"]), (1, &json!(41), &json!(1)));
}

#[test]
fn the_values_of_any_number_of_keys_are_held_against_what_was_counted() {
    let node = TestNode::start_with(|options| options.config = Some(YAML.to_owned()));
    const KEYS: usize = 12_000;
    let likes = |from: usize| {
        let event = |n| json!({"type": "liked", "dimensions": {"user": "u", "video": format!("v{n}")}}).to_string();
        (from..from + KEYS / 2).map(event).collect::<Vec<_>>().join("\n")
    };
    node.post("/v1/events", likes(0)).ok();
    let node = node.restart(|options| options.config = Some(YAML.to_owned()));
    node.post("/v1/events", likes(KEYS / 2)).ok();
    node.send("DELETE", "/v1/counters/likes:v1", &[], b"").ok();
    let explain = |node: &TestNode, query: &str| node.get(&format!("/v1/counters/likes:v1/explain{query}")).ok();
    let summed = "values of all keys = counted + corrected";
    let compared = |explained: &Value| {
        let checks = explained["checks"].as_array().unwrap().iter().find(|check| check["what"] == summed).cloned();
        checks.map(|check| [check["left"].as_i64().unwrap(), check["right"].as_i64().unwrap()])
    };
    // All keys must be in the store for this to be sure; the other way brings them there.
    let all = explain(&node, "?values=all");
    let (keys, values) = (KEYS as i64, KEYS as i64 - 1);
    assert_eq!((&all["holds"], compared(&all)), (&json!(true), Some([values, values])), "{all:#}");
    let sums = &all["sums"];
    assert_eq!((&sums["keys"], &sums["counted"], &sums["corrected"]), (&json!(keys), &json!(keys), &json!(-1)));
    assert!(sums["position"].is_string() && sums.get("note").is_none(), "{sums}");
    let few = explain(&node, "");
    assert_eq!((compared(&few), few["sums"].get("values")), (None, None), "{few:#}");
    assert!(few["sums"]["note"].as_str().unwrap().contains("?values=all"), "{few:#}");
    // As if somebody had set it while it was not declared.
    let engine = node.node().engine();
    let mut submission = tally_core::op::Submission::default();
    let (always, keep) = (tally_core::record::SetCondition::Always, tally_core::record::Expiry::Keep);
    submission.set(engine.hasher().key(b"likes:v7"), b"likes:v7", 41, always, keep);
    pollster::block_on(engine.submit(submission)).unwrap();
    let set = explain(&node, "?values=all");
    assert_eq!((&set["holds"], compared(&set)), (&json!(false), Some([values + 40, values])), "{set:#}");
    node.get("/v1/counters/likes:v1/explain?values=some").problem(400, "invalid-parameter");
    let adhoc = node.get("/v1/counters/adhoc/explain?values=all").ok();
    assert_eq!((&adhoc["sums"], &adhoc["holds"]), (&Value::Null, &json!(true)));
}

#[test]
fn values_add_up_while_others_count() {
    let node = start();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for n in 0..100 {
                let like = |user: u32| {
                    let video = format!("v{}", (n * 7 + user) % 50);
                    json!({"type": "liked", "dimensions": {"user": user.to_string(), "video": video}}).to_string()
                };
                node.post("/v1/events", (0..20).map(like).collect::<Vec<_>>().join("\n")).ok();
            }
        });
        while !sending.is_finished() {
            let all = node.get("/v1/counters/likes:v1/explain?values=all").ok();
            assert_eq!(all["holds"], true, "{all:#}");
        }
        sending.join().unwrap();
    });
}

fn keyed(node: &TestNode, method: &str, path: &str, key: &str, body: &str) -> crate::support::Answer {
    node.send(method, path, &[("idempotency-key", key)], body.as_bytes())
}

/// Without what differs between two answers to the same request.
fn told(mut answer: Value) -> Value {
    let told = answer.as_object_mut().unwrap();
    told.remove("repeated");
    told.remove("token");
    answer
}

#[test]
fn what_is_asked_for_twice_under_one_key_happens_once_and_is_answered_alike() {
    let node = start();
    node.post("/v1/counters/safe/increment", r#"{"delta":5}"#).ok();
    let propose = |node: &TestNode| keyed(node, "POST", "/v1/corrections", "p", &proposal(3, None)).with_status(201);
    let first = propose(&node);
    assert_eq!((&first["number"], &first["repeated"]), (&json!(1), &Value::Null));
    assert_eq!((&propose(&node)["repeated"], told(propose(&node))), (&json!(true), told(first.clone())));
    keyed(&node, "POST", "/v1/corrections", "p", &proposal(4, None)).problem(409, "idempotency-conflict");

    let apply = |node: &TestNode| keyed(node, "POST", "/v1/corrections/1/apply", "a", r#"{"author":"bob"}"#).ok();
    let applied = apply(&node);
    assert_eq!((told(apply(&node)), node.value("safe")), (told(applied.clone()), 8));
    assert_eq!(told(propose(&node)), told(first), "as it was when it was proposed");
    let other = r#"{"author":"eve"}"#;
    keyed(&node, "POST", "/v1/corrections/1/apply", "a", other).problem(409, "idempotency-conflict");

    let revert = |node: &TestNode| keyed(node, "POST", "/v1/corrections/1/revert", "r", "").ok();
    let reverted = revert(&node);
    assert_eq!((told(revert(&node)), node.value("safe")), (told(reverted), 5));
    assert_eq!(told(apply(&node)), told(applied), "also when it was reverted since");

    let clear = |node: &TestNode, key| keyed(node, "DELETE", "/v1/counters/safe", key, "").ok();
    let cleared = clear(&node, "c");
    assert_eq!((&cleared["cleared"], &cleared["repeated"]), (&json!(true), &Value::Null));
    assert_eq!(clear(&node, "nothing")["cleared"], false);
    node.post("/v1/counters/safe/increment", r#"{"delta":7}"#).ok();
    let node = node.restart(|options| options.config = Some(YAML.to_owned()));
    assert_eq!(told(clear(&node, "c")), told(cleared), "after a restart as well");
    assert_eq!((&clear(&node, "nothing")["cleared"], node.value("safe")), (&json!(false), 7));
    let detail = keyed(&node, "DELETE", "/v1/counters/adhoc", "x", "").problem(400, "invalid-field");
    assert!(detail.starts_with("Idempotency-Key is x"), "{detail}");
}

#[test]
fn a_deleted_counter_has_no_history() {
    let node = start();
    let correct = |number: u64| {
        let body = json!({"reason": "r", "author": "a", "deltas": [{"id": "adhoc", "delta": 5}]});
        node.post("/v1/corrections", body.to_string()).with_status(201);
        node.post(&format!("/v1/corrections/{number}/apply"), "").ok();
    };
    let history = |node: &TestNode| {
        let history = node.get("/v1/counters/adhoc/history").ok();
        let explained = node.get("/v1/counters/adhoc/explain").ok();
        assert_eq!(explained["holds"], true, "{explained:#}");
        (history["generations"].as_array().unwrap().len(), explained["correctionsTotal"].as_u64().unwrap())
    };
    correct(1);
    assert_eq!(history(&node), (1, 1));
    node.send("DELETE", "/v1/counters/adhoc", &[], b"").ok();
    assert_eq!(history(&node), (0, 0));
    assert_eq!(node.get("/v1/counters/adhoc?generation=0").ok()["exists"], false, "nobody knows what it was");
    correct(2);
    assert_eq!(history(&node), (1, 1));
    let node = node.restart(|options| options.config = Some(YAML.to_owned()));
    assert_eq!(history(&node), (1, 1), "neither does a restart bring it back");
    node.send("DELETE", "/v1/counters/adhoc", &[], b"").ok();
    let node = node.restart(|options| options.config = Some(YAML.to_owned()));
    assert_eq!(history(&node), (0, 0));
}
