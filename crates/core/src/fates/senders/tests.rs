//! A batch that stood before is void, however senders restart, spool and forget.

use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn head(sender: u64, incarnation: u64, seq: u64, settled: u64) -> Head {
    Head { sender, incarnation, seq, settled, ..Head::default() }
}

#[test]
fn a_batch_that_comes_from_a_spool_after_its_append_had_timed_out_is_void() {
    let mut senders = Senders::default();
    assert_eq!(senders.admit(&head(1, 1, 0, 0), 0, || 7), None);
    assert_eq!(senders.admit(&head(1, 1, 1, 0), 1, || 8), None);
    // The sender restarts, goes on, and drains its spool later.
    assert_eq!(senders.admit(&head(1, 2, 0, 0), 2, || 9), None);
    assert_eq!(senders.admit(&head(1, 1, 0, 0), 3, || 7), Some(Void::Repeated));
    assert_eq!(senders.admit(&head(1, 1, 2, 0), 4, || 10), None, "this one was only ever spooled");
}

#[test]
fn other_bytes_under_the_same_number_are_void_and_an_alarm() {
    let mut senders = Senders::default();
    assert_eq!(senders.admit(&head(1, 1, 0, 0), 0, || 7), None);
    let void = senders.admit(&head(1, 1, 0, 0), 1, || 8).expect("it is void");
    assert!(void == Void::OtherBytes && void.is_alarm());
    assert_eq!(senders.admit(&head(1, 1, 0, 0), 1, || 7), Some(Void::Repeated), "the first stands");
}

#[test]
fn what_is_settled_needs_no_digest() {
    let mut senders = Senders::default();
    for seq in 0..10 {
        assert_eq!(senders.admit(&head(0, 3, seq, seq + 1), 0, || unreachable!("it is never sent again")), None);
    }
    assert_eq!(senders.admit(&head(0, 3, 9, 10), 0, || unreachable!("it is settled")), Some(Void::Repeated));
    assert!(senders.0[0].lives[0].stood.is_empty());
}

#[test]
fn lives_that_are_forgotten_are_void_and_an_alarm() {
    let mut senders = Senders::default();
    for incarnation in 1..=INCARNATIONS_MAX as u64 + 1 {
        assert_eq!(senders.admit(&head(1, incarnation, 0, 0), 0, || 7), None);
    }
    assert_eq!(senders.admit(&head(1, 1, 5, 0), 0, || 7), Some(Void::Forgotten));
    assert_eq!(senders.admit(&head(1, 2, 0, 0), 0, || 7), Some(Void::Repeated));
    assert_eq!(senders.0[0].lives.len(), INCARNATIONS_MAX);
}

#[test]
fn a_life_that_only_ever_spooled_is_taken_after_later_ones_while_there_are_not_too_many() {
    let mut senders = Senders::default();
    for incarnation in 2..=INCARNATIONS_MAX as u64 {
        senders.admit(&head(1, incarnation, 0, 0), 0, || 7);
    }
    assert_eq!(senders.admit(&head(1, 1, 0, 0), 0, || 7), None);
    assert_eq!(senders.admit(&head(1, 1, 0, 0), 0, || 7), Some(Void::Repeated));
    assert_eq!(senders.admit(&head(1, 0, 0, 0), 0, || 7), Some(Void::Forgotten), "this is the first of too many");
    assert_eq!(senders.admit(&head(1, 1, 0, 0), 0, || 7), Some(Void::Repeated));
}

#[test]
fn a_sender_that_settles_nothing_is_refused_when_it_has_sent_too_much() {
    let mut senders = Senders::default();
    for seq in 0..UNSETTLED_MAX as u64 {
        let head = head(1, 1, seq, 0);
        senders.check(&head, 0).expect("there is room");
        senders.admit(&head, 0, || seq);
    }
    let seq = UNSETTLED_MAX as u64;
    assert_eq!(senders.check(&head(1, 1, seq, 0), 0), Err(Overrun::Unsettled { sender: 1 }));
    assert_eq!(senders.check(&head(1, 1, 3, 0), 0), Ok(()), "what stood is void");
    assert_eq!(senders.check(&head(1, 1, seq, 1), 0), Ok(()), "and what settles some makes room");
}

#[test]
fn a_sender_too_many_takes_the_place_of_one_that_was_silent_for_long() {
    let mut senders = Senders::default();
    for sender in 0..SENDERS_MAX as u64 {
        senders.admit(&head(sender, 1, 0, 0), sender + 5, || 7);
    }
    let next = head(SENDERS_MAX as u64, 1, 0, 0);
    assert_eq!(senders.check(&next, SENDER_KEPT_MS), Err(Overrun::Senders { sender: SENDERS_MAX as u64 }));
    assert_eq!(senders.check(&next, SENDER_KEPT_MS + 5), Ok(()));
    assert_eq!(senders.admit(&next, SENDER_KEPT_MS + 5, || 7), None);
    assert!(senders.0.len() == SENDERS_MAX && senders.find(0).is_err() && senders.find(1).is_ok());
}

proptest! {
    #[test]
    fn exactly_the_batches_that_stood_before_are_void(
        sent in proptest::collection::vec((0u64..3, 0u64..4, 0u64..12, 0u64..6, proptest::bool::weighted(0.1)), 1..150)
    ) {
        let mut senders = Senders::default();
        // All that ever stood, and what each life has settled.
        let (mut stood, mut settled) = (HashSet::new(), HashMap::new());
        for (sender, incarnation, seq, unsettled, other) in sent {
            let head = head(sender, incarnation, seq, (seq + 1).saturating_sub(unsettled));
            let digest = seq + u64::from(other) * 1_000;
            let floor = settled.entry((sender, incarnation)).or_insert(0);
            let expected = match stood.contains(&(sender, incarnation, seq)) {
                _ if seq < *floor => Some(Void::Repeated),
                false => None,
                true if stood.contains(&(sender, incarnation, digest + 10_000)) => Some(Void::Repeated),
                true => Some(Void::OtherBytes),
            };
            prop_assert_eq!(senders.admit(&head, 0, || digest), expected);
            if expected.is_none() {
                stood.extend([(sender, incarnation, seq), (sender, incarnation, digest + 10_000)]);
                *floor = (*floor).max(head.settled);
            }
            let mut bytes = Vec::new();
            senders.encode(&mut bytes);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(&Senders::take(&mut rest).expect("it was encoded"), &senders);
            prop_assert!(rest.is_empty());
        }
    }
}
