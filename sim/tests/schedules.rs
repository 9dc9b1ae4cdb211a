//! The schedules that the design must survive (numbered as they were found), each by name. The cluster's.

#[path = "schedules/clears.rs"]
mod clears;
#[path = "schedules/recount.rs"]
mod recount;

use tally_cluster::collect::{Collector, Receipt, To};
use tally_cluster::control::Control;
use tally_cluster::cut::ChainRows;
use tally_cluster::fates::FatesOwner;
use tally_cluster::message::{Logged, Offsets};
use tally_core::id::CellHasher;
use tally_core::op::Answer;
use tally_sim::cluster::{FATES, FatesStep, LocalCopy, Sent, VALUES, ValuesStep, World};
use tally_sim::oracle::{Ask, Config, Happening};
use tally_sim::requests::event_of;

/// An event of its own time, told by whoever reads it now.
fn event(world: &World, kind: &'static str, id: &str) -> Happening {
    Happening {
        kind,
        id: Some(id.to_owned()),
        session: "s".to_owned(),
        seq: 1,
        user: "u".to_owned(),
        video: Some("v".to_owned()),
        country: "DE".to_owned(),
        occurred_ms: world.now_ms,
        received_ms: world.now_ms,
        delta: 1,
    }
}

fn add(key: &str, delta: i64) -> Ask {
    Ask::Add { key: key.to_owned(), delta }
}

/// What waits goes out, and every log confirms it.
fn deliver(world: &mut World, collector: usize) {
    world.flush(collector);
    for id in world.outgoing(collector) {
        world.send(collector, id, Sent::Confirmed);
    }
}

fn read_all(world: &mut World) {
    for partition in 0..FATES {
        while world.step_fates(partition, None, FatesStep::Read { wants_cut: false }) {}
        while world.step_fates(partition, None, FatesStep::Emit) {}
    }
    for partition in 0..VALUES {
        while world.step_values(partition, None, ValuesStep::Read { answer_lost: false }) {}
    }
}

/// Slots of all partitions are over.
fn beat(world: &mut World) {
    world.now_ms += 200;
    world.beat(0);
    deliver(world, 0);
}

/// Nothing fails any more, everything converges, and everything is as the oracle says.
#[track_caller]
fn ends_well(mut world: World) -> World {
    world.converge();
    world.check();
    if let Some(failure) = &world.referee.failure {
        panic!("{failure}\n{}", world.trace.lines.join("\n"));
    }
    world
}

#[track_caller]
fn is_worth(world: &mut World, key: &str, value: i64) {
    assert_eq!(world.value_of(key), Some(value), "{key}\n{}", world.trace.lines.join("\n"));
}

/// The fates partition that more than beats was sent to.
fn busy(world: &World) -> u32 {
    (0..FATES).max_by_key(|partition| world.events[*partition as usize].end()).expect("there are partitions")
}

/// Lets one fates partition read what there is and stop with a cut that is not in the chain yet.
fn read_up_to_a_cut(world: &mut World, partition: u32) {
    while world.step_fates(partition, None, FatesStep::Read { wants_cut: true }) {}
}

#[test]
fn s01_a_cut_is_not_final_while_a_commit_before_it_is_in_a_queue() {
    let mut world = World::new(1, true);
    world.ask(0, Ask::Event(event(&world, "sale", "e1")));
    deliver(&mut world, 0);
    beat(&mut world);
    let partition = busy(&world);
    read_up_to_a_cut(&mut world, partition);
    assert!(!world.step_fates(partition, None, FatesStep::Cut { answer_lost: false }), "its commits are nowhere yet");
    for _ in 0..VALUES {
        assert!(world.step_fates(partition, None, FatesStep::Emit));
        assert!(!world.step_fates(partition, None, FatesStep::Cut { answer_lost: false }), "not all of them are");
    }
    world.crash_fates(partition);
    let mut world = ends_well(world);
    is_worth(&mut world, "sales:v", 1);
}

