//! Rows that changed, were removed or were looked up, by key: one layer of memory above the store.
//!
//! Shards by the top bits of the key do two things: no insertion waits for more than one small table to grow, and what a cut
//! writes is sorted shard by shard. A row that was removed is in a set of its own, so that a claim takes no more than its
//! 32 bytes.

use super::pending::Overlay;
use crate::id::{CellKey, KeyHash};
use crate::ledger::{Change, Hashed, LedgerRow, Rows};
use hashbrown::{HashMap, HashSet};

pub(crate) const SHARDS: usize = 64;

#[derive(Clone)]
pub(super) struct Stratum<V> {
    shards: Box<[Shard<V>]>,
    /// Rows and tombstones.
    len: usize,
}

#[derive(Clone)]
struct Shard<V> {
    rows: HashMap<CellKey, V, KeyHash>,
    gone: HashSet<CellKey, KeyHash>,
}

impl<V> Default for Stratum<V> {
    fn default() -> Stratum<V> {
        let empty = || Shard { rows: HashMap::default(), gone: HashSet::default() };
        Stratum { shards: std::iter::repeat_with(empty).take(SHARDS).collect(), len: 0 }
    }
}

impl<V> Stratum<V> {
    /// `None` if nothing is known about the key here, `Some(None)` if it is known that there is no such row.
    #[inline]
    pub fn look(&self, key: CellKey) -> Option<Option<&V>> {
        let shard = &self.shards[shard_of(key)];
        match shard.rows.get(&key) {
            Some(row) => Some(Some(row)),
            None => shard.gone.contains(&key).then_some(None),
        }
    }

    pub fn put(&mut self, key: CellKey, value: V) {
        let shard = &mut self.shards[shard_of(key)];
        let was_known = shard.gone.remove(&key) | shard.rows.insert(key, value).is_some();
        self.len += usize::from(!was_known);
    }

    /// Notes that there is no such row.
    pub fn remove(&mut self, key: CellKey) {
        let shard = &mut self.shards[shard_of(key)];
        let was_known = shard.rows.remove(&key).is_some() | !shard.gone.insert(key);
        self.len += usize::from(!was_known);
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn bytes(&self) -> usize {
        let tables = self.shards.iter().map(|shard| shard.rows.allocation_size() + shard.gone.allocation_size());
        tables.sum::<usize>() + size_of_val(&*self.shards)
    }

    /// Keys of rows, not of tombstones.
    pub fn keys(&self) -> impl Iterator<Item = CellKey> {
        self.shards.iter().flat_map(|shard| shard.rows.keys().copied())
    }

    /// Every row, or `None` for a tombstone, in ascending order of keys; sorted a shard at a time.
    pub fn sorted(&self) -> impl Iterator<Item = (CellKey, Option<&V>)> {
        self.shards.iter().flat_map(|shard| {
            let rows = shard.rows.iter().map(|(key, row)| (*key, Some(row)));
            let mut all: Vec<_> = rows.chain(shard.gone.iter().map(|key| (*key, None))).collect();
            all.sort_unstable_by_key(|(key, _)| *key);
            all
        })
    }
}

impl<V: Hashed> Rows for Stratum<V> {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        Box::new(self.sorted().map(|(hash, row)| {
            let change = row.map_or(Change::Delete, |row| Change::Put(row.to_bytes()));
            LedgerRow::new(V::key(hash), change)
        }))
    }
}

impl<V: Clone> Overlay for Stratum<V> {
    fn overlay(&mut self, newer: Stratum<V>) {
        for shard in newer.shards {
            shard.rows.into_iter().for_each(|(key, row)| self.put(key, row));
            shard.gone.into_iter().for_each(|key| self.remove(key));
        }
    }
}

/// The top bits, so that shards in order are keys in order.
pub(crate) fn shard_of(key: CellKey) -> usize {
    (key.as_u128() >> (u128::BITS - SHARDS.ilog2())) as usize
}
