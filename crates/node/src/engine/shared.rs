//! What all threads of a node share: the cells, the store, and the way to the writer.

use super::commits::Commits;
use super::correction::{CorrectionError, CorrectionRequest, RemedyOutcome};
use super::lent::Lent;
use super::lookup::{Found, Lookup};
use super::question::Asked;
use super::queue::{Queues, Ring};
use super::snapshot::Snapshots;
use super::tend::Tending;
use super::trouble::Troubles;
use super::{Committed, Follow, Reading, Refusal, Wanted};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::worker::{Spawner, Wake, Workers};
use arc_swap::ArcSwap;
use flume::Sender;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tally_core::counter::{Declarations, Durability};
use tally_core::id::{CellHasher, CellKey};
use tally_core::machine::Need;
use tally_core::memory::cell::{Cells, Hot};
use tally_core::op::{Answer, Submission};
use tally_core::position::Position;
use tally_storage::store::Store;
use tokio::sync::{mpsc, oneshot, watch};

/// The answer to a submission.
pub(super) type Reply = oneshot::Sender<Result<Committed, Refusal>>;
/// Word that something is done.
pub(super) type Done = oneshot::Sender<Result<(), Refusal>>;

/// What other threads ask of the writer, beside commits.
pub(super) enum Message {
    Checkpoint {
        wanted: Wanted,
        done: Done,
    },
    /// Something is asked for about the past.
    Remedy {
        request: CorrectionRequest,
        reply: oneshot::Sender<Result<RemedyOutcome, CorrectionError>>,
    },
    /// Deltas are to be recorded; answers from where on.
    Follow {
        reply: oneshot::Sender<Result<Position, Refusal>>,
    },
    /// To know something of the state.
    Ask(Box<dyn Asked>),
    /// To change in the state what nobody can see: filters, rows that have expired.
    Tend {
        tending: Tending,
        done: oneshot::Sender<()>,
    },
    Stop {
        done: Done,
    },
}

pub(super) struct Shared {
    pub log_id: u64,
    pub cells: Arc<Cells>,
    pub hasher: CellHasher,
    pub declarations: ArcSwap<Declarations>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub troubles: Arc<Troubles>,
    pub workers: Workers,
    pub store: Arc<dyn Store>,
    pub log: Box<dyn Follow>,
    pub commits: Commits,
    pub snapshots: Snapshots,
    pub queues: Queues,
    pub messages: mpsc::Sender<Message>,
    /// The state, while the writer waits for the disk.
    pub lent: Arc<Lent>,
    pub lookups: Sender<Lookup>,
    /// How many cuts the writer knows to be in the store. Rows read under one number are as good as each other.
    pub cuts: AtomicU64,
    /// The first record that a restart would read.
    pub log_needed_from: AtomicU64,
    /// The first record that the archive does not have; `u64::MAX` if there is none to have it.
    pub archived: AtomicU64,
    /// The first record that a backup under way has still to read; `u64::MAX` if there is none.
    pub backing_up: AtomicU64,
    /// Where the last checkpoint stands.
    pub checkpointed: AtomicU64,
    /// The last attempt at a checkpoint failed.
    pub checkpoint_failing: AtomicBool,
    /// Everything before it is applied.
    pub applied: watch::Sender<Position>,
    /// Where the log ended when it was opened, which is where its epoch begins.
    pub epoch_began: u64,
    /// The node's own.
    pub durability: Durability,
    /// Somebody has to go through the keys of a counter.
    pub walk_due: Wake,
    /// Odd while a correction is being applied; it changes with every correction.
    pub revision: AtomicU64,
    stopping: AtomicBool,
}

/// What a [`Shared`] is made of.
pub(super) struct SharedParts {
    pub log_id: u64,
    pub cells: Arc<Cells>,
    pub hasher: CellHasher,
    pub declarations: Arc<Declarations>,
    pub store: Arc<dyn Store>,
    pub log: Box<dyn Follow>,
    pub commits: Commits,
    pub queues: Queues,
    pub messages: mpsc::Sender<Message>,
    pub lookups: Sender<Lookup>,
    pub applied: Position,
    pub durability: Durability,
    pub clock: Clock,
    pub spawner: Spawner,
}

impl Shared {
    pub fn new(parts: SharedParts) -> Shared {
        let metrics = Arc::new(Metrics::with_lag(parts.queues.lag().clone()));
        let troubles = Arc::new(Troubles::new(metrics.clone()));
        let board = metrics.workers.clone();
        Shared {
            log_id: parts.log_id,
            workers: Workers::new(parts.spawner, parts.clock.clone(), board, troubles.clone()),
            troubles,
            cells: parts.cells,
            hasher: parts.hasher,
            declarations: ArcSwap::new(parts.declarations),
            clock: parts.clock,
            metrics,
            store: parts.store,
            log: parts.log,
            commits: parts.commits,
            snapshots: Snapshots::default(),
            queues: parts.queues,
            messages: parts.messages,
            lent: Arc::default(),
            lookups: parts.lookups,
            cuts: AtomicU64::new(0),
            log_needed_from: AtomicU64::new(0),
            archived: AtomicU64::new(u64::MAX),
            backing_up: AtomicU64::new(u64::MAX),
            checkpointed: AtomicU64::new(0),
            checkpoint_failing: AtomicBool::new(false),
            applied: watch::Sender::new(parts.applied),
            epoch_began: parts.applied.offset,
            durability: parts.durability,
            walk_due: Wake::default(),
            revision: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// Whether writes can be taken, and what memory has be written down.
    pub fn log_health(&self) -> Result<(), Refusal> {
        self.troubles.failed().map_or(Ok(()), |refusal| Err(refusal.clone()))
    }

    /// Whether anybody's writes are taken.
    pub fn health(&self) -> Result<(), Refusal> {
        self.log_health()?;
        if self.stopping.load(Ordering::Acquire) { Err(Refusal::ShuttingDown) } else { Ok(()) }
    }

    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub fn send_submission(&self, submission: Submission, reply: Reply) -> Result<Ring<'_>, Refusal> {
        let sent = self.queues.send(submission, reply);
        if sent.is_err() {
            self.metrics.queue_refusals.inc();
        }
        sent
    }

    pub async fn send(&self, message: Message) -> Result<(), Refusal> {
        self.messages.send(message).await.map_err(|_| Refusal::ShuttingDown)
    }

    /// A time to live by log time, less a leap of the clock that is about to come.
    pub fn left(&self, ttl: Answer, now_ms: u64) -> Answer {
        match ttl {
            Answer::Value(ms) => Answer::Value(self.clock.left_ms(now_ms.saturating_add_signed(ms)) as i64),
            other => other,
        }
    }

    /// Does something that may wait for a disk, where nobody waits for it but the caller.
    pub async fn blocking<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
        self.workers.spawner().blocking(call).await.ok_or(Refusal::ShuttingDown)
    }

    /// Asks the store, on threads that may wait for a disk.
    pub async fn lookup(&self, needs: Vec<Need>) -> Result<Found, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.lookups.send_async(Lookup { needs, reply }).await.map_err(|_| Refusal::ShuttingDown)?;
        answer.await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// What memory knows, value and generation.
    pub fn read(&self, key: CellKey) -> Result<Option<Reading>, Cold> {
        match self.cells.read(key, || self.clock.now_ms()) {
            Hot::Value(value) => Ok(Some(Reading { value, generation: self.cells.generation(key) })),
            Hot::Absent => Ok(None),
            Hot::Cold => Err(Cold),
        }
    }
}

/// Only the store knows.
pub(super) struct Cold;
