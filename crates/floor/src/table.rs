//! Counters in one flat table: open addressing, never larger than it was made, nothing ever leaves.

use std::hint::black_box;

/// How many slots ahead of their turn are fetched into the cache.
const CHUNK: usize = 32;

pub struct Table {
    /// The hash of a counter, never 0, and its value.
    slots: Vec<(u64, i64)>,
    free: usize,
}

impl Table {
    pub fn new(counters: usize) -> Table {
        let slots = (counters + counters / 2).next_power_of_two();
        Table { slots: vec![(0, 0); slots], free: counters }
    }

    /// Adds one to each of these counters and tells the new values in their order.
    pub fn increment(&mut self, hashes: impl Iterator<Item = u64> + Clone, mut told: impl FnMut(i64)) {
        let mut rest = hashes;
        loop {
            let chunk = rest.clone().take(CHUNK);
            // All the misses of a chunk at once; one after the other they would cost more than everything else.
            black_box(chunk.clone().fold(0, |all, hash| all ^ self.slots[self.home(hash)].0));
            let mut taken = 0;
            for hash in chunk {
                told(self.add(hash.max(1)));
                taken += 1;
            }
            if taken < CHUNK {
                return;
            }
            rest.nth(CHUNK - 1);
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn add(&mut self, hash: u64) -> i64 {
        let mut at = self.home(hash);
        loop {
            let slot = &mut self.slots[at];
            if slot.0 == hash {
                slot.1 += 1;
                return slot.1;
            }
            if slot.0 == 0 {
                self.free = self.free.checked_sub(1).expect("there are more counters than --counters said");
                *slot = (hash, 1);
                return 1;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_share_a_home_are_counted_apart() {
        let mut table = Table::new(100);
        let home = 1 << 20;
        let hashes: Vec<u64> = (0..100).map(|n| (n / 2 + 1) * home).collect();
        let mut values = Vec::new();
        table.increment(hashes.iter().copied(), |value| values.push(value));
        assert_eq!(values, [1, 2].repeat(50));
    }
}
