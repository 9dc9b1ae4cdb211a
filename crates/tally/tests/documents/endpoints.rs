//! Endpoints: what the documents name, and what the router has.

use crate::page::{self, Page, assert_same};
use crate::wire::Asked;
use std::collections::BTreeSet;

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// `GET /v1/counters/{}` for each operation; what a placeholder is called does not matter.
fn routed(node: &Asked) -> BTreeSet<String> {
    let description: serde_json::Value = serde_json::from_str(&node.get("/openapi.json", "")).unwrap();
    let paths = description["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, operations)| {
        let methods = operations.as_object().unwrap().keys().map(|method| method.to_uppercase());
        methods.filter(|method| METHODS.contains(&&**method)).map(move |method| plain(&format!("{method} {path}")))
    });
    // Those serve the description and the page for people, and are not described.
    let others = ["GET /openapi.json", "GET /docs", "GET /", "GET /assets/{}"];
    operations.chain(others.map(str::to_owned)).collect()
}

/// Without the names of placeholders and without a query.
fn plain(operation: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in operation.split('?').next().unwrap().chars() {
        inside = inside && c != '}';
        if !inside {
            text.push(c);
        }
        inside = inside || c == '{';
    }
    text
}

/// The operations that one piece of code names: `GET /a` or `GET /a` followed by `/b`.
fn named(word: &str) -> Option<String> {
    let (method, path) = word.split_once(' ')?;
    let is_one = METHODS.contains(&method) && path.starts_with('/') && !path.contains(char::is_whitespace);
    is_one.then(|| plain(&format!("{method} {path}")))
}

#[test]
fn the_guide_lists_every_endpoint_and_no_other() {
    let listed = Page::open("docs/guide/http.md").section("## Endpoints");
    let mut written = BTreeSet::new();
    for row in listed.rows() {
        let mut last = String::new();
        for word in page::words(&row[0]) {
            // `POST /a/{id}/b`, `…/c` and `GET /a` `/b` go on from the one before.
            let (method, path) = last.split_once(' ').unwrap_or_default();
            let operation = match word.strip_prefix('…') {
                Some(end) => format!("{method} {}{end}", path.rsplit_once('/').unwrap().0),
                None if word.starts_with('/') => format!("{method} {word}"),
                None => word,
            };
            written.insert(plain(&operation));
            last = operation;
        }
    }
    assert_same("docs/guide/http.md, \"Endpoints\"", &written, "the router", &routed(&Asked::start()));
}

#[test]
fn every_operation_that_a_document_names_exists() {
    let routed = routed(&Asked::start());
    let unknown: Vec<String> = page::all()
        .iter()
        .flat_map(|page| page.code().into_iter().map(|word| (page.name.clone(), word)))
        .filter(|(_, word)| named(word).is_some_and(|operation| !is_routed(&operation, &routed)))
        .map(|(page, word)| format!("{page}: {word}"))
        .collect();
    assert!(unknown.is_empty(), "no such operation: {unknown:#?}");
}

/// Whether a route takes it: `GET /v1/counters/visits` is one of `GET /v1/counters/{}`.
fn is_routed(operation: &str, routed: &BTreeSet<String>) -> bool {
    let parts: Vec<&str> = operation.split('/').collect();
    routed.iter().any(|route| {
        let route: Vec<&str> = route.split('/').collect();
        route.len() == parts.len() && route.iter().zip(&parts).all(|(route, part)| *route == "{}" || route == part)
    })
}
