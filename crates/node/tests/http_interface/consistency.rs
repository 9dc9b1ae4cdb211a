//! What a read may be trusted for: the floor, the durability it tells, whole corrections, and one's own writes.

use std::thread;

use crate::support::{Answer, TestNode};
use serde_json::{Value, json};
use tally_core::ledger::{Delta, Proposal, Purpose, Remedy};
use tally_core::position::Position;
use tally_node::engine::Engine;
use tally_node::worker::Spawner;

const YAML: &str = "
counters:
  - {counterName: watching, mode: simple, dimensions: [video], floorAtZero: true, durability: none}
  - {counterName: stock, mode: simple, dimensions: [item]}
  - {counterName: bills, mode: persistent, dimensions: [customer], rules: [{on: billed, op: increment}]}
";

fn start() -> TestNode {
    TestNode::start_with(|options| options.config = Some(YAML.to_owned()))
}

fn add(node: &TestNode, id: &str, delta: i64) -> Value {
    node.post(&format!("/v1/counters/{id}/increment"), json!({"delta": delta}).to_string()).ok()
}

fn token(answer: &Value) -> Position {
    answer["token"].as_str().unwrap_or_else(|| panic!("{answer} has no token")).parse().unwrap()
}

#[test]
fn a_counter_with_a_floor_shows_zero_everywhere_and_keeps_its_debt() {
    let node = start();
    assert_eq!(add(&node, "watching:a", -3)["value"], 0);
    assert_eq!(add(&node, "watching:b", 7)["value"], 7);
    add(&node, "stock:a", -3);
    assert_eq!((node.value("watching:a"), node.value("stock:a")), (0, -3));
    let many = node.post("/v1/counters/get", r#"{"ids":["watching:a","stock:a","watching:b"]}"#).ok();
    let values: Vec<_> = many["counters"].as_array().unwrap().iter().map(|counter| &counter["value"]).collect();
    assert_eq!(values, [&json!(0), &json!(-3), &json!(7)]);
    for (pattern, value) in [("watching:*", 7), ("*", 4)] {
        assert_eq!(node.get(&format!("/v1/counters/{pattern}/aggregate")).ok()["value"], value, "{pattern}");
    }
    let repeated = |key| {
        let body = br#"{"delta":-5}"#;
        node.send("POST", "/v1/counters/watching:a/increment", &[("idempotency-key", key)], body).ok()
    };
    assert_eq!((&repeated("k")["value"], &repeated("k")["repeated"]), (&json!(0), &json!(true)));
    assert_eq!(add(&node, "watching:a", 9)["value"], 1, "the debt was 3 and 5");
}

#[test]
fn a_read_tells_how_durable_its_counter_is() {
    let node = start();
    for (id, durability) in [("watching:a", "none"), ("stock:a", "sync"), ("bills:a", "sync"), ("anything", "sync")] {
        assert_eq!(node.get(&format!("/v1/counters/{id}")).ok()["durability"], durability, "{id}");
    }
    let lazy = TestNode::start_with(|options| {
        options.config = Some(YAML.to_owned());
        options.durability = tally_node::engine::NodeDurability::None;
    });
    assert_eq!(lazy.get("/v1/counters/stock:a").ok()["durability"], "none");
    assert_eq!(lazy.get("/v1/counters/bills:a").ok()["durability"], "sync", "money is synced on every node");
}

#[test]
fn a_read_waits_for_the_write_whose_token_it_is_given() {
    let node = start();
    let event = r#"{"eventId":"e1","type":"billed","dimensions":{"customer":"c"}}"#;
    let writes = [
        node.post("/v1/events", event).ok(),
        add(&node, "stock:a", 1),
        node.post("/v1/counters/stock:a/decrement", "").ok(),
    ];
    for written in &writes {
        let token = token(written);
        assert_eq!(node.get(&format!("/v1/counters/bills:c?at_least={token}")).ok()["value"], 1);
        let body = json!({"ids": ["bills:c"], "at_least": token.to_string(), "wait_ms": 0});
        assert_eq!(node.post("/v1/counters/get", body.to_string()).ok()["counters"][0]["value"], 1);
        node.post(&format!("/v1/counters/get?at_least={token}"), r#"{"ids":[]}"#).ok();
        node.get(&format!("/v1/counters/bills:*/aggregate?at_least={token}&wait_ms=0")).ok();
    }
    // Only the writes below bring it, and none comes behind the one that does.
    let last = token(&writes[2]);
    let awaited = Position { offset: last.offset + 5, ..last };
    thread::scope(|scope| {
        let reader = scope.spawn(|| node.get(&format!("/v1/counters/stock:b?at_least={awaited}")).ok());
        let adds = (1..).find(|_| token(&add(&node, "stock:b", 1)).offset >= awaited.offset);
        assert_eq!(reader.join().unwrap()["value"], adds.unwrap());
    });
}

#[test]
fn a_token_that_does_not_come_says_how_far_the_node_is() {
    let node = start();
    let applied = token(&add(&node, "stock:a", 1));
    let ahead = Position { offset: applied.offset + 1, ..applied };
    let check = |answer: Answer| {
        let detail = answer.problem(503, "token-not-reached");
        assert!(detail.contains(&ahead.to_string()) && detail.contains(&applied.to_string()), "{detail}");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["applied"], applied.to_string());
    };
    check(node.get(&format!("/v1/counters/stock:a?at_least={ahead}&wait_ms=1")));
    check(node.get(&format!("/v1/counters/stock:*/aggregate?at_least={ahead}&wait_ms=1")));
    check(node.post("/v1/counters/get", json!({"ids": [], "at_least": ahead.to_string(), "wait_ms": 1}).to_string()));
}

#[test]
fn a_token_that_cannot_be_waited_for_is_refused_by_name() {
    let node = start();
    let path = "/v1/counters/stock:a";
    for (query, named) in [
        ("at_least=yesterday", "at_least is yesterday"),
        ("at_least=1-0", "at_least is 1-0"),
        ("at_least=1-0-0&wait_ms=6000", "wait_ms is 6000"),
        ("at_least=1-0-0&wait_ms=soon", "wait_ms is soon"),
        ("wait_ms=5", "send at_least as well"),
        ("at_least=1-0-0&at_least=1-0-1", "say it once"),
    ] {
        for path in [path, "/v1/counters/stock:*/aggregate"] {
            let detail = node.get(&format!("{path}?{query}")).problem(400, "invalid-parameter");
            assert!(detail.contains(named), "{query}: {detail}");
        }
    }
    // In the query and in the body: both are waited for.
    let twice = |token: &str| json!({"ids": [], "at_least": token}).to_string();
    node.post("/v1/counters/get?at_least=1-0-0", twice("1-0-0")).ok();
    node.post("/v1/counters/get?at_least=1-0-0", twice("9-0-0")).problem(409, "token-lost");
    node.post("/v1/counters/get?at_least=9-0-0", twice("1-0-0")).problem(409, "token-lost");
    node.post("/v1/counters/get?consistency=latest", r#"{"ids":[]}"#).problem(400, "invalid-parameter");
    let detail = node.get(&format!("{path}?at_least=9-0-0")).problem(409, "token-lost");
    assert!(detail.contains("epoch 1"), "{detail}");
    node.get(&format!("{path}?at_least=1-3-0")).problem(409, "token-lost");
}

#[test]
fn after_a_restart_an_old_token_is_known_and_one_that_was_lost_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        TestNode::start_with(|options| {
            options.data_dir = dir.path().to_owned();
            options.config = Some(YAML.to_owned());
        })
    };
    let node = start();
    let kept = token(&add(&node, "stock:a", 5));
    node.stop();
    let node = start();
    assert_eq!(node.get(&format!("/v1/counters/stock:a?at_least={kept}&wait_ms=0")).ok()["value"], 5);
    // As if one more write of the first life had been answered and then lost with an unsynced end.
    let lost = Position { offset: kept.offset + 1, ..kept };
    let now = token(&add(&node, "stock:b", 1));
    assert!(now.epoch > lost.epoch && now.offset >= lost.offset, "another write stands there now");
    let detail = node.get(&format!("/v1/counters/stock:a?at_least={lost}")).problem(409, "token-lost");
    assert!(detail.contains("was not durable"), "{detail}");
    // It stays lost when the epoch that has its place has ended, too.
    node.stop();
    let node = start();
    for (token, status) in [(kept, 200), (now, 200), (lost, 409)] {
        assert_eq!(node.get(&format!("/v1/counters/stock:a?at_least={token}&wait_ms=0")).status, status, "{token}");
    }
}

