//! Hashes as they are written down, and trees.

use super::*;
use crate::position::Position;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn hash(number: u64) -> Hash {
    Hash::of(&number.to_be_bytes())
}

#[test]
fn a_hash_survives_its_text_and_no_other_text_is_one() {
    let some = hash(1);
    assert_eq!(some.to_string().parse(), Ok(some));
    for wrong in ["", "00", &some.to_string().to_uppercase(), &format!("{some}0"), &"g".repeat(64)] {
        assert!(wrong.parse::<Hash>().is_err(), "{wrong}");
    }
}

/// As RFC 6962 defines it.
fn naive(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Hash::of(b""),
        [leaf] => *leaf,
        leaves => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            Hash::of(&[&[1], &naive(left).0[..], &naive(right).0[..]].concat())
        }
    }
}

proptest! {
    #[test]
    fn a_tree_that_grows_has_the_root_of_the_standard_and_a_way_from_each_leaf(count in 0_usize..200) {
        let leaves: Vec<Hash> = (0..count as u64).map(hash).collect();
        let mut frontier = Frontier::default();
        leaves.iter().for_each(|leaf| frontier.push(*leaf));
        prop_assert!(frontier.is_whole());
        prop_assert_eq!(frontier.root(), naive(&leaves));
        let levels = Levels::new(leaves.clone());
        prop_assert_eq!(levels.root(), frontier.root());
        for (index, leaf) in leaves.iter().enumerate() {
            prop_assert_eq!(follow(*leaf, &levels.path(index)), frontier.root());
            prop_assert_ne!(follow(hash(1 << 40), &levels.path(index)), frontier.root());
        }
    }
}

fn event() -> EventLeaf<'static> {
    EventLeaf {
        position: Position { epoch: 1, log: 0, offset: 7 },
        log_time_ms: 1_763_000_000_000,
        received_at_ms: 1_763_000_000_001,
        occurred_at_ms: Some(-5),
        event_type: "billed",
        event_id: Some("e-1"),
        session: None,
        seq: Some(-1),
        delta: 3,
        group: 0,
        rules: 2,
        config_version: 4,
        generation: 5,
        payload: Some(Hash::of(b"{}")),
        dimensions: vec![("customer", "acme"), ("plan", "a")],
    }
}

fn commit() -> CommitLeaf {
    CommitLeaf {
        log: 0,
        epoch: 1,
        from: 5,
        to: 9,
        log_time_ms: 1_763_000_000_000,
        head: hash(1),
        events: 3,
        events_root: hash(2),
        fates: 2,
        fates_root: hash(3),
        corrections: 1,
        corrections_root: hash(4),
    }
}

fn root() -> Root {
    let counts = Counts { received: 9, duplicate: 1, conflict: 2, rejected: 3, ignored: 1, late: 1 };
    Root {
        number: 3,
        log_id: "00000000deadbeef".to_owned(),
        hour: 489_722,
        log: 0,
        epoch: 1,
        from: 5,
        to: 900,
        log_time_ms: 1_763_000_000_000,
        digest: "0123456789abcdef0123456789abcdef".to_owned(),
        commits: 40,
        events: 800,
        root: hash(3),
        counts: BTreeMap::from([("billed".to_owned(), counts)]),
        before: hash(4),
    }
}

#[test]
fn the_bytes_that_are_hashed_are_pinned() {
    let position = Position { epoch: 1, log: 0, offset: 7 };
    let fate = FateLeaf {
        position,
        log_time_ms: 8,
        counter: "billed",
        fate: "duplicate",
        event_id: Some("e-1"),
        first_seen_ms: Some(7),
        reason: None,
    };
    let correction = CorrectionLeaf {
        position,
        log_time_ms: 8,
        number: 1,
        generation: 2,
        cause: "proposal",
        of: Some(3),
        purpose: "adjust",
        reason: "why",
        author: "ann",
        applied_by: "bob",
        counter: "billed:acme",
        bucket_ms: None,
        delta: -4,
    };
    let pinned = [
        (event().hash(), "1e919855e5f2656c693749edf2791d8de541da00ceb13d15c46c47484f1fb23e"),
        (fate.hash(), "5e690af0859995df12cf6f175e447e8d05ddee5d08fe682c5863b12349102ef3"),
        (correction.hash(), "5539957db16f765a57962cbdc1f673e48175f3b60c08e700e26bf76199a9e711"),
        (commit().hash(), "095793ec20fa8f12d548a414c0d60ebaf3bc6d341bedf6ea96dbb2d34fc71ac7"),
        (root().body(), "4699dc7ca8c3acfdd1e93dec5b17ca5a1adc9f24993240fce8fb4e1de90b483d"),
        (root().anchor(), "ce17a5e46b660440c5f2e8dd27566bd58580fd81442710e13f9dc11202b05385"),
    ];
    for (hash, expected) in pinned {
        assert_eq!(hash.to_string(), expected);
    }
}

#[test]
fn every_field_of_a_leaf_changes_it() {
    let changes: [fn(&mut EventLeaf<'static>); 15] = [
        |leaf| leaf.position.log = 1,
        |leaf| leaf.position.epoch = 2,
        |leaf| leaf.position.offset = 8,
        |leaf| leaf.log_time_ms += 1,
        |leaf| leaf.received_at_ms += 1,
        |leaf| leaf.occurred_at_ms = None,
        |leaf| leaf.event_type = "billed2",
        |leaf| leaf.event_id = None,
        |leaf| leaf.session = Some(""),
        |leaf| leaf.seq = Some(0),
        |leaf| leaf.delta = 4,
        |leaf| leaf.config_version = 5,
        |leaf| leaf.generation = 6,
        |leaf| leaf.payload = None,
        |leaf| leaf.dimensions = vec![("customer", "acmeplan"), ("plan", "")],
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut changed = event();
        change(&mut changed);
        assert_ne!(changed.hash(), event().hash(), "change {number}");
    }
}

#[test]
fn an_anchor_depends_on_what_was_before_and_on_each_count() {
    let mut other = root();
    other.before = hash(5);
    assert_ne!(other.anchor(), root().anchor());
    assert_eq!(other.body(), root().body());
    let mut other = root();
    other.counts.get_mut("billed").unwrap().late += 1;
    assert_ne!(other.anchor(), root().anchor());
}
