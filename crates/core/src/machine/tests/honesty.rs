//! Lateness by clocks that can be trusted, sums that are known twice, histories that are true.

use super::contracts::{Bench, event, hasher};
use super::*;
use crate::event::Event;
use crate::ledger::Delta;
use crate::values::Sums;

const LATE: &str = "
counters:
  - counterName: timely
    mode: display
    dimensions: [video]
    dedup: none
    lateness: {allowed: 1s, corrected: 5s, every: 10s, restated: 1m}
    rules: [{on: viewed, op: increment}]
";

fn view(received_ms: u64, at_ms: i64) -> Event<'static> {
    Event { received_at_ms: received_ms, ..event("viewed", "x", at_ms, &[("video", "a")]) }
}

#[test]
fn one_fast_clock_does_not_make_everybody_else_late() {
    let mut bench = Bench::with(LATE);
    assert_eq!(bench.send(&[view(100_000, 399_000)]), [Answer::Counted], "299 s fast");
    assert_eq!(bench.send(&[view(100_100, 100_050)]), [Answer::Counted], "all others are in time");
    let watermark_ms = bench.state.balance("timely").unwrap().watermark_ms;
    assert_eq!(watermark_ms, Some(100_050), "no later than what arrived");
}

#[test]
fn an_event_is_not_late_because_we_kept_it_waiting() {
    let mut bench = Bench::with(LATE);
    bench.send(&[view(100_000, 100_000)]);
    assert_eq!(bench.send(&[view(60_000, 59_500)]), [Answer::Counted], "it waited 40 s after it had come in time");
    assert_eq!(bench.send(&[view(60_000, 58_000)]), [Answer::Late], "it was late when it came");
}

#[test]
fn how_far_ahead_a_clock_may_run_is_a_setting() {
    let mut bench = Bench::with(LATE);
    assert_eq!(bench.send(&[view(100_000, 400_000), view(100_000, 400_001)]), [Answer::Counted, Answer::Rejected]);
    let mut bench = Bench::with(&format!("clocks: {{ahead: 2s}}\n{LATE}"));
    assert_eq!(bench.send(&[view(100_000, 102_000), view(100_000, 102_001)]), [Answer::Counted, Answer::Rejected]);
}

#[test]
fn readers_know_how_many_entries_wait_until_they_count() {
    let mut bench = Bench::with(LATE);
    let cell = hasher().key(b"timely:a");
    bench.send(&[view(100_000, 100_000), view(100_000, 10_000), view(100_000, 97_000)]);
    assert_eq!(bench.state.values.table.cells().pending(cell), 2);
    let (bytes, _) = bench.state.checkpoint(bench.offset);
    let mut resumed = Machine::new(hasher());
    resumed.resume(&bytes).expect("it was written just now");
    assert_eq!(resumed.values.table.cells().pending(cell), 2, "after a restart as well");
    bench.run();
    assert_eq!((bench.state.values.table.cells().pending(cell), bench.value("timely:a")), (0, 3));
}

fn delta(id: &str, delta: i64) -> Delta {
    Delta { id: id.into(), bucket_ms: None, delta }
}

#[test]
fn deltas_whose_sum_no_history_can_tell_are_refused() {
    let mut bench = Bench::new();
    bench.adjust(&[delta("a", -i64::MAX)]).expect("it fits");
    let twice = vec![delta("a", i64::MAX), delta("a", i64::MAX)];
    let refused = bench.adjust(&twice);
    assert_eq!(refused.unwrap_err(), Unfit::Overflow { id: "a".into() });
    assert_eq!(bench.value("a"), -i64::MAX);
}

#[test]
fn a_counter_that_is_deleted_takes_its_history_along() {
    let mut bench = Bench::new();
    let cell = hasher().key(b"a");
    bench.adjust(&[delta("a", 5)]).expect("it fits");
    let steps = |bench: &Bench| bench.state.values.facts.steps.of(cell).count();
    assert_eq!(steps(&bench), 1);
    let mut submission = Submission::default();
    submission.delete(cell, b"a");
    bench.commit(&submission);
    assert_eq!((steps(&bench), bench.state.values.facts.steps.forgotten(cell)), (0, Some(1)));
    bench.adjust(&[delta("a", 7)]).expect("it fits");
    let steps: Vec<_> = bench.state.values.facts.steps.of(cell).map(|(_, step)| (step.before, step.delta)).collect();
    assert_eq!(steps, [(0, 7)]);
}

/// The values of a counter, added up.
fn total(bench: &Bench, name: &str) -> i128 {
    let ids = bench.state.values.names.sorted().filter(|(id, exists)| *exists && id.starts_with(name.as_bytes()));
    ids.map(|(id, _)| i128::from(bench.state.values.table.get(hasher().key(id)).unwrap_or(0))).sum()
}

#[test]
fn what_was_counted_and_corrected_adds_up_to_the_values_and_a_set_is_seen() {
    let mut bench = Bench::new();
    let of = |video, creator| [("user", "u"), ("video", video), ("creator", creator)];
    bench.send(&[event("liked", "1", 100, &of("v", "a")), event("liked", "2", 100, &of("w", "a"))]);
    bench.send(&[event("liked", "3", 200, &of("v", "b")), event("unliked", "4", 300, &of("w", "a"))]);
    bench.send(&[event("viewed", "x", 100_000, &of("v", "a")), event("viewed", "x", 5_000, &of("v", "a"))]);
    bench.adjust(&[delta("fans:b", 40), delta("fans:c", 2)]).expect("it fits");
    let clear = bench.clear("fans:b");
    bench.revert(&clear);
    bench.run();
    let sums = |bench: &Bench, name: &str| bench.state.balance(name).unwrap().sums.unwrap();
    assert_eq!(sums(&bench, "fans"), Sums { counted: 1, adjusted: 42, restored: 0, is_touched: true });
    for name in ["likes", "fans", "timely", "views"] {
        let sums = sums(&bench, name);
        assert_eq!(total(&bench, name), sums.counted + sums.corrected(), "{name}");
    }
    let mut submission = Submission::default();
    submission.set(hasher().key(b"fans:b"), b"fans:b", 7, SetCondition::Always, Expiry::Keep);
    bench.commit(&submission);
    let sums = sums(&bench, "fans");
    assert_ne!(total(&bench, "fans"), sums.counted + sums.corrected(), "nobody counted what was set");
}

#[test]
fn additions_by_name_are_in_the_sums_of_a_declared_counter() {
    let mut bench = Bench::with("counters: [{counterName: stock, mode: simple, dimensions: [item]}]");
    let to = |name| crate::counter::Target {
        declared: crate::counter::Declared::Now(0),
        ..crate::counter::Target::ad_hoc(hasher().key(name), name)
    };
    let mut submission = Submission::default();
    submission.add_to(&to(b"stock:a"), 5);
    submission.add_once(&to(b"stock:b"), -2, crate::fact::answer_key(&hasher(), b"stock:b", b"k"), b"k");
    submission.add_once(&to(b"stock:b"), -2, crate::fact::answer_key(&hasher(), b"stock:b", b"k"), b"k");
    bench.commit(&submission);
    let sums = bench.state.balance("stock").unwrap().sums;
    assert_eq!((sums, total(&bench, "stock")), (Some(Sums { counted: 3, is_touched: true, ..Sums::default() }), 3));
    let mut replayed = Submission::default();
    bench.state.decode(&submission.records, &mut replayed).expect("it was encoded just now");
    assert!(replayed.ops.iter().all(|op| op.counter == 0), "a replay knows whose they are");
}
