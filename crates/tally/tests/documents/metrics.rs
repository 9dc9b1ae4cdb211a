//! Metrics: what a scrape shows, and what documents, alerts and dashboards name.

use crate::page::{self, Page, assert_same};
use crate::wire::Asked;
use std::collections::BTreeSet;

/// A node that has met everything that makes a metric appear.
fn busy() -> Asked {
    let node = Asked::start();
    node.resp("INCR a\r\nGET a");
    node.post("/v1/events", r#"{"type":"order.paid","eventId":"1"}"#);
    node.get("/v1/counters/a", "");
    node
}

/// The names under which samples stand, those of histograms without what their parts add.
fn exposed() -> BTreeSet<String> {
    let text = busy().get("/metrics", "accept: application/openmetrics-text; version=1.0.0\r\n");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let name = |line: &str| match line.split_once(' ').unwrap() {
        (name, "counter") => format!("{name}_total"),
        (name, "info") => format!("{name}_info"),
        (name, _) => name.to_owned(),
    };
    types.map(name).collect()
}

/// `name{label,label}` as tables write it.
fn bare(word: &str) -> String {
    word.split(['{', '[', ' ']).next().unwrap().to_owned()
}

#[test]
fn the_guide_lists_every_metric_and_no_other() {
    let rows = Page::open("docs/guide/operations.md").section("## Health and metrics").rows();
    let written = rows.iter().flat_map(|row| page::words(&row[0])).map(|word| bare(&word)).collect();
    assert_same("docs/guide/operations.md, \"Health and metrics\"", &written, "/metrics", &exposed());
}
