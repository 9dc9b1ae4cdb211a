//! Combinations of values and buckets, each once, so that a count needs a number alone.

use super::split::Split;
use crate::counter::rollup::Minutes;
use crate::memory::stratum::SHARDS;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Values of all dimensions of a split and buckets, each combination once and known by a number.
#[derive(Clone)]
pub(super) struct Tuples {
    splits: Vec<Arc<Split>>,
    /// By hash, so that none waits for more than one to grow.
    shards: Box<[TupleShard]>,
    hash: DefaultHashBuilder,
}

#[derive(Clone, Default)]
struct TupleShard {
    tuples: Vec<Tuple>,
    texts: Vec<u8>,
    index: HashTable<u32>,
}

#[derive(Clone, Copy)]
struct Tuple {
    start: u32,
    end: u32,
    bucket: Minutes,
    split: u16,
}

impl Default for Tuples {
    fn default() -> Tuples {
        let shards = std::iter::repeat_with(TupleShard::default).take(SHARDS).collect();
        Tuples { splits: Vec::new(), shards, hash: DefaultHashBuilder::default() }
    }
}

impl Tuples {
    #[inline]
    pub(super) fn number(&mut self, split: &Arc<Split>, values: &[u8], bucket: Minutes) -> u32 {
        let hashed = self.hash.hash_one((bucket, values));
        let shard = hashed as usize % SHARDS;
        let TupleShard { tuples, texts, index } = &self.shards[shard];
        let is_it = |at: &u32| {
            let tuple = tuples[*at as usize];
            tuple.bucket == bucket
                && &texts[tuple.start as usize..tuple.end as usize] == values
                && Arc::ptr_eq(&self.splits[usize::from(tuple.split)], split)
        };
        // The table looks at other bits of the hash than these.
        match index.find(hashed.rotate_left(32), is_it) {
            Some(at) => *at * SHARDS as u32 + shard as u32,
            None => self.begin(split, values, bucket, hashed),
        }
    }

    #[cold]
    fn begin(&mut self, split: &Arc<Split>, values: &[u8], bucket: Minutes, hashed: u64) -> u32 {
        let known = self.splits.iter().position(|known| Arc::ptr_eq(known, split));
        let split = known.unwrap_or_else(|| {
            self.splits.push(split.clone());
            self.splits.len() - 1
        });
        let split = u16::try_from(split).expect("there is one for each counter and configuration since the last cut");
        let Tuples { shards, hash, .. } = self;
        let shard = hashed as usize % SHARDS;
        let TupleShard { tuples, texts, index } = &mut shards[shard];
        let start = texts.len() as u32;
        texts.extend_from_slice(values);
        tuples.push(Tuple { start, end: texts.len() as u32, bucket, split });
        let at = tuples.len() as u32 - 1;
        index.insert_unique(hashed.rotate_left(32), at, |at| {
            let Tuple { start, end, bucket, .. } = tuples[*at as usize];
            hash.hash_one((bucket, &texts[start as usize..end as usize])).rotate_left(32)
        });
        at * SHARDS as u32 + shard as u32
    }

    pub(super) fn get(&self, number: u32) -> (&Arc<Split>, &[u8], Minutes) {
        let TupleShard { tuples, texts, .. } = &self.shards[number as usize % SHARDS];
        let Tuple { split, start, end, bucket } = tuples[number as usize / SHARDS];
        (&self.splits[usize::from(split)], &texts[start as usize..end as usize], bucket)
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |shard: &TupleShard| {
            shard.texts.capacity() + shard.tuples.capacity() * size_of::<Tuple>() + shard.index.allocation_size()
        };
        self.shards.iter().map(bytes).sum()
    }
}