#[test]
fn s02_a_late_run_takes_effect_where_a_batch_carries_it_and_a_replay_sees_it_there_again() {
    let mut world = World::new(2, true);
    world.ask(0, Ask::Event(event(&world, "view", "e1")));
    let late = Happening { occurred_ms: world.now_ms - 5_000, seq: 2, ..event(&world, "view", "e2") };
    world.ask(0, Ask::Event(late));
    deliver(&mut world, 0);
    // The run is in the control log, and the batches behind it do not know of it.
    let due_by_ms = world.now_ms + 3_600_000;
    world.run_late(due_by_ms);
    beat(&mut world);
    beat(&mut world);
    read_all(&mut world);
    for partition in 0..FATES {
        world.crash_fates(partition);
        world.start_fates(partition);
    }
    // The replay has all of control from the beginning: its commits must be the same all the same.
    read_all(&mut world);
    let mut world = ends_well(world);
    is_worth(&mut world, "views:v", 2);
}

#[test]
fn s03_views_hold_absolute_rows_so_a_write_that_comes_again_changes_nothing() {
    let mut world = World::new(3, true);
    for _ in 0..3 {
        world.ask(0, add("hits1", 5));
        deliver(&mut world, 0);
        read_all(&mut world);
        for partition in 0..VALUES {
            world.step_values(partition, None, ValuesStep::Publish { answer_lost: true });
            world.step_values(partition, None, ValuesStep::Publish { answer_lost: false });
        }
        world.check_view();
    }
    let mut world = ends_well(world);
    is_worth(&mut world, "hits1", 15);
}

#[test]
fn s04_s05_a_bucket_that_had_a_position_and_has_none_is_sent_again_and_never_begun_at_0() {
    let mut world = World::new(4, true);
    let publish = |world: &mut World| {
        for partition in 0..VALUES {
            world.step_values(partition, None, ValuesStep::Publish { answer_lost: false });
        }
    };
    for n in 0..20 {
        world.ask(0, add(&format!("key{n}"), 7));
    }
    deliver(&mut world, 0);
    read_all(&mut world);
    publish(&mut world);
    world.copy_view();
    for _ in 0..40 {
        world.lose_bucket();
    }
    // Nothing changes, and all of it comes back.
    publish(&mut world);
    assert_eq!(world.rows_in_view(), 20);
    world.ask(0, add("key3", 1));
    deliver(&mut world, 0);
    read_all(&mut world);
    publish(&mut world);
    world.view_back_in_time();
    world.ask(0, add("key4", 1));
    deliver(&mut world, 0);
    read_all(&mut world);
    publish(&mut world);
    world.check_view();
    assert_eq!(world.rows_in_view(), 20);
    ends_well(world);
}

#[test]
fn s06_a_batch_that_was_appended_spooled_and_drained_counts_once() {
    let mut world = World::new(6, true);
    world.ask(0, Ask::Event(Happening { id: None, ..event(&world, "play", "") }));
    world.ask(0, add("hits1", 1));
    world.flush(0);
    for id in world.outgoing(0) {
        world.send(0, id, Sent::AnswerLost);
        world.write_spool(0, id);
    }
    world.sync_spool(0);
    world.crash_collector(0);
    world.start_collector(0);
    world.learn_control(0);
    for id in world.outgoing(0) {
        world.send(0, id, Sent::Twice);
    }
    let mut world = ends_well(world);
    is_worth(&mut world, "plays:v", 1);
    is_worth(&mut world, "hits1", 1);
    assert_eq!(world.referee.voids, 4);
}

