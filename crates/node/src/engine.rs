//! The engine: one writer that owns the state and the log, and handles to it for everybody else.
//!
//! The writer's thread turns: whatever is ready is staged, goes to the log with one write and one sync, is applied, and
//! everybody is answered. [`LocalEngine`] is the handle on that thread (RESP connections live there), [`Engine`] the one for
//! all other threads. Memory holds only what is durable, so readers look at the cells directly and wait for nobody.

mod audit;
mod bands;
mod checkpoint;
mod commits;
mod correction;
mod counters;
mod cut;
mod endings;
mod explain;
mod firsts;
mod leaders;
mod lent;
mod lists;
mod local;
mod lookup;
mod options;
mod place;
mod question;
mod queue;
mod recovery;
mod series;
mod settle;
mod share;
mod shared;
mod snapshot;
mod steps;
mod sweep;
mod tend;
#[cfg(test)]
mod tests;
mod thread;
mod tick;
mod together;
mod trouble;
mod turn;
mod view;
mod watch;
mod whole;
mod writer;

pub use audit::{AuditPage, AuditQuestion, AuditedRepeat};
pub use commits::{CommitReader, Commits, CommitsError, CommitsOptions};
use correction::decode_row;
pub use correction::{
    ClearRequest, Cleared, Corrected, CorrectionEffects, CorrectionError, CorrectionList, CorrectionRequest,
    CounterEffect, FoundCorrection, ListedCorrection, PreviewPart, Proposed, RemedyOutcome,
};
pub use explain::{CounterFacts, CounterHistory, Explained, Total, ValuesStanding};
pub use lists::{CounterTotal, Ranking};
pub use local::LocalEngine;
pub use options::{EngineOptions, NodeDurability};
pub use place::Place;
pub use recovery::{Recovered, RecoveryError, open, restore};
pub use series::{PartsOf, SeriesFound, SeriesWanted, TooMuch, TopFound, TopWanted};
pub use snapshot::Snapshot;
pub use steps::{HistoryPage, Said, Why};
pub use tally_core::memory::cell::Hot;
pub use thread::{EngineThread, Transacted};
pub use together::{MatchedSum, Matching};
pub use trouble::{Trouble, Troubles};
pub use watch::{Terms, Watch, Watched};
pub use whole::{LogHold, Whole};

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::worker::Workers;
use shared::{Message, Shared};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tally_core::counter::{Declarations, Stager};
use tally_core::database::Space;
use tally_core::id::{CellHasher, CellKey};
use tally_core::ledger::Fill;
use tally_core::op::{Answer, Submission};
use tally_core::position::Position;
use tally_core::record::Record;
use tally_storage::log::{LogError, LogHandle, LogReader};
use tally_storage::store::Reads;
use tokio::sync::oneshot;

/// A handle to the engine for any thread.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// What a commit answered.
#[derive(Debug)]
pub struct Committed {
    /// One per operation, in order.
    pub answers: Vec<Answer>,
    /// The position behind the commit's last record.
    pub position: Position,
    pub log_time_ms: u64,
}

/// What a counter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The true sum; a counter with a floor shows less of it.
    pub value: i64,
    /// The last correction that touched it, 0 if none did.
    pub generation: u64,
}

/// What a reader is told about a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `None` if there is no such counter.
    pub reading: Option<Reading>,
    /// Late entries that will count with the next run.
    pub pending: u64,
}

/// A log to read along with its writer.
pub trait Follow: Send + Sync {
    /// The oldest record that is still there.
    fn start(&self) -> Position;
    /// The position behind the last durable record.
    fn synced_end(&self) -> Position;
    fn reader(&self, from: Position) -> Result<Box<dyn LogReader>, LogError>;
}

impl<H: LogHandle<Reader: 'static>> Follow for H {
    fn start(&self) -> Position {
        LogHandle::start(self)
    }

    fn synced_end(&self) -> Position {
        LogHandle::synced_end(self)
    }

    fn reader(&self, from: Position) -> Result<Box<dyn LogReader>, LogError> {
        Ok(Box::new(LogHandle::reader(self, from)?))
    }
}

/// Why a submission was not committed.
///
/// After [`Refusal::LogFailed`], [`Refusal::WorkerFailed`] or [`Refusal::ShuttingDown`] of a submission that was under way nobody can know whether it
/// will be there after a restart; after the others nothing of it has happened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("Tally is catching up; try again in {} s", .retry_after.as_secs())]
    Busy { retry_after: Duration },
    #[error("{0}")]
    DiskFull(Arc<str>),
    #[error("the log has failed and takes no more writes until Tally is restarted: {0}")]
    LogFailed(Arc<str>),
    #[error("a worker has broken, and Tally takes no more writes until it is restarted: {0}")]
    WorkerFailed(Arc<str>),
    #[error("Tally is shutting down")]
    ShuttingDown,
    #[error("the store cannot be read: {0}")]
    StoreFailed(Arc<str>),
    /// The words say that it is the archive.
    #[error("{0}")]
    ArchiveFailed(Arc<str>),
    #[error("{0}")]
    TooLarge(Arc<str>),
    /// Some of what must count as a whole would not have counted; what would have become of each operation.
    #[error("not all of it would have counted, so nothing was")]
    NotAll(Arc<[Answer]>),
}

/// How long a caller should wait who was turned away.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Refusal {
    pub fn busy() -> Refusal {
        Refusal::Busy { retry_after: RETRY_AFTER }
    }

    fn store(error: &tally_storage::store::Error) -> Refusal {
        Refusal::StoreFailed(error.to_string().into())
    }
}

