//! Corrections that adjust and corrections that restore, and somebody who recounts.

use super::{beat, deliver, ends_well, event, is_worth, read_all};
use tally_sim::cluster::World;
use tally_sim::oracle::Ask;
use tally_sim::oracle::worth::Kind;

/// Control is known everywhere, and so is what it came to.
fn settle(world: &mut World) {
    world.learn_control(0);
    beat(world);
    read_all(world);
}

/// Counts what the logs say of the one key of a counter. Answers what its value lacks, to that and to what people decided.
fn recount(world: &mut World, key: &str) -> i64 {
    let changes = world.referee.judges.iter().flat_map(|judge| &judge.changes);
    let logs: i64 = changes.filter(|(_, change)| change.key == key).map(|(_, change)| change.delta).sum();
    let counter = key.split(':').next().unwrap();
    let owners = world.values.iter().filter_map(|host| host.active.as_ref());
    let adjusted: i128 = owners.filter_map(|process| process.owner.sums(counter)).map(|sums| sums.adjusted).sum();
    logs + adjusted as i64 - world.value_of(key).unwrap()
}

#[test]
fn s12_a_recount_sets_back_what_was_restored_wrongly_and_leaves_alone_what_was_adjusted() {
    let mut world = World::new(12, true);
    for id in ["e1", "e2", "e3"] {
        world.ask(0, Ask::Event(event(&world, "sale", id)));
    }
    deliver(&mut world, 0);
    settle(&mut world);
    let fraud = world.correct(Kind::Adjusts, &[("sales:v".to_owned(), -2)]);
    settle(&mut world);
    is_worth(&mut world, "sales:v", 1);
    assert_eq!(recount(&mut world, "sales:v"), 0, "it was meant");
    let mistake = world.correct(Kind::Restores, &[("sales:v".to_owned(), 5)]);
    settle(&mut world);
    is_worth(&mut world, "sales:v", 6);
    assert_eq!(recount(&mut world, "sales:v"), -5, "the log says nothing of it");
    // A revert is for what that was for which it reverts.
    world.revert_generation(mistake);
    settle(&mut world);
    assert_eq!(recount(&mut world, "sales:v"), 0);
    world.revert_generation(fraud);
    settle(&mut world);
    is_worth(&mut world, "sales:v", 3);
    assert_eq!(recount(&mut world, "sales:v"), 0, "that was decided as well");
    ends_well(world);
}
