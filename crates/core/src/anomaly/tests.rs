//! What is a jump and what is not, and that memory stays where it is.

use super::*;
use crate::id::CellHasher;
use crate::limits::{ANOMALY_HISTORY_MAX, ANOMALY_ID_BYTES_MAX, ANOMALY_KEYS_MAX};
use proptest::prelude::*;
use std::collections::HashMap;

const HASHER: CellHasher = CellHasher::new(7);

/// One minute in which these keys came to so much.
fn minute(detector: &mut Detector, keys: &[(&str, u64)]) -> Vec<(String, u64)> {
    detector.enter(0, 1);
    for (id, amount) in keys {
        detector.count_many(HASHER.key(id.as_bytes()), id.as_bytes(), *amount);
    }
    let found = detector.end_minute();
    found.jumps.iter().map(|jump| (String::from_utf8_lossy(&jump.id).into_owned(), jump.after)).collect()
}

fn warm(keys: &[(&str, u64)]) -> Detector {
    let mut detector = Detector::new(Jumps::DEFAULT);
    for _ in 0..60 {
        assert_eq!(minute(&mut detector, keys), []);
    }
    detector
}

#[test]
fn a_tenfold_rate_is_told_once_with_what_was_before_and_after() {
    let mut detector = warm(&[("views:a", 200), ("views:b", 5_000)]);
    let told = minute(&mut detector, &[("views:a", 2_001), ("views:b", 5_100)]);
    assert_eq!(told, [("views:a".to_owned(), 2_001)]);
    // Whatever it does until it has calmed down is the same jump.
    for _ in 0..60 {
        assert_eq!(minute(&mut detector, &[("views:a", 2_001), ("views:b", 5_100)]), []);
    }
    // And the new rate is what it is held against from then on.
    assert_eq!(minute(&mut detector, &[("views:a", 14_000), ("views:b", 50)]), []);
}

#[test]
fn what_comes_back_after_it_has_calmed_down_is_told_again() {
    let mut detector = warm(&[("views:a", 100)]);
    assert_eq!(minute(&mut detector, &[("views:a", 4_000)]).len(), 1);
    for _ in 0..200 {
        assert_eq!(minute(&mut detector, &[("views:a", 100)]), []);
    }
    assert_eq!(minute(&mut detector, &[("views:a", 4_000)]).len(), 1);
}

#[test]
fn less_than_tenfold_and_less_than_the_least_is_nothing() {
    let mut detector = warm(&[("a", 200), ("b", 3)]);
    assert_eq!(minute(&mut detector, &[("a", 1_990), ("b", 999)]), []);
    let mut detector = Detector::new(Jumps { factor: 2, least: 10 });
    (0..10).for_each(|_| assert_eq!(minute(&mut detector, &[("a", 20)]), []));
    assert_eq!(minute(&mut detector, &[("a", 40)]).len(), 1);
}

#[test]
fn a_key_without_a_history_used_to_come_to_less_than_what_is_remembered() {
    let mut detector = warm(&[("a", 200)]);
    detector.enter(0, 1);
    detector.count(HASHER.key(b"new"), b"new", -2_000);
    let [jump] = &detector.end_minute().jumps[..] else { panic!("one jump") };
    assert_eq!((&*jump.id, jump.before, jump.is_bound, jump.after), (&b"new"[..], 1.0, true, 2_000));
}

#[test]
fn nothing_is_a_jump_before_there_is_a_history() {
    let mut detector = Detector::new(Jumps::DEFAULT);
    for n in 0..WARM_UP_MINUTES {
        let key = format!("k{n}");
        assert_eq!(minute(&mut detector, &[(&key, 1_000_000)]), [], "minute {n}");
    }
    assert_eq!(minute(&mut detector, &[("k", 1_000_000)]).len(), 1);
}

#[test]
fn memory_is_bounded_and_a_large_jump_is_found_among_any_number_of_keys() {
    let mut detector = warm(&[("hot", 3_000)]);
    for n in 0..ANOMALY_KEYS_MAX as u64 * 6 {
        let id = format!("once:{n}:{}", "x".repeat(200));
        detector.count(HASHER.key(id.as_bytes()), id.as_bytes(), 1);
        let (keys, bytes) = detector.counts.room();
        assert!(keys <= ANOMALY_KEYS_MAX && bytes <= ANOMALY_ID_BYTES_MAX);
    }
    let told = minute(&mut detector, &[("hot", 60_000)]);
    let [(id, after)] = &told[..] else { panic!("{told:?}") };
    assert!(id == "hot" && (59_000..=60_000).contains(after), "{after}");
    for n in 0..ANOMALY_HISTORY_MAX as u64 * 3 {
        let id = format!("busy:{n}");
        detector.count_many(HASHER.key(id.as_bytes()), id.as_bytes(), 100 + n % 7);
        if n % 30_000 == 29_999 {
            assert_eq!(detector.end_minute().jumps, []);
            assert!(detector.history.len() <= ANOMALY_HISTORY_MAX);
        }
    }
}

#[test]
fn a_large_commit_is_looked_at_as_a_sample_that_stands_for_all() {
    assert_eq!(weight(17, 0), Some(1));
    assert_eq!(weight(17, ANOMALY_RECORDS_MAX), Some(1));
    let records = ANOMALY_RECORDS_MAX * 20;
    let weights: Vec<u64> = (0..10_000).filter_map(|n| weight(n * records, records)).collect();
    assert!(weights.iter().all(|weight| *weight == 20));
    assert!((400..600).contains(&weights.len()), "{}", weights.len());
}

#[test]
fn one_burst_in_a_sample_is_not_believed() {
    let mut detector = warm(&[("a", 100)]);
    let records = ANOMALY_RECORDS_MAX * 4;
    let mut offsets = (0u64..).filter(|offset| weight(*offset, records).is_some());
    let mut burst = |detector: &mut Detector, commits: usize| {
        assert!(!detector.enter((0..).find(|offset| weight(*offset, records).is_none()).unwrap(), records));
        for offset in offsets.by_ref().take(commits) {
            assert!(detector.enter(offset, records));
            detector.count_many(HASHER.key(b"a"), b"a", 2_000 / commits as u64);
        }
        detector.end_minute()
    };
    assert_eq!(burst(&mut detector, 2).jumps, []);
    let mut detector = warm(&[("a", 100)]);
    let found = burst(&mut detector, 4);
    assert_eq!((found.jumps.len(), found.jumps[0].after, found.share), (1, 8_000, 0.8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn a_key_came_to_no_less_than_is_said_and_to_no_more_than_the_bound_beyond(
        adds in prop::collection::vec((0u32..200_000, 1u64..50), 40_000..50_000),
    ) {
        let mut counts = Counts::default();
        let mut truth: HashMap<u32, u64> = HashMap::new();
        for (key, amount) in &adds {
            // Long ids fill the room for them before there are too many keys.
            let id = [&[b'x'; 300][..], &key.to_le_bytes()].concat();
            counts.add(HASHER.key(&id), &id, *amount, 0);
            *truth.entry(*key).or_default() += amount;
        }
        let bound = counts.bound();
        prop_assert!(bound > 0);
        for (key, came_to) in truth {
            let id = [&[b'x'; 300][..], &key.to_le_bytes()].concat();
            let said = counts.take(HASHER.key(&id)).map_or(0, |counted| counted.amount);
            prop_assert!(said <= came_to && came_to <= said + bound, "{said} {came_to} {bound}");
        }
    }
}
