//! Rows that are written once and never read on the hot path, since the last cut: encoded at once, in the order of their keys.

use super::pending::{Overlay, Pending};
use crate::ledger::Row;
use crate::ledger::{Change, Kind, LedgerRow, Placed, Rows};
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

/// What an allocation costs beside its bytes, about.
const ALLOCATION_BYTES: usize = 16;

/// Keys ascend with time, at least within every range that is read.
pub struct Journal<T: Placed> {
    pages: Pending<JournalPage<T>>,
}

/// Encoded rows by their places.
struct JournalPage<T: Placed> {
    rows: BTreeMap<T::Place, Box<[u8]>>,
    row_bytes: usize,
}

impl<T: Placed> Default for JournalPage<T> {
    fn default() -> JournalPage<T> {
        JournalPage { rows: BTreeMap::new(), row_bytes: 0 }
    }
}

impl<T: Placed> Clone for JournalPage<T> {
    fn clone(&self) -> JournalPage<T> {
        JournalPage { rows: self.rows.clone(), row_bytes: self.row_bytes }
    }
}

impl<T: Placed> Overlay for JournalPage<T> {
    fn overlay(&mut self, newer: JournalPage<T>) {
        newer.rows.into_iter().for_each(|(place, row)| self.put(place, row));
    }
}

impl<T: Placed> JournalPage<T> {
    fn put(&mut self, place: T::Place, row: Box<[u8]>) {
        self.row_bytes += row.len();
        if let Some(old) = self.rows.insert(place, row) {
            self.row_bytes -= old.len();
        }
    }

    /// An estimate: nodes of a B-tree are two thirds full.
    fn bytes(&self) -> usize {
        let entry = size_of::<(T::Place, Box<[u8]>)>() * 3 / 2 + ALLOCATION_BYTES;
        self.rows.len() * entry + self.row_bytes
    }
}

impl<T: Placed> Rows for JournalPage<T> {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        Box::new(self.rows.iter().map(|(place, row)| LedgerRow::new(T::key(*place), Change::Put(row.to_vec()))))
    }
}

impl<T: Placed> Default for Journal<T> {
    fn default() -> Journal<T> {
        Journal { pages: Pending::default() }
    }
}

impl<T: Placed> Journal<T> {
    pub fn insert(&mut self, place: T::Place, row: &T) {
        self.pages.recent.put(place, row.to_bytes().into());
    }

    pub fn get(&self, place: T::Place) -> Option<T> {
        self.pages.newest_first().find_map(|page| page.rows.get(&place)).map(|row| decode(row))
    }

    /// In ascending order, and backwards for those who want the newest first.
    pub fn range(&self, places: impl RangeBounds<T::Place> + Clone) -> impl DoubleEndedIterator<Item = (T::Place, T)> {
        let pages = self.pages.oldest_first();
        pages.flat_map(move |page| page.rows.range(places.clone())).map(|(place, row)| (*place, decode(row)))
    }

    /// The greatest place below `end`; nothing is decoded for it.
    pub fn last_below(&self, end: T::Place) -> Option<T::Place> {
        self.pages.newest_first().filter_map(|page| page.rows.range(..end).next_back()).map(|(place, _)| *place).max()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (T::Place, T)> {
        self.range(..)
    }
}

impl<T: Placed> Kind for Journal<T> {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        self.pages.begin_cut()
    }

    fn finish_cut(&mut self) {
        self.pages.finish_cut();
    }

    fn abort_cut(&mut self) {
        self.pages.abort_cut();
    }

    fn clear(&mut self) {
        *self = Journal::default();
    }

    fn changed(&self) -> usize {
        self.pages.recent.rows.len()
    }

    fn unsettled_bytes(&self) -> usize {
        self.bytes()
    }

    fn bytes(&self) -> usize {
        self.pages.newest_first().map(JournalPage::bytes).sum()
    }
}

fn decode<T: Row>(row: &[u8]) -> T {
    T::decode(row).expect("it was encoded by `insert`")
}
