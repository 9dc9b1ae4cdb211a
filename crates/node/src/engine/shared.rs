//! What all threads of a node share: the cells, the store, and the way to the writer.

use super::lookup::{Found, Lookup};
use super::{Committed, Page, Refusal, Wanted};
use crate::clock;
use crate::metrics::Metrics;
use arc_swap::ArcSwap;
use flume::{Sender, TrySendError};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tally_core::cell::{Cells, Hot};
use tally_core::counter::Declarations;
use tally_core::id::{CellHasher, CellKey};
use tally_core::limits::QUEUE_BYTES_MAX;
use tally_core::op::{Op, Submission};
use tally_storage::store::Store;
use tokio::sync::oneshot;

/// The answer to a submission.
pub(super) type Reply = oneshot::Sender<Result<Committed, Refusal>>;
/// Word that something is done.
pub(super) type Done = oneshot::Sender<Result<(), Refusal>>;

/// What other threads ask of the writer.
pub(super) enum Message {
    Submit { submission: Submission, reply: Reply },
    Checkpoint { wanted: Wanted, done: Done },
    Stop { done: Done },
}

pub(super) struct Shared {
    pub cells: Arc<Cells>,
    pub hasher: CellHasher,
    pub declarations: ArcSwap<Declarations>,
    pub metrics: Arc<Metrics>,
    pub store: Arc<dyn Store>,
    pub messages: Sender<Message>,
    pub lookups: Sender<Lookup>,
    /// How many cuts the writer knows to be in the store. Rows read under one number are as good as each other.
    pub cuts: AtomicU64,
    /// The first record that a restart would replay.
    pub log_needed_from: AtomicU64,
    queue_bytes: AtomicUsize,
    failed: OnceLock<Arc<str>>,
    stopping: AtomicBool,
}

impl Shared {
    pub fn new(
        cells: Arc<Cells>,
        hasher: CellHasher,
        declarations: Arc<Declarations>,
        metrics: Arc<Metrics>,
        store: Arc<dyn Store>,
        messages: Sender<Message>,
        lookups: Sender<Lookup>,
    ) -> Shared {
        Shared {
            cells,
            hasher,
            declarations: ArcSwap::new(declarations),
            metrics,
            store,
            messages,
            lookups,
            cuts: AtomicU64::new(0),
            log_needed_from: AtomicU64::new(0),
            queue_bytes: AtomicUsize::new(0),
            failed: OnceLock::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Whether the log takes writes.
    pub fn log_health(&self) -> Result<(), Refusal> {
        self.failed.get().map_or(Ok(()), |reason| Err(Refusal::LogFailed(reason.clone())))
    }

    /// Whether anybody's writes are taken.
    pub fn health(&self) -> Result<(), Refusal> {
        self.log_health()?;
        if self.stopping.load(Ordering::Acquire) { Err(Refusal::ShuttingDown) } else { Ok(()) }
    }

    /// After this no write is taken any more. The first reason stays.
    pub fn fail(&self, reason: &str) -> Refusal {
        Refusal::LogFailed(self.failed.get_or_init(|| reason.into()).clone())
    }

    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub fn send_submission(&self, submission: Submission, reply: Reply) -> Result<(), Refusal> {
        let bytes = queued_bytes(&submission);
        let before = self.queue_bytes.fetch_add(bytes, Ordering::AcqRel);
        // A single submission always fits: its own size is bounded where it is made.
        let fits = before == 0 || before + bytes <= QUEUE_BYTES_MAX;
        let sent = if fits {
            self.messages.try_send(Message::Submit { submission, reply }).map_err(refusal)
        } else {
            Err(Refusal::busy())
        };
        if sent.is_err() {
            self.queue_bytes.fetch_sub(bytes, Ordering::AcqRel);
            self.metrics.queue_refusals.inc();
        }
        sent
    }

    /// The writer took a submission from the queue.
    pub fn left_queue(&self, submission: &Submission) {
        self.queue_bytes.fetch_sub(queued_bytes(submission), Ordering::AcqRel);
    }

    pub async fn send(&self, message: Message) -> Result<(), Refusal> {
        self.messages.send_async(message).await.map_err(|_| Refusal::ShuttingDown)
    }

    /// Asks the store for cells, on threads that may wait for a disk.
    pub async fn lookup(&self, keys: Vec<CellKey>) -> Result<Found, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.lookups.send_async(Lookup { keys, reply }).await.map_err(|_| Refusal::ShuttingDown)?;
        answer.await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// A page of live counters. Blocks on the store.
    pub fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, Refusal> {
        let ids = self.store.names(prefix, after, limit).map_err(|error| Refusal::store(&error))?;
        let next = (ids.len() == limit).then(|| ids.last().cloned()).flatten();
        let mut counters = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(value) = self.value(self.hasher.key(&id))? {
                counters.push((id, value));
            }
        }
        Ok(Page { counters, next })
    }

    fn value(&self, key: CellKey) -> Result<Option<i64>, Refusal> {
        match self.cells.read(key, clock::now_ms) {
            Hot::Value(value) => Ok(Some(value)),
            Hot::Absent => Ok(None),
            Hot::Cold => Ok(Found::read(self, vec![key])?.value(key, clock::now_ms())),
        }
    }
}

fn queued_bytes(submission: &Submission) -> usize {
    submission.records.len() + submission.ops.len() * size_of::<Op>()
}

fn refusal(error: TrySendError<Message>) -> Refusal {
    match error {
        TrySendError::Full(_) => Refusal::busy(),
        TrySendError::Disconnected(_) => Refusal::ShuttingDown,
    }
}
