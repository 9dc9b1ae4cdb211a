//! The view seam: what owners of keys publish, where others read it. A view is never the source of anything.
//!
//! Rows lie in *buckets*. A bucket and the position it stands at are one thing: they are written together and they are lost
//! together. So a view that forgets (evicts, loses a shard, comes back from an old copy) is found out, and the owner sends the
//! bucket again; it is never begun at 0.

pub mod faulty;
pub mod memory;
pub mod suite;

use tally_core::limits::VIEW_ROWS_MAX;
use tally_core::position::Position;

/// One counter as its owner says it is: the whole truth, not a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRow {
    pub id: Vec<u8>,
    /// `None`: there is no such counter any more.
    pub value: Option<ViewValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewValue {
    pub value: i64,
    pub generation: u64,
}

/// What a read finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Where its bucket stands; `None` if the bucket stands nowhere, and then nothing is known about the counter.
    pub position: Option<Position>,
    pub value: Option<ViewValue>,
}

/// Rows of one bucket that changed between two positions.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    pub bucket: u32,
    /// All changes since then are here.
    pub from: Position,
    pub to: Position,
    /// In strictly ascending order of their ids.
    pub rows: &'a [ViewRow],
}

/// A part of a bucket that is sent as a whole, since it stands nowhere or too far behind.
#[derive(Clone, Copy, Debug)]
pub struct BucketPart<'a> {
    pub bucket: u32,
    /// Chosen anew by the sender for each sending: parts of two sendings never mix.
    pub sending: u64,
    /// Empties the bucket, which stands nowhere until the last part is there.
    pub is_first: bool,
    /// The position that all parts are as of, with the last one.
    pub last: Option<Position>,
    /// In strictly ascending order of their ids.
    pub rows: &'a [ViewRow],
}

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    Written,
    /// The view stands there already or further on. Nothing was written.
    Seen,
}

/// What went wrong, by what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// Try again. Nothing was written.
    #[error("the view cannot be reached: {0}")]
    Retry(String),
    /// Send the same again: whether it was written is not known, and twice is as good as once.
    #[error("the view did not answer: {0}")]
    Unknown(String),
    /// Send all changes since `found`, or the whole bucket. Nothing was written.
    #[error("bucket {bucket} stands at {found}, before the changes begin")]
    Behind { bucket: u32, found: Position },
    /// Send the whole bucket. It stands nowhere: it was never there, or it was lost. Nothing was written.
    #[error("bucket {bucket} stands nowhere")]
    Lost { bucket: u32 },
    /// Stop sending this bucket: somebody else has begun to. Nothing was written.
    #[error("bucket {bucket} is being sent by somebody else")]
    Fenced { bucket: u32 },
    /// Free some room. Nothing was written.
    #[error("the view is full: {0}")]
    Full(String),
    /// It is a bug of the caller. Nothing was written.
    #[error("this cannot be written: {0}")]
    Refused(&'static str),
    /// Ask an operator.
    #[error("the view is damaged: {0}")]
    Damaged(String),
}

/// Where absolute rows are published.
///
/// - A call is checked as a whole before any of it is written, and cannot fail in the middle: an error other than
///   [`ViewError::Unknown`] has changed nothing.
/// - An update is written iff its bucket stands at or behind its `from` and before its `to`; then the bucket stands at `to`. Rows are
///   absolute, so what is between `from` and where the bucket stands is written once more, the same.
/// - Rows and position of a bucket are written, read and lost together. A bucket that is gone stands nowhere.
/// - Parts of a sending take effect at its last part. While they come, the bucket stands nowhere and shows nothing; a first part
///   of another sending fences the one before. A part that comes twice is as good as once, also when all of it is there.
/// - Who writes a bucket is its owner. Two who believe so write the same, as rows are a function of the position.
/// - Positions of one bucket are of one log: they are compared by their offset, never subtracted.
pub trait View: Send + Sync {
    fn update(&self, update: Update<'_>) -> Result<Updated, ViewError>;

    /// Sends a part of a whole bucket.
    fn send(&self, part: BucketPart<'_>) -> Result<(), ViewError>;

    /// Reads many: for each bucket and id, in their order, at most [`VIEW_ROWS_MAX`]. Those of one bucket are as of one position.
    fn read(&self, ids: &[(u32, &[u8])]) -> Result<Vec<Shown>, ViewError>;

    /// Where buckets stand, in their order, at most [`VIEW_ROWS_MAX`].
    fn positions(&self, buckets: &[u32]) -> Result<Vec<Option<Position>>, ViewError>;
}

/// What every implementation asks before it writes anything.
pub fn check_rows(rows: &[ViewRow]) -> Result<(), ViewError> {
    if rows.len() > VIEW_ROWS_MAX {
        return Err(ViewError::Refused("a call has more rows than a view takes"));
    }
    match rows.is_sorted_by(|a, b| a.id < b.id) {
        true => Ok(()),
        false => Err(ViewError::Refused("the ids of a call do not ascend")),
    }
}

/// What every implementation asks of an update whose bucket stands at `found`: whether there is something to write.
pub fn check_update(update: &Update<'_>, found: Option<Position>) -> Result<Updated, ViewError> {
    let (bucket, from, to) = (update.bucket, update.from.offset, update.to.offset);
    if from >= to {
        return Err(ViewError::Refused("an update ends where it begins or before"));
    }
    let found = found.ok_or(ViewError::Lost { bucket })?;
    match found.offset {
        stands if stands >= to => Ok(Updated::Seen),
        stands if stands < from => Err(ViewError::Behind { bucket, found }),
        _ => Ok(Updated::Written),
    }
}

/// What every implementation asks before it reads.
pub fn check_read(count: usize) -> Result<(), ViewError> {
    match count <= VIEW_ROWS_MAX {
        true => Ok(()),
        false => Err(ViewError::Refused("a call asks for more than a view answers")),
    }
}
