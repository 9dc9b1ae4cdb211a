//! The log seam: ordered batches of records, durable once synced, read from any position.
//!
//! The log is the truth that everything else is derived from. One owner appends through [`Log`]; everybody else holds a
//! [`LogHandle`] and follows with a [`LogReader`]. Every implementation passes the same `suite`.

use tally_core::position::Position;

pub mod local;
pub mod memory;
pub mod suite;

/// The one writer of a log.
///
/// The contract:
/// - Records are numbered from 0 without gaps, in the order of the appends. A batch is read as it was appended, or not at all.
/// - What was appended when [`Log::sync`] succeeds survives any crash. Readers see records only then, so nobody ever acts
///   on a record that is later lost.
/// - Log time never runs backwards: a batch gets the time given or that of the batch before, whichever is later.
/// - Every opening has an epoch of its own, higher than all before. So a position that was lost with an unsynced tail is
///   never given to another record.
/// - After [`LogError::Failed`] nothing more is appended until the log is opened again. Readers go on.
pub trait Log: Send {
    type Handle: LogHandle;

    /// Appends `count` records (at least one), encoded one behind the other in `records`.
    fn append(&mut self, log_time_ms: u64, count: u32, records: &[u8]) -> Result<Appended, LogError>;

    /// Makes everything appended durable. Answers the position behind it.
    fn sync(&mut self) -> Result<Position, LogError>;

    /// The position of the next record, durable up to it or not.
    fn end(&self) -> Position;

    /// Log time of the last batch; 0 in an empty log.
    fn log_time_ms(&self) -> u64;

    /// The largest `records` that one append takes.
    fn batch_bytes_max(&self) -> usize;

    fn handle(&self) -> Self::Handle;
}

/// What any thread may do with a log while its owner writes.
pub trait LogHandle: Clone + Send + Sync + 'static {
    type Reader: LogReader;

    /// The oldest record that is still there.
    fn start(&self) -> Position;

    /// The position behind the last durable record.
    fn synced_end(&self) -> Position;

    /// Reads from the batch with record `from` on. That batch may begin earlier: the caller passes over the records before
    /// `from`. Only the offset counts: the epoch of a position says when it was handed out.
    fn reader(&self, from: Position) -> Result<Self::Reader, LogError>;

    /// Allows everything before `from` to be forgotten, when and as far as that is convenient.
    fn retain_from(&self, from: Position) -> Result<(), LogError>;

    /// What it takes on the disk, or in memory if it is there.
    fn bytes(&self) -> u64;

    /// Does work ahead of the writer, such as preparing files; takes its time, so call it off the writer's thread whenever
    /// the log has grown. Answers whether there was any.
    fn prepare(&self) -> Result<bool, LogError>;

    /// Undoes the work done ahead: somebody else needs the room that it takes.
    fn give_up_prepared(&self) -> Result<(), LogError>;
}

/// Follows a log.
pub trait LogReader: Send {
    /// The next batch up to the synced end, or `None` there; ask again when the end has moved.
    fn next(&mut self) -> Result<Option<LogBatch<'_>>, LogError>;

    /// Gives back the memory that the last batches took, and keeps its place: whoever is not going to read for a while may
    /// have a lot of it.
    fn rest(&mut self);
}

/// Where a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The position of its first record.
    pub position: Position,
    pub log_time_ms: u64,
}

/// A batch as it was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBatch<'a> {
    /// The position of its first record, with the epoch in which it was appended.
    pub position: Position,
    pub count: u32,
    pub log_time_ms: u64,
    pub records: &'a [u8],
}

impl LogBatch<'_> {
    /// The offset behind its last record.
    pub fn end_offset(&self) -> u64 {
        self.position.offset + u64::from(self.count)
    }
}

/// What went wrong, by what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// Split the batch. Nothing was appended.
    #[error("a batch of {bytes} bytes is too large for the log, which takes {max} at most: send it in smaller parts")]
    TooLarge { bytes: usize, max: usize },
    /// Free some space and append again. Nothing was appended.
    #[error("the log's disk is full: {0}")]
    Full(String),
    /// Try again, perhaps later. Nothing was done.
    #[error("the log cannot be reached: {0}")]
    Retry(String),
    /// Append the very same again: whether it was appended is not known. Readers tell a batch that stands there twice by its sender.
    #[error("the log did not say whether it has the batch: {0}")]
    Unknown(String),
    /// Stop writing, and open the log again: this writer is fenced off. What it appended since the last sync may be there or not.
    #[error("{0}")]
    Failed(String),
    /// Start from a base that contains everything before `first`.
    #[error("record {wanted} is no longer in the log, which begins at record {first}")]
    Trimmed { wanted: u64, first: u64 },
    /// Ask an operator; the text says what is where, and what can be done.
    #[error("{0}")]
    Damaged(String),
}
