//! What the engine does for its own health, on a thread that may take its time: it tells the filters which rows the store
//! has, and forgets idempotency keys whose time is over.
//!
//! Each is a *pass* over some rows of the store, a unit of work per chunk of them. A pass that fails goes on where it stood.

use super::question::Question;
use super::shared::{Message, Shared};
use super::{Engine, Refusal};
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::id::CellKey;
use tally_core::ledger::{Answered, LOOKED_UP, LedgerKey, LedgerKind, LookedUpKind, Row};
use tally_core::machine::Machine;
use tokio::sync::oneshot;

/// Rows read, and handed to the writer, at a time.
const CHUNK_ROWS: usize = 16 * 1024;
/// How often expired idempotency keys are looked for.
const FORGET_EVERY: Duration = Duration::from_secs(10 * 60);
const RETRY: Retry = Retry { first: Duration::from_secs(1), most: FORGET_EVERY };

/// What a pass over rows of the store is for.
#[derive(Clone, Copy)]
enum TendPass {
    /// Fills a filter that does not know yet what the store has. Without it everything is looked up, which is slower and no
    /// less right.
    Teach(&'static LookedUpKind),
    /// Forgets idempotency keys whose time is over.
    Forget,
}

/// At a start every filter is taught; then keys are forgotten, which may leave a filter to be taught anew.
fn passes() -> impl Iterator<Item = TendPass> {
    let answers = LOOKED_UP.iter().filter(|looked_up| looked_up.kind == LedgerKind::Answer);
    LOOKED_UP.iter().map(TendPass::Teach).chain([TendPass::Forget]).chain(answers.map(TendPass::Teach))
}

/// How much of it is done at a start only.
fn once() -> usize {
    LOOKED_UP.len()
}

/// What the writer is told, which changes nothing that anybody can see.
pub(super) enum Tending {
    /// The store has rows under these keys.
    Teach(LedgerKind, Vec<CellKey>),
    /// And no others.
    Taught(LedgerKind),
    /// The store had these answers when so many cuts were in it.
    Forget { cuts: u64, answers: Vec<(CellKey, Answered)> },
    /// All of them were looked at.
    Forgotten,
    /// The keys of a counter are to be gone through: which of them are worth most is not known any more.
    Walk(Box<str>),
}

impl Tending {
    /// Which answers are over is for the state to say, by the time of the log: nobody may get another answer because they are
    /// gone. Rows that a cut has replaced since they were read are left alone; the next time finds what is left.
    pub fn tend(self, state: &mut Machine, shared: &Shared) {
        match self {
            Tending::Teach(kind, keys) => state.looked_up_mut(kind).filter_add(&keys),
            Tending::Taught(kind) => state.looked_up_mut(kind).filter_done(),
            Tending::Forget { cuts, answers } if shared.cuts.load(Ordering::Acquire) == cuts => {
                state.values.forget_answers(answers);
            }
            Tending::Forget { .. } => {}
            Tending::Forgotten => state.values.renew_answers(),
            Tending::Walk(counter) => {
                state.values.want_walk(&counter);
                shared.walk_due.wake();
            }
        }
    }
}

struct IsLearning(LedgerKind);

impl Question for IsLearning {
    type Answer = bool;