/// Live counters of a space in the order of their ids.
#[derive(Debug, Default)]
pub struct Page {
    pub counters: Vec<(Vec<u8>, Reading)>,
    /// Where to go on: the last id that was looked at; `None` at the end.
    pub next: Option<Vec<u8>>,
}

impl Engine {
    pub fn declarations(&self) -> Arc<Declarations> {
        self.shared.declarations.load_full()
    }

    pub fn hasher(&self) -> CellHasher {
        self.shared.hasher
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// The time of the node, from which log time is taken.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Whether writes are taken at all.
    pub fn health(&self) -> Result<(), Refusal> {
        self.shared.health()
    }

    /// What is wrong at the moment.
    pub fn troubles(&self) -> &Troubles {
        &self.shared.troubles
    }

    /// What goes on in the background.
    pub fn workers(&self) -> &Workers {
        &self.shared.workers
    }

    /// How many counters there are.
    pub fn len(&self) -> u64 {
        self.shared.cells.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them only the store has.
    pub fn cold(&self) -> u64 {
        self.shared.cells.cold()
    }

    /// Whose log it is: nothing of another one is taken for its archive.
    pub fn log_id(&self) -> u64 {
        self.shared.log_id
    }

    /// The first record of the log that a restart would replay, or that the archive or a backup does not have; what lies before it may be
    /// forgotten.
    pub fn log_needed_from(&self) -> u64 {
        let Shared { log_needed_from, archived, backing_up, .. } = &*self.shared;
        let holders = [log_needed_from, archived, backing_up].map(|from| from.load(Ordering::Acquire));
        holders.into_iter().min().expect("there are three")
    }

    /// The archive has everything before an offset: what is behind is kept for it, of the log and of the commits.
    pub fn hold_for_archive(&self, offset: u64) {
        self.shared.archived.store(offset, Ordering::Release);
    }

    /// Whether the last attempt at a checkpoint failed.
    pub fn is_checkpoint_failing(&self) -> bool {
        self.shared.checkpoint_failing.load(Ordering::Acquire)
    }

    /// Hands a submission to the writer and waits until it is durable and applied.
    pub async fn submit(&self, submission: Submission) -> Result<Committed, Refusal> {
        self.health()?;
        let (reply, answer) = oneshot::channel();
        let ring = self.shared.send_submission(submission, reply)?;
        // What others on this thread are about to send comes along in the same commit.
        give_way().await;
        drop(ring);
        answer.await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// Does a step of a fill; `false` if it cannot be done any more.
    pub async fn fill(&self, fill: &Fill) -> Result<bool, Refusal> {
        let mut submission = Submission::default();
        let record_at = submission.record(&Record::Fill(&fill.encode()));
        fill.stage(&mut Stager::new(self.declarations(), self.hasher()), record_at, &mut submission);
        Ok(self.submit(submission).await?.answers.last() == Some(&Answer::Yes))
    }

    /// What memory knows, at once.
    pub fn read(&self, cell: CellKey) -> Hot {
        self.shared.cells.read(cell, || self.shared.clock.now_ms())
    }

    /// Asks for the memory of a counter that is read a little later.
    #[inline]
    pub fn prefetch(&self, cell: CellKey) {
        self.shared.cells.prefetch(cell);
    }

    /// Everything before this position is applied.
    pub fn applied(&self) -> Position {
        *self.shared.applied.borrow()
    }

    /// Waits until everything before an offset is applied.
    pub async fn wait_for(&self, offset: u64) {
        // The writer's end of the channel is as old as we are.
        let _ = self.shared.applied.subscribe().wait_for(|applied| applied.offset >= offset).await;
    }

    /// The log, to read along.
    pub fn log(&self) -> &dyn Follow {
        &*self.shared.log
    }

    /// What the log came to, as commits.
    pub fn commits(&self) -> &Commits {
        &self.shared.commits
    }

    /// Sees to it that commits say what they did to each counter, and goes on seeing to it for as long as commits are kept.
    /// Answers the position from which on they do.
    pub async fn follow_commits(&self) -> Result<Position, Refusal> {
        self.shared.commits.hold(self.shared.clock.now_ms());
        let (reply, answer) = oneshot::channel();
        self.shared.send(Message::Follow { reply }).await?;
        answer.await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// Up to `limit` keys of a space behind `after` that start with `prefix`, less those that are gone. Ids get into the
    /// store with a checkpoint, so a walk begins with one, if there are ids that wait for it.
    pub async fn scan(
        &self,
        space: Space,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Page, Refusal> {
        if after.is_none() {
            self.checkpoint(Wanted::NewNames).await?;
        }
        let page =
            move |shared: &Shared, store: &dyn Reads| shared.page(store, space, &prefix, after.as_deref(), limit);
        self.shared.from_store(page).await
    }

    /// Takes a checkpoint, or waits for one that has what is wanted.
    async fn checkpoint(&self, wanted: Wanted) -> Result<(), Refusal> {
        let (done, waits) = oneshot::channel();
        self.shared.send(Message::Checkpoint { wanted, done }).await?;
        waits.await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// Finishes what was accepted, takes a last checkpoint and ends the writer's thread.
    pub async fn stop(&self) -> Result<(), Refusal> {
        self.shared.begin_stop();
        let (done, waits) = oneshot::channel();
        self.shared.send(Message::Stop { done }).await?;
        waits.await.unwrap_or(Err(Refusal::ShuttingDown))
    }
}

/// What a checkpoint is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// To find ids that were created or deleted since the last one.
    NewNames,
    /// To restart quickly.
    Everything,
}

/// Lets everything else that is ready on this thread go first, once.
async fn give_way() {
    let mut has_given = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
