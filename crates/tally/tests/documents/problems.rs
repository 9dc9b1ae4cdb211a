//! The types of problems: what `Kind` has, and what the guide tells clients to decide by.

use crate::page::{self, Page, assert_same, words};
use std::collections::{BTreeMap, BTreeSet};

/// `409 overflow` for each kind, from the rows of `Kind::row`.
fn kinds() -> BTreeSet<String> {
    let source = page::file("crates/node/src/frontend/http/words/problem.rs");
    let source = source.split("fn row(self)").nth(1).unwrap().split("\n    }\n").next().unwrap();
    let mut kinds = BTreeSet::new();
    for row in source.split("(\"").skip(1) {
        let (slug, rest) = row.split_once('"').unwrap();
        // The one without a status of its own is what the framework answers.
        if let Some(status) = rest.strip_prefix(", S::") {
            let name: String = status.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
            kinds.insert(format!("{} {slug}", status_codes()[&*name]));
        }
    }
    assert!(kinds.len() > 20, "the rows of Kind are written otherwise: {kinds:?}");
    kinds
}

fn status_codes() -> BTreeMap<&'static str, u16> {
    BTreeMap::from([
        ("BAD_REQUEST", 400),
        ("UNAUTHORIZED", 401),
        ("FORBIDDEN", 403),
        ("NOT_FOUND", 404),
        ("METHOD_NOT_ALLOWED", 405),
        ("NOT_ACCEPTABLE", 406),
        ("REQUEST_TIMEOUT", 408),
        ("CONFLICT", 409),
        ("GONE", 410),
        ("PRECONDITION_FAILED", 412),
        ("PAYLOAD_TOO_LARGE", 413),
        ("URI_TOO_LONG", 414),
        ("UNSUPPORTED_MEDIA_TYPE", 415),
        ("MISDIRECTED_REQUEST", 421),
        ("UNPROCESSABLE_ENTITY", 422),
        ("TOO_MANY_REQUESTS", 429),
        ("REQUEST_HEADER_FIELDS_TOO_LARGE", 431),
        ("INTERNAL_SERVER_ERROR", 500),
        ("SERVICE_UNAVAILABLE", 503),
        ("INSUFFICIENT_STORAGE", 507),
    ])
}

#[test]
fn the_guide_lists_every_type_of_problem_with_its_status() {
    let kinds = kinds();
    let mut written = BTreeSet::new();
    for row in Page::open("docs/guide/http.md").section("## Errors").rows() {
        let statuses: Vec<&str> = row[0].split(", ").collect();
        for slug in words(&row[1]) {
            // A row may have several statuses; which one belongs to which type, the code knows.
            let of_row = statuses.iter().map(|status| format!("{status} {slug}"));
            written.insert(of_row.clone().find(|kind| kinds.contains(kind)).unwrap_or(format!("{} {slug}", row[0])));
        }
    }
    assert_same("docs/guide/http.md, \"Errors\"", &written, "Kind in problem.rs", &kinds);
}