    fn answer(self, state: &Machine) -> bool {
        state.looked_up(self.0).filter_is_learning()
    }
}

struct Tender {
    engine: Engine,
    /// The pass under way, of [`passes`].
    pass: usize,
    /// Where it goes on; `None` before its first row.
    from: Option<Vec<u8>>,
    /// Rows that it has seen.
    seen: u64,
}

/// Some rows of the store, by the number of cuts from which on they were read.
struct FilterChunk {
    cuts: u64,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Engine {
    /// Starts the worker for all this.
    pub fn start_tending(&self) -> io::Result<()> {
        let does = "tells the filters which rows the store has, and forgets idempotency keys whose time is over";
        let tender = Tender { engine: self.clone(), pass: 0, from: None, seen: 0 };
        self.workers().apart(Spec::new("tend", does, RETRY), tender)
    }

    pub(super) async fn tend(&self, tending: Tending) -> Result<(), Refusal> {
        let (done, waits) = oneshot::channel();
        self.shared.send(Message::Tend { tending, done }).await?;
        waits.await.map_err(|_| Refusal::ShuttingDown)
    }
}

impl Work for Tender {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let Some(pass) = passes().nth(self.pass) else {
            self.pass = once();
            return Ok(Next::After(FORGET_EVERY));
        };
        if !self.is_over(pass).await? {
            context.progress(format!("{} ({} rows)", pass.doing(), self.seen));
            return Ok(Next::Again);
        }
        (self.pass, self.from, self.seen) = (self.pass + 1, None, 0);
        Ok(Next::Again)
    }
}

impl Tender {
    /// Goes on with a pass by one chunk.
    async fn is_over(&mut self, pass: TendPass) -> Result<bool, Refusal> {
        if let (TendPass::Teach(taught), None) = (pass, &self.from)
            && !self.engine.ask(IsLearning(taught.kind)).await?
        {
            return Ok(true);
        }
        let chunk = self.read(pass.kind())?;
        let is_last = chunk.rows.len() < CHUNK_ROWS;
        let (last, read) = (chunk.rows.last().map(|(key, _)| key.clone()), chunk.rows.len());
        self.hand_over(pass, chunk).await?;
        self.seen += read as u64;
        // The first key behind the last one.
        self.from = last.map(|mut key| {
            key.push(0);
            key
        });
        if is_last {
            self.engine.tend(pass.end()).await?;
        }
        Ok(is_last)
    }

    fn read(&self, kind: LedgerKind) -> Result<FilterChunk, Refusal> {
        let shared = &self.engine.shared;
        let (range, cuts) = (LedgerKey::range(kind), shared.cuts.load(Ordering::Acquire));
        let from = self.from.as_ref().unwrap_or(&range.start);
        let mut rows = Vec::new();
        let visited = shared.store.ledger_rows(from, &range.end, &mut |key, row| {
            rows.push((key.to_vec(), row.to_vec()));
            if rows.len() < CHUNK_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        visited.map_err(|error| Refusal::store(&error))?;
        Ok(FilterChunk { cuts, rows })
    }

    async fn hand_over(&self, pass: TendPass, chunk: FilterChunk) -> Result<(), Refusal> {
        match pass {
            TendPass::Teach(taught) => {
                let keys = chunk.rows.iter().filter_map(|(key, _)| hashed(key)).collect();
                self.engine.tend(Tending::Teach(taught.kind, keys)).await
            }
            TendPass::Forget => {
                let answered = |(key, row): &(Vec<u8>, Vec<u8>)| Some((hashed(key)?, Answered::decode(row).ok()?));
                let answers = chunk.rows.iter().filter_map(answered).collect();
                self.engine.tend(Tending::Forget { cuts: chunk.cuts, answers }).await
            }
        }
    }
}

impl TendPass {
    fn kind(self) -> LedgerKind {
        match self {
            TendPass::Teach(taught) => taught.kind,
            TendPass::Forget => LedgerKind::Answer,
        }
    }

    fn doing(self) -> String {
        match self {
            TendPass::Forget => "forgetting idempotency keys whose time is over".to_owned(),
            TendPass::Teach(taught) => format!("telling the filter of {} what the store has", taught.name),
        }
    }

    /// What the writer is told when it is over.
    fn end(self) -> Tending {
        match self {
            TendPass::Teach(taught) => Tending::Taught(taught.kind),
            TendPass::Forget => Tending::Forgotten,
        }
    }
}

/// The hash in a key of the ledger, where the key is one.
fn hashed(key: &[u8]) -> Option<CellKey> {
    LedgerKey::decode(key).ok()?.looked_up_hash()
}
