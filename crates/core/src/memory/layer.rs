//! Keyed rows of which most are in the store, and memory above it: what changed since the last cut, what is in the running cut,
//! what the last cut wrote, and what was looked up for staged writes.
//!
//! Whoever wants a row makes sure that it is *known* ([`Layer::knows`]), which may take a look into the store on another
//! thread ([`Layer::load`]). What was known stays known until [`Layer::forget_loaded`]: the end of a cut takes nothing away
//! from a write that is already staged.

use super::filter::Filter;
use super::pending::Pending;
use super::stratum::Stratum;
use crate::id::CellKey;
use crate::ledger::{Hashed, Kind, LookedUp, Row, Rows};
use crate::limits::SETTLED_MAX;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// A filter is worn when it holds this many times the keys there are: rows that were removed stay in it.
const WORN_TIMES: u64 = 4;
/// A filter for fewer keys is too small to be worn.
const WORN_KEYS_MIN: u64 = 1 << 18;

pub struct Layer<V> {
    changes: Pending<Stratum<V>>,
    /// Cuts that the store has, the newest last. All but the newest, and that one if it is large, go when nothing is staged.
    settled: Vec<Arc<Stratum<V>>>,
    /// What the store said.
    loaded: Stratum<V>,
    /// Every key that a row in memory or in the store has, once it is complete.
    filter: Filter,
    filter_is_complete: bool,
    /// The filter has told keys apart since nothing was staged, be it that it has given up since.
    filter_was_of_use: bool,
    /// No row of the store counts that memory has not as well: there is none, or all were flushed, and what cuts have written since
    /// is still here.
    store_is_void: bool,
    settled_max: usize,
    len: u64,
}

impl<V> Default for Layer<V> {
    fn default() -> Layer<V> {
        Layer {
            changes: Pending::default(),
            settled: Vec::new(),
            loaded: Stratum::default(),
            filter: Filter::default(),
            filter_is_complete: true,
            filter_was_of_use: true,
            store_is_void: true,
            settled_max: SETTLED_MAX,
            len: 0,
        }
    }
}

impl<V: Row + Clone> Layer<V> {
    /// The row as of now, of a key that is known.
    #[inline]
    pub fn get(&self, key: CellKey) -> Option<&V> {
        if self.is_excluded(key) {
            return None;
        }
        let known = self.look(key);
        assert!(
            known.is_some() || self.store_is_void || self.was_excluded(key),
            "everything that is asked for is known"
        );
        known.flatten()
    }

    /// The row as of now, if memory has it.
    pub fn in_memory(&self, key: CellKey) -> Option<&V> {
        self.look(key).flatten()
    }

    /// Whether memory can tell if there is such a row, without the store.
    #[inline]
    pub fn knows(&self, key: CellKey) -> bool {
        self.store_is_void || self.is_excluded(key) || self.look(key).is_some()
    }

    /// The row as of now, of a key that is known; if there is none, this one is set. The filter is asked once for both, since most
    /// keys are new.
    pub fn get_or_put(&mut self, key: CellKey, value: V) -> Option<V> {
        let is_new = self.filter.insert(key) && self.filter_is_complete;
        if !is_new && let Some(known) = self.get(key) {
            return Some(known.clone());
        }
        self.len += 1;
        self.changes.recent.put(key, value);
        None
    }

    /// Sets a row whose key is known.
    pub fn put(&mut self, key: CellKey, value: V) {
        let is_new = self.filter.insert(key) && self.filter_is_complete || self.look(key).flatten().is_none();
        self.len += u64::from(is_new);
        self.changes.recent.put(key, value);
    }

    /// Removes a row whose key is known.
    pub fn remove(&mut self, key: CellKey) {
        if self.get(key).is_some() {
            self.len -= 1;
            self.changes.recent.remove(key);
        }
    }

    /// What the store says about a key that was not known. Memory knows better if a cut has ended since the store was asked
    /// and nothing was forgotten; if something was, the store has to be asked again.
    pub fn load(&mut self, key: CellKey, value: Option<V>) {
        if self.knows(key) {
            return;
        }
        match value {
            Some(value) => self.loaded.put(key, value),
            None => self.loaded.remove(key),
        }
    }

