//! What a display counter remembers: by which fields, for how long, and what does not claim.

use super::contracts::{Bench, event, hasher};
use super::*;
use crate::counter::{Declared, Target};
use crate::event::Event;
use crate::ledger::Delta;
use crate::limits::DECLARED_MAX;

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
    assert_eq!(bench.send(&[view("x", "a", 1)]), [Answer::Counted], "user a is not session a");
    assert_eq!(bench.send(&[view("y", "a", 1)]), [Answer::Duplicate]);
    bench.configure(&views(BY_SESSION));
    assert_eq!(bench.send(&[view("a", "z", 1)]), [Answer::Duplicate], "what it knew before is kept");
    assert_eq!(bench.send(&[view("x", "z", 1)]), [Answer::Counted]);
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
    assert_eq!(bench.state.fates.contracts.dedup_usage().0, 0, "when the window is over nothing is kept");
    bench.configure(&views(BY_SESSION));
    assert_eq!(bench.send(&[view("a", "b", 1)]), [Answer::Counted]);
}

#[test]
fn the_log_is_kept_for_a_memory_at_rest() {
    let mut bench = Bench::with(&views(BY_SESSION));
    bench.send(&[view("a", "b", 1)]);
    bench.configure(NOTHING);
    let (_, read_from) = bench.state.checkpoint(bench.offset);
    assert_eq!(read_from, 0, "a start reads it again, in case the counter comes back");
}

#[test]
fn no_log_is_kept_while_nothing_is_remembered_and_never_again_from_before_that() {
    let mut bench = Bench::with(&views(BY_SESSION));
    bench.send(&[view("a", "b", 1)]);
    bench.log_time_ms += 9_000;
    bench.send(&[event("clicked", "x", 100_000, &[])]);
    assert_eq!(bench.state.checkpoint(bench.offset).1, 0, "its window is not over");
    bench.log_time_ms += 20_000;
    bench.send(&[event("clicked", "x", 100_000, &[])]);
    let (_, freed) = bench.state.checkpoint(bench.offset);
    assert_eq!(freed, 1, "it is, and the view stands before");
    bench.send(&[view("a", "b", 1)]);
    let (bytes, read_from) = bench.state.checkpoint(bench.offset);
    assert_eq!(read_from, freed, "the window began before it, and the log is gone there");
    assert_eq!(Machine::new(hasher()).resume(&bytes).expect("it was written just now"), freed);
}

#[test]
fn a_declared_counter_stops_within_its_bounds_and_entries_always_have_room() {
    let mut bench = Bench::with(&views(BY_SESSION));
    bench.send(&[view("a", "b", 0)]);
    let by = |delta| vec![Delta { id: b"views".to_vec(), bucket_ms: None, delta }];
    assert_eq!(bench.adjust(&by(DECLARED_MAX)).err(), Some(Unfit::Overflow { id: "views".into() }));
    bench.adjust(&by(DECLARED_MAX - 1)).expect("just as far as it goes");
    assert_eq!(bench.send(&[view("a", "b", 1), view("a", "b", 1)]), [Answer::Counted, Answer::Duplicate]);
    assert_eq!(bench.value("views"), DECLARED_MAX + 1, "what counts is counted");
    let mut add = Submission::default();
    let views = Target { declared: Declared::Now(0), ..Target::ad_hoc(hasher().key(b"views"), b"views") };
    add.add_to(&views, 1);
    add.add_to(&views, -1);
    bench.commit(&add);
    assert_eq!(bench.answers, [Answer::Overflow, Answer::Value(DECLARED_MAX)], "by name it goes no further, and back");
}
