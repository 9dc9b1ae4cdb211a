//! What is told while the writer waits for the disk.

use super::lists::added;
use super::*;
use futures_util::FutureExt;
use std::sync::{Condvar, Mutex};
use tally_storage::log::{Appended, Log};

/// A log whose syncs wait while it is shut.
struct GatedLog {
    log: MemoryLog,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    standing: Mutex<Standing>,
    changed: Condvar,
}

#[derive(Default)]
struct Standing {
    is_shut: bool,
    /// The writer is in a sync that does not end before the gate is opened.
    waits: bool,
}

impl Gate {
    fn shut(&self, is_shut: bool) {
        self.standing.lock().unwrap().is_shut = is_shut;
        self.changed.notify_all();
    }

    fn until_the_writer_waits(&self) {
        drop(self.changed.wait_while(self.standing.lock().unwrap(), |standing| !standing.waits).unwrap());
    }

    fn pass(&self) {
        let mut standing = self.standing.lock().unwrap();
        standing.waits = standing.is_shut;
        self.changed.notify_all();
        let mut standing = self.changed.wait_while(standing, |standing| standing.is_shut).unwrap();
        standing.waits = false;
    }
}

impl Log for GatedLog {
    type Handle = <MemoryLog as Log>::Handle;

    fn append(&mut self, log_time_ms: u64, count: u32, records: &[u8]) -> Result<Appended, LogError> {
        self.log.append(log_time_ms, count, records)
    }

    fn sync(&mut self) -> Result<Position, LogError> {
        self.gate.pass();
        self.log.sync()
    }

    fn end(&self) -> Position {
        self.log.end()
    }

    fn log_time_ms(&self) -> u64 {
        self.log.log_time_ms()
    }

    fn batch_bytes_max(&self) -> usize {
        self.log.batch_bytes_max()
    }

    fn handle(&self) -> Self::Handle {
        self.log.handle()
    }
}

fn open_gated(gate: &Arc<Gate>) -> EngineThread<GatedLog> {
    let open_log = |_| Ok(GatedLog { log: MemoryLog::open(&MemoryDisk::default()), gate: gate.clone() });
    let options = EngineOptions::default();
    let store = Arc::new(MemoryStore::default());
    let restored = recovery::restore(&*store, CellHasher::new(1), options.table_bytes).unwrap();
    let declarations = Declarations::parse(CONFIG).unwrap();
    recovery::open(restored, store, open_log, no_commits, Some(declarations), options).unwrap().0
}

/// What all keys of a counter come to, and the greatest of them, if that is told before anybody else gets a turn.
fn told_at_once(engine: &Engine) -> Option<(Option<i128>, Vec<i64>)> {
    let ranking = engine.greatest("hits", None, 2).now_or_never()?.unwrap().unwrap();
    Some((ranking.total.value, ranking.greatest.keys.iter().map(|key| key.value).collect()))
}

fn live(thread: EngineThread<GatedLog>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, thread.run(async |_| ()));
}

#[test]
fn whoever_asks_while_the_disk_keeps_the_writer_waiting_is_told_what_was_acknowledged_before() {
    let gate = Arc::<Gate>::default();
    let thread = open_gated(&gate);
    let engine = thread.engine();
    let submit = || pollster::block_on(engine.submit(added(&engine, 1..=3))).unwrap();
    let (told, total) = std::thread::scope(|scope| {
        scope.spawn(move || live(thread));
        submit();
        gate.shut(true);
        let second = scope.spawn(submit);
        gate.until_the_writer_waits();
        let told = [told_at_once(&engine), told_at_once(&engine)];
        gate.shut(false);
        second.join().unwrap();
        let total = pollster::block_on(engine.total("hits")).unwrap().unwrap();
        pollster::block_on(engine.stop()).unwrap();
        (told, total)
    });
    let before = Some((Some(6), vec![3, 2]));
    assert_eq!(told, [before.clone(), before]);
    assert_eq!(total.value, Some(12), "whoever was acknowledged finds it");
}
