//! Series and tops beside a store that takes its time.

use super::ground::Ground;
use super::*;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex};
use tally_core::memory::cell::CellRow;
use tally_core::series::Series;
use tally_storage::store::key::Key;
use tally_storage::store::{Checkpoint, Cut, Error, Reads, VisitRow};

const CONFIG: &str = "counters:\n  - {counterName: hits, mode: simple, dimensions: [page], rules: [{on: hit, op: increment}], rollups: [[hour]]}\n";

/// A store whose cuts wait at a gate while it is closed.
#[derive(Default)]
struct Gated {
    store: MemoryStore,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opens: Condvar,
    waiting: std::sync::atomic::AtomicBool,
}

impl Gate {
    fn set(&self, closed: bool) {
        *self.is_closed.lock().unwrap() = closed;
        self.opens.notify_all();
    }

    fn pass(&self) {
        let mut closed = self.is_closed.lock().unwrap();
        while *closed {
            self.waiting.store(true, Ordering::Release);
            closed = self.opens.wait(closed).unwrap();
        }
    }
}

impl Reads for Gated {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        self.store.checkpoint()
    }

    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.store.read(keys)
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error> {
        self.store.rows(from, visit)
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.store.names(prefix, after, limit)
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.store.ledger_rows(from, to, visit)
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.store.ledger_rows_back(from, to, visit)
    }
}

impl Store for Gated {
    fn snapshot(&self) -> Result<Box<dyn Reads>, Error> {
        self.store.snapshot()
    }

    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        self.gate.pass();
        self.store.commit(cut)
    }
}

fn hits(engine: &Engine, delta: i64) -> Submission {
    let mut out = Submission::default();
    out.add_to(&engine.declarations().resolve(&engine.hasher(), b"hits:p").unwrap(), delta);
    out
}

/// What the only key came to, and the counter as a whole.
async fn counted(engine: &Engine) -> [i64; 2] {
    let declarations = engine.declarations();
    let kept = &declarations.rollups_of("hits")[0];
    let empty = Series::new(kept, &[], None, 0..u32::MAX, 1).unwrap();
    let of = |id: &str| PartsOf {
        cell: engine.hasher().key(id.as_bytes()),
        rollup: kept.number,
        deciding: Vec::new(),
        whole: None,
        counter: "hits".into(),
        coarser: Vec::new(),
    };
    let wanted = ["hits:p", "hits"].map(|id| SeriesWanted { of: of(id), matching: None, empty: empty.clone() });
    let found = engine.series(wanted.into()).await.unwrap().unwrap();
    [0, 1].map(|at| found[at].series.totals()[0])
}

#[test]
fn what_was_flushed_is_in_no_series_while_the_cut_that_says_so_is_under_way() {
    let store = Gated::default();
    let gate = store.gate.clone();
    let ground = Ground { store: Arc::new(store), config: Some(CONFIG), ..Ground::new(1 << 20) };
    ground.live(async |engine| {
        engine.submit(hits(&engine, 5)).await.unwrap();
        engine.checkpoint(Wanted::Everything).await.unwrap();
        assert_eq!(counted(&engine).await, [5, 5]);
        let mut flush = Submission::default();
        flush.flush();
        engine.submit(flush).await.unwrap();
        engine.submit(hits(&engine, 2)).await.unwrap();
        assert_eq!(counted(&engine).await, [2, 2]);
        gate.set(true);
        let looked = async {
            while !gate.waiting.load(Ordering::Acquire) {
                tokio::task::yield_now().await;
            }
            let during = counted(&engine).await;
            gate.set(false);
            during
        };
        let (cut, during) = tokio::join!(engine.checkpoint(Wanted::Everything), looked);
        cut.unwrap();
        assert_eq!(during, [2, 2]);
        assert_eq!(counted(&engine).await, [2, 2]);
    });
}
