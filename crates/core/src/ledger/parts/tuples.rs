//! Combinations of values and buckets, each once, so that a count needs a number alone; and what they came to for counters as a whole.

use super::counts::Count;
use super::split::Split;
use crate::counter::rollup::Minutes;
use crate::id::CellKey;
use crate::memory::stratum::SHARDS;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::sync::Arc;

/// Values of all dimensions of a split and buckets, each combination once and known by a number.
#[derive(Clone)]
pub(super) struct Tuples {
    splits: Vec<Arc<Split>>,
    /// By the hash of the values, so that none waits for more than one to grow.
    shards: Box<[TupleShard]>,
    hash: DefaultHashBuilder,
    /// How many there are.
    len: u32,
}

#[derive(Clone, Default)]
struct TupleShard {
    tuples: Vec<Tuple>,
    index: HashTable<u32>,
    /// Values, each once however many buckets they are in.
    texts: Vec<u8>,
    /// Where they stand.
    known: HashTable<Span>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy)]
struct Tuple {
    values: Span,
    bucket: Minutes,
    split: u16,
    /// How many were there before it.
    order: u32,
    /// What was added to the counter as a whole.
    whole: i64,
}

/// What a number stands for.
#[derive(Clone, Copy)]
pub(super) struct Combination<'a> {
    pub split: &'a Arc<Split>,
    pub values: &'a [u8],
    /// The same for two of them if their values are, and only then.
    pub values_number: u64,
    pub bucket: Minutes,
}

/// The numbers of the combinations of another stretch.
pub(super) struct Numbers(Vec<Vec<u32>>);

impl Numbers {
    pub(super) fn of(&self, number: u32) -> u32 {
        self.0[number as usize % SHARDS][number as usize / SHARDS]
    }
}

impl Default for Tuples {
    fn default() -> Tuples {
        let shards = std::iter::repeat_with(TupleShard::default).take(SHARDS).collect();
        Tuples { splits: Vec::new(), shards, hash: DefaultHashBuilder::default(), len: 0 }
    }
}

impl TupleShard {
    #[inline]
    fn text(&self, Span { start, end }: Span) -> &[u8] {
        &self.texts[start as usize..end as usize]
    }

    fn learn(&mut self, values: &[u8], hashed: u64, hash: &DefaultHashBuilder) -> Span {
        if let Some(span) = self.known.find(hashed, |span| self.text(*span) == values) {
            return *span;
        }
        let start = self.texts.len() as u32;
        self.texts.extend_from_slice(values);
        let span = Span { start, end: self.texts.len() as u32 };
        let texts = &self.texts;
        self.known.insert_unique(hashed, span, |span| hash.hash_one(&texts[span.start as usize..span.end as usize]));
        span
    }
}

/// Where a combination of values with this hash is found. The shard is chosen by other bits.
#[inline]
fn mixed(hashed: u64, bucket: Minutes) -> u64 {
    (hashed ^ u64::from(bucket)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
fn numbered(at: usize, shard: usize) -> u32 {
    (at * SHARDS + shard) as u32
}

impl Tuples {
    #[inline]
    pub(super) fn number(&mut self, split: &Arc<Split>, values: &[u8], bucket: Minutes) -> u32 {
        let hashed = self.hash.hash_one(values);
        let at = hashed as usize % SHARDS;
        let shard = &self.shards[at];
        let is_it = |index: &u32| {
            let tuple = &shard.tuples[*index as usize];
            tuple.bucket == bucket
                && shard.text(tuple.values) == values
                && Arc::ptr_eq(&self.splits[usize::from(tuple.split)], split)
        };
        match shard.index.find(mixed(hashed, bucket), is_it) {
            Some(index) => numbered(*index as usize, at),
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
        let Tuples { shards, hash, len, .. } = self;
        let at = hashed as usize % SHARDS;
        let shard = &mut shards[at];
        let values = shard.learn(values, hashed, hash);
        let TupleShard { tuples, index, texts, .. } = shard;
        tuples.push(Tuple { values, bucket, split, order: *len, whole: 0 });
        *len += 1;
        let last = tuples.len() - 1;
        index.insert_unique(mixed(hashed, bucket), last as u32, |index| {
            let Tuple { values: Span { start, end }, bucket, .. } = tuples[*index as usize];
            mixed(hash.hash_one(&texts[start as usize..end as usize]), bucket)
        });
        numbered(last, at)
    }

    pub(super) fn get(&self, number: u32) -> Combination<'_> {
        let shard = &self.shards[number as usize % SHARDS];
        let Tuple { split, values, bucket, .. } = shard.tuples[number as usize / SHARDS];
        Combination {
            split: &self.splits[usize::from(split)],
            values: shard.text(values),
            values_number: u64::from(values.start) * SHARDS as u64 + u64::from(number) % SHARDS as u64,
            bucket,
        }
    }

    /// Adds to a counter as a whole, if that is more than its only key.
    #[inline]
    pub(super) fn add_to_whole(&mut self, number: u32, delta: i64) {
        let whole = &mut self.shards[number as usize % SHARDS].tuples[number as usize / SHARDS].whole;
        *whole = whole.saturating_add(delta);
    }

    /// The cells of counters as a whole.
    pub(super) fn wholes(&self) -> Vec<CellKey> {
        let mut wholes: Vec<CellKey> = self.splits.iter().filter_map(|split| split.whole).collect();
        wholes.sort_unstable();
        wholes.dedup();
        wholes
    }

    /// What was added to a counter as a whole, if the cell is that of one, in the order in which it came first.
    pub(super) fn of_whole(&self, cell: CellKey) -> Vec<Count> {
        if !self.splits.iter().any(|split| split.whole == Some(cell)) {
            return Vec::new();
        }
        let all = self.all().filter(|(_, tuple)| self.splits[usize::from(tuple.split)].whole == Some(cell));
        let mut all: Vec<(u32, &Tuple)> = all.collect();
        all.sort_unstable_by_key(|(_, tuple)| tuple.order);
        all.into_iter().map(|(number, tuple)| Count { cell, sum: tuple.whole, tuple: number }).collect()
    }

    /// Takes in the combinations of a newer stretch, with what was added to counters as a whole.
    pub(super) fn take_in(&mut self, newer: &Tuples) -> Numbers {
        let mut numbers = Numbers(newer.shards.iter().map(|shard| vec![0; shard.tuples.len()]).collect());
        let mut all: Vec<(u32, &Tuple)> = newer.all().collect();
        all.sort_unstable_by_key(|(_, tuple)| tuple.order);
        for (theirs, tuple) in all {
            let Combination { split, values, bucket, .. } = newer.get(theirs);
            let number = self.number(split, values, bucket);
            self.add_to_whole(number, tuple.whole);
            numbers.0[theirs as usize % SHARDS][theirs as usize / SHARDS] = number;
        }
        numbers
    }

    /// Each with its number.
    fn all(&self) -> impl Iterator<Item = (u32, &Tuple)> {
        let shards = self.shards.iter().enumerate();
        shards.flat_map(|(shard, TupleShard { tuples, .. })| {
            tuples.iter().enumerate().map(move |(at, tuple)| (numbered(at, shard), tuple))
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |shard: &TupleShard| {
            let tables = shard.index.allocation_size() + shard.known.allocation_size();
            shard.texts.capacity() + shard.tuples.capacity() * size_of::<Tuple>() + tables
        };
        self.shards.iter().map(bytes).sum()
    }
}
