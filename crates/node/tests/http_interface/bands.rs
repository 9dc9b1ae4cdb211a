//! Retention over HTTP: what is kept of old buckets, what is refused, and that restarts and other declarations change no number.

use crate::support::TestNode;
use serde_json::{Value, json};
use std::sync::Arc;
use tally_node::assemble::Options;
use tally_node::clock::{Clock, Hands, Stopwatch};

/// 2026-11-17T10:00:00Z, a Tuesday.
const START_MS: u64 = 1_794_909_600_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

fn config(retention: &str) -> String {
    format!(
        "
counters:
  - {{counterName: views, mode: display, dimensions: [video], dedup: none, rules: [{{on: video.viewed, op: increment}}],
     rollups: [[country, minute]], retention: {{{retention}}}}}
"
    )
}

const KEPT: &str = "minute: 1h, hour: 2d, day: forever";

struct Aged {
    node: TestNode,
    clock: Clock,
    hands: Arc<Hands>,
}

fn options(clock: &Clock, retention: &str) -> impl FnOnce(&mut Options) {
    let (clock, config) = (clock.clone(), config(retention));
    move |options| (options.clock, options.config) = (clock, Some(config))
}

impl Aged {
    /// A node that has counted every ten minutes for 5 days.
    fn new(retention: &str) -> Aged {
        let (clock, hands) = Clock::settable(START_MS);
        let node = TestNode::start_with(options(&clock, retention));
        let aged = Aged { node, clock, hands };
        let events: Vec<Value> =
            (0..5 * 24 * 6).map(|n| view(["DE", "US"][n % 2], START_MS - 600_000 * n as u64)).collect();
        aged.send(&events);
        aged
    }

    fn send(&self, events: &[Value]) {
        let answer = self.node.post("/v1/events", serde_json::to_vec(events).unwrap()).ok();
        assert_eq!(answer["rejected"], json!([]), "{answer}");
    }

    fn restart(self, retention: &str) -> Aged {
        let Aged { node, clock, hands } = self;
        Aged { node: node.restart(options(&clock, retention)), clock, hands }
    }

    /// Time passes, somebody counts, and the worker has gone through all keys behind it.
    fn pass(&self, ms: u64) {
        self.hands.pass(ms);
        let walks = self.walks();
        self.send(&[view("FR", START_MS)]);
        let began = Stopwatch::start();
        while self.walks() <= walks {
            assert!(began.elapsed().as_secs() < 60, "{}", self.node.get("/v1/workers").text());
        }
    }