#[test]
fn an_id_and_a_token_mean_the_same_over_both_protocols() {
    let node = TestNode::start_with(|options| options.resp = Some("127.0.0.1:0".parse().unwrap()));
    let counted = node.resp("TALLY.INCRBY orders 5 ID req-81", 5);
    assert_eq!(counted[..3], ["*3", ":5", "+counted"]);
    assert_eq!(node.get(&format!("/v1/counters/orders?at_least={}", counted[4])).ok()["value"], 5);
    let again = |body: &str| {
        node.send("POST", "/v1/counters/orders/increment", &[("idempotency-key", "req-81")], body.as_bytes())
    };
    let repeated = again(r#"{"delta":5}"#).ok();
    assert_eq!((&repeated["value"], &repeated["repeated"]), (&json!(5), &json!(true)));
    assert!(again(r#"{"delta":6}"#).problem(409, "idempotency-conflict").contains("by 5 before"));
    assert_eq!(node.resp("TALLY.INCRBY orders 5 ID req-81", 3)[1..], [":5", "+repeated"]);
    assert_eq!(node.value("orders"), 5);
}

#[test]
fn whoever_asks_a_node_that_stops_is_told_so_and_does_not_wait_for_ever() {
    let node = start();
    let engine = node.node().engine().clone();
    let (asked, first) = flume::bounded(1);
    let asking = Spawner::thread("asking", move || {
        while pollster::block_on(engine.balances()).is_ok() {
            let _ = asked.try_send(());
        }
    });
    first.recv().unwrap();
    node.stop();
    asking.unwrap().join().unwrap();
}

/// Counters on either side, so many that a correction takes its time.
const PAIRS: usize = 500;

fn ids() -> (Vec<String>, Vec<String>) {
    let side = |side: &str| (0..PAIRS).map(|n| format!("stock:{side}{n}")).collect();
    (side("from"), side("to"))
}

/// Moves one from each counter on the one side to one on the other.
fn move_one(engine: &Engine) {
    let delta = |id: &String, delta| Delta { id: id.clone().into_bytes(), bucket_ms: None, delta };
    let (from, to) = ids();
    let deltas = from.iter().map(|id| delta(id, -1)).chain(to.iter().map(|id| delta(id, 1))).collect();
    let (reason, author) = ("moved".to_owned(), "test".to_owned());
    let (at_ms, if_generation) = (0, None);
    let proposal =
        Proposal { number: 0, reason, author: author.clone(), at_ms, deltas, if_generation, purpose: Purpose::Adjust };
    let number = pollster::block_on(engine.propose(proposal, None)).unwrap();
    pollster::block_on(engine.correct(Remedy::Apply { number, author, if_generation: None })).unwrap();
}

#[test]
fn nobody_sees_half_a_correction() {
    const MOVES: usize = 40;
    let node = start();
    let (from, to) = ids();
    let all = [from, to].concat();
    let body = json!({"ids": all}).to_string();
    thread::scope(|scope| {
        let moving = scope.spawn(|| (0..MOVES).for_each(|_| move_one(node.node().engine())));
        let mut newest = 0;
        while !moving.is_finished() {
            let many = node.post("/v1/counters/get", &body).ok();
            let counters = many["counters"].as_array().unwrap();
            let generation = counters[0]["generation"].as_i64().unwrap();
            for (n, counter) in counters.iter().enumerate() {
                let value = if n < PAIRS { -generation } else { generation };
                assert_eq!(
                    (&counter["value"], &counter["generation"]),
                    (&json!(value), &json!(generation)),
                    "{counter}"
                );
            }
            assert!(generation >= newest, "generations do not go back");
            newest = generation;
            assert_eq!(node.get("/v1/counters/stock:*/aggregate").ok()["value"], 0);
        }
        moving.join().unwrap();
    });
    let sum = node.get("/v1/counters/stock:to*/aggregate").ok();
    assert_eq!((&sum["value"], &sum["generation"]), (&json!(MOVES * PAIRS), &json!(MOVES)));
}