#[test]
fn s07_a_collector_from_an_old_disk_image_is_a_new_life_and_its_events_are_not_taken_for_old_ones() {
    let mut world = World::new(7, true);
    world.ask(0, add("hits1", 1));
    world.flush(0);
    for id in world.outgoing(0) {
        world.write_spool(0, id);
    }
    world.sync_spool(0);
    world.copy_disk(0);
    deliver(&mut world, 0);
    world.crash_collector(0);
    world.restore_disk(0);
    world.start_collector(0);
    world.learn_control(0);
    // What was drained before is sent again; what is new has the same numbers in another life.
    world.ask(0, add("hits1", 10));
    deliver(&mut world, 0);
    let mut world = ends_well(world);
    is_worth(&mut world, "hits1", 11);
}

#[test]
fn s07_the_same_number_with_other_bytes_is_an_alarm() {
    let world = World::new(7, true);
    let partitions = |of: u32| std::num::NonZeroU32::new(of).unwrap();
    let mut owner = FatesOwner::resume(0, partitions(1), CellHasher::new(1), &ChainRows::default());
    let declarations = Control(&world.control).declarations(1).unwrap().clone();
    for id in ["e1", "e2"] {
        // Two processes take themselves for the same life of the same sender.
        let mut collector = Collector::start(9, 1, partitions(1), partitions(1), []);
        collector.learn(1, declarations.clone(), 0);
        collector.event(&event_of(&event(&world, "sale", id)), Receipt(0));
        collector.flush(world.now_ms);
        let outgoing = collector.out().values().next().unwrap();
        let logged = Logged { offset: owner.next(), appended_ms: world.now_ms, message: &outgoing.payload };
        owner.take(&logged, Control(&world.control), &ChainRows::default(), false).unwrap();
    }
    assert_eq!(owner.voids(), (1, 1));
}

#[test]
fn s08_a_copy_is_judged_for_its_group_under_the_version_of_its_batch() {
    let mut world = World::new(8, true);
    world.configure(Config::Second);
    // One collector knows of the new counters, the other one does not.
    world.learn_control(1);
    for (collector, seq) in [(1, 1), (0, 2), (1, 3), (0, 4)] {
        let happening = Happening { seq, ..event(&world, "view", "e") };
        world.ask(collector, Ask::Event(happening));
        deliver(&mut world, collector);
    }
    let mixed = Ask::Event(event(&world, "mixed", "m1"));
    world.ask(0, mixed.clone());
    world.ask(1, mixed);
    deliver(&mut world, 0);
    deliver(&mut world, 1);
    let mut world = ends_well(world);
    is_worth(&mut world, "views:v", 4);
    is_worth(&mut world, "starts:DE", 2);
    is_worth(&mut world, "calls", 2);
    // Once for each identity: the second one is no new like and no new sale, and another play.
    is_worth(&mut world, "sales:v", 1);
    is_worth(&mut world, "likes:v", 1);
    is_worth(&mut world, "plays:v", 2);
}

#[test]
fn s09_a_local_copy_behind_the_chain_is_brought_up_to_it_and_nothing_is_added_twice() {
    let mut world = World::new(9, true);
    // Boxes of keys are added up in rows: repeats make some.
    for round in 0..4 {
        for _ in 0..2 {
            world.ask(0, Ask::Event(Happening { seq: round, ..event(&world, "view", "e") }));
            deliver(&mut world, 0);
        }
        beat(&mut world);
        let partition = busy(&world);
        read_up_to_a_cut(&mut world, partition);
        while world.step_fates(partition, None, FatesStep::Emit) {}
        while world.step_fates(partition, None, FatesStep::Cut { answer_lost: false }) {}
    }
    let partition = busy(&world);
    let cuts = world.fates[partition as usize].local.len();
    assert!(cuts >= 3, "there are {cuts} cuts");
    let facts = |world: &mut World, copy| {
        world.crash_fates(partition);
        world.start_fates_from(partition, copy);
        world.facts_of(partition)
    };
    let from_chain = facts(&mut world, LocalCopy::Gone);
    assert_eq!(facts(&mut world, LocalCopy::Stale), from_chain);
    assert_eq!(facts(&mut world, LocalCopy::Newest), from_chain);
    assert!(!from_chain.is_empty());
    ends_well(world);
}

