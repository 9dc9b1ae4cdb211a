//! Commits: whoever folds them has every counter, whatever happens to the node; and none is lost, made up or changed.

use super::alone::simulated;
use super::ground::{Ground, commits_on};
use super::*;
use crate::clock::{Clock, Hands};
use crate::engine::commits::{CommitsError, CommitsOptions};
use tally_core::commit::{Commit, Digest};

/// All commits from an offset on, once they reach `end`.
async fn commits_to(engine: &Engine, offset: u64, end: u64) -> Vec<Commit> {
    if end > offset {
        engine.commits().wait_behind(end - 1).await;
    }
    let Some((_, mut reader)) = engine.commits().find(offset).unwrap() else { return Vec::new() };
    std::iter::from_fn(|| reader.read().unwrap()).collect()
}

/// A consumer outside: what it has folded, and where it stands.
struct Consumer {
    position: Position,
    counters: BTreeMap<Vec<u8>, i64>,
    digest: Option<Digest>,
}

impl Consumer {
    fn take(&mut self, commit: Commit) {
        assert_eq!(commit.from, self.position, "a commit begins where the one before ends");
        assert!(commit.to.offset > commit.from.offset && self.digest != Some(commit.digest));
        let deltas = commit.deltas.expect("it is followed");
        assert_eq!(deltas.unnamed, 0);
        if deltas.flushed {
            self.counters.clear();
        }
        for counter in deltas.counters.iter() {
            let before = self.counters.get(counter.id).copied().unwrap_or(0);
            assert_eq!(i128::from(before) + counter.delta, counter.value.unwrap_or(0).into(), "{counter:?}");
            match counter.value {
                Some(value) => self.counters.insert(counter.id.into(), value),
                None => self.counters.remove(counter.id),
            };
        }
        (self.position, self.digest) = (commit.to, Some(commit.digest));
    }

    /// Follows up to what is applied.
    async fn follow(&mut self, engine: &Engine) {
        for commit in commits_to(engine, self.position.offset, engine.applied().offset).await {
            self.take(commit);
        }
    }
}