    /// Nothing is staged: what the store has as well may go.
    pub fn forget_loaded(&mut self) {
        if !self.loaded.is_empty() {
            self.loaded = Stratum::default();
        }
        let cuts = self.settled.len();
        let newest = self.settled.pop().filter(|newest| newest.len() <= self.settled_max);
        self.settled.clear();
        self.settled.extend(newest);
        self.store_is_void &= self.settled.len() == cuts;
        self.filter.forget_denied();
        self.filter_was_of_use = self.filter_is_complete && !self.filter.gave_up();
    }

    /// Begins a new filter, to be filled by a scan of the store; call it when nothing is staged.
    pub fn relearn(&mut self) {
        self.filter = Filter::for_keys(self.len, self.filter.bytes_max());
        self.filter_is_complete = self.len == 0;
        self.filter_was_of_use = self.filter_is_complete && !self.filter.gave_up();
        let settled = self.settled.iter().map(|settled| &**settled);
        for key in self.changes.newest_first().chain(settled).flat_map(Stratum::keys) {
            self.filter.insert(key);
        }
        self.filter.forget_denied();
    }

    /// Whether [`Self::relearn`] would make a much smaller filter than the one there is.
    pub fn filter_is_worn(&self) -> bool {
        self.filter.keys() / WORN_TIMES > self.len.max(WORN_KEYS_MIN)
    }

    /// Certain to be nowhere. Asked first, since most keys of most layers are new.
    fn is_excluded(&self, key: CellKey) -> bool {
        self.filter_is_complete && !self.filter.maybe(key)
    }

    /// Was certain to be nowhere when something was staged that relies on it. Keys that have come since may be alike to the filter, or
    /// more than it holds.
    fn was_excluded(&self, key: CellKey) -> bool {
        self.filter_was_of_use && (self.filter.gave_up() || self.filter.was_denied(key))
    }

    /// What memory says about a key; `None` if nothing.
    fn look(&self, key: CellKey) -> Option<Option<&V>> {
        self.strata().find_map(|stratum| stratum.look(key))
    }

    /// Newest first.
    fn strata(&self) -> impl Iterator<Item = &Stratum<V>> {
        let settled = self.settled.iter().rev().map(|settled| &**settled);
        self.changes.newest_first().chain(settled).chain(std::iter::once(&self.loaded))
    }
}

impl<V: Hashed> Kind for Layer<V> {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        self.changes.begin_cut()
    }

    fn finish_cut(&mut self) {
        if let Some(cut) = self.changes.finish_cut().filter(|cut| !cut.is_empty()) {
            self.settled.push(cut);
        }
    }

    fn abort_cut(&mut self) {
        self.changes.abort_cut();
    }

    fn clear(&mut self) {
        let filter = Filter::for_keys(0, self.filter.bytes_max());
        *self = Layer { filter, settled_max: self.settled_max, ..Layer::default() };
    }

    fn changed(&self) -> usize {
        self.changes.recent.len()
    }

    fn unsettled_bytes(&self) -> usize {
        self.changes.newest_first().map(Stratum::bytes).sum()
    }

    fn bytes(&self) -> usize {
        self.strata().map(Stratum::bytes).sum::<usize>() + self.filter.bytes()
    }
}

impl<V: Hashed> LookedUp for Layer<V> {
    fn len(&self) -> u64 {
        self.len
    }

    fn resume(&mut self, len: u64) {
        self.len = len;
        self.store_is_void = len == 0;
        self.relearn();
    }

    fn filter_is_learning(&self) -> bool {
        !self.filter_is_complete && !self.filter.gave_up()
    }

    /// A filter that is complete was begun anew since the scan began, and what the scan has seen is void: such a key may be known to be
    /// nowhere, and that has to stay so.
    fn filter_add(&mut self, keys: &[CellKey]) {
        for key in keys.iter().filter(|_| !self.filter_is_complete) {
            self.filter.insert(*key);
        }
    }

    fn filter_done(&mut self) {
        self.filter_is_complete = true;
        self.filter_was_of_use |= !self.filter.gave_up();
    }

    fn limit_filter(&mut self, bytes: usize) {
        self.filter.limit(bytes);
    }
}
