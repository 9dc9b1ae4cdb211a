//! Batches that others have appended: one that came twice counts once, and one that cannot be stops the start.

use super::ground::Ground;
use super::*;
use tally_core::commit::{Commit, VoidBatch};
use tally_core::fates::Void;
use tally_core::head::{Head, RULES, RULES_WITH_AUDIT};
use tally_storage::log::Log;

const NOW_MS: u64 = 1_700_000_000_000;

/// Of a sender that may send anything again. The configuration of the ground is record 0.
fn head(seq: u64) -> Head {
    Head { rules: RULES, control: 1, sender: 7, incarnation: 3, seq, settled: 0, clock_ms: NOW_MS, ..Head::default() }
}

/// Appends while no engine runs; answers where each batch begins.
fn append(ground: &Ground, batches: &[(Head, &[Step])], engine: &Engine) -> Vec<u64> {
    let options = LogOptions { segment_bytes: ground.segment_bytes, log_id: 9, ..LogOptions::default() };
    let mut log = LocalLog::open_on(ground.disk.clone(), options).unwrap().0;
    let at = batches.iter().map(|(head, steps)| {
        let steps = submission(steps, engine);
        let mut batch = Submission::default();
        batch.begin_batch();
        batch.append(&steps);
        let (count, bytes) = (batch.record_count, batch.payload(head));
        log.append(log.log_time_ms().max(NOW_MS), count, bytes).unwrap().position.offset
    });
    let at = at.collect();
    log.sync().unwrap();
    at
}

fn ground() -> Ground {
    let (clock, _) = crate::clock::Clock::settable(NOW_MS);
    let mut ground = Ground { config: Some(CONFIG), ..Ground::new(1 << 20) };
    ground.options.clock = clock;
    ground
}

/// A counter, a view and an id: each would count again if it were decided again, or be a duplicate.
const STEPS: &[Step] = &[Step::Add(1, 5), Step::View(1, 1), Step::Claim(1, 1)];

async fn commits(engine: &Engine) -> Vec<Commit> {
    engine.checkpoint(Wanted::Everything).await.unwrap();
    let Some((_, mut reader)) = engine.commits().find(0).unwrap() else { return Vec::new() };
    std::iter::from_fn(|| reader.read().unwrap()).collect()
}

async fn check_counted_once(engine: &Engine, voids: &[VoidBatch]) {
    let value = async |id: &str| engine.get(engine.hasher().key(id.as_bytes())).await.unwrap().map(|read| read.value);
    assert_eq!((value("c1").await, value("views").await, value("all").await), (Some(5), Some(1), Some(1)));
    let found: Vec<VoidBatch> = commits(engine).await.into_iter().flat_map(|commit| commit.voids).collect();
    assert_eq!(found, voids);
    let balances = engine.look(|state| state.balances()).await.unwrap();
    assert_eq!(balances.iter().map(|balance| (balance.received, balance.boxes.duplicate)).max(), Some((1, 0)));
}

#[test]
fn a_batch_that_another_sender_sent_again_counts_once_before_and_behind_a_checkpoint() {
    let ground = ground();
    let engine = ground.live(async |engine| engine);
    let at = append(&ground, &[(head(0), STEPS), (head(0), STEPS)], &engine);
    drop(engine);
    let void = |offset| VoidBatch { offset, why: Void::Repeated };
    let engine = ground.live(async |engine| {
        check_counted_once(&engine, &[void(at[1])]).await;
        engine
    });
    // The checkpoint knows the sender, and so does whoever starts without a checkpoint behind it.
    let again = append(&ground, &[(head(0), STEPS)], &engine);
    drop(engine);
    ground.live(async |engine| check_counted_once(&engine, &[void(at[1]), void(again[0])]).await);
    ground.live(async |engine| {
        check_counted_once(&engine, &[void(at[1]), void(again[0])]).await;
        assert!(engine.troubles().lasting().is_empty(), "that a sender repeats itself is no trouble");
    });
}

#[test]
fn other_bytes_under_the_same_number_are_void_and_told_as_a_trouble() {
    let ground = ground();
    let engine = ground.live(async |engine| engine);
    let at = append(&ground, &[(head(0), STEPS), (head(0), &[Step::Add(1, 7)])], &engine);
    drop(engine);
    ground.live(async |engine| {
        let troubles = engine.troubles().lasting();
        assert!(matches!(&troubles[..], [(Trouble::Voided, what)] if what.contains("sender 7")), "{troubles:?}");
        check_counted_once(&engine, &[VoidBatch { offset: at[1], why: Void::OtherBytes }]).await;
    });
}

#[test]
fn a_start_that_finds_a_batch_that_cannot_be_says_why() {
    for (wrong, told) in [
        (Head { rules: RULES + 1, ..head(0) }, "rules of version 3"),
        (Head { control: 0, ..head(0) }, "those from record 1 on are in force"),
        (Head { clock_ms: NOW_MS - 600_000, ..head(0) }, "the clock of its appender"),
    ] {
        let ground = ground();
        let engine = ground.live(async |engine| engine);
        append(&ground, &[(wrong, STEPS)], &engine);
        drop(engine);
        let refused = ground.try_open().err().expect("it is refused").to_string();
        assert!(refused.contains("record 1 of the log") && refused.contains(told), "{refused}");
    }
}

#[test]
fn a_batch_of_older_rules_comes_to_the_commit_that_it_came_to_then() {
    let ground = ground();
    let engine = ground.live(async |engine| engine);
    // An event id, and the same again.
    let twice: &[Step] = &[Step::Claim(1, 1), Step::Claim(1, 1)];
    let older = Head { rules: RULES_WITH_AUDIT - 1, ..head(0) };
    append(&ground, &[(older, twice), (Head { begins: true, ..head(1) }, twice)], &engine);
    drop(engine);
    ground.live(async |engine| {
        let made = commits(&engine).await.into_iter().filter(|commit| !commit.exceptions.is_empty());
        let made: Vec<_> = made.map(|commit| (commit.rules, commit.exceptions.len(), commit.audit.count())).collect();
        assert_eq!(made, [(1, 2, 0), (RULES, 4, 2)], "only newer ones have an audit");
    });
}
