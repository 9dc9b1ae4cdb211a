//! The engine: one writer that owns the state and the log, and handles to it for everybody else.
//!
//! The writer's thread turns: whatever is ready is staged, goes to the log with one write and one sync, is applied, and
//! everybody is answered. [`LocalEngine`] is the handle on that thread (RESP connections live there), [`Engine`] the one for
//! all other threads. Memory holds only what is durable, so readers look at the cells directly and wait for nobody.

mod checkpoint;
mod lookup;
mod options;
mod recovery;
mod shared;
#[cfg(test)]
mod tests;
mod thread;
mod writer;

pub use options::{Durability, EngineOptions};
pub use recovery::{Recovered, RecoveryError, decode_state, open, restore};
pub use tally_core::cell::Hot;
pub use thread::{EngineThread, LocalEngine};

use crate::clock;
use crate::metrics::Metrics;
use shared::{Message, Shared};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::counter::Declarations;
use tally_core::id::{CellHasher, CellKey};
use tally_core::op::{Answer, Submission};
use tally_core::position::Position;
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

/// Why a submission was not committed.
///
/// After [`Refusal::LogFailed`] or [`Refusal::Stopping`] of a submission that was under way nobody can know whether it
/// will be there after a restart; after the others nothing of it has happened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("Tally is catching up; try again in {} s", .retry_after.as_secs())]
    Busy { retry_after: Duration },
    #[error("{0}")]
    DiskFull(Arc<str>),
    #[error("the log has failed and takes no more writes until Tally is restarted: {0}")]
    LogFailed(Arc<str>),
    #[error("Tally is shutting down")]
    ShuttingDown,
    #[error("the store cannot be read: {0}")]
    StoreFailed(Arc<str>),
    #[error("{0}")]
    TooLarge(Arc<str>),
}

/// How long a caller should wait who was turned away.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Refusal {
    fn busy() -> Refusal {
        Refusal::Busy { retry_after: RETRY_AFTER }
    }

    fn store(error: &tally_storage::store::Error) -> Refusal {
        Refusal::StoreFailed(error.to_string().into())
    }
}

/// Live counters in the order of their ids.
#[derive(Debug, Default)]
pub struct Page {
    pub counters: Vec<(Vec<u8>, i64)>,
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

    /// Whether writes are taken at all.
    pub fn health(&self) -> Result<(), Refusal> {
        self.shared.health()
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

    /// The first record of the log that a restart would replay; what lies before it may be forgotten.
    pub fn log_needed_from(&self) -> u64 {
        self.shared.log_needed_from.load(Ordering::Acquire)
    }

    /// Hands a submission to the writer and waits until it is durable and applied.
    pub async fn submit(&self, submission: Submission) -> Result<Committed, Refusal> {
        self.health()?;
        let (reply, answer) = oneshot::channel();
        self.shared.send_submission(submission, reply)?;
        answer.await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// What memory knows, at once.
    pub fn read(&self, cell: CellKey) -> Hot {
        self.shared.cells.read(cell, clock::now_ms)
    }

    /// Asks for the memory of a counter that is read a little later.
    #[inline]
    pub fn prefetch(&self, cell: CellKey) {
        self.shared.cells.prefetch(cell);
    }

    /// Reads a counter from memory or, if it is cold, from the store on another thread.
    pub async fn get(&self, cell: CellKey) -> Result<Option<i64>, Refusal> {
        match self.read(cell) {
            Hot::Value(value) => Ok(Some(value)),
            Hot::Absent => Ok(None),
            Hot::Cold => {
                let found = self.shared.lookup(vec![cell]).await?;
                Ok(found.value(cell, clock::now_ms()))
            }
        }
    }

    /// Up to `limit` ids behind `after` that start with `prefix`, less those that are gone. Ids get into the store with
    /// a checkpoint, so a walk begins with one, if there are ids that wait for it.
    pub async fn scan(&self, prefix: Vec<u8>, after: Option<Vec<u8>>, limit: usize) -> Result<Page, Refusal> {
        if after.is_none() {
            self.checkpoint(Wanted::NewNames).await?;
        }
        let shared = self.shared.clone();
        let page = tokio::task::spawn_blocking(move || shared.page(&prefix, after.as_deref(), limit));
        page.await.unwrap_or(Err(Refusal::ShuttingDown))
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
