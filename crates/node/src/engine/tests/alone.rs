//! An engine with all its workers on one thread, in a time that passes only when somebody says so.

use super::ground::Ground;
use super::*;
use crate::clock::Hands;
use crate::worker::{ShownStatus, Spawner, WorkerState};
use std::task::Poll;

pub const START_MS: u64 = 1_800_000_000_000;

/// The hands of the only clock there is.
pub struct Time(Arc<Hands>);

impl Time {
    /// Goes from one moment that somebody waits for to the next, until something holds.
    pub async fn until(&self, holds: impl Fn() -> bool) {
        self.pass(0).await;
        while !holds() {
            self.pass(self.0.until_next_ms().expect("somebody waits")).await;
        }
    }

    /// Goes on until something has ended.
    pub async fn during<T>(&self, something: impl Future<Output = T>) -> T {
        let has_ended = std::cell::Cell::new(false);
        let ending = async {
            let result = something.await;
            has_ended.set(true);
            result
        };
        tokio::join!(ending, self.until(|| has_ended.get())).0
    }

    /// Time passes, and everybody does what there is to do.
    pub async fn pass(&self, ms: u64) {
        self.0.pass(ms);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
}

/// Runs `test` beside an engine on `ground`, on a runtime that has no clock and no other threads.
pub fn simulated(ground: &mut Ground, test: impl AsyncFnOnce(Engine, Time)) {
    let (clock, hands) = Clock::simulated(START_MS);
    (ground.options.clock, ground.options.spawner) = (clock, Spawner::Here);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (thread, _) = ground.open();
        let engine = thread.engine();
        engine.start_tending().unwrap();
        Spawner::task(thread.run(async |_| ()));
        test(engine, Time(hands)).await;
    });
}

#[test]
fn what_was_handed_over_is_committed_though_whoever_did_it_leaves_before_the_writer_was_woken() {
    let mut ground = Ground::new(1 << 20);
    simulated(&mut ground, async |engine, time| {
        time.pass(0).await;
        {
            let mut leaving = std::pin::pin!(engine.submit(numbered(&engine, "x", 3)));
            let is_pending = std::future::poll_fn(|context| Poll::Ready(leaving.as_mut().poll(context).is_pending()));
            assert!(is_pending.await);
        }
        time.pass(0).await;
        assert_eq!(engine.len(), 3);
    });
}

pub fn shown(engine: &Engine, name: &str) -> ShownStatus {
    let statuses = engine.workers().board().statuses();
    statuses.iter().find(|status| status.spec.name == name).unwrap().shown()
}

/// A life with expiries, late entries, checkpoints and cold counters; what it left in the store, and when it ended.
fn live() -> (Vec<u8>, Position, u64) {
    let config = "\
counters:
  - {counterName: heard, mode: display, dedup: none, lateness: {allowed: 1s, corrected: 1m, every: 1s}, rules: [{on: heard, op: increment}]}
";
    let mut ground = Ground { config: Some(config), ..Ground::new(1 << 20) };
    let ended_ms = std::cell::Cell::new(0);
    simulated(&mut ground, async |engine, time| {
        let mut short = numbered(&engine, "short", 10);
        let id = b"short0".as_slice();
        short.expire(engine.hasher().key(id), id, START_MS + 60_000, ExpireCondition::Always);
        engine.submit(short).await.unwrap();
        let heard = |occurred_ms: u64| {
            let mut event = Event::new("heard", START_MS);
            event.occurred_at_ms = Some(occurred_ms as i64);
            let mut out = Submission::default();
            let at = out.event(&event);
            let mut stager = tally_core::counter::Stager::new(engine.declarations(), engine.hasher());
            stager.stage(&event, at, &mut out, &mut |_, rejection| panic!("{rejection}"));
            out
        };
        engine.submit(heard(START_MS)).await.unwrap();
        assert_eq!(engine.submit(heard(START_MS - 10_000)).await.unwrap().answers, [Answer::Late]);
        let heard = engine.hasher().key(b"heard");
        time.until(|| engine.read(heard) == Hot::Value(2)).await;
        for part in 0..20 {
            engine.submit(numbered(&engine, &format!("x{part}-"), 1_000)).await.unwrap();
        }
        assert_eq!(contents(&engine).await.len(), 20_011);
        time.until(|| engine.len() == 20_010).await;
        ended_ms.set(engine.clock().now_ms());
        engine.stop().await.unwrap();
    });
    let checkpoint = ground.store.checkpoint().unwrap().unwrap();
    (checkpoint.state, checkpoint.position, ended_ms.get())
}

#[test]
fn a_whole_engine_runs_on_one_thread_in_a_time_of_its_own_and_twice_the_same() {
    let first = live();
    assert!((START_MS + 60_000..START_MS + 61_000).contains(&first.2), "it took a minute: {}", first.2);
    assert_eq!(live(), first);
}

#[test]
fn a_checkpoint_that_fails_is_tried_again_after_five_seconds_and_its_worker_says_so() {
    let store = full::Stubborn::default();
    let refuses = store.refuses.clone();
    let mut ground = Ground { store: Arc::new(store), ..Ground::new(1 << 20) };
    ground.options.checkpoint_records = 5;
    refuses.store(true, Ordering::Release);
    simulated(&mut ground, async |engine, time| {
        engine.submit(numbered(&engine, "x", 10)).await.unwrap();
        time.until(|| shown(&engine, "cut").errors_in_a_row == 3).await;
        let cut = shown(&engine, "cut");
        assert_eq!((cut.state, cut.next_at_ms), (WorkerState::Throttled, Some(engine.clock().now_ms() + 5_000)));
        assert!(cut.last_error.unwrap().text.contains("it is stubborn"));
        assert_eq!(shown(&engine, "checkpoint").errors, 3);
        assert!(engine.is_checkpoint_failing() && engine.health().is_ok());
        refuses.store(false, Ordering::Release);
        time.until(|| engine.metrics().checkpoints.get() == 1).await;
        let cut = shown(&engine, "cut");
        assert_eq!((cut.state, cut.errors_in_a_row), (WorkerState::Idle, 0));
        assert!((15_000..15_100).contains(&(engine.clock().now_ms() - START_MS)), "three times five seconds");
    });
}

#[test]
fn after_a_worker_has_broken_counters_are_read_and_nothing_is_written_down_any_more() {
    let mut ground = Ground::new(1 << 20);
    simulated(&mut ground, async |engine, _| {
        engine.submit(numbered(&engine, "x", 3)).await.unwrap();
        assert_eq!(contents(&engine).await.len(), 3);
        engine.submit(numbered(&engine, "x", 3)).await.unwrap();
        engine.troubles().fail_worker("late", "it panicked");
        let refused = |refusal: Refusal| assert!(matches!(refusal, Refusal::WorkerFailed(_)), "{refusal}");
        refused(engine.submit(numbered(&engine, "x", 3)).await.unwrap_err());
        let twice = |n| (format!("x{n}").into_bytes(), 2);
        assert_eq!(contents(&engine).await, [0, 1, 2].map(twice), "the store has all names");
        refused(engine.stop().await.unwrap_err());
    });
    assert_eq!(
        ground.store.checkpoint().unwrap().unwrap().position.offset,
        3,
        "what memory has may be half of something"
    );
}
