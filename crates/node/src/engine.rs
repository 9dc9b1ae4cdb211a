//! The engine: one writer that owns the state and the log, and handles to it for everybody else.

use std::time::Duration;
use std::sync::Arc;
use tally_core::id::{CellHasher, CellKey};
use tally_core::op::{Answer, Submission};
use tally_core::position::Position;
use tally_core::counter::Declarations;

/// A handle to the engine for any thread.
#[derive(Clone)]
pub struct Engine {}

/// A handle to the engine on the writer's own thread, for RESP connections.
#[derive(Clone)]
pub struct LocalEngine {}

/// What a commit answered.
#[derive(Debug)]
pub struct Committed {
    /// One per operation, in order.
    pub answers: Vec<Answer>,
    /// The position behind the submission's last record.
    pub position: Position,
    pub log_time_ms: u64,
}

/// Why a submission was not committed. Nothing of it has happened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("Tally is catching up; try again in {} s", .retry_after.as_secs())]
    Busy { retry_after: Duration },
    #[error("the log has failed and takes no more writes until Tally is restarted: {0}")]
    LogFailed(Arc<str>),
    #[error("Tally is shutting down")]
    ShuttingDown,
    #[error("the store cannot be read: {0}")]
    StoreFailed(Arc<str>),
}

/// What memory knows about a counter right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hot {
    Value(i64),
    Absent,
    /// Only the store knows.
    Cold,
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
        unimplemented!()
    }
    pub fn hasher(&self) -> CellHasher {
        unimplemented!()
    }
    /// Hands a submission to the writer and waits until it is durable and applied.
    pub async fn submit(&self, submission: Submission) -> Result<Committed, Refusal> {
        let _ = submission;
        unimplemented!()
    }
    pub fn read(&self, cell: CellKey) -> Hot {
        let _ = cell;
        unimplemented!()
    }
    /// Reads a counter from memory or, if it is cold, from the store on another thread.
    pub async fn get(&self, cell: CellKey) -> Result<Option<i64>, Refusal> {
        let _ = cell;
        unimplemented!()
    }
    /// Up to `limit` names behind `after` that start with `prefix`, less those that are gone.
    pub async fn scan(&self, prefix: Vec<u8>, after: Option<Vec<u8>>, limit: usize) -> Result<Page, Refusal> {
        let _ = (prefix, after, limit);
        unimplemented!()
    }
    /// How many counters there are.
    pub fn len(&self) -> u64 {
        unimplemented!()
    }
}

impl LocalEngine {
    pub fn engine(&self) -> &Engine {
        unimplemented!()
    }
    /// Memory's answer, at once; the caller must have no uncommitted write of its own.
    pub fn read(&self, cell: CellKey) -> Hot {
        let _ = cell;
        unimplemented!()
    }
    /// The time to live of a counter: `Value(ms)`, `No` (never expires), `Absent`, or `None` if only the store knows.
    pub fn ttl(&self, cell: CellKey) -> Option<Answer> {
        let _ = cell;
        unimplemented!()
    }
    /// Commits `submission`, which is empty afterwards, and replaces `answers` with one answer per operation.
    pub async fn submit(&self, submission: &mut Submission, answers: &mut Vec<Answer>) -> Result<(), Refusal> {
        let _ = (submission, answers);
        unimplemented!()
    }
}
