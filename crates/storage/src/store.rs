//! The seam *state*: where counters live when they are not in memory, and where a restart begins.
//!
//! Beside counters and their names a store keeps the *ledger*: rows whose keys and values are the core's own affair, such as
//! what is known of an event id. They belong to the same cut, so that a claim and what it changed cannot part.
//!
//! [`Reads`] is what can be asked, of a store as it is or of a snapshot of it; [`Store`] is what can be done to it.

pub mod faulty;
pub mod key;
pub mod local;
pub mod memory;
mod owned;
pub mod patient;
pub mod suite;

use key::Key;
use std::ops::ControlFlow;
use std::sync::Arc;
use tally_core::id::CellKey;
use tally_core::ledger;
pub use tally_core::ledger::{Change, LedgerRow};
use tally_core::memory::cell::{CellRow, Collected};
use tally_core::memory::names::Names;
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

/// All changes between two positions.
pub struct Cut<'a> {
    /// Where the store must stand for this cut to fit.
    pub from: Option<Position>,
    pub to: &'a Checkpoint,
    /// Forget everything that is in the store: all counters and ledger rows there are are in this cut.
    pub replace: bool,
    pub names: &'a Names,
    /// Hands out the changed rows, chunk by chunk: all keys of one are lower than all of the next, and within one whoever writes puts
    /// them in order. An error abandons the cut.
    pub rows: &'a mut dyn FnMut() -> Result<Option<Collected>, Abandoned>,
    /// In strictly ascending order of keys. An error ends the cut, and nothing was changed.
    pub ledger: &'a mut dyn Iterator<Item = Result<LedgerRow, Error>>,
}

/// Whoever made the cut has given it up.
#[derive(Debug)]
pub struct Abandoned;

/// What went wrong, by what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Try again, perhaps later. Nothing was changed.
    #[error("the store cannot be read or written: {0}")]
    Retry(String),
    /// Ask where the store stands ([`certain`]): whether the cut was made is not known.
    #[error("the store did not say whether it has made the cut: {0}")]
    Unknown(String),
    /// Somebody else has moved the store: stop. Nothing was changed.
    #[error("the store stands at {found:?}, but this cut starts from {expected:?}")]
    Fenced { expected: Option<Position>, found: Option<Position> },
    /// Free some room and try again. Nothing was changed.
    #[error("the store cannot be read or written: {0}")]
    Full(String),
    /// Ask an operator: what is there is not what was written there.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// Ask an operator: it is whole, but not of this data directory; the text says what belongs where.
    #[error("{0}")]
    Foreign(String),
    /// Whoever made the cut has given it up. Nothing was changed.
    #[error("the cut was abandoned")]
    Abandoned,
}

/// Sees the key and the value of a row, and may end the visit.
pub type VisitRow<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// What can be asked of a store. Each call sees one completed commit, and never waits for another.
pub trait Reads: Send + Sync {
    /// Where it stands; `None` if nothing was ever committed.
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error>;

    /// Reads many: the value under each key, in their order. All of them are as of one commit.
    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error>;

    /// Visits rows of cells in ascending order, from a key on.
    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error>;

    /// Up to `limit` ids that start with `prefix` and come behind `after`, in ascending order.
    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error>;

    /// Visits ledger rows in ascending order, those with `from` ≤ key < `to`; there are none if `to` ≤ `from`.
    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error>;

    /// Visits the same rows in descending order: the newest first, where keys ascend with time.
    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error>;

    /// One cell.
    fn get(&self, key: CellKey) -> Result<Option<CellRow>, Error> {
        let row = self.read(&[Key::Cell(key)])?.pop().flatten();
        row.map(|bytes| decode_row(&bytes)).transpose()
    }

    /// One row of the ledger.
    fn ledger_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.read(&[Key::Ledger(key)])?.pop().flatten())
    }
}

/// A store of counters.
///
/// - [`Store::commit`] is atomic and durable: after a crash at any moment the store is as of the cut's `to`, or as of its
///   `from`, in every respect. So it is after [`Error::Unknown`]; any other error has changed nothing.
/// - A cut is refused unless the store stands where the cut starts from. So one that arrives twice, or late, changes nothing.
/// - What is added ([`Change::Add`]) is added to the row as of before the cut; a row whose numbers are all zero is none.
/// - Commits are made one at a time, by one caller.
pub trait Store: Reads + 'static {
    fn commit(&self, cut: Cut<'_>) -> Result<(), Error>;

    /// The store as of its last commit, whatever is committed meanwhile. It takes room while it is held.
    fn snapshot(&self) -> Result<Box<dyn Reads>, Error>;
}