#[test]
fn s10_s11_whoever_reads_the_log_whenever_draws_the_same_lines_and_makes_the_same_commits() {
    let mut world = World::new(11, true);
    for n in 0..30 {
        world.ask(0, Ask::Event(Happening { seq: n, session: format!("s{n}"), ..event(&world, "view", "e") }));
        deliver(&mut world, 0);
        world.now_ms += 30;
        if n % 7 == 0 {
            // One owner reads as it comes, and is replaced in the middle.
            for partition in 0..FATES {
                world.step_fates(partition, None, FatesStep::Read { wants_cut: n % 2 == 0 });
                world.replace_fates(partition);
                world.start_fates(partition);
            }
        }
    }
    beat(&mut world);
    for partition in 0..FATES {
        for zombie in 0..world.fates[partition as usize].zombies.len() {
            while world.step_fates(partition, Some(zombie), FatesStep::Read { wants_cut: false }) {}
            while world.step_fates(partition, Some(zombie), FatesStep::Emit) {}
        }
    }
    read_all(&mut world);
    let again: usize = world.commits.iter().map(Vec::len).sum();
    let world = ends_well(world);
    let once: usize = (0..FATES).map(|partition| world.referee.chain(partition).count()).sum();
    assert!(again > once, "somebody has made commits again: {again} and {once}");
}

#[test]
fn s15_money_is_not_acknowledged_from_a_spool() {
    let mut world = World::new(15, true);
    world.ask(0, Ask::Event(event(&world, "sale", "e1")));
    world.ask(0, add("hits1", 1));
    world.flush(0);
    for id in world.outgoing(0) {
        let told = world.collectors[0].process.as_mut().unwrap().spool(id);
        let is_money = matches!(world.collectors[0].process.as_ref().unwrap().out()[&id].to, To::Events { .. });
        assert_eq!(told.is_empty(), is_money);
    }
    ends_well(world);
}

#[test]
fn s20_a_manifest_whose_answer_was_lost_is_known_by_its_nonce() {
    let mut world = World::new(20, true);
    world.ask(0, Ask::Event(event(&world, "sale", "e1")));
    deliver(&mut world, 0);
    beat(&mut world);
    let partition = busy(&world);
    read_up_to_a_cut(&mut world, partition);
    while world.step_fates(partition, None, FatesStep::Emit) {}
    world.step_fates(partition, None, FatesStep::Cut { answer_lost: false });
    // The manifest is written, and nobody hears of it; the retry finds another one than it has seen.
    world.step_fates(partition, None, FatesStep::Cut { answer_lost: true });
    world.step_fates(partition, None, FatesStep::Cut { answer_lost: false });
    world.step_fates(partition, None, FatesStep::Cut { answer_lost: false });
    let host = &world.fates[partition as usize];
    assert!(host.active.is_some(), "it is still the owner");
    assert_eq!(host.local.len(), 1, "and its cut is final");
    ends_well(world);
}

#[test]
fn s20_an_owner_that_was_replaced_finds_another_nonce_and_stops() {
    let mut world = World::new(20, true);
    world.ask(0, Ask::Event(event(&world, "sale", "e1")));
    deliver(&mut world, 0);
    beat(&mut world);
    let partition = busy(&world);
    let cut = |world: &mut World, zombie| {
        while world.step_fates(partition, zombie, FatesStep::Read { wants_cut: true }) {}
        while world.step_fates(partition, zombie, FatesStep::Emit) {}
        while world.step_fates(partition, zombie, FatesStep::Cut { answer_lost: false }) {}
    };
    world.replace_fates(partition);
    world.start_fates(partition);
    cut(&mut world, None);
    cut(&mut world, Some(0));
    assert!(world.fates[partition as usize].zombies.is_empty(), "it has stopped");
    assert!(world.fates[partition as usize].active.is_some());
    ends_well(world);
}

