//! The display rule against a naive model: every (group, seq) with the window that it last stood in.

use super::*;
use crate::id::CellHasher;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;

const WINDOW_MS: u64 = 100;

fn group(n: u64) -> CellKey {
    CellHasher::new(1).key(&n.to_le_bytes())
}

#[derive(Default)]
struct Model(HashMap<(u64, u64), u64>);

impl Model {
    fn is_repeat(&mut self, group: u64, seq: u64, log_time_ms: u64) -> bool {
        let window = log_time_ms / WINDOW_MS;
        self.0.insert((group, seq), window).is_some_and(|last| window - last <= 1)
    }
}

/// Few enough seqs that they meet, at both ends and in the middle of the range.
fn seqs() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..40u64, 2 => (0..6u64).prop_map(|n| u64::MAX - n), 1 => (0..9u64).prop_map(|n| (1 << 32) - 4 + n)]
}

/// How far log time moves before an entry: mostly not at all, sometimes over several windows.
fn moves() -> impl Strategy<Value = u64> {
    prop_oneof![30 => Just(0), 6 => 0..30u64, 2 => 80..130u64, 1 => 150..450u64, 1 => Just(WINDOW_MS << 32)]
}

fn check(entries: impl IntoIterator<Item = (u64, u64, u64)>) -> Dedup {
    let (mut dedup, mut model) = (Dedup::new(WINDOW_MS), Model::default());
    let mut log_time_ms = 0;
    for (step, (pass_ms, of, seq)) in entries.into_iter().enumerate() {
        log_time_ms += pass_ms;
        dedup.prefetch(group(of));
        let expected = model.is_repeat(of, seq, log_time_ms);
        assert_eq!(dedup.is_repeat(group(of), seq, log_time_ms), expected, "step {step}: {of}/{seq} at {log_time_ms}");
    }
    dedup
}

proptest! {
    #[test]
    fn answers_are_those_of_the_rule(entries in vec((moves(), 0..4u64, seqs()), 1..600)) {
        check(entries);
    }

    #[test]
    fn groups_that_come_and_go_are_told_apart(entries in vec((moves(), 0..400u64, 0..3u64), 1..2000)) {
        check(entries);
    }

    #[test]
    fn a_group_in_any_order_is_one_run_in_the_end(seqs in Just((0..200u64).collect::<Vec<_>>()).prop_shuffle()) {
        let consecutive = check((0..200).map(|seq| (0, 1, seq)));
        let mut shuffled = check(seqs.iter().map(|seq| (0, 1, *seq)));
        prop_assert!(seqs.iter().all(|seq| shuffled.is_repeat(group(1), *seq, 0)));
        // A sweep gives back what was needed while there were gaps.
        shuffled.is_repeat(group(1), 0, WINDOW_MS);
        prop_assert_eq!(shuffled.bytes(), consecutive.bytes());
    }
}

/// A table of many segments, through growth, sweeps, windows that overlap and a return to few groups.
#[test]
fn a_large_table_answers_by_the_rule_through_many_windows() {
    const WINDOW_CALLS: u64 = SWEEP_CALLS + 5000;
    let entries = (0..10 * WINDOW_CALLS).map(|n| {
        let window = n / WINDOW_CALLS;
        let active = if window < 6 { 12_000 } else { 300 };
        // Half of the groups are new in each window; every fifth entry is sent again, some out of order.
        let of = window * active / 2 + (n * 7919) % active;
        let seq = (n % WINDOW_CALLS) / active * 2 - (n % 3).min((n % WINDOW_CALLS) / active);
        (u64::from(n % WINDOW_CALLS == 0 && n > 0) * WINDOW_MS, of, if n % 5 == 0 { seq / 2 } else { seq })
    });
    let groups = check(entries).groups();
    assert!(groups < 1000, "{groups} groups");
}

#[test]
fn nothing_is_allocated_for_a_counter_that_nobody_feeds() {
    let mut dedup = Dedup::new(WINDOW_MS);
    dedup.prefetch(group(1));
    dedup.advance(1000 * WINDOW_MS);
    assert_eq!(dedup.bytes(), size_of::<Dedup>());
}

#[test]
fn memory_is_given_back_when_everything_has_expired() {
    let mut dedup = Dedup::new(WINDOW_MS);
    for n in 0..50_000 {
        (0..3).for_each(|seq| assert!(!dedup.is_repeat(group(n), seq * 2, 0)));
    }
    assert!(dedup.bytes() > 50_000 * 80);
    dedup.advance(2 * WINDOW_MS - 1);
    assert_eq!(dedup.groups(), 50_000, "the window before still counts");
    // A trickle of others for two windows sweeps what no longer counts.
    for n in 0..2 * SWEEP_CALLS {
        dedup.is_repeat(group(1 << 40), n, (1 + n / SWEEP_CALLS) * WINDOW_MS);
    }
    assert_eq!(dedup.groups(), 1);
    assert!(dedup.bytes() < 1000, "{} bytes", dedup.bytes());
    dedup.advance(4 * WINDOW_MS);
    assert_eq!((dedup.groups(), dedup.bytes()), (0, size_of::<Dedup>()));
}

/// Calls in which every segment of a large table has its turn.
const SWEEP_CALLS: u64 = CALLS_PER_SWEEP as u64 * 256;

#[test]
fn a_session_with_gaps_costs_as_much_as_it_has_gaps() {
    for gaps in [10, 1000, 100_000u64] {
        let mut dedup = Dedup::new(WINDOW_MS);
        let base = dedup.bytes();
        (0..=gaps).for_each(|n| assert!(!dedup.is_repeat(group(1), n * 2, 0)));
        let bytes = (dedup.bytes() - base) as u64;
        assert!(bytes <= 2000 + 50 * gaps, "{bytes} bytes for {gaps} gaps");
        // Events without gaps cost nothing.
        (0..gaps).for_each(|n| assert!(!dedup.is_repeat(group(1), gaps * 2 + 1 + n, 0)));
        assert!((dedup.bytes() - base) as u64 <= bytes);
        // The gaps close, and the window passes.
        (0..gaps).for_each(|n| assert!(!dedup.is_repeat(group(1), n * 2 + 1, 0)));
        assert!((dedup.bytes() - base) as u64 <= 2000);
    }
}

#[test]
fn what_is_needed_begins_with_the_previous_window() {
    for (log_time_ms, from) in [(0, 0), (99, 0), (100, 0), (199, 0), (200, 100), (250, 100), (1_000_099, 999_900)] {
        assert_eq!(needed_from_ms(WINDOW_MS, log_time_ms), from, "at {log_time_ms}");
    }
    assert_eq!(needed_from_ms(1, u64::MAX), u64::MAX - 1);
}

#[test]
fn the_end_of_time_is_a_window_as_well() {
    for window_ms in [1, 7, 60_000, u64::MAX] {
        let mut dedup = Dedup::new(window_ms);
        assert!(!dedup.is_repeat(group(1), u64::MAX, u64::MAX - 1));
        assert!(dedup.is_repeat(group(1), u64::MAX, u64::MAX));
        assert!(dedup.is_repeat(group(1), u64::MAX, u64::MAX));
        assert!(!dedup.is_repeat(group(1), 0, u64::MAX));
    }
}
