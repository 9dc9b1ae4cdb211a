//! The engine against a naive model: random submissions, checkpoints, evictions, restarts and crashes; and a disk that
//! fails at every single call.

mod alone;
mod backups;
mod bands;
mod cold;
mod commits;
mod corrections;
mod full;
mod ground;
mod lent;
mod lists;
mod model;
mod senders;
mod series;
mod tend;

use super::*;
use crate::engine::recovery;
use model::{Life, Model, Step, apply, event, id, lives, submission};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Weak;
use tally_core::event::Event;
use tally_core::record::{ExpireCondition, SetCondition};
use tally_storage::log::local::{LocalLog, LogOptions};
use tally_storage::log::memory::{MemoryDisk, MemoryLog};
use tally_storage::store::Store;
use tally_storage::store::local::{LocalStore, StoreIdentity};
use tally_storage::store::memory::MemoryStore;
use tally_wal::testing::{Fault, FaultDisk};
use tally_wal::{Disk, RealDisk};

const CONFIG: &str = "\
counters:
  - {counterName: hits, mode: simple, dimensions: [page], rules: [{on: hit, op: increment}]}
  - {counterName: paid, mode: persistent, dimensions: [page], rules: [{on: ad, op: increment}]}
  - {counterName: all, mode: persistent, rules: [{on: ad, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [page], entity: [user], rules: [{on: like, op: increment}, {on: unlike, op: decrement}]}
  - {counterName: views, mode: display, dedup: {by: [session, seq], window: 1h}, rules: [{on: view, op: increment}]}
";

fn options() -> EngineOptions {
    EngineOptions {
        // About what empty tables of cells and of the ledger take: every clean cell that is not in use leaves, and checkpoints come all the time.
        table_bytes: 150_000,
        checkpoint_records: 7,
        checkpoint_ledger_rows: 9,
        // So few that most keys of a counter may leave memory.
        listed_keys: 2,
        ..EngineOptions::default()
    }
}

/// For those who look at something else: every start begins without commits.
fn no_commits(_: bool) -> Result<MemoryLog, LogError> {
    Ok(MemoryLog::open(&MemoryDisk::default()))
}

fn open_on<D: Disk>(store: Arc<dyn Store>, disk: D) -> Result<EngineThread<LocalLog<D>>, RecoveryError> {
    let open_log = |from_offset| {
        let log = LogOptions { segment_bytes: 8 << 10, log_id: 9, from_offset, ..LogOptions::default() };
        Ok(LocalLog::open_on(disk, log)?.0)
    };
    let declarations = Declarations::parse(CONFIG).unwrap();
    let restored = recovery::restore(&*store, CellHasher::new(1), options().table_bytes)?;
    let opened = recovery::open(restored, store, open_log, no_commits, Some(declarations), options());
    opened.map(|(thread, _)| thread)
}

/// Runs `test` beside an engine. When `test` is done the engine is dropped where it stands, as a killed process would.
fn beside<D: Disk, T>(thread: EngineThread<LocalLog<D>>, test: impl AsyncFnOnce(Engine) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = thread.engine();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        crate::worker::Spawner::task(thread.run(async |_| ()));
        test(engine).await
    })
}

async fn contents(engine: &Engine) -> Vec<(Vec<u8>, i64)> {
    let (mut counters, mut after) = (Vec::new(), None);
    loop {
        let page = engine.scan(Space::MAIN, Vec::new(), after, 7).await.unwrap();
        counters.extend(page.counters.into_iter().map(|(id, reading)| (id, reading.value)));
        after = page.next;
        if after.is_none() {
            return counters;
        }
    }
}

fn values(model: &Model) -> Vec<(Vec<u8>, i64)> {
    let counters = model.iter().filter(|(id, _)| !id.starts_with(b"\0"));
    counters.map(|(id, counter)| (id.clone(), counter.value)).collect()
}

/// How many counters there are, when every cell is settled.
async fn size(engine: &Engine) -> Answer {
    let mut submission = Submission::default();
    submission.size(0);
    engine.submit(submission).await.unwrap().answers[0]
}

