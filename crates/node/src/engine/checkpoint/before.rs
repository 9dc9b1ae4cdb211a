//! The ledger as it is before a cut, for rows that follow from what is there.
//!
//! A cut asks in the order of keys, and where it changes many it asks for most of what there is. So rows are read ahead as long as
//! those before them were of use: that costs a tenth of looking each of them up.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use tally_core::ledger::{LedgerRow, StoredRows};
use tally_core::limits::STORE_VALUE_BYTES_MAX;
use tally_core::record::DecodeError;
use tally_storage::store::{Error, Reads, Store};

pub(super) struct RowsBefore {
    /// `None` if the cut replaces everything.
    stored: Option<Box<dyn Reads>>,
    ahead: RefCell<ReadAhead>,
    /// What went wrong on the way.
    failed: RefCell<Option<Error>>,
}

impl RowsBefore {
    pub fn new(store: &Arc<dyn Store>, is_replaced: bool) -> Result<RowsBefore, Error> {
        let stored = if is_replaced { None } else { Some(store.snapshot()?) };
        Ok(RowsBefore { stored, ahead: RefCell::default(), failed: RefCell::default() })
    }

    fn read<T: Default>(&self, read: impl FnOnce(&dyn Reads) -> Result<T, Error>) -> T {
        let found = self.stored.as_deref().map_or_else(|| Ok(T::default()), read);
        found.unwrap_or_else(|error| {
            self.failed.borrow_mut().get_or_insert(error);
            T::default()
        })
    }

    /// The next row, unless something that it follows from could not be read.
    pub fn checked(&self, row: Option<LedgerRow>) -> Option<Result<LedgerRow, Error>> {
        if let Some(error) = self.failed.borrow_mut().take() {
            return Some(Err(error));
        }
        // Each comes from a record of the log, or has a bound of its own that is lower.
        row.inspect(|row| assert!(row.bytes() <= STORE_VALUE_BYTES_MAX)).map(Ok)
    }
}

impl StoredRows for RowsBefore {
    fn row(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.read(|stored| self.ahead.borrow_mut().row(stored, key))
    }

    fn keys(&self, range: &Range<Vec<u8>>) -> Vec<Vec<u8>> {
        self.read(|stored| {
            let mut keys = Vec::new();
            stored.ledger_rows(&range.start, &range.end, &mut |key, _| {
                keys.push(key.to_vec());
                ControlFlow::Continue(())
            })?;
            Ok(keys)
        })
    }

    fn damaged(&self, key: &[u8], error: DecodeError) {
        let what = format!("the ledger row {}: {error}", key.escape_ascii());
        self.failed.borrow_mut().get_or_insert(Error::Damaged(what));
    }
}

/// As much as is read ahead at most.
const AHEAD_MAX: usize = 256;
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// Reading on until the next row that is wanted is cheaper than looking that up if it is not further away than this.
const WORTH: usize = 8;

/// A stretch of the ledger that was read at once.
struct ReadAhead {
    /// All rows from this key on, up to the last of them.
    from: Vec<u8>,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// There is nothing behind them.
    is_last: bool,
    /// How many were of use.
    used: usize,
    /// How many are read at once.
    most: usize,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead { from: Vec::new(), rows: Vec::new(), is_last: false, used: 0, most: 1 }
    }
}

impl ReadAhead {
    fn row(&mut self, stored: &dyn Reads, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if !self.covers(key) {
            if !self.from.is_empty() && key < self.from.as_slice() {
                // It goes back within one cell, and goes on from where it was.
                return stored.ledger_get(key);
            }
            self.refill(stored, key)?;
        }
        let found = self.rows.binary_search_by(|(known, _)| known.as_slice().cmp(key)).ok();
        self.used += 1;
        Ok(found.map(|at| self.rows[at].1.clone()))
    }

    fn covers(&self, key: &[u8]) -> bool {
        let is_before = |(last, _): &(Vec<u8>, Vec<u8>)| key <= last.as_slice();
        !self.from.is_empty()
            && self.from.as_slice() <= key
            && (self.is_last || self.rows.last().is_some_and(is_before))
    }

    fn refill(&mut self, stored: &dyn Reads, key: &[u8]) -> Result<(), Error> {
        let is_worth_it = self.used * WORTH >= self.rows.len();
        self.most = if is_worth_it { (self.most * 2).min(AHEAD_MAX) } else { (self.most / 2).max(1) };
        self.from = key.to_vec();
        (self.is_last, self.used) = (true, 0);
        self.rows.clear();
        // Rows of one kind begin with the same byte.
        let end = [key[0] + 1];
        let ReadAhead { rows, is_last, most, .. } = self;
        let mut bytes = 0;
        stored.ledger_rows(key, &end, &mut |key, row| {
            rows.push((key.to_vec(), row.to_vec()));
            bytes += row.len();
            if rows.len() < *most && bytes < AHEAD_BYTES_MAX {
                return ControlFlow::Continue(());
            }
            *is_last = false;
            ControlFlow::Break(())
        })
    }
}