    /// Checkpoints there have been: the worker asks for one when it has found something.
    fn walks(&self) -> u64 {
        let answer = self.node.get("/metrics");
        let line = answer.text().lines().find(|line| line.starts_with("tally_checkpoints_total")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn series(&self, query: &str) -> Value {
        self.node.get(&format!("/v1/counters/views:a/series?{query}")).ok()
    }

    fn refused(&self, query: &str) -> String {
        self.node.get(&format!("/v1/counters/views:a/series?{query}")).problem(422, "not-kept")
    }

    fn total(&self, query: &str) -> i64 {
        self.series(query)["points"].as_array().unwrap().iter().map(|point| point["value"].as_i64().unwrap()).sum()
    }
}

fn view(country: &str, at_ms: u64) -> Value {
    let at = jiff::Timestamp::from_millisecond(at_ms as i64).unwrap().to_string();
    json!({"type": "video.viewed", "occurredAt": at, "dimensions": {"video": "a", "country": country}})
}

const ALL: &str = "from=2026-11-01T00:00:00Z&step=1d";

#[test]
fn a_step_is_answered_where_it_is_kept_and_refused_with_what_to_ask_where_it_is_not() {
    let aged = Aged::new(KEPT);
    let check = |aged: &Aged, counted: i64| {
        let minutes = aged.refused("from=2026-11-17T07:00:00Z&step=10m");
        assert_eq!(
            minutes,
            "of [country, minute] of views only hours are kept before 2026-11-17T09:00:00.000Z; \
             ask for step=1h, or from=2026-11-17T09:00:00.000Z"
        );
        assert_eq!(aged.total("from=2026-11-17T09:00:00Z&to=2026-11-17T10:00:00Z&step=10m"), 6);
        assert_eq!(aged.total("from=2026-11-15T00:00:00Z&to=2026-11-17T10:00:00Z&step=1h"), (2 * 24 + 10) * 6);
        let hours = aged.refused("from=2026-11-14T00:00:00Z&step=1h");
        assert!(
            hours.contains("only days are kept before 2026-11-15T00:00:00.000Z; ask for step=1d, or from=2026-11-15"),
            "{hours}"
        );
        assert_eq!(aged.total(ALL), counted);
        let from = aged.series("from=2026-11-14T13:14:15Z&to=2026-11-16T12:34:56Z");
        assert_eq!(
            (&from["from"], &from["to"]),
            (&json!("2026-11-14T00:00:00.000Z"), &json!("2026-11-16T13:00:00.000Z"))
        );
        assert_eq!(from["points"][0]["value"], (24 + 24 + 13) * 6);
        let parts = aged.series("from=2026-11-13T00:00:00Z&to=2026-11-14T00:00:00Z&step=1d&by=country");
        assert_eq!(parts["points"][0]["parts"], json!({"DE": 72, "US": 72}));
    };
    check(&aged, 5 * 24 * 6);
    // The same of the store, whose rows are all as they came.
    let aged = aged.restart(KEPT);
    check(&aged, 5 * 24 * 6);
    // An hour later they are not, and nothing else is.
    aged.pass(HOUR_MS);
    let again = |aged: &Aged| {
        assert_eq!(aged.total(ALL), 5 * 24 * 6 + 1);
        assert_eq!(aged.total("from=2026-11-15T00:00:00Z&to=2026-11-17T10:00:00Z&step=1h"), (2 * 24 + 10) * 6);
        assert!(aged.refused("from=2026-11-17T09:00:00Z&step=10m").contains("before 2026-11-17T10:00:00.000Z"));
        assert_eq!(aged.node.value("views:a"), 5 * 24 * 6 + 1);
    };
    again(&aged);
    let crashed = aged.node.after_a_crash(options(&aged.clock, KEPT));
    let crashed = Aged { node: crashed, clock: aged.clock.clone(), hands: aged.hands.clone() };
    again(&crashed);
    let aged = aged.restart(KEPT);
    again(&aged);
    let months = aged.node.get("/v1/counters/views/series?from=2026-11-01T00:00:00Z&step=1mo").ok();
    assert_eq!(months["points"][0]["value"], 5 * 24 * 6 + 1, "the counter as a whole");
    aged.node.send("DELETE", "/v1/counters/views:a", &[], b"").ok();
    assert_eq!(aged.total(ALL), 0, "a cleared key begins anew, in every row of it");
    let aged = aged.restart(KEPT);
    assert_eq!(aged.total(ALL), 0);
}

#[test]
fn what_was_kept_for_a_short_time_is_not_kept_for_longer_because_somebody_says_so() {
    let aged = Aged::new(KEPT);
    let aged = aged.restart(KEPT);
    aged.pass(HOUR_MS);
    let aged = aged.restart("minute: 90d, hour: 91d, day: forever");
    assert!(
        aged.refused("from=2026-11-17T09:00:00Z&step=10m")
            .contains("only hours are kept before 2026-11-17T10:00:00.000Z")
    );
    assert_eq!(aged.total("from=2026-11-17T10:00:00Z&step=10m"), 2);
    aged.hands.pass(5 * DAY_MS);
    aged.send(&[view("FR", START_MS + 2 * HOUR_MS)]);
    assert_eq!(aged.total("from=2026-11-17T10:00:00Z&step=10m"), 3, "from then on it is");
    assert_eq!(aged.total(ALL), 5 * 24 * 6 + 2);
    let config = aged.node.get("/v1/config").ok();
    let retention = json!({"minute": "90d", "hour": "91d", "day": "forever"});
    assert_eq!(config["counters"][0]["retention"], retention);
}

#[test]
fn what_is_kept_no_longer_is_refused_and_takes_no_room() {
    let short = "minute: 1h, hour: 2d";
    let aged = Aged::new(short).restart(short);
    let all = aged.refused("by=country");
    assert!(
        all.contains("nothing is kept before 2026-11-15T10:00:00.000Z; ask for from=2026-11-15T10:00:00.000Z"),
        "{all}"
    );
    let kept = "from=2026-11-15T10:00:00Z&to=2026-11-17T10:00:00Z&step=1h";
    assert_eq!(aged.total(kept), 2 * 24 * 6);
    aged.pass(HOUR_MS);
    assert!(aged.refused(kept).contains("nothing is kept before 2026-11-15T11:00:00.000Z"));
    assert_eq!(aged.total(&kept.replace("15T10", "15T11")), (2 * 24 - 1) * 6);
    let days = aged.refused("from=2026-11-15T12:00:00Z&step=1d");
    assert!(days.contains("ask for from=2026-11-16T00:00:00.000Z"), "a whole one: {days}");
    assert_eq!(aged.node.value("views:a"), 5 * 24 * 6 + 1, "the key itself has everything");
}

#[test]
fn a_window_that_is_kept_no_longer_is_refused_with_what_a_top_can_do() {
    let aged = Aged::new("minute: 1h, hour: 3h, day: forever");
    let day = aged.node.get("/v1/top/views?window=24h").problem(422, "not-kept");
    assert!(day.contains("only days are kept before 2026-11-17T00:00:00.000Z; ask for a shorter window"), "{day}");
    assert!(!day.contains("step="), "a top has none: {day}");
    assert_eq!(aged.node.get("/v1/top/views?window=1h").ok()["top"], json!([{"id": "views:a", "value": 1}]));
}