async fn check(engine: &Engine, model: &Model) {
    assert_eq!(size(engine).await, Answer::Value(values(model).len() as i64));
    for n in 0..40 {
        let expected = model.get(&id(n)).map(|counter| counter.value);
        let found = engine.get(engine.hasher().key(&id(n))).await.unwrap();
        assert_eq!(found.map(|reading| reading.value), expected, "counter {n}");
    }
    lists::check(engine, model).await;
}

/// The model does not know when an id was first seen, nor how its content is hashed.
fn without_first(answer: Answer) -> Answer {
    match answer {
        Answer::Claimed { .. } => Answer::No,
        other => other,
    }
}

/// Lives through `lives` up to the next restart or crash; answers what is left to live.
async fn live(engine: &Engine, model: &mut Model, lives: &mut std::vec::IntoIter<Life>) {
    check(engine, model).await;
    for life in lives {
        match life {
            Life::Submit(steps) => {
                let committed = engine.submit(submission(&steps, engine)).await.unwrap();
                let expected: Vec<_> = steps.iter().flat_map(|step| apply(model, step)).collect();
                let answers: Vec<_> = committed.answers.iter().map(|answer| without_first(*answer)).collect();
                assert_eq!(answers, expected, "{steps:?}");
            }
            Life::Checkpoint => engine.checkpoint(Wanted::Everything).await.unwrap(),
            Life::Scan => assert_eq!(contents(engine).await, values(model)),
            Life::Restart => {
                engine.stop().await.unwrap();
                break;
            }
            Life::Crash => break,
        }
        check(engine, model).await;
    }
}

fn live_on<D: Disk>(lives: Vec<Life>, open: impl Fn() -> EngineThread<LocalLog<D>>) {
    let mut model = Model::new();
    let mut lives = lives.into_iter();
    while lives.len() > 0 {
        beside(open(), async |engine| live(&engine, &mut model, &mut lives).await);
    }
    beside(open(), async |engine| assert_eq!(contents(&engine).await, values(&model)));
}

