//! Metrics: what a scrape shows, and what documents, alerts and dashboards name.

use crate::page::{self, Page, assert_same};
use crate::wire::Asked;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

/// A node that has met everything that makes a metric appear.
fn busy() -> Asked {
    let node = Asked::start();
    node.resp("INCR a\r\nGET a");
    node.post("/v1/events", r#"{"type":"order.paid","eventId":"1"}"#);
    node.get("/v1/counters/a", "");
    node.post("/v1/reconciliation", "");
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

/// The words of an expression that can only be names of our metrics.
fn named(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = ["tally_", "process_", "counter_update_", "duplicate_event_", "projection_"];
    words.filter(|word| ours.iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned).collect()
}

/// Every string under a key, wherever it stands.
fn strings(value: &serde_json::Value, key: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            found.extend(members.get(key).and_then(|value| value.as_str()).map(str::to_owned));
            members.values().for_each(|member| strings(member, key, found));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| strings(item, key, found)),
        _ => {}
    }
}

#[test]
fn alerts_and_the_dashboard_name_metrics_that_exist() {
    let exposed = exposed();
    let is_exposed = |name: &String| {
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
        exposed.contains(name) || parts.into_iter().any(|histogram| exposed.contains(histogram))
    };
    let dashboard: serde_json::Value = serde_json::from_str(&page::file("docs/ops/dashboard.json")).unwrap();
    let mut expressions = Vec::new();
    strings(&dashboard, "expr", &mut expressions);
    strings(&dashboard, "query", &mut expressions);
    assert!(expressions.len() > 20, "{expressions:?}");
    let alerts = page::file("docs/ops/alerts.yml");
    // Descriptions name metrics, too.
    expressions.extend(alerts.lines().map(str::to_owned));
    let names: BTreeSet<String> = expressions.iter().flat_map(|expression| named(expression)).collect();
    let unknown: Vec<&String> = names.iter().filter(|name| !is_exposed(name)).collect();
    assert!(unknown.is_empty(), "docs/ops names metrics that /metrics does not show: {unknown:?}");
}

/// Runs promtool with something on its stdin; `cargo xtask test` installs it.
fn promtool(args: &[&str], input: &str) -> String {
    let mut child = Command::new("promtool")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed: cargo xtask test does it, or apt-get install prometheus");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success(), "promtool {args:?}: {said}");
    said
}

#[test]
fn promtool_has_nothing_to_say_about_a_scrape() {
    let said = promtool(&["check", "metrics"], &busy().get("/metrics", ""));
    assert_eq!(said, "");
}

#[test]
fn promtool_takes_the_rules_and_the_configuration() {
    let ops = page::root().join("docs/ops");
    promtool(&["check", "rules", ops.join("alerts.yml").to_str().unwrap()], "");
    promtool(&["check", "config", ops.join("prometheus.yml").to_str().unwrap()], "");
}
