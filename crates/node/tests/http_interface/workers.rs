//! What a node tells of its work in the background.

use super::support::TestNode;
use std::collections::BTreeMap;

/// Every worker of a node; all have begun when it has started and was written to.
const NAMES: [&str; 16] = [
    "anomalies",
    "bands",
    "checkpoint",
    "commits",
    "cut",
    "endings",
    "house",
    "late",
    "leaders",
    "lookup-0",
    "lookup-1",
    "reclaim",
    "settle",
    "sweep",
    "tend",
    "tick",
];

#[test]
fn every_worker_of_a_node_is_listed_with_what_it_does_and_how_it_goes() {
    let node = TestNode::start();
    // The writer's own workers begin with the writer.
    node.post("/v1/counters/a/increment", "");
    let answer = node.get("/v1/workers").json();
    let workers: BTreeMap<&str, &serde_json::Value> =
        answer["workers"].as_array().unwrap().iter().map(|worker| (worker["name"].as_str().unwrap(), worker)).collect();
    assert_eq!(workers.keys().copied().collect::<Vec<_>>(), NAMES);
    for (name, worker) in &workers {
        assert!(worker["does"].is_string() && worker["waitsFor"].is_string(), "{worker}");
        assert!(["busy", "idle", "waiting"].contains(&worker["state"].as_str().unwrap()), "{name}: {worker}");
        assert_eq!((&worker["errors"], &worker["errorsInARow"]), (&0.into(), &0.into()), "{worker}");
        assert!(worker["lastError"].is_null(), "{worker}");
    }
    let answer = node.get("/metrics");
    let metrics = answer.text();
    for name in NAMES {
        let line = format!("tally_worker_errors_in_a_row{{worker=\"{name}\"}} 0");
        assert!(metrics.contains(&line), "{line} is missing in\n{metrics}");
    }
}