/// Opens an engine in a directory, once the one before, whose store `last` is, has let go of it.
fn open_in(dir: &Path, last: &RefCell<Weak<LocalStore>>) -> EngineThread<LocalLog<RealDisk>> {
    while last.borrow().strong_count() > 0 {
        std::thread::yield_now();
    }
    let store = loop {
        match LocalStore::open(&dir.join("store"), StoreIdentity::default(), 1 << 20) {
            Ok(store) => break Arc::new(store),
            // Nobody has it any more, and yet it is still on its way out.
            Err(error) if error.to_string().contains("Locked") => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    last.replace(Arc::downgrade(&store));
    open_on(store, RealDisk::open(dir.join("log")).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_engine_is_its_model_whatever_happens_to_it(lives in lives()) {
        let (store, disk) = (Arc::new(MemoryStore::default()), FaultDisk::new(1));
        live_on(lives, || {
            // A killed process takes its checkpoint thread with it; here that thread has to end first.
            while Arc::strong_count(&store) > 1 {
                std::thread::yield_now();
            }
            open_on(store.clone(), disk.clone()).unwrap()
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn so_it_is_on_a_real_disk(lives in lives()) {
        let dir = tempfile::tempdir().unwrap();
        let last = RefCell::default();
        live_on(lives, || open_in(dir.path(), &last));
    }
}

/// A fixed life with everything in it, for a disk that fails at each of its calls in turn.
fn eventful_life() -> Vec<Vec<Step>> {
    let adds = |from: u8| (from..from + 6).map(|n| Step::Add(n, i64::from(n) + 1)).collect::<Vec<_>>();
    let mut life =
        vec![adds(0), adds(3), vec![Step::Delete(1), Step::Event(1, 2), Step::Set(2, 70, SetCondition::Always)]];
    life.extend((0..12).map(|n| vec![Step::Add(n, 1), Step::Event(n, 1), Step::Add(30, 1)]));
    life.extend((0..6).map(|n| vec![Step::Claim(n, 0), Step::Claim(n / 2, 0), Step::Like(n % 2, 1, 1, n % 3 != 0)]));
    let viewed = |n: u8| vec![Step::View(0, n.into()), Step::View(0, (n / 2).into())];
    life.extend((0..4).map(viewed));
    life.extend((0..4).map(|n| vec![Step::Once(n, 1, 1), Step::Once(0, 1, 1)]));
    life.push(vec![Step::Flush, Step::Add(5, 5)]);
    life.extend((0..6).map(|n| vec![Step::Claim(n % 3, 0), Step::Once(1, n % 2, 1), Step::Like(0, 1, 2, n % 2 == 0)]));
    life.extend((0..6).map(|n| vec![Step::Add(n, 3), Step::Delete(n + 1), Step::Event(9, 1)]));
    life
}

/// Lives until the disk fails. Answers the model as of what was acknowledged, and as of what was attempted.
fn live_until_failure(disk: &FaultDisk, store: &Arc<MemoryStore>) -> (Model, Model) {
    let mut acknowledged = Model::new();
    let Ok(thread) = open_on(store.clone(), disk.clone()) else {
        return (acknowledged.clone(), acknowledged);
    };
    beside(thread, async |engine| {
        for steps in eventful_life() {
            let mut attempted = acknowledged.clone();
            for step in &steps {
                apply(&mut attempted, step);
            }
            match engine.submit(submission(&steps, &engine)).await {
                Ok(_) => acknowledged = attempted,
                Err(_) => return (acknowledged, attempted),
            }
        }
        (acknowledged.clone(), acknowledged)
    })
}

fn check_recovery(disk: FaultDisk, store: &Arc<MemoryStore>, (acknowledged, attempted): &(Model, Model), case: &str) {
    // Each recovery goes on by itself, store included.
    let store = Arc::new(MemoryStore::clone(store));
    let recovered = beside(open_on(store, disk).unwrap(), async |engine| contents(&engine).await);
    assert!(
        recovered == values(acknowledged) || recovered == values(attempted),
        "{case}: recovered {recovered:?}, acknowledged {acknowledged:?}, attempted {attempted:?}"
    );
}

/// How many calls a life without failures makes.
fn calls_of_a_life() -> u64 {
    let disk = FaultDisk::new(0);
    let (acknowledged, _) = live_until_failure(&disk, &Arc::default());
    assert!(!acknowledged.is_empty());
    disk.calls()
}

#[test]
fn a_power_cut_at_any_call_loses_nothing_acknowledged() {
    for call in 0..calls_of_a_life() {
        for fault in [Fault::CrashBefore, Fault::CrashDuring, Fault::CrashAfter] {
            let (disk, store) = (FaultDisk::new(call), Arc::<MemoryStore>::default());
            disk.fail_at(call, fault);
            let models = live_until_failure(&disk, &store);
            for seed in 0..3 {
                check_recovery(
                    disk.power_cut(seed),
                    &store,
                    &models,
                    &format!("{fault:?} at call {call}, seed {seed}"),
                );
            }
        }
    }
}

#[test]
fn a_failing_call_stops_writes_and_a_restart_recovers() {
    for call in 0..calls_of_a_life() {
        let (disk, store) = (FaultDisk::new(call), Arc::<MemoryStore>::default());
        disk.fail_at(call, Fault::Error);
        let models = live_until_failure(&disk, &store);
        check_recovery(disk.process_end(), &store, &models, &format!("an error at call {call}"));
        check_recovery(disk.power_cut(call), &store, &models, &format!("an error at call {call}, then a power cut"));
    }
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    for kib in (0..160).step_by(2) {
        let (disk, store) = (FaultDisk::new(kib), Arc::<MemoryStore>::default());
        disk.set_bytes_max(Some(kib << 10));
        let models = live_until_failure(&disk, &store);
        disk.set_bytes_max(None);
        check_recovery(disk.process_end(), &store, &models, &format!("{kib} KiB"));
        check_recovery(disk.power_cut(kib), &store, &models, &format!("{kib} KiB, then a power cut"));
    }
}

fn open_with(options: EngineOptions, segment_bytes: u64) -> EngineThread<LocalLog<FaultDisk>> {
    let disk = FaultDisk::new(1);
    let open_log = |from_offset| {
        let log = LogOptions { segment_bytes, log_id: 9, from_offset, ..LogOptions::default() };
        Ok(LocalLog::open_on(disk, log)?.0)
    };
    let store = Arc::new(MemoryStore::default());
    let restored = recovery::restore(&*store, CellHasher::new(1), options.table_bytes).unwrap();
    recovery::open(restored, store, open_log, no_commits, None, options).unwrap().0
}

fn one_each(engine: &Engine, ids: impl Iterator<Item = String>) -> Submission {
    let mut out = Submission::default();
    ids.for_each(|id| out.add(engine.hasher().key(id.as_bytes()), id.as_bytes(), 1));
    out
}

fn numbered(engine: &Engine, prefix: &str, count: usize) -> Submission {
    one_each(engine, (0..count).map(|n| format!("{prefix}{n}")))
}

#[test]
fn a_cell_stays_while_a_submission_that_needs_it_is_staged_behind_a_full_batch() {
    // Less than an empty table takes, so that every commit makes room.
    let options = EngineOptions { table_bytes: options().table_bytes, ..EngineOptions::default() };
    beside(open_with(options, 8 << 10), async |engine| {
        let counted = |engine: &Engine| numbered(engine, "x", 20);
        let nearly_full = |engine: &Engine| one_each(engine, (0..360).map(|_| "filler123".to_owned()));
        engine.submit(counted(&engine)).await.unwrap();
        for round in 2..60 {
            engine.checkpoint(Wanted::Everything).await.unwrap();
            for _ in 0..round % 13 {
                engine.submit(numbered(&engine, "other", 1)).await.unwrap();
            }
            let (first, second) = tokio::join!(engine.submit(nearly_full(&engine)), engine.submit(counted(&engine)));
            first.unwrap();
            assert_eq!(second.unwrap().answers, vec![Answer::Value(round); 20]);
        }
    });
}

#[test]
fn writes_that_wait_for_room_get_it_and_count_right() {
    let options = EngineOptions { table_bytes: 400_000, ..EngineOptions::default() };
    beside(open_with(options, 8 << 20), async |engine| {
        engine.submit(numbered(&engine, "x", 2000)).await.unwrap();
        for round in 2..12 {
            engine.checkpoint(Wanted::Everything).await.unwrap();
            engine.submit(numbered(&engine, &format!("new{round}-"), 20_000)).await.unwrap();
            let committed = engine.submit(numbered(&engine, "x", 2000)).await.unwrap();
            assert_eq!(committed.answers, vec![Answer::Value(round); 2000]);
        }
    });
}

#[test]
fn a_flush_while_a_cold_counter_is_looked_up_forgets_what_was_found() {
    let options = EngineOptions { table_bytes: options().table_bytes, ..EngineOptions::default() };
    beside(open_with(options, 8 << 20), async |engine| {
        for round in 0..50 {
            engine.submit(numbered(&engine, "x", 20)).await.unwrap();
            engine.checkpoint(Wanted::Everything).await.unwrap();
            // Commits that drive out what was not used lately.
            for n in 0..round % 30 {
                engine.submit(one_each(&engine, std::iter::once(format!("y{n}")))).await.unwrap();
            }
            let mut flush = Submission::default();
            flush.flush();
            let (counted, flushed) = tokio::join!(engine.submit(numbered(&engine, "x", 20)), engine.submit(flush));
            flushed.unwrap();
            let before = vec![Answer::Value(2); 20];
            let after = vec![Answer::Value(1); 20];
            let answers = counted.unwrap().answers;
            assert!(answers == before || answers == after, "round {round}: {answers:?}");
            assert_eq!(engine.len(), if answers == before { 0 } else { 20 });
            let mut flush = Submission::default();
            flush.flush();
            engine.submit(flush).await.unwrap();
        }
    });
}
