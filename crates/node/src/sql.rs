//! The seam to whoever answers questions in SQL, over the archive and over what counters say now.
//!
//! The engine for that is large, so it is a crate of its own that is handed in at the start: nothing else depends on it.

use crate::engine::{Engine, Refusal, Snapshot};
use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tally_core::position::Position;

/// Answers questions. Whoever drops the answer's future ends the question.
pub trait Sql: Send + Sync {
    /// What a statement finds, as bytes of a form.
    fn write(&self, question: Question, form: Form) -> BoxFuture<'_, Result<Written, SqlError>>;
}

impl dyn Sql {
    /// What a statement finds, as rows.
    pub async fn ask(&self, question: Question) -> Result<Answer, SqlError> {
        let Written { bytes, is_truncated, archive, live, .. } = self.write(question, Form::Arrow).await?;
        let rows = StreamReader::try_new(&*bytes, None).and_then(Iterator::collect);
        let rows = rows.map_err(|error| Refusal::StoreFailed(error.to_string().into()))?;
        Ok(Answer { rows, is_truncated, archive, live })
    }
}

/// The argument of a program that is to answer a question.
pub const ANSWER: &str = "answer-sql";

/// A statement that only reads, and how much may be spent on it.
#[derive(Clone)]
pub struct Question {
    pub statement: String,
    pub rows_max: usize,
    pub time: Duration,
    /// What counters are seen at; now if it is left out.
    pub snapshot: Option<Arc<Snapshot>>,
    pub asker: Asker,
}

/// Who asks: each has places of their own, so that nobody keeps the node from recounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    Client,
    Node,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Form {
    /// A list of objects.
    Json,
    /// With the names of the columns before the rows.
    Csv,
    /// A stream of Arrow's IPC.
    Arrow,
}

/// A column of an answer, by its name and the word for what it has: `text`, `integer`, `number`, `boolean`, `time`, or what the engine calls it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    pub kind: String,
}

/// Rows that are written down.
#[derive(Debug)]
pub struct Written {
    pub columns: Vec<Column>,
    pub bytes: Vec<u8>,
    pub row_count: u64,
    /// There are more rows.
    pub is_truncated: bool,
    /// Every event before it was seen, and none behind it, if the archive was asked.
    pub archive: Option<Position>,
    /// The moment at which the counters were seen, if they were asked for.
    pub live: Option<Position>,
}

/// Rows, as [`Written`] has them otherwise.
pub struct Answer {
    pub rows: Vec<RecordBatch>,
    pub is_truncated: bool,
    pub archive: Option<Position>,
    pub live: Option<Position>,
}

/// Why there is no answer, by what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// Ask something else: the words say what is wrong.
    #[error("{0}")]
    Wrong(String),
    /// Ask in another way: the engine itself broke.
    #[error("{0}")]
    Broke(String),
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
    /// What all questions together may count on; it is beside what the node has.
    pub memory_bytes: usize,
}

pub type MakeSql = fn(SqlParts) -> io::Result<Arc<dyn Sql>>;
