//! The thread that writes cuts to the store while the writer goes on.

mod before;

use super::commits::CommitQueue;
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use before::RowsBefore;
use flume::{Receiver, Sender};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tally_core::ledger::LedgerCut;
use tally_core::limits::STORE_VALUE_BYTES_MAX;
use tally_core::memory::cell::Collected;
use tally_core::memory::names::Names;
use tally_core::position::Position;
use tally_storage::store::{Abandoned, Checkpoint, Cut, Error, Store, certain};
use tokio::sync::oneshot;

/// Segments that wait to be written: enough to keep the thread busy, few enough to cost no memory.
const CHUNKS_MAX: usize = 4;

/// What goes into a cut, beside the cells, which are handed over bit by bit.
pub(super) struct Content {
    pub from: Option<Position>,
    pub to: Checkpoint,
    pub replace: bool,
    pub names: Names,
    pub ledger: Arc<LedgerCut>,
    /// The first record that a start from this cut reads.
    pub read_from: u64,
    /// Of the log since the cut before.
    pub log_bytes: u64,
    /// Since when it is under way, by [`crate::clock::Clock::passed`].
    pub begun: Duration,
}

/// What the thread is asked for.
pub(super) enum Job {
    Write(CutJob),
    /// A cut has ended, and what was in it goes.
    Forget(Content),
}

/// One cut on its way.
pub(super) struct CutJob {
    content: Content,
    chunks: Receiver<Option<Collected>>,
    done: oneshot::Sender<Written>,
}

/// How a cut ended. The content is given back, since it is needed again if the cut failed.
pub(super) struct Written {
    pub result: Result<(), Error>,
    pub content: Content,
}

/// The writer's end of a job.
pub(super) struct Handover {
    /// `None` says that all segments are through; a drop without it abandons the cut.
    pub chunks: Sender<Option<Collected>>,
    pub written: oneshot::Receiver<Written>,
}

pub(super) fn job(content: Content) -> (CutJob, Handover) {
    let (send_chunks, chunks) = flume::bounded(CHUNKS_MAX);
    let (done, written) = oneshot::channel();
    (CutJob { content, chunks, done }, Handover { chunks: send_chunks, written })
}

/// Writes cuts until the writer is gone.
pub(super) struct Checkpointer {
    store: Arc<dyn Store>,
    commits: CommitQueue,
    jobs: Receiver<Job>,
    next: Option<CutJob>,
}

/// Hands out the chunks of a cut.
type Chunks<'a> = &'a mut dyn FnMut() -> Result<Option<Collected>, Abandoned>;

impl Checkpointer {
    /// Whether a cut is tried again is for those to say who asked for it.
    pub fn spec() -> Spec {
        let spec = Spec::new("checkpoint", "writes checkpoints to the store", Retry::NEVER);
        spec.waits_for("a checkpoint to be written").vital()
    }

    pub fn new(store: Arc<dyn Store>, commits: CommitQueue, jobs: Receiver<Job>) -> Checkpointer {
        Checkpointer { store, commits, jobs, next: None }
    }

    fn write(&self, content: &Content, chunks: Chunks<'_>) -> Result<(), Error> {
        check_size(&content.to)?;
        let before = RowsBefore::new(&self.store, content.replace)?;
        let mut ledger = content.ledger.rows_over(&before);
        let result = self.store.commit(Cut {
            from: content.from,
            to: &content.to,
            replace: content.replace,
            names: &content.names,
            rows: chunks,
            ledger: &mut std::iter::from_fn(|| before.checked(ledger.next())),
        });
        certain(&self.store, content.to.position, result)
    }
}

impl Work for Checkpointer {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let Some(CutJob { content, chunks, done }) = self.next.take() else { return Ok(Next::WhenWoken) };
        // The log is durable up to here, then the commits are, then the cut is.
        let settled = self.commits.settle().await.map_err(|error| Error::Retry(error.to_string()));
        let result = if settled.is_err() {
            settled
        } else if context.is_among_others() {
            // Whoever collects them has to have a turn.
            let mut gathered = gather(&chunks).await.into_iter();
            self.write(&content, &mut || gathered.next().unwrap_or(Err(Abandoned)))
        } else {
            self.write(&content, &mut || chunks.recv().map_err(|_| Abandoned))
        };
        let failure = result.as_ref().err().filter(|error| !matches!(error, Error::Abandoned)).map(WorkFailure::from);
        let _ = done.send(Written { result, content });
        failure.map_or(Ok(Next::WhenWoken), Err)
    }

    async fn wait(&mut self) -> ControlFlow<()> {
        loop {
            match self.jobs.recv_async().await {
                Ok(Job::Write(job)) => {
                    self.next = Some(job);
                    return ControlFlow::Continue(());
                }
                Ok(Job::Forget(content)) => drop(content),
                Err(_) => return ControlFlow::Break(()),
            }
        }
    }
}

/// Everything that comes, to the end or to the point where it was abandoned.
async fn gather(chunks: &Receiver<Option<Collected>>) -> Vec<Result<Option<Collected>, Abandoned>> {
    let mut gathered = Vec::new();
    loop {
        let chunk = chunks.recv_async().await.map_err(|_| Abandoned);
        let is_last = matches!(chunk, Ok(None) | Err(_));
        gathered.push(chunk);
        if is_last {
            return gathered;
        }
    }
}

/// What could not be read again is not written: the log still has it.
fn check_size(checkpoint: &Checkpoint) -> Result<(), Error> {
    let bytes = checkpoint.state.len();
    if bytes <= STORE_VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::Retry(format!(
        "a checkpoint would take {bytes} bytes, and at most {STORE_VALUE_BYTES_MAX} can be read back"
    )))
}