#[test]
fn s21_a_broker_an_hour_ahead_ends_no_counter_early() {
    let mut world = World::new(21, true);
    let at_ms = world.now_ms + 10 * 60_000;
    world.ask(0, add("hits1", 1));
    world.ask(0, Ask::Expire { key: "hits1".to_owned(), at_ms });
    deliver(&mut world, 0);
    world.broker_ahead_ms = 3_600_000;
    world.ask(0, add("hits1", 1));
    deliver(&mut world, 0);
    world.broker_ahead_ms = 0;
    let last = world.ask(0, add("hits1", 1)).unwrap();
    deliver(&mut world, 0);
    read_all(&mut world);
    assert_eq!(world.referee.answered[&last], Answer::Value(3), "it goes on from 2");
    ends_well(world);
}

/// Found by seed 11252: after a restart nobody knew of counters that end and that nobody touches.
#[test]
fn s21_a_counter_that_nobody_touches_ends_on_time_after_a_restart_as_well() {
    let mut world = World::new(21, true);
    let at_ms = world.now_ms + 1_000;
    world.ask(0, add("hits1", 1));
    world.ask(0, Ask::Expire { key: "hits1".to_owned(), at_ms });
    deliver(&mut world, 0);
    read_all(&mut world);
    for partition in 0..VALUES {
        world.step_values(partition, None, ValuesStep::Publish { answer_lost: false });
        for _ in 0..4 {
            world.step_values(partition, None, ValuesStep::Cut { answer_lost: false });
        }
        world.crash_values(partition);
        world.start_values(partition);
    }
    world.now_ms += 2_000;
    beat(&mut world);
    read_all(&mut world);
    assert_eq!(world.value_of("hits1"), None);
    let world = ends_well(world);
    assert_eq!(world.rows_in_view(), 0);
}

#[test]
fn s21_windows_that_a_broker_has_moved_ahead_are_found_again_by_a_restart() {
    let mut world = World::new(21, true);
    let view = Ask::Event(event(&world, "view", "e"));
    // Log time goes five minutes ahead, and stays there.
    world.broker_ahead_ms = 3_600_000;
    world.ask(0, Ask::Event(Happening { seq: 9, ..event(&world, "view", "e") }));
    deliver(&mut world, 0);
    world.broker_ahead_ms = 0;
    world.ask(0, view.clone());
    deliver(&mut world, 0);
    // Time stands still, so another control position has to end the slot.
    world.run_late(0);
    world.learn_control(0);
    beat(&mut world);
    let partition = busy(&world);
    read_up_to_a_cut(&mut world, partition);
    while world.step_fates(partition, None, FatesStep::Emit) {}
    while world.step_fates(partition, None, FatesStep::Cut { answer_lost: false }) {}
    assert_eq!(world.fates[partition as usize].local.len(), 1, "there is a cut");
    world.crash_fates(partition);
    world.start_fates(partition);
    world.ask(0, view);
    deliver(&mut world, 0);
    let mut world = ends_well(world);
    is_worth(&mut world, "views:v", 2);
}

#[test]
fn s22_what_a_spool_kept_for_hours_and_drains_newest_first_is_not_late() {
    let mut world = World::new(22, true);
    for n in 0..12 {
        world.ask(0, Ask::Event(Happening { seq: n, ..event(&world, "view", "e") }));
        world.flush(0);
        world.now_ms += 15 * 60_000;
    }
    let mut out = world.outgoing(0);
    out.reverse();
    for id in out {
        world.send(0, id, Sent::Confirmed);
    }
    let mut world = ends_well(world);
    is_worth(&mut world, "views:v", 12);
    assert!(world.referee.judges.iter().all(|judge| judge.exceptions.late == 0));
}

