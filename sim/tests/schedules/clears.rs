//! Clears, and what arrives behind them.

use super::{beat, deliver, ends_well, event, is_worth, read_all};
use tally_cluster::control::Cleared;
use tally_sim::cluster::{VALUES, ValuesStep, World};
use tally_sim::fault::Fault;
use tally_sim::oracle::worth::Kind;
use tally_sim::oracle::{Ask, Happening};

/// A clear is visible at every values partition, and no fates partition has heard of it.
fn clear_at_values(world: &mut World, counter: &str) -> u64 {
    let generation = world.clear(Cleared::Counter(counter.into()));
    world.learn_control(1);
    world.beat_values(1);
    deliver(world, 1);
    read_all(world);
    generation
}

#[test]
fn a_slot_judged_before_the_clear_arrives_behind_it_and_counts_there() {
    let mut world = World::new(30, true);
    let like = |world: &World, kind, user: &str| {
        Ask::Event(Happening { user: user.to_owned(), ..event(world, kind, &format!("{kind} {user}")) })
    };
    for ask in [like(&world, "like", "a"), Ask::Event(event(&world, "sale", "e1"))] {
        world.ask(0, ask);
    }
    deliver(&mut world, 0);
    beat(&mut world);
    read_all(&mut world);
    is_worth(&mut world, "likes:v", 1);
    // These are in their logs before the clear is visible anywhere, and their slots come behind it.
    for ask in [like(&world, "like", "b"), like(&world, "like", "c"), Ask::Event(event(&world, "sale", "e2"))] {
        world.ask(0, ask);
    }
    deliver(&mut world, 0);
    clear_at_values(&mut world, "sales");
    let generation = clear_at_values(&mut world, "likes");
    is_worth(&mut world, "likes:v", 0);
    is_worth(&mut world, "sales:v", 0);
    beat(&mut world);
    read_all(&mut world);
    is_worth(&mut world, "likes:v", 2);
    is_worth(&mut world, "sales:v", 1);
    assert!(world.faults.of(Fault::BehindClear) > 0);
    // What counted behind the clear is taken back, what it took is not taken twice, and an id that counted stays counted.
    world.now_ms += 1_000;
    let again = [like(&world, "unlike", "a"), like(&world, "unlike", "b"), Ask::Event(event(&world, "sale", "e1"))];
    for ask in again {
        world.ask(0, ask);
    }
    deliver(&mut world, 0);
    beat(&mut world);
    read_all(&mut world);
    is_worth(&mut world, "likes:v", 1);
    is_worth(&mut world, "sales:v", 1);
    assert!(world.faults.of(Fault::UndoneBehindClear) > 0);
    // Through a cut and another owner; the clear is taken back, and what was unliked since does not come back with it.
    for partition in 0..VALUES {
        for _ in 0..4 {
            world.step_values(partition, None, ValuesStep::Cut { answer_lost: false });
        }
        world.crash_values(partition);
        world.start_values(partition);
    }
    world.revert_generation(generation);
    world.learn_control(0);
    world.ask(0, like(&world, "unlike", "c"));
    deliver(&mut world, 0);
    let mut world = ends_well(world);
    is_worth(&mut world, "likes:v", 0);
}

/// Found by seed 36: a clear did not know of a counter that a correction had brought about in the same message.
#[test]
fn a_counter_that_a_correction_has_brought_about_is_cleared_in_the_same_message() {
    let mut world = World::new(31, true);
    world.correct(Kind::Adjusts, &[("likes:new".to_owned(), 5)]);
    world.clear(Cleared::Counter("likes".into()));
    let mut world = ends_well(world);
    is_worth(&mut world, "likes:new", 0);
}

#[test]
fn what_waits_for_its_run_counts_behind_a_clear_that_came_meanwhile() {
    let mut world = World::new(32, true);
    world.ask(0, Ask::Event(event(&world, "view", "e1")));
    let late = Happening { occurred_ms: world.now_ms - 5_000, seq: 2, ..event(&world, "view", "e2") };
    world.ask(0, Ask::Event(late));
    deliver(&mut world, 0);
    beat(&mut world);
    read_all(&mut world);
    // The run comes before the clear in control, and its slot behind it at the key.
    world.run_late(world.now_ms + 3_600_000);
    world.learn_control(0);
    beat(&mut world);
    clear_at_values(&mut world, "views");
    is_worth(&mut world, "views:v", 0);
    let mut world = ends_well(world);
    is_worth(&mut world, "views:v", 1);
}