impl<S: Store + ?Sized> Reads for Arc<S> {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        (**self).checkpoint()
    }

    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        (**self).read(keys)
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error> {
        (**self).rows(from, visit)
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        (**self).names(prefix, after, limit)
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        (**self).ledger_rows(from, to, visit)
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        (**self).ledger_rows_back(from, to, visit)
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        (**self).commit(cut)
    }

    fn snapshot(&self) -> Result<Box<dyn Reads>, Error> {
        (**self).snapshot()
    }
}

/// What a commit came to, if the store did not say: it stands where the cut ends, or the cut was not made. To be asked by
/// the one caller who commits, before he does anything else.
pub fn certain(store: &dyn Store, to: Position, result: Result<(), Error>) -> Result<(), Error> {
    let reason = match result {
        Err(Error::Unknown(reason)) => reason,
        // It was tried before, and arrived late.
        Err(Error::Fenced { found, .. }) if found == Some(to) => return Ok(()),
        known => return known,
    };
    match store.checkpoint()?.is_some_and(|checkpoint| checkpoint.position == to) {
        true => Ok(()),
        false => Err(Error::Retry(reason)),
    }
}

/// Rows of cells, in the order of their keys, all as of one commit.
pub fn cells(reads: &dyn Reads, keys: &[CellKey]) -> Result<Vec<Option<CellRow>>, Error> {
    let keys: Vec<Key<'_>> = keys.iter().map(|key| Key::Cell(*key)).collect();
    let rows = reads.read(&keys)?.into_iter();
    rows.map(|row| row.map(|bytes| decode_row(&bytes)).transpose()).collect()
}

/// Ids that are read at a time on a walk.
const WALK_NAMES: usize = 4096;

/// Visits every row that a store has beside its checkpoint, from an encoded [`Key`] on, in ascending order: the bytes of its key and of its
/// value. Whoever keeps them can make the same store of them.
pub fn walk(reads: &dyn Reads, from: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
    let from = if from.is_empty() { Key::Cell(CellKey::from_bytes([0; 16])).encode() } else { from.to_vec() };
    let from = Key::decode(&from)?;
    let mut ended = ControlFlow::Continue(());
    let (mut key, mut value) = (Vec::new(), Vec::new());
    if let Key::Cell(first) = from {
        reads.rows(first, &mut |cell, row| {
            Key::Cell(cell).write(&mut key);
            value.clear();
            row.encode(&mut value);
            ended = visit(&key, &value);
            ended
        })?;
    }
    let first = match &from {
        Key::Name(id) => Some(*id),
        Key::Ledger(_) => None,
        _ => Some(&b""[..]),
    };
    if let Some(first) = first.filter(|_| ended.is_continue()) {
        ended = walk_names(reads, first, visit)?;
    }
    let first = if let Key::Ledger(first) = from { first } else { b"" };
    if ended.is_continue() {
        // Each kind of the ledger is a byte, and none is this.
        reads.ledger_rows(first, &[u8::MAX], &mut |row, value| {
            Key::Ledger(row).write(&mut key);
            visit(&key, value)
        })?;
    }
    Ok(())
}

/// Visits ids from `first` on.
fn walk_names(reads: &dyn Reads, first: &[u8], visit: &mut VisitRow<'_>) -> Result<ControlFlow<()>, Error> {
    let mut key = Vec::new();
    let mut page = Vec::new();
    // An id comes behind itself only if it is the first.
    page.extend(reads.read(&[Key::Name(first)])?.pop().flatten().map(|_| first.to_vec()));
    let mut last = first.to_vec();
    loop {
        page.extend(reads.names(b"", Some(&last), WALK_NAMES)?);
        let Some(end) = page.last() else { return Ok(ControlFlow::Continue(())) };
        last.clone_from(end);
        for id in page.drain(..) {
            Key::Name(&id).write(&mut key);
            if visit(&key, b"").is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
}

fn decode_row(bytes: &[u8]) -> Result<CellRow, Error> {
    CellRow::decode(bytes).map_err(|error| Error::Damaged(format!("a row: {error}")))
}

/// What a change leaves of a ledger row. `before` tells the row as of before the cut, and is asked only if something is added to it.
fn settle<V: AsRef<[u8]>>(
    row: LedgerRow,
    before: impl FnOnce(&[u8]) -> Result<Option<V>, Error>,
) -> Result<(Vec<u8>, Option<Vec<u8>>), Error> {
    let LedgerRow { key, change } = row;
    let value = match change {
        Change::Put(value) => Some(value),
        Change::Delete => None,
        Change::Add(numbers) => {
            let before = before(&key)?;
            let sum = ledger::add(before.as_ref().map(AsRef::as_ref), &numbers);
            sum.map_err(|reason| Error::Damaged(format!("the ledger row {}: {reason}", key.escape_ascii())))?
        }
    };
    Ok((key, value))
}