#[test]
fn s23_two_who_increment_an_absent_key_are_answered_1_and_2() {
    let mut world = World::new(23, true);
    let asked: Vec<Receipt> =
        (0..2).flat_map(|_| [0, 1]).map(|collector| world.ask(collector, add("hits1", 1)).unwrap()).collect();
    // Both wait, both are appended, and only then somebody applies them.
    deliver(&mut world, 0);
    deliver(&mut world, 1);
    read_all(&mut world);
    let mut told: Vec<Answer> = asked.iter().map(|receipt| world.referee.answered[receipt]).collect();
    told.sort_by_key(|answer| if let Answer::Value(value) = answer { *value } else { i64::MAX });
    assert_eq!(told, [1, 2, 3, 4].map(Answer::Value), "combined or not, each has a place of its own");
    ends_well(world);
}

#[test]
fn s24_an_undo_takes_back_what_was_counted_and_not_what_it_says() {
    let mut world = World::new(24, true);
    world.ask(0, Ask::Event(event(&world, "like", "e1")));
    deliver(&mut world, 0);
    beat(&mut world);
    read_all(&mut world);
    // Through a cut and a crash: the entity's row says what it has counted.
    let partition = busy(&world);
    world.crash_fates(partition);
    world.start_fates(partition);
    world.now_ms += 1_000;
    world.ask(0, Ask::Event(Happening { country: "FR".to_owned(), ..event(&world, "unlike", "e2") }));
    deliver(&mut world, 0);
    let mut world = ends_well(world);
    is_worth(&mut world, "fans:DE", 0);
    is_worth(&mut world, "likes:v", 0);
    assert_eq!(world.value_of("fans:FR"), None);
}

#[test]
fn s27_a_log_that_stands_still_gets_its_time_and_its_control_from_an_empty_batch() {
    let mut world = World::new(27, true);
    world.ask(0, Ask::Event(event(&world, "view", "e1")));
    let late = Happening { occurred_ms: world.now_ms - 5_000, seq: 2, ..event(&world, "view", "e2") };
    world.ask(0, Ask::Event(late));
    deliver(&mut world, 0);
    let due_by_ms = world.now_ms + 3_600_000;
    world.run_late(due_by_ms);
    world.learn_control(0);
    beat(&mut world);
    beat(&mut world);
    read_all(&mut world);
    is_worth(&mut world, "views:v", 2);
    ends_well(world);
}

#[test]
fn a_slot_that_is_missing_stops_its_reader() {
    use tally_cluster::message::{SlotPart, ToValues};
    use tally_cluster::values::{ValuesError, ValuesOwner};
    let partitions = std::num::NonZeroU32::new(1).unwrap();
    let mut owner = ValuesOwner::resume(0, partitions, 1, CellHasher::new(1), &ChainRows::default());
    let part = |from, to| {
        ToValues::Slot(SlotPart { partition: 0, from, to, log_time_ms: 0, control: 0, changes: Default::default() })
    };
    let mut take = |offset, message: &ToValues| {
        assert_eq!(message.span(), 1);
        owner.take(&Logged { offset, appended_ms: 0, message }, Control(&[]), &ChainRows::default()).map(drop)
    };
    take(0, &part(0, 10)).unwrap();
    take(1, &part(0, 10)).unwrap();
    let missing = take(2, &part(15, 20)).unwrap_err();
    assert!(matches!(missing, ValuesError::Missing(missing) if missing.taken == 10 && missing.from == 15));
}

#[test]
fn the_same_seed_twice_gives_the_same_trace() {
    use tally_sim::{WorldKind, run};
    for world in WorldKind::ALL {
        let digests: Vec<u64> = (0..8).map(|seed| run(world, seed, false).trace.digest).collect();
        let again: Vec<u64> = (0..8).map(|seed| run(world, seed, false).trace.digest).collect();
        assert_eq!(digests, again);
        assert!(digests.windows(2).all(|two| two[0] != two[1]), "another seed is another run");
    }
}
