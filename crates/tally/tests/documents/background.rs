//! Workers: what a node shows of its work in the background, and what the guide lists.

use crate::page::{Page, assert_same, words};
use crate::wire::Asked;
use std::collections::BTreeSet;

/// The words in the first column of the tables whose rows have so many columns.
fn listed(columns: usize) -> BTreeSet<String> {
    let rows = Page::open("docs/guide/operations.md").section("## Work in the background").rows();
    rows.iter().filter(|row| row.len() == columns).flat_map(|row| words(&row[0])).collect()
}

#[test]
fn the_guide_lists_every_worker_and_no_other() {
    let node = Asked::start();
    // The writer's own workers begin with the writer.
    node.post("/v1/counters/a/increment", "{}");
    let answer: serde_json::Value = serde_json::from_str(&node.get("/v1/workers", "")).unwrap();
    let workers = answer["workers"].as_array().unwrap();
    let there = workers.iter().map(|worker| worker["name"].as_str().unwrap().to_owned()).collect();
    assert_same("docs/guide/operations.md, \"Work in the background\"", &listed(3), "GET /v1/workers", &there);
}

#[test]
fn the_guide_lists_every_state_of_a_worker_and_no_other() {
    let node = Asked::start();
    node.post("/v1/counters/a/increment", "{}");
    let metrics = node.get("/metrics", "");
    let lines = metrics.lines().filter(|line| line.starts_with("tally_worker_state{"));
    let states = lines.filter_map(|line| line.split("state=\"").nth(1)?.split('"').next().map(str::to_owned)).collect();
    assert_same("docs/guide/operations.md, states of a worker", &listed(2), "tally_worker_state", &states);
}
