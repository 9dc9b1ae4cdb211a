//! Keys that were cleared: what goes off afterwards takes nothing away, and a recount knows that.

use super::Asked;
use serde_json::{Value, json};

const YAML: &str = "
counters:
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user],
     rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
";

impl Asked {
    /// What users do, each in a commit of its own: a recount ends the one that is open.
    fn like(&self, events: &[(&str, &str, &str)]) {
        for (kind, user, video) in events {
            let event = json!({"type": kind, "dimensions": {"user": user, "video": video}});
            self.post("/v1/events", &event.to_string());
            self.agrees();
        }
    }

    fn likes_of(&self, video: &str) -> Value {
        self.get(&format!("/v1/counters/likes:{video}"))["value"].clone()
    }
}

#[test]
fn what_goes_off_or_elsewhere_after_a_clear_is_no_difference() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.like(&[("liked", "u1", "x"), ("liked", "u2", "x"), ("liked", "u3", "x"), ("liked", "u4", "x")]);
    asked.delete("/v1/counters/likes:x");
    asked.agrees();
    asked.like(&[("unliked", "u1", "x"), ("liked", "u2", "y"), ("liked", "u3", "x"), ("liked", "u1", "x")]);
    assert_eq!((asked.likes_of("x"), asked.likes_of("y")), (json!(1), json!(1)));
    asked.delete("/v1/counters/likes:x");
    asked.agrees();
    asked.like(&[("unliked", "u1", "x"), ("unliked", "u4", "x"), ("liked", "u5", "x")]);
    let text = asked.agrees();
    assert!(text.contains("likes: 2 keys, 2 in all: as counted again") && !text.contains("not compared"), "{text}");
    // A series from the archive comes to the same.
    let series = asked.get("/v1/counters/likes:x/series?step=1h&from=-1d");
    let sum: i64 = series["points"].as_array().unwrap().iter().filter_map(|point| point["value"].as_i64()).sum();
    assert_eq!(asked.likes_of("x"), sum, "{series}");
}

#[test]
fn a_key_whose_clear_was_reverted_is_not_compared_and_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.like(&[("liked", "u1", "x"), ("liked", "u2", "x"), ("liked", "u3", "y")]);
    asked.delete("/v1/counters/likes:x");
    asked.agrees();
    let number = asked.get("/v1/corrections")["corrections"][0]["number"].clone();
    asked.post(&format!("/v1/corrections/{number}/revert"), "{}");
    asked.like(&[("unliked", "u2", "x")]);
    assert_eq!(asked.likes_of("x"), 1);
    let text = asked.agrees();
    assert!(text.contains("likes: 2 keys, 2 in all: as counted again"), "{text}");
    assert!(
        text.contains("1 keys not compared: they were cleared, and whether they differ by what the clear took"),
        "{text}"
    );
}

#[test]
fn a_key_that_had_drifted_when_it_was_cleared_is_not_compared_and_keeps_what_it_is_worth() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.like(&[("liked", "u1", "x"), ("liked", "u2", "y")]);
    asked.correct("restore", "likes:x", 5);
    asked.delete("/v1/counters/likes:x");
    let text = asked.agrees();
    assert!(text.contains("1 keys not compared: they were cleared, and whether they differ"), "{text}");
    asked.like(&[("liked", "u3", "x"), ("liked", "u4", "z")]);
    asked.correct("restore", "likes:z", 1);
    assert_eq!(asked.reconcile(&["--apply"]).status.code(), Some(0));
    assert_eq!(["x", "y", "z"].map(|video| asked.likes_of(video)), [1; 3].map(|worth| json!(worth)));
}
