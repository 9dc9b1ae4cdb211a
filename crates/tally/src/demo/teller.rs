//! Asks the server, and shows what was asked (→) and what it answered (←). No number is shown that the server did not say.

use crate::failure::Result;
use crate::http::HttpArgs;
use crate::serve::say;
use crate::signals::Stop;
use serde_json::Value;
use std::fmt::Display;
use tally_core::ledger::BoxKind;

pub struct Teller<'a> {
    pub server: &'a HttpArgs,
    pub stop: &'a Stop,
}

impl Teller<'_> {
    /// Sends events, one per line, and shows in which boxes they ended.
    pub fn events(&self, what: &str, lines: &str) -> Result<()> {
        say(&format!("   → POST /v1/events: {what}"));
        let outcome = self.server.post("/v1/events", "application/x-ndjson", lines)?.json()?;
        self.answered(boxes(&outcome));
        Ok(())
    }

    pub fn get(&self, target: &str) -> Result<Value> {
        say(&format!("   → GET {target}"));
        self.server.get(target, &[])?.json()
    }

    pub fn post(&self, path: &str, what: &str, body: &Value) -> Result<Value> {
        say(&format!("   → POST {path}: {what}"));
        self.server.post(path, "application/json", &body.to_string())?.json()
    }

    /// Reads a counter, and shows its value.
    pub fn value(&self, id: &str) -> Result<()> {
        let read = self.get(&format!("/v1/counters/{id}"))?;
        self.answered(value(&read));
        Ok(())
    }

    pub fn answered(&self, text: impl Display) {
        say(&format!("   ← {text}"));
    }

    /// One more line of an answer.
    pub fn and(&self, text: impl Display) {
        say(&format!("     {text}"));
    }
}

/// How many were counted, and in which other boxes there is something.
fn boxes(outcome: &Value) -> String {
    let shown = BoxKind::ALL.into_iter().filter_map(|kind| {
        // The reasons have the name of this box.
        let field = if kind == BoxKind::Rejected { "rejectedCount" } else { kind.name() };
        let entries = &outcome[field];
        (kind == BoxKind::Counted || *entries != 0).then(|| format!("{} {entries}", kind.name()))
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn value(read: &Value) -> String {
    let (value, kind) = (&read["value"], text(&read["kind"]));
    match &read["pending"] {
        Value::Null => format!("value {value}, {kind}"),
        pending => format!("value {value}, {kind}, {pending} pending"),
    }
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The rows of a list in an answer.
pub fn rows(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The time of day, without the date.
pub fn time_of_day(moment: &Value) -> &str {
    text(moment).get(11..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn boxes_are_shown_if_there_is_something_in_them() {
        let outcome = json!({"counted": 0, "duplicate": 3, "conflict": 0, "rejectedCount": 1, "ignored": 0, "late": 0});
        assert_eq!(boxes(&outcome), "counted 0, duplicate 3, rejected 1");
    }

    #[test]
    fn a_value_that_will_change_says_so() {
        assert_eq!(value(&json!({"value": 7, "kind": "exact"})), "value 7, exact");
        let late = json!({"value": 7, "kind": "provisional", "pending": 2});
        assert_eq!(value(&late), "value 7, provisional, 2 pending");
    }

    #[test]
    fn a_time_of_day_is_cut_from_its_date() {
        assert_eq!(time_of_day(&json!("2026-11-15T21:34:49.888Z")), "21:34:49.888Z");
        assert_eq!(time_of_day(&json!(null)), "");
    }
}
