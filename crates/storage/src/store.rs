//! The store seam: where counters live when they are not in memory, and where a restart begins.

pub mod key;
pub mod local;
pub mod memory;
#[cfg(test)]
mod suite;

use std::ops::ControlFlow;
use tally_core::cell::{Collected, Row};
use tally_core::id::CellKey;
use tally_core::names::Names;
use tally_core::position::Position;

/// How far a store has come, and what must be known to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Everything before this position is in the store, nothing behind it is.
    pub position: Position,
    pub log_time_ms: u64,
    /// How many counters there are.
    pub counters: u64,
    /// The declarations in force.
    pub config_version: u64,
    pub config: String,
}

/// All changes between two positions.
pub struct Cut<'a> {
    /// Where the store must stand for this cut to fit.
    pub from: Option<Position>,
    pub to: &'a Checkpoint,
    /// Forget everything that is in the store: all counters there are are in this cut.
    pub replace: bool,
    pub names: &'a Names,
    /// Hands out the changed rows, chunk by chunk, in strictly ascending order of keys; an error abandons the cut.
    pub rows: &'a mut dyn FnMut() -> Result<Option<Collected>, Abandoned>,
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
    #[error("the store cannot be read or written: {0}")]
    Io(String),
}

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

    fn commit(&self, cut: Cut<'_>) -> Result<(), Error>;
}
