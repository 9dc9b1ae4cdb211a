//! The seam to whoever answers questions in SQL, over the archive and over what counters say now.
//!
//! The engine for that is large, so it is a crate of its own that is handed in at the start: nothing else depends on it.

use crate::engine::{Engine, Refusal, Snapshot};
use crate::frontend::budget::Budget;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures_util::future::BoxFuture;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tally_core::position::Position;

/// Answers questions. Whoever drops the answer's future ends the question.
pub trait Sql: Send + Sync {
    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, SqlError>>;
}

/// A statement that only reads, and how much may be spent on it.
#[derive(Clone)]
pub struct Question {
    pub statement: String,
    pub rows_max: usize,
    pub time: Duration,
    /// What counters are seen at; now if it is left out.
    pub snapshot: Option<Arc<Snapshot>>,
}

pub struct Answer {
    pub schema: SchemaRef,
    pub rows: Vec<RecordBatch>,
    /// There are more rows.
    pub is_truncated: bool,
    /// Every event before it was seen, and none behind it, if the archive was asked.
    pub archive: Option<Position>,
    /// The moment at which the counters were seen, if they were asked for.
    pub live: Option<Position>,
}

/// Why there is no answer, by what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// Ask something else: the words say what is wrong.
    #[error("{0}")]
    Wrong(String),
    /// Ask for less, or allow more time.
    #[error("it took longer than {0:?}")]
    TooLong(Duration),
    /// Ask for less.
    #[error("{0}")]
    TooMuch(String),
    #[error("{0}")]
    Refused(#[from] Refusal),
}

/// What an engine for SQL is made from.
pub struct SqlParts {
    pub engine: Engine,
    /// The directory of the archive, if there is one.
    pub archive: Option<PathBuf>,
    /// Where what does not fit into memory is put; whatever is there is of no use to anybody.
    pub spill: PathBuf,
    /// Of all clients: what a question holds is charged to it.
    pub budget: Arc<Budget>,
}

pub type MakeSql = fn(SqlParts) -> io::Result<Arc<dyn Sql>>;
