//! Rows that are written once and never read on the hot path, since the last cut: encoded at once, in the order of their keys.

use super::pending::{Overlay, Pending};
use super::row::Row;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

/// What an allocation costs beside its bytes, about.
const ALLOCATION_BYTES: usize = 16;

/// Keys ascend with time, at least within every range that is read.
pub struct Journal<K, T> {
    pages: Pending<Page<K>>,
    rows: PhantomData<T>,
}

#[derive(Clone)]
pub(super) struct Page<K> {
    pub rows: BTreeMap<K, Box<[u8]>>,
    row_bytes: usize,
}

impl<K> Default for Page<K> {
    fn default() -> Page<K> {
        Page { rows: BTreeMap::new(), row_bytes: 0 }
    }
}

impl<K: Ord + Copy> Overlay for Page<K> {
    fn overlay(&mut self, newer: Page<K>) {
        newer.rows.into_iter().for_each(|(key, row)| self.put(key, row));
    }
}

impl<K: Ord> Page<K> {
    fn put(&mut self, key: K, row: Box<[u8]>) {
        self.row_bytes += row.len();
        if let Some(old) = self.rows.insert(key, row) {
            self.row_bytes -= old.len();
        }
    }

    /// An estimate: nodes of a B-tree are two thirds full.
    fn bytes(&self) -> usize {
        let entry = size_of::<(K, Box<[u8]>)>() * 3 / 2 + ALLOCATION_BYTES;
        self.rows.len() * entry + self.row_bytes
    }
}

impl<K, T> Default for Journal<K, T> {
    fn default() -> Journal<K, T> {
        Journal { pages: Pending::default(), rows: PhantomData }
    }
}

impl<K: Ord + Copy, T: Row> Journal<K, T> {
    pub fn insert(&mut self, key: K, row: &T) {
        self.pages.recent.put(key, row.to_bytes().into());
    }

    pub fn get(&self, key: K) -> Option<T> {
        self.pages.newest_first().find_map(|page| page.rows.get(&key)).map(|row| decode(row))
    }

    /// In ascending order, and backwards for those who want the newest first.
    pub fn range(&self, keys: impl RangeBounds<K> + Clone) -> impl DoubleEndedIterator<Item = (K, T)> {
        let pages = self.pages.oldest_first();
        pages.flat_map(move |page| page.rows.range(keys.clone())).map(|(key, row)| (*key, decode(row)))
    }

    /// The greatest key below `end`; nothing is decoded for it.
    pub fn last_below(&self, end: K) -> Option<K> {
        self.pages.newest_first().filter_map(|page| page.rows.range(..end).next_back()).map(|(key, _)| *key).max()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, T)> {
        self.range(..)
    }

    /// Rows that the next cut would write.
    pub fn changed(&self) -> usize {
        self.pages.recent.rows.len()
    }

    pub fn bytes(&self) -> usize {
        self.pages.newest_first().map(Page::bytes).sum()
    }

    pub(super) fn begin_cut(&mut self) -> Arc<Page<K>> {
        self.pages.begin_cut()
    }

    pub(super) fn finish_cut(&mut self) {
        self.pages.finish_cut();
    }

    pub(super) fn abort_cut(&mut self) {
        self.pages.abort_cut();
    }
}

fn decode<T: Row>(row: &[u8]) -> T {
    T::decode(row).expect("it was encoded by `insert`")
}