/// A node that is followed from its first record on.
fn lived(lives: Vec<Life>, ground: &Ground) {
    let mut model = Model::new();
    let mut lives = lives.into_iter();
    let mut consumer = None;
    loop {
        let is_last = lives.len() == 0;
        ground.live(async |engine| {
            let begin = engine.follow_commits().await.unwrap();
            let begin = Consumer { position: begin, counters: BTreeMap::new(), digest: None };
            let consumer = consumer.get_or_insert(begin);
            live(&engine, &mut model, &mut lives).await;
            if is_last {
                consumer.follow(&engine).await;
                assert_eq!(consumer.counters.clone().into_iter().collect::<Vec<_>>(), values(&model));
            }
        });
        if is_last {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn who_folds_all_commits_has_every_counter(lives in lives()) {
        lived(lives, &Ground { config: Some(CONFIG), options: options(), ..Ground::new(150_000) });
    }
}

/// A node whose clock moves when somebody moves it.
fn ground() -> (Ground, Arc<Hands>) {
    let (clock, hands) = Clock::settable(1_700_000_000_000);
    let mut ground = Ground { config: Some(CONFIG), ..Ground::new(1 << 20) };
    ground.options.clock = clock;
    (ground, hands)
}

/// Submits some steps; answers the position behind them.
async fn submit(engine: &Engine, steps: &[Step]) -> Position {
    engine.submit(submission(steps, engine)).await.unwrap().position
}

#[test]
fn a_replay_makes_the_same_commits_again_and_adds_those_that_were_lost() {
    let (mut ground, hands) = ground();
    let before = ground.live(async |engine| {
        engine.follow_commits().await.unwrap();
        submit(&engine, &[Step::Add(1, 1), Step::View(1, 1), Step::View(1, 1)]).await;
        engine.checkpoint(Wanted::Everything).await.unwrap();
        let end = submit(&engine, &[Step::Add(2, 1), Step::Claim(1, 1), Step::Claim(1, 0)]).await;
        hands.pass(100);
        commits_to(&engine, 0, end.offset).await
    });
    assert_eq!(before.iter().flat_map(|commit| &commit.exceptions).count(), 3);
    let audit: Vec<_> = before.iter().flat_map(|commit| commit.audit.rows()).collect();
    let [row] = audit[..] else { panic!("one event id came again: {audit:?}") };
    assert_eq!((&*row.event_id, row.first_seen_ms, row.conflict), (&b"e1"[..], 1_700_000_000_000, true));
    // What the second log had not synced is gone; what it had is compared.
    for disk in [ground.commits.power_cut(1), ground.commits.process_end()] {
        ground.commits = disk;
        ground.live(async |engine| {
            let now = submit(&engine, &[Step::Add(1, 1)]).await;
            hands.pass(100);
            let all = commits_to(&engine, 0, now.offset).await;
            assert!(all.starts_with(&before), "{all:?} does not begin with {before:?}");
            assert!(all.windows(2).all(|pair| pair[0].to == pair[1].from), "{all:?}");
            assert!(all[before.len()..].iter().all(|commit| commit.deltas.is_some()), "they go on being recorded");
        });
    }
}

/// A node with checkpoints and, behind them, the views of one session; and its commits as they were before the last checkpoint.
fn with_cuts(seqs: [u64; 2]) -> (Ground, FaultDisk) {
    let (ground, hands) = ground();
    let before = ground.live(async |engine| {
        submit(&engine, &[Step::Add(1, 1)]).await;
        engine.checkpoint(Wanted::Everything).await.unwrap();
        let before = ground.commits.process_end();
        submit(&engine, &[Step::Add(1, 1)]).await;
        engine.checkpoint(Wanted::Everything).await.unwrap();
        engine.follow_commits().await.unwrap();
        let end = submit(&engine, &seqs.map(|seq| Step::View(1, seq))).await;
        hands.pass(100);
        engine.commits().wait_behind(end.offset - 1).await;
        before
    });
    (ground, before)
}

fn open_again(
    ground: &Ground,
    log: FaultDisk,
    open_commits: impl FnMut(bool) -> Result<LocalLog<FaultDisk>, LogError>,
) -> Result<EngineThread<LocalLog<FaultDisk>>, RecoveryError> {
    while Arc::strong_count(&ground.store) > 1 {
        std::thread::yield_now();
    }
    let open_log = |from_offset| {
        let options = LogOptions { segment_bytes: 8 << 20, log_id: 9, from_offset, ..LogOptions::default() };
        Ok(LocalLog::open_on(log, options)?.0)
    };
    let restored = recovery::restore(&*ground.store, CellHasher::new(1), 1 << 20).unwrap();
    let (store, options) = (ground.store.clone(), ground.options.clone());
    recovery::open(restored, store, open_log, open_commits, None, options).map(|(thread, _)| thread)
}

#[test]
fn a_commit_that_is_missing_before_the_checkpoint_is_damage() {
    let (ground, before) = with_cuts([1, 1]);
    let opened = open_again(&ground, ground.disk.process_end(), |anew| commits_on(&before, anew));
    let Err(RecoveryError::Commits(error @ CommitsError::Missing { .. })) = opened else { panic!("one is missing") };
    assert!(error.to_string().contains("remove its directory commits/"), "{error}");
}

#[test]
fn commits_that_come_out_otherwise_stop_the_start_in_words() {
    // Two histories with as many records behind the same checkpoint, and other fates.
    let ((ground, _), (other, _)) = (with_cuts([1, 1]), with_cuts([1, 2]));
    assert!(open_again(&ground, ground.disk.process_end(), |anew| commits_on(&ground.commits, anew)).is_ok());
    let opened = open_again(&ground, ground.disk.process_end(), |anew| commits_on(&other.commits, anew));
    let Err(RecoveryError::Commits(error)) = opened else { panic!("one differs") };
    assert!(matches!(error, CommitsError::Differs { .. }), "{error}");
}

#[test]
fn commits_that_know_of_more_than_the_log_has_are_not_kept() {
    let (ground, hands) = ground();
    let log = ground.live(async |engine| {
        submit(&engine, &[Step::Add(1, 1)]).await;
        engine.checkpoint(Wanted::Everything).await.unwrap();
        let log = ground.disk.process_end();
        engine.follow_commits().await.unwrap();
        let end = submit(&engine, &[Step::Add(1, 1)]).await;
        hands.pass(100);
        engine.commits().wait_behind(end.offset - 1).await;
        log
    });
    let (mut asked, another) = (Vec::new(), FaultDisk::new(5));
    let thread = open_again(&ground, log, |anew| {
        asked.push(anew);
        commits_on(if anew { &another } else { &ground.commits }, false)
    });
    beside(thread.unwrap(), async |engine| {
        let position = engine.follow_commits().await.unwrap();
        let end = submit(&engine, &[Step::Add(1, 1)]).await;
        hands.pass(100);
        let commits = commits_to(&engine, position.offset, end.offset).await;
        assert_eq!(commits.first().map(|commit| commit.from), Some(position));
    });
    assert_eq!(asked, [false, true]);
}

#[test]
fn on_a_full_disk_the_oldest_commits_go_and_checkpoints_go_on() {
    let (ground, hands) = ground();
    // Room for a few segments of commits.
    ground.commits.set_bytes_max(Some((5 * 64) << 10));
    ground.live(async |engine| {
        let first = engine.follow_commits().await.unwrap();
        let wide: Vec<Step> = (0..40).map(|n| Step::Add(n, 1)).collect();
        // Each round is a commit, and there is never room for all of them.
        while engine.commits().oldest().unwrap().is_none_or(|oldest| oldest.from.offset <= first.offset) {
            hands.pass(100);
            submit(&engine, &wide).await;
            engine.checkpoint(Wanted::Everything).await.unwrap();
        }
        engine.health().expect("writes are taken");
    });
}

#[test]
fn only_what_is_durable_is_a_commit() {
    let (mut ground, hands) = ground();
    ground.options.durability = NodeDurability::None;
    ground.live(async |engine| {
        let from = engine.follow_commits().await.unwrap();
        let end = submit(&engine, &[Step::Add(1, 1)]).await;
        hands.pass(100);
        // However long anybody waits.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(engine.commits().end().offset <= from.offset);
        }
        engine.checkpoint(Wanted::Everything).await.unwrap();
        assert_eq!(engine.commits().end().offset, end.offset, "what the store has was a commit before");
    });
}

/// Adds to many counters with long ids, so that their deltas fill a disk.
fn wide(engine: &Engine, counters: usize, id_bytes: usize) -> Submission {
    one_each(engine, (0..counters).map(|n| format!("{n:0id_bytes$}")))
}

/// Schedule 17: a follower that connects and never reads. With the time from its first commit until that is gone.
fn nobody_reads(bounds: CommitsOptions) -> Duration {
    let mut ground = Ground::new(4 << 20);
    ground.options.commits = bounds;
    let took = std::cell::Cell::new(Duration::ZERO);
    simulated(&mut ground, async |engine, time| {
        let from = engine.follow_commits().await.unwrap();
        let began_ms = engine.clock().now_ms();
        engine.submit(wide(&engine, 100, 400)).await.unwrap();
        time.until(|| engine.commits().end().offset > from.offset).await;
        let (first, mut reader) = engine.commits().find(from.offset).unwrap().expect("it is there");
        assert_eq!(first.from, from);
        // Others write on. Nothing waits for the one who does not read.
        let oldest = || engine.commits().oldest().unwrap().expect("the newest stay").from.offset;
        while oldest() <= from.offset {
            engine.submit(wide(&engine, 100, 400)).await.unwrap();
            time.pass(5_000).await;
            engine.checkpoint(Wanted::Everything).await.unwrap();
        }
        took.set(Duration::from_millis(engine.clock().now_ms() - began_ms));
        assert!(engine.log_needed_from() > from.offset, "the log is kept for the checkpoint alone");
        // When it reads on, or comes back, it is told.
        let told = reader.read();
        assert!(matches!(told, Err(CommitsError::Log(LogError::Trimmed { .. }))), "{told:?}");
        let (first, _) = engine.commits().find(from.offset).unwrap().expect("the newest stay");
        assert!(first.from.offset > from.offset, "there is a gap before {:?}", first.from);
        let is_lapsed = took.get() > bounds.keep;
        time.until(|| engine.commits().is_followed() != is_lapsed).await;
    });
    took.get()
}

#[test]
fn a_follower_that_never_reads_holds_neither_the_log_nor_commits_beyond_a_bound_of_time() {
    let keep = Duration::from_secs(60);
    let took = nobody_reads(CommitsOptions { keep, ..CommitsOptions::default() });
    // Commits go by the segment, so the last one may stay until the next is full.
    assert!((keep..keep + Duration::from_secs(30)).contains(&took), "{took:?}");
}

#[test]
fn a_follower_that_never_reads_holds_neither_the_log_nor_commits_beyond_a_bound_of_bytes() {
    let took = nobody_reads(CommitsOptions { bytes_max: 4 * (64 << 10), ..CommitsOptions::default() });
    // Each of them has 40 KB, and comes every five seconds.
    assert!(took <= Duration::from_secs(60), "{took:?}");
}

#[test]
fn while_there_is_no_room_for_commits_their_deltas_go_and_counting_goes_on() {
    let (ground, hands) = ground();
    ground.live(async |engine| {
        let from = engine.follow_commits().await.unwrap();
        engine.submit(wide(&engine, 10, 4_000)).await.unwrap();
        // None of them can go: all are behind the last checkpoint.
        ground.commits.set_bytes_max(Some(0));
        // Half of what may wait, and more: a MiB each.
        for _ in 0..40 {
            hands.pass(100);
            engine.submit(wide(&engine, 260, 4_000)).await.unwrap();
        }
        assert!(engine.checkpoint(Wanted::Everything).await.is_err(), "commits come before the cut");
        engine.health().expect("writes are taken");
        ground.commits.set_bytes_max(None);
        hands.pass(100);
        let end = submit(&engine, &[Step::Add(1, 1)]).await;
        engine.checkpoint(Wanted::Everything).await.unwrap();

        let commits = commits_to(&engine, from.offset, end.offset).await;
        assert!(commits.windows(2).all(|pair| pair[0].to == pair[1].from), "every commit is there");
        assert_eq!(commits.first().map(|commit| commit.from), Some(from));
        let without = commits.iter().filter(|commit| commit.deltas.is_none()).count();
        assert!((30..=41).contains(&without), "{without} of {}", commits.len());
        assert!(commits.last().unwrap().deltas.is_some(), "from here on somebody can follow again");
        let value = engine.get(engine.hasher().key(format!("{:04000}", 7).as_bytes())).await.unwrap();
        assert_eq!(value.map(|reading| reading.value), Some(41));
    });
}
