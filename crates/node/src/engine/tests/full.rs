//! Memory or disk is full: what goes on, what is refused and told, and that it passes by itself.

use super::ground::Ground;
use super::*;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use tally_core::memory::cell::CellRow;
use tally_storage::store::key::Key;
use tally_storage::store::{Checkpoint, Cut, Error, Reads, VisitRow};

fn events(engine: &Engine, steps: impl IntoIterator<Item = Step>) -> Submission {
    submission(&steps.into_iter().collect::<Vec<_>>(), engine)
}

fn lasting(engine: &Engine) -> Vec<Trouble> {
    engine.troubles().lasting().into_iter().map(|(trouble, _)| trouble).collect()
}

/// Waits for the next look of the writer at the clock, of which there are many a second.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A store that takes no cuts for a while.
#[derive(Default)]
pub struct Stubborn {
    store: MemoryStore,
    pub refuses: Arc<AtomicBool>,
    /// Nor can it be read.
    pub is_unreadable: Arc<AtomicBool>,
}

impl Stubborn {
    fn readable(&self) -> Result<&MemoryStore, Error> {
        match self.is_unreadable.load(Ordering::Acquire) {
            true => Err(Error::Retry("it cannot be read".into())),
            false => Ok(&self.store),
        }
    }
}

impl Reads for Stubborn {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        self.store.checkpoint()
    }

    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.readable()?.read(keys)
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error> {
        self.store.rows(from, visit)
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.store.names(prefix, after, limit)
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.readable()?.ledger_rows(from, to, visit)
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.store.ledger_rows_back(from, to, visit)
    }
}

impl Store for Stubborn {
    fn snapshot(&self) -> Result<Box<dyn Reads>, Error> {
        self.store.snapshot()
    }

    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        match self.refuses.load(Ordering::Acquire) {
            true => Err(Error::Retry("it is stubborn".into())),
            false => self.store.commit(cut),
        }
    }
}

#[test]
fn a_node_that_refuses_all_writes_for_want_of_room_says_so_until_it_has_some() {
    let store = Stubborn::default();
    let refuses = store.refuses.clone();
    let mut ground = Ground { store: Arc::new(store), ..Ground::new(1 << 20) };
    ground.options.busy_after = Duration::from_millis(20);
    ground.options.checkpoint_retry = Duration::from_millis(20);
    refuses.store(true, Ordering::Release);
    beside(ground.open().0, async |engine| {
        let mut part = 0;
        let refusal = loop {
            part += 1;
            if let Err(refusal) = engine.submit(numbered(&engine, &format!("x{part}-"), 5_000)).await {
                break refusal;
            }
        };
        assert!(matches!(refusal, Refusal::Busy { .. }), "{refusal}");
        assert_eq!(lasting(&engine), [Trouble::Crowded]);
        assert!(Trouble::Crowded.refuses_all_writes());
        refuses.store(false, Ordering::Release);
        until(async || lasting(&engine).is_empty()).await;
        engine.submit(numbered(&engine, "y", 5_000)).await.unwrap();
    });
}

