//! The way of facts from memory to the store, the same for every kind.

use super::LedgerKey;
use super::row::Row;
use crate::id::CellKey;
use crate::record::DecodeError;
use std::ops::Range;
use std::sync::Arc;

/// A kind of fact in memory: what has changed since the last cut, and what is on its way to the store.
pub trait Kind {
    /// Everything up to here belongs to the cut. Costs nothing, however much there is.
    fn begin_cut(&mut self) -> Arc<dyn Rows>;
    /// The store has the cut. There may be none: whatever was in it has been flushed since.
    fn finish_cut(&mut self);
    /// The cut came to nothing: what was in it has changed since the last one.
    fn abort_cut(&mut self);
    /// A flush: what is in the store, and on its way there, is void.
    fn clear(&mut self);
    /// Rows that the next cut would write.
    fn changed(&self) -> usize;
    /// Memory of rows that only a cut lets go.
    fn unsettled_bytes(&self) -> usize;
    /// Memory in use.
    fn bytes(&self) -> usize;
}

/// A kind whose rows decide something: memory says of each whether it knows it, and the store is asked for the others.
pub trait LookedUp: Kind {
    /// Rows there are, in memory and in the store.
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Goes on from a store that has so many rows, of which the filter knows none yet.
    fn resume(&mut self, len: u64);
    /// Whether a scan of the store is wanted: its keys would be of use and are not all there.
    fn filter_is_learning(&self) -> bool;
    /// Keys that a scan of the store has found.
    fn filter_add(&mut self, keys: &[CellKey]);
    /// The scan has come to the store's end: from now on the filter's "no" is believed.
    fn filter_done(&mut self);
    /// The filter gives up beyond so many bytes.
    fn limit_filter(&mut self, bytes: usize);
}

/// Changes of one kind, frozen for a cut. They are sorted and encoded by whoever writes them.
pub trait Rows: Send + Sync {
    /// In strictly ascending order of their keys.
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_>;

    /// The same, for a kind whose rows follow from those that are there.
    fn rows_over<'a>(&'a self, _: &'a dyn StoredRows) -> Box<dyn Iterator<Item = LedgerRow> + 'a> {
        self.rows()
    }
}

/// Rows of the ledger as they are before a cut. What cannot be read is kept by whoever reads it, and the cut comes to nothing.
pub trait StoredRows {
    fn row(&self, key: &[u8]) -> Option<Vec<u8>>;
    fn keys(&self, range: &Range<Vec<u8>>) -> Vec<Vec<u8>>;
    /// The row at this key, or behind it, is not what was written there.
    fn damaged(&self, key: &[u8], error: DecodeError);
}

/// Nothing is there.
pub struct NoRows;

impl StoredRows for NoRows {
    fn row(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn keys(&self, _: &Range<Vec<u8>>) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn damaged(&self, _: &[u8], error: DecodeError) {
        unreachable!("there is nothing that could be: {error}")
    }
}

/// A fact that is found by a hash.
pub trait Hashed: Row + Clone + Send + Sync + 'static {
    fn key(hash: CellKey) -> LedgerKey;
}

/// A fact that has a place in an order.
pub trait Placed: Row + Send + Sync + 'static {
    type Place: Ord + Copy + Send + Sync + 'static;
    fn key(place: Self::Place) -> LedgerKey;
}

/// What a number takes at most in a row that is added to.
const ADDED_BYTES_MAX: usize = 10;

/// One change to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// The bytes of a [`LedgerKey`].
    pub key: Vec<u8>,
    pub change: Change,
}

impl LedgerRow {
    pub(crate) fn new(key: LedgerKey, change: Change) -> LedgerRow {
        LedgerRow { key: key.encode(), change }
    }

    /// What its value takes.
    pub fn bytes(&self) -> usize {
        match &self.change {
            Change::Put(value) => value.len(),
            Change::Add(numbers) => numbers.len() * ADDED_BYTES_MAX,
            Change::Delete => 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(Vec<u8>),
    Delete,
    /// To be added, number by number, to what is there ([`super::add`]).
    Add(Vec<i64>),
}

/// All changes to facts up to one position, by kind in the order of keys.
#[derive(Default)]
pub struct LedgerCut(Vec<Arc<dyn Rows>>);

impl FromIterator<Arc<dyn Rows>> for LedgerCut {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Rows>>>(kinds: I) -> LedgerCut {
        LedgerCut(kinds.into_iter().collect())
    }
}

impl LedgerCut {
    pub fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    /// The changes in strictly ascending order of their keys.
    pub fn rows(&self) -> impl Iterator<Item = LedgerRow> + '_ {
        self.0.iter().flat_map(|kind| kind.rows())
    }

    /// The same, where rows are there.
    pub fn rows_over<'a>(&'a self, stored: &'a dyn StoredRows) -> impl Iterator<Item = LedgerRow> + 'a {
        self.0.iter().flat_map(move |kind| kind.rows_over(stored))
    }
}
