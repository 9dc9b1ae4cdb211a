//! One state per entity: whatever the order of arrival, the newest event decides, and undoing undoes what is there.

use super::contracts::{Bench, event};
use crate::op::Answer;
use proptest::prelude::*;

const OF: &[(&str, &str)] = &[("user", "u"), ("video", "v"), ("creator", "c")];

/// A like of one user and video, for a creator.
fn by(kind: &'static str, at_ms: i64, creator: &'static str) -> crate::event::Event<'static> {
    event(kind, "x", at_ms, &[("user", "u"), ("video", "v"), ("creator", creator)])
}

proptest! {
    #[test]
    fn which_key_a_like_counts_for_does_not_depend_on_the_order_of_arrival(
        says in Just(vec![(1, true, 0), (2, false, 0), (3, true, 1), (4, true, 2), (5, false, 1), (6, true, 0)]),
        order in Just((0..6usize).collect::<Vec<_>>()).prop_shuffle(),
        len in 1..=6usize,
    ) {
        let creators = ["alice", "bob", "carol"];
        let mut bench = Bench::new();
        let come = &order[..len];
        for index in come {
            let (at_ms, on, creator): (i64, bool, usize) = says[*index];
            bench.send(&[by(if on { "liked" } else { "unliked" }, at_ms, creators[creator])]);
        }
        let (_, on, newest) = says[*come.iter().max().unwrap()];
        for (index, creator) in creators.iter().enumerate() {
            let expected = i64::from(on && index == newest);
            prop_assert_eq!(bench.value(&format!("fans:{creator}")), expected, "{} of {:?}", creator, come);
        }
    }
}

#[test]
fn a_newer_like_for_another_key_moves_the_count() {
    let mut bench = Bench::new();
    bench.send(&[by("liked", 1, "alice")]);
    assert_eq!(bench.send(&[by("liked", 3, "bob")])[1], Answer::Counted);
    assert_eq!((bench.value("fans:alice"), bench.value("fans:bob")), (0, 1));
    assert_eq!(bench.send(&[by("unliked", 2, "alice")])[1], Answer::Ignored, "it is older than what counts");
    assert_eq!((bench.value("fans:alice"), bench.value("fans:bob")), (0, 1));
    bench.send(&[by("unliked", 4, "somebody")]);
    assert_eq!((bench.value("fans:alice"), bench.value("fans:bob"), bench.value("fans:somebody")), (0, 0, 0));
    let boxes = bench.boxes("fans");
    assert_eq!((boxes.counted, boxes.ignored), (3, 1));
}

#[test]
fn of_events_of_one_moment_the_later_in_the_log_decides_be_it_in_the_same_batch() {
    let (like, unlike, other) = (by("liked", 5, "alice"), by("unliked", 5, "alice"), by("liked", 5, "bob"));
    for (events, alice, bob) in [
        ([&like, &unlike, &like], 1, 0),
        ([&unlike, &like, &unlike], 0, 0),
        ([&like, &other, &like], 1, 0),
        ([&unlike, &like, &other], 0, 1),
    ] {
        let events = events.map(Clone::clone);
        let (mut together, mut apart) = (Bench::new(), Bench::new());
        together.send(&events);
        for event in &events {
            apart.send(std::slice::from_ref(event));
        }
        for bench in [together, apart] {
            assert_eq!((bench.value("fans:alice"), bench.value("fans:bob")), (alice, bob), "{events:?}");
        }
    }
}

#[test]
fn a_revert_of_a_clear_brings_back_what_it_took_undo_included() {
    let mut bench = Bench::new();
    bench.send(&[event("liked", "1", 100, OF)]);
    let clear = bench.clear("likes:v");
    let back = bench.revert(&clear);
    assert_eq!(bench.value("likes:v"), 1);
    assert_eq!(bench.send(&[event("unliked", "2", 200, OF)])[0], Answer::Counted, "like, clear, revert, unlike");
    assert_eq!(bench.value("likes:v"), 0);
    bench.revert(&back);
    assert_eq!(bench.value("likes:v"), 0, "what the revert brought back was undone: there is nothing to take again");
}

#[test]
fn what_was_undone_while_it_was_cleared_does_not_come_back() {
    let mut bench = Bench::new();
    let other = &[("user", "w"), ("video", "v"), ("creator", "c")];
    bench.send(&[event("liked", "1", 100, OF), event("liked", "1", 100, other)]);
    let clear = bench.clear("likes:v");
    assert_eq!(bench.send(&[event("unliked", "2", 200, OF)])[0], Answer::Counted);
    bench.revert(&clear);
    assert_eq!(bench.value("likes:v"), 1, "only the other one still likes it");
    bench.send(&[event("unliked", "3", 300, other)]);
    assert_eq!(bench.value("likes:v"), 0);
}

#[test]
fn each_clear_gives_back_only_what_it_took() {
    let mut bench = Bench::new();
    let second = &[("user", "w"), ("video", "v"), ("creator", "c")];
    bench.send(&[event("liked", "1", 100, OF)]);
    let first_clear = bench.clear("likes:v");
    bench.send(&[event("liked", "2", 200, second)]);
    bench.clear("likes:v");
    bench.revert(&first_clear);
    assert_eq!(bench.value("likes:v"), 1);
    bench.send(&[event("unliked", "3", 300, second)]);
    assert_eq!(bench.value("likes:v"), 1, "the second clear took it");
    bench.send(&[event("unliked", "4", 400, OF)]);
    assert_eq!(bench.value("likes:v"), 0);
}
