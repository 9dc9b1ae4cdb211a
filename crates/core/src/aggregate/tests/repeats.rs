//! What a display counter remembers: by which fields, for how long, and what does not claim.

use super::contracts::{Bench, event, hasher};
use super::*;
use crate::event::Event;
use crate::ledger::{Cause, Delta};

fn views(dedup: &str) -> String {
    format!(
        "counters: [{{counterName: views, mode: display, dedup: {dedup}, rules: [{{on: viewed, op: increment}}]}}, \
         {{counterName: other, mode: simple}}]"
    )
}

fn view(session: &'static str, user: &'static str, seq: u64) -> Event<'static> {
    let mut event = event("viewed", "x", 100_000, &[("user", user)]);
    event.session = Some(session.into());
    event.seq = Some(seq);
    event
}

const BY_SESSION: &str = "{by: [session, seq], window: 10s}";
const BY_USER: &str = "{by: [user, seq], window: 10s}";
const NOTHING: &str = "counters: []";

#[test]
fn a_memory_is_of_its_fields() {
    let mut bench = Bench::with(&views(BY_SESSION));
    bench.send(&[view("a", "b", 1)]);
    bench.configure(&views(BY_USER));
    assert_eq!(bench.send(&[view("x", "a", 1)]), [Answer::Value(2)], "user a is not session a");
    assert_eq!(bench.send(&[view("y", "a", 1)]), [Answer::Duplicate]);
    bench.configure(&views(BY_SESSION));
    assert_eq!(bench.send(&[view("a", "z", 1)]), [Answer::Duplicate], "what it knew before is kept");
    assert_eq!(bench.send(&[view("x", "z", 1)]), [Answer::Value(3)]);
}

#[test]
fn a_counter_that_comes_back_within_the_window_knows_its_repeats() {
    let mut bench = Bench::with(&views(BY_SESSION));
    bench.send(&[view("a", "b", 1)]);
    bench.configure(NOTHING);
    bench.log_time_ms += 9_000;
    bench.send(&[view("a", "b", 1)]);
    bench.configure(&views(BY_SESSION));
    assert_eq!(bench.send(&[view("a", "b", 1)]), [Answer::Duplicate]);
    bench.configure(NOTHING);
    bench.log_time_ms += 20_000;
    bench.send(&[view("a", "b", 1)]);
    assert_eq!(bench.state.contracts.dedup_usage().0, 0, "when the window is over nothing is kept");
    bench.configure(&views(BY_SESSION));
    assert_eq!(bench.send(&[view("a", "b", 1)]), [Answer::Value(2)]);
}

#[test]
fn the_log_is_kept_for_a_memory_at_rest() {
    let mut bench = Bench::with(&views(BY_SESSION));
    bench.send(&[view("a", "b", 1)]);
    bench.configure(NOTHING);
    let (_, read_from) = bench.state.checkpoint(bench.offset);
    assert_eq!(read_from, 0, "a start reads it again, in case the counter comes back");
}

/// A counter at the highest number there is, and what brought it there.
fn filled(yaml: &str) -> (Bench, crate::ledger::Correction) {
    let mut bench = Bench::with(yaml);
    bench.send(&[view("a", "b", 0)]);
    let delta = i64::MAX - 1;
    let deltas = vec![Delta { id: b"views".to_vec(), bucket_ms: None, delta }];
    let correction = bench.correct(Cause::Revert(99), &deltas);
    (bench, correction)
}

#[test]
fn an_entry_that_is_rejected_claims_nothing() {
    let (mut bench, correction) = filled(&views(BY_SESSION));
    assert_eq!(bench.send(&[view("a", "b", 1)]), [Answer::Overflow]);
    assert_eq!(bench.send(&[view("a", "b", 1)]), [Answer::Overflow], "it was rejected before, so it is no repeat");
    assert_eq!(bench.send(&[view("a", "b", 0)]), [Answer::Duplicate]);
    bench.revert(&correction);
    bench.log_time_ms += 10_000;
    assert_eq!(bench.send(&[view("a", "b", 1)]), [Answer::Value(2)]);
    assert_eq!(bench.send(&[view("a", "b", 1)]), [Answer::Duplicate], "now it stands");
}

#[test]
fn what_claimed_nothing_is_known_after_a_restart() {
    let yaml = views(BY_SESSION);
    let (mut bench, correction) = filled(&yaml);
    bench.send(&[view("a", "b", 1)]);
    bench.revert(&correction);
    let (bytes, read_from) = bench.state.checkpoint(bench.offset);
    assert_eq!(read_from, 0);
    let mut resumed = State::new(hasher());
    resumed.resume(&bytes).expect("it was written just now");
    let mut submission = Submission::default();
    for event in [view("a", "b", 0), view("a", "b", 1)] {
        let at = submission.event(&event);
        resumed.stager.clone().stage(&event, at, &mut submission, &mut |_, _| {});
    }
    resumed.remember(&batch(&submission, bench.log_time_ms));
    resumed.resumed().expect("one configuration");
    bench.state = resumed;
    assert_eq!(bench.send(&[view("a", "b", 0), view("a", "b", 1)]), [Answer::Duplicate, Answer::Value(1)]);
}
