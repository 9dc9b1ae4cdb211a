//! The store seam: where counters live when they are not in memory, and where a restart begins.
//!
//! Beside counters and their names a store keeps the *ledger*: rows whose keys and values are the core's own affair, such as
//! what is known of an event id. They belong to the same cut, so that a claim and what it changed cannot part.

pub mod key;
pub mod local;
pub mod memory;
#[cfg(test)]
mod suite;

use std::ops::ControlFlow;
use tally_core::cell::{Collected, Row};
use tally_core::id::CellKey;
pub use tally_core::ledger::{Change, LedgerRow};
use tally_core::names::Names;
use tally_core::position::Position;

/// How far a store has come, and what must be known to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Everything before this position is in the store, nothing behind it is.
    pub position: Position,
    /// How many counters there are.
    pub counters: u64,
    /// What the core must know beside rows; only the core can read it.
    pub state: Vec<u8>,
}

/// Joins a row as of before the cut with what a [`Change::Merge`] brings; `None` deletes the row.
pub type Merge = fn(Option<&[u8]>, &[u8]) -> Result<Option<Vec<u8>>, String>;

/// All changes between two positions.
pub struct Cut<'a> {
    /// Where the store must stand for this cut to fit.
    pub from: Option<Position>,
    pub to: &'a Checkpoint,
    /// Forget everything that is in the store: all counters and ledger rows there are are in this cut.
    pub replace: bool,
    pub names: &'a Names,
    /// Hands out the changed rows, chunk by chunk, in strictly ascending order of keys; an error abandons the cut.
    pub rows: &'a mut dyn FnMut() -> Result<Option<Collected>, Abandoned>,
    /// In strictly ascending order of keys.
    pub ledger: &'a mut dyn Iterator<Item = LedgerRow>,
    pub merge: Merge,
}

/// Whoever made the cut has given it up.
#[derive(Debug)]
pub struct Abandoned;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else has moved the store: stop.
    #[error("the store stands at {found:?}, but this cut starts from {expected:?}")]
    Fenced { expected: Option<Position>, found: Option<Position> },
    #[error("the cut was abandoned")]
    Abandoned,
    /// What is on disk is not what was written there.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// It is whole, but not of this data directory; the text says what belongs where.
    #[error("{0}")]
    Foreign(String),
    #[error("the store cannot be read or written: {0}")]
    Io(String),
}

/// Sees the key and the value of a ledger row, and may end the visit.
pub type VisitLedger<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A store of counters.
///
/// - [`Store::commit`] is atomic and durable: after a crash at any moment the store is as of the cut's `to`, or as of its
///   `from`, in every respect.
/// - A cut is refused unless the store stands where the cut starts from.
/// - Readers see the state as of some completed commit for each call, and never wait for a commit.
/// - Commits are made one at a time, by one caller.
pub trait Store: Send + Sync + 'static {
    /// Where the store stands; `None` if nothing was ever committed.
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error>;

    fn get(&self, key: CellKey) -> Result<Option<Row>, Error>;

    /// Visits rows in ascending order, from a key on.
    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, Row) -> ControlFlow<()>) -> Result<(), Error>;

    /// Up to `limit` ids that start with `prefix` and come behind `after`, in ascending order.
    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error>;

    /// Visits counters whose ids begin with `prefix`, in the order of their ids, and answers the checkpoint: all of it as of one
    /// commit, however long it takes. `cell_of` says where a counter is, or that it is not wanted.
    fn counters(
        &self,
        prefix: &[u8],
        cell_of: &dyn Fn(&[u8]) -> Option<CellKey>,
        visit: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Result<Option<Checkpoint>, Error>;

    fn ledger_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Visits ledger rows in ascending order, those with `from` ≤ key < `to`; there are none if `to` ≤ `from`.
    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitLedger<'_>) -> Result<(), Error>;

    /// Visits the same rows in descending order: the newest first, where keys ascend with time.
    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitLedger<'_>) -> Result<(), Error>;

    fn commit(&self, cut: Cut<'_>) -> Result<(), Error>;

    /// The store as of its last commit, whatever is committed meanwhile. It takes room on the disk while it is held.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, Error>;
}

/// A store as of one commit.
pub trait Snapshot: Send + Sync {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error>;

    fn get(&self, key: CellKey) -> Result<Option<Row>, Error>;

    /// As [`Store::names`].
    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error>;
}

/// What a change leaves of a ledger row. `before` tells the row as of before the cut, and is asked only by a merge.
fn settle<V: AsRef<[u8]>>(
    row: LedgerRow,
    merge: Merge,
    before: impl FnOnce(&[u8]) -> Result<Option<V>, Error>,
) -> Result<(Vec<u8>, Option<Vec<u8>>), Error> {
    let LedgerRow { key, change } = row;
    let value = match change {
        Change::Put(value) => Some(value),
        Change::Delete => None,
        Change::Merge(addend) => {
            let before = before(&key)?;
            let merged = merge(before.as_ref().map(AsRef::as_ref), &addend);
            merged.map_err(|reason| Error::Damaged(format!("the ledger row {}: {reason}", key.escape_ascii())))?
        }
    };
    Ok((key, value))
}