#[test]
fn when_the_memory_of_repeats_is_full_only_what_needs_more_is_rejected_until_a_window_has_passed() {
    let config = "\
counters:
  - {counterName: views, mode: display, dedup: {by: [session, seq], window: 1h}, rules: [{on: view, op: increment}]}
  - {counterName: paid, mode: persistent, dimensions: [page], rules: [{on: ad, op: increment}]}
";
    let (clock, hands) = Clock::settable(1_700_000_000_000);
    let mut ground = Ground { config: Some(config), ..Ground::new(400 << 10) };
    ground.options.clock = clock;
    let session = |n: usize, seq| {
        let mut event = event(&Step::View(0, seq));
        event.session = Some(format!("s{n}").into());
        event
    };
    let stage = |engine: &Engine, events: Vec<Event<'static>>| {
        let mut out = Submission::default();
        let mut stager = tally_core::counter::Stager::new(engine.declarations(), engine.hasher());
        for event in events {
            let at = out.event(&event);
            stager.stage(&event, at, &mut out, &mut |_, rejection| panic!("{rejection}"));
        }
        out
    };
    let rejected_before = std::cell::Cell::new(0);
    ground.live(async |engine| {
        let mut known = 0;
        while lasting(&engine) != [Trouble::RepeatsFull] {
            let fresh = (known..known + 200).map(|n| session(n, 5)).collect();
            let answers = engine.submit(stage(&engine, fresh)).await.unwrap().answers;
            // It may have filled up behind the last look.
            let rejected = answers.iter().filter(|answer| **answer == Answer::NoRoom).count() as i64;
            rejected_before.update(|before| before + rejected);
            known += 200;
            tokio::task::yield_now().await;
        }
        assert!(!Trouble::RepeatsFull.refuses_all_writes());
        // What must count as a whole is not rejected in part, and leaves nothing behind.
        let mut strict = stage(&engine, vec![session(0, 5), session(0, 6), event(&Step::Claim(1, 1)), session(0, 9)]);
        strict.needs.strict = true;
        let Err(Refusal::NotAll(answers)) = engine.submit(strict).await else { panic!("there is no room") };
        let counted = Answer::Counted;
        assert_eq!(*answers, [Answer::Duplicate, counted, Answer::Yes, counted, Answer::NoRoom]);
        let fates = vec![session(1_000_000, 0), session(0, 5), session(0, 6), session(0, 9), event(&Step::Claim(1, 1))];
        let answers = engine.submit(stage(&engine, fates)).await.unwrap().answers;
        let counted = Answer::Counted;
        let expected = [Answer::NoRoom, Answer::Duplicate, counted, Answer::NoRoom, Answer::Yes, counted];
        assert_eq!(answers, expected);
        engine.submit(numbered(&engine, "x", 3)).await.unwrap();
    });
    // A crash: the replay comes to the same, and so does what follows.
    ground.live(async |engine| {
        until(async || lasting(&engine) == [Trouble::RepeatsFull]).await;
        let fates = vec![session(1_000_000, 0), session(0, 6), session(0, 7)];
        let answers = engine.submit(stage(&engine, fates)).await.unwrap().answers;
        assert_eq!(answers, [Answer::NoRoom, Answer::Duplicate, Answer::Counted]);
        let rejected = engine.look(|state| state.balance("views").unwrap().boxes.rejected).await.unwrap();
        assert_eq!(rejected, rejected_before.get() + 3);
        // Nobody writes, and yet time passes.
        hands.pass(2 * 60 * 60 * 1000 + 2_000);
        until(async || lasting(&engine).is_empty()).await;
        let answers = engine.submit(stage(&engine, vec![session(1_000_000, 0)])).await.unwrap().answers;
        assert_eq!(answers, [Answer::Counted]);
    });
}

#[test]
fn duplicates_without_end_bring_about_the_checkpoints_that_they_need() {
    // No cut is due by its number of rows.
    let ground = Ground { config: Some(CONFIG), ..Ground::new(1 << 20) };
    ground.live(async |engine| {
        while engine.metrics().checkpoints.get() < 3 {
            let again = events(&engine, (0..100).map(|_| Step::Claim(1, 1)));
            engine.submit(again).await.unwrap();
        }
    });
}

#[test]
fn a_full_disk_takes_the_log_from_a_backup_before_a_write_is_refused() {
    let ground = Ground { segment_bytes: 8 << 10, ..Ground::new(1 << 20) };
    ground.disk.set_bytes_max(Some(100 << 10));
    ground.live(async |engine| {
        let held = engine.whole().await.unwrap().hold;
        held.only_from(0);
        while !held.has_lapsed() {
            assert_eq!(engine.log_needed_from(), 0, "until then it is kept");
            engine.submit(numbered(&engine, "x", 100)).await.unwrap();
            ground.keep_house(&engine);
        }
        assert!(engine.applied().offset > 100, "there was some room");
        held.only_from(0);
        assert!(held.has_lapsed(), "what has lapsed is not held again");
        until(async || {
            ground.keep_house(&engine);
            engine.submit(numbered(&engine, "x", 100)).await.is_ok() && engine.log_needed_from() > 0
        })
        .await;
    });
}

#[test]
fn a_log_of_two_windows_that_fills_the_disk_is_let_go_when_they_are_over() {
    let config = "\
counters:
  - {counterName: views, mode: display, dedup: {by: [session, seq], window: 1s}, rules: [{on: view, op: increment}]}
";
    let ground = Ground { config: Some(config), segment_bytes: 8 << 10, ..Ground::new(1 << 20) };
    ground.disk.set_bytes_max(Some(100 << 10));
    ground.live(async |engine| {
        for round in 0..2 {
            let mut seq = 0;
            let refusal = loop {
                seq += 100;
                let views = events(&engine, (seq..seq + 100).map(|seq| Step::View(round, seq)));
                if let Err(refusal) = engine.submit(views).await {
                    break refusal;
                }
            };
            assert!(matches!(refusal, Refusal::DiskFull(_)), "{refusal}");
            assert_eq!(lasting(&engine), [Trouble::DiskFull]);
            until(async || {
                ground.keep_house(&engine);
                lasting(&engine).is_empty()
            })
            .await;
            engine.submit(events(&engine, [Step::View(round, 0)])).await.unwrap();
        }
    });
}
