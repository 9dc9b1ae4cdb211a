//! A board: which pairs of a key and a value came to most, in a table of bounded size; and for all others, how much they came to at most.
//!
//! A pair is known by a hash of 128 bits, which also says in which bucket of the table it stands, if it does. **Invariant:** what was added
//! to a pair, from any moment on, comes to no more than its `most` if it stands in its bucket, and to no more than the bucket's `lost`
//! if it does not. A pair that comes is given `lost` and what is added; if there is no place left, the least of them all goes, and
//! `lost` is what it had at most. It is Space-Saving, in each bucket by itself.
//!
//! What is taken away lowers `most`, but never below nothing: a key that is cleared begins anew at 0, wherever it was before.

use crate::ledger::row::whole;
use crate::memory::prefetch::prefetch;
use crate::record::{DecodeError, put_bytes, put_varint, take_byte, take_bytes, take_varint};
use std::sync::Arc;

/// Pairs that one bucket has room for.
const WAYS: usize = 4;
/// A board begins so small, and grows while no pair has gone for want of a place.
const BUCKETS_MIN: usize = 4;
/// With 128 bytes each it stays within the second cache.
const BUCKETS_MAX: usize = 512;
/// What a name takes beside its texts, about.
const NAME_BYTES: usize = 96;

const NO_NAME: u32 = 0;
/// There was no room for it; nobody asks again.
const NO_ROOM: u32 = u32::MAX;

/// Two lines of the cache.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Bucket {
    lost: i64,
    most: [i64; WAYS],
    /// Halves of pairs; both are 0 where there is none.
    low: [u64; WAYS],
    high: [u64; WAYS],
    /// The number of its name, and one.
    names: [u32; WAYS],
}

const EMPTY: Bucket = Bucket { lost: 0, most: [0; WAYS], low: [0; WAYS], high: [0; WAYS], names: [NO_NAME; WAYS] };

/// Who a pair is: an answer needs it, a count does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairName {
    /// The id of the key.
    pub id: Arc<[u8]>,
    /// The value of the dimension; empty on a board of keys alone.
    pub value: Arc<[u8]>,
}

#[derive(Clone)]
pub struct Board {
    buckets: Vec<Bucket>,
    names: Vec<Option<PairName>>,
    /// Places in it that are free.
    free: Vec<u32>,
    /// What names take.
    name_bytes: usize,
}

/// One pair as a board has it.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    pub pair: u128,
    pub most: i64,
    pub name: Option<&'a PairName>,
}

impl Default for Board {
    fn default() -> Board {
        Board { buckets: vec![EMPTY; BUCKETS_MIN], names: Vec::new(), free: Vec::new(), name_bytes: 0 }
    }
}

impl Board {
    #[inline]
    pub fn prefetch(&self, pair: u128) {
        let bucket = &self.buckets[place(pair, self.buckets.len())];
        prefetch(&bucket.lost);
        prefetch(&bucket.names);
    }

    /// Adds to a pair. `room` is how many bytes it may grow by. Answers whether its name is wanted, and not known yet.
    #[inline]
    pub fn add(&mut self, pair: u128, delta: i64, room: &mut usize) -> bool {
        let at = place(pair, self.buckets.len());
        let bucket = &mut self.buckets[at];
        match bucket.way_of(pair) {
            Some(way) => {
                bucket.most[way] = bucket.most[way].saturating_add(delta).max(0);
                bucket.wants_name(way)
            }
            // What is taken from a pair that does not stand here leaves it below what was said of it.
            None => delta > 0 && self.come(pair, delta, room),
        }
    }

    fn come(&mut self, pair: u128, delta: i64, room: &mut usize) -> bool {
        loop {
            let at = place(pair, self.buckets.len());
            let bucket = &mut self.buckets[at];
            let way = bucket.least();
            let is_taken = bucket.is_taken(way);
            if is_taken && self.buckets.len() < BUCKETS_MAX && self.grow(room) {
                continue;
            }
            let bucket = &mut self.buckets[at];
            let most = bucket.lost.saturating_add(delta);
            if is_taken && bucket.most[way] >= most {
                bucket.lost = most;
                return false;
            }
            bucket.lost = bucket.lost.max(bucket.most[way]);
            bucket.most[way] = most;
            bucket.set_pair(way, pair);
            let name = std::mem::replace(&mut bucket.names[way], NO_NAME);
            let wants_name = bucket.wants_name(way);
            self.forget(name, room);
            return wants_name;
        }
    }

    /// Twice as many buckets, if there may be. Each pair stays in one of the two that came of its own, with what was said of the rest.
    #[cold]
    fn grow(&mut self, room: &mut usize) -> bool {
        let (len, bytes) = (self.buckets.len(), self.buckets.len() * size_of::<Bucket>());
        if *room < bytes {
            return false;
        }
        *room -= bytes;
        let mut grown = vec![EMPTY; 2 * len];
        for (at, bucket) in self.buckets.iter().enumerate() {
            (grown[at].lost, grown[at + len].lost) = (bucket.lost, bucket.lost);
            for way in (0..WAYS).filter(|way| bucket.is_taken(*way)) {
                let to = &mut grown[place(bucket.pair(way), 2 * len)];
                let free = (0..WAYS).find(|way| !to.is_taken(*way)).expect("it has as many places as before");
                to.set_pair(free, bucket.pair(way));
                to.most[free] = bucket.most[way];
                to.names[free] = bucket.names[way];
            }
        }
        self.buckets = grown;
        true
    }

    /// Says who a pair is that wants to be known.
    #[cold]
    pub fn name(&mut self, pair: u128, name: PairName, room: &mut usize) {
        let at = place(pair, self.buckets.len());
        let bucket = &mut self.buckets[at];
        let Some(way) = bucket.way_of(pair) else { return };
        if bucket.names[way] != NO_NAME {
            return;
        }
        let bytes = bytes_of(&name);
        if *room < bytes {
            bucket.names[way] = NO_ROOM;
            return;
        }
        *room -= bytes;
        let number = self.keep(name) + 1;
        self.buckets[at].names[way] = number;
    }

    fn keep(&mut self, name: PairName) -> u32 {
        self.name_bytes += bytes_of(&name);
        match self.free.pop() {
            Some(free) => {
                self.names[free as usize] = Some(name);
                free
            }
            None => {
                self.names.push(Some(name));
                self.names.len() as u32 - 1
            }
        }
    }

    fn forget(&mut self, name: u32, room: &mut usize) {
        if name != NO_NAME
            && name != NO_ROOM
            && let Some(gone) = self.names[name as usize - 1].take()
        {
            self.free.push(name - 1);
            self.name_bytes -= bytes_of(&gone);
            *room += bytes_of(&gone);
        }
    }

    /// How many buckets there are: a power of two. The bucket of a pair is the same on every board of as many.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// What a pair came to at most that does not stand in a bucket; of a larger number of buckets, in the one that came of it.
    pub fn lost(&self, bucket: usize) -> i64 {
        self.buckets[bucket & (self.buckets.len() - 1)].lost
    }

    /// The pairs that stand in a bucket; of a larger number of buckets, those that would stand there.
    pub fn standing(&self, bucket: usize, of: usize) -> impl Iterator<Item = Standing<'_>> {
        let found = &self.buckets[bucket & (self.buckets.len() - 1)];
        let taken = (0..WAYS).filter(|way| found.is_taken(*way));
        taken.filter_map(move |way| {
            let pair = found.pair(way);
            let name = || self.names.get(found.names[way].checked_sub(1)? as usize)?.as_ref();
            (place(pair, of) == bucket).then(|| Standing { pair, most: found.most[way], name: name() })
        })
    }

    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>() + self.name_bytes
    }

    /// The logarithm of the number of buckets; then each with what it has lost, how many stand there, and of each its pair, the most, and
    /// its name, if it has one.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = vec![self.buckets.len().ilog2() as u8];
        for (at, bucket) in self.buckets.iter().enumerate() {
            let standing: Vec<_> = self.standing(at, self.buckets.len()).collect();
            put_varint(&mut row, bucket.lost as u64);
            row.push(standing.len() as u8);
            for Standing { pair, most, name } in standing {
                row.extend_from_slice(&pair.to_be_bytes());
                put_varint(&mut row, most as u64);
                row.push(name.is_some().into());
                if let Some(PairName { id, value }) = name {
                    put_bytes(&mut row, id);
                    put_bytes(&mut row, value);
                }
            }
        }
        row
    }

    pub fn decode(row: &[u8]) -> Result<Board, DecodeError> {
        whole(row, Board::take)
    }

    fn take(bytes: &mut &[u8]) -> Result<Board, DecodeError> {
        let log = take_byte(bytes)?;
        let len = 1usize.checked_shl(log.into()).filter(|len| (BUCKETS_MIN..=BUCKETS_MAX).contains(len));
        let len = len.ok_or(DecodeError::BadValue { field: "buckets of a board", value: log.into() })?;
        let mut board = Board { buckets: vec![EMPTY; len], names: Vec::new(), free: Vec::new(), name_bytes: 0 };
        for at in 0..len {
            board.buckets[at].lost = take_amount(bytes)?;
            let standing = take_byte(bytes)?;
            if usize::from(standing) > WAYS {
                return Err(DecodeError::BadValue { field: "pairs of a bucket", value: standing.into() });
            }
            for way in 0..usize::from(standing) {
                board.take_pair(at, way, bytes)?;
            }
        }
        Ok(board)
    }

    fn take_pair(&mut self, at: usize, way: usize, bytes: &mut &[u8]) -> Result<(), DecodeError> {
        let (pair, rest) = bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
        *bytes = rest;
        let pair = u128::from_be_bytes(*pair);
        if place(pair, self.buckets.len()) != at || pair == 0 {
            return Err(DecodeError::BadValue { field: "bucket of a pair", value: at as u64 });
        }
        let most = take_amount(bytes)?;
        let name = match take_byte(bytes)? {
            0 => NO_NAME,
            _ => self.keep(PairName { id: take_bytes(bytes)?.into(), value: take_bytes(bytes)?.into() }) + 1,
        };
        let bucket = &mut self.buckets[at];
        bucket.set_pair(way, pair);
        (bucket.most[way], bucket.names[way]) = (most, name);
        Ok(())
    }
}

impl Bucket {
    #[inline]
    fn pair(&self, way: usize) -> u128 {
        u128::from(self.high[way]) << 64 | u128::from(self.low[way])
    }

    #[inline]
    fn set_pair(&mut self, way: usize, pair: u128) {
        (self.low[way], self.high[way]) = (pair as u64, (pair >> 64) as u64);
    }

    #[inline]
    fn is_taken(&self, way: usize) -> bool {
        self.low[way] | self.high[way] != 0
    }

    /// Where a pair stands. All are looked at, without a branch for each: in a flood of keys most stand nowhere.
    #[inline]
    fn way_of(&self, pair: u128) -> Option<usize> {
        let (low, high) = (pair as u64, (pair >> 64) as u64);
        let is_it = |way: usize| u32::from((self.low[way] ^ low) | (self.high[way] ^ high) == 0);
        let found = (0..WAYS).fold(0, |found, way| found | is_it(way) << way);
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    /// The place that is free, or has least.
    #[inline]
    fn least(&self) -> usize {
        // One number each: a pair of them is compared by way of memory. There are no amounts below 0.
        let rank = |way: usize| (self.most[way] as u64) << 1 | u64::from(self.is_taken(way));
        let first = (rank(0), 0);
        (1..WAYS).map(|way| (rank(way), way)).fold(first, |least, next| if next.0 < least.0 { next } else { least }).1
    }

    /// Whether a pair is worth a name that has none. Where many come and go an id for each would cost more than all the rest, so it has
    /// to stand out.
    #[inline]
    fn wants_name(&self, way: usize) -> bool {
        self.names[way] == NO_NAME && self.most[way] > self.lost + self.lost / 4
    }
}

fn bytes_of(name: &PairName) -> usize {
    NAME_BYTES + name.id.len() + name.value.len()
}

fn take_amount(bytes: &mut &[u8]) -> Result<i64, DecodeError> {
    let amount = take_varint(bytes)?;
    i64::try_from(amount).map_err(|_| DecodeError::BadValue { field: "amount of a board", value: amount })
}

/// The bucket of a pair among so many, a power of two. The lowest bits of a cell are always zero.
#[inline]
fn place(pair: u128, buckets: usize) -> usize {
    (pair >> crate::id::CellKey::FLAG_BITS) as usize & (buckets - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Hashes of numbers: the lowest bits are zero, as those of cells.
    fn pair(n: u64) -> u128 {
        crate::id::CellHasher::new(3).key(&n.to_le_bytes()).as_u128()
    }

    fn name(n: u64) -> PairName {
        PairName { id: n.to_string().into_bytes().into(), value: b"v"[..].into() }
    }

    /// What a board says that each of so many pairs came to at most.
    fn most(board: &Board, n: u64) -> i64 {
        let bucket = place(pair(n), board.buckets());
        let standing = board.standing(bucket, board.buckets()).find(|standing| standing.pair == pair(n));
        standing.map_or(board.lost(bucket), |standing| standing.most)
    }

    fn add(board: &mut Board, n: u64, delta: i64, room: &mut usize) {
        if board.add(pair(n), delta, room) {
            board.name(pair(n), name(n), room);
        }
    }

    #[test]
    fn the_bytes_of_a_board_are_pinned() {
        let (mut board, mut room) = (Board::default(), 1000);
        add(&mut board, 1, 5, &mut room);
        let mut expected = vec![2];
        for bucket in 0..4 {
            expected.push(0);
            match bucket == place(pair(1), 4) {
                true => expected.extend([&[1][..], &pair(1).to_be_bytes(), &[5, 1, 1, b'1', 1, b'v']].concat()),
                false => expected.push(0),
            }
        }
        assert_eq!(board.encode(), expected);
    }

    #[test]
    fn a_bucket_is_two_lines_of_the_cache() {
        assert_eq!(size_of::<Bucket>(), 128);
    }

    #[test]
    fn a_few_pairs_are_known_exactly_and_many_that_come_once_get_no_names() {
        let (mut board, mut room) = (Board::default(), 1 << 20);
        (0..500).for_each(|n| add(&mut board, n, n as i64, &mut room));
        assert!((0..500).all(|n| most(&board, n) == n as i64), "there was room for all");
        let (mut board, mut room, mut named) = (Board::default(), 1 << 20, 0);
        for n in 0..100_000 {
            if board.add(pair(n), 1, &mut room) {
                named += 1;
                board.name(pair(n), name(n), &mut room);
            }
        }
        assert!(named < 20_000, "{named} of 100,000");
        assert!(board.bytes() <= 1 << 20);
        assert_eq!(board.bytes() + room, Board::default().bytes() + (1 << 20), "what it takes is what it was given");
    }

    proptest! {
        #[test]
        fn nobody_came_to_more_than_the_board_says_from_any_moment_on(
            added in prop::collection::vec((0u64..60, -6i64..9, any::<bool>(), any::<bool>()), 1..400),
            room in 0usize..6000,
        ) {
            let (mut board, mut room) = (Board::default(), room);
            let mut sums = BTreeMap::<u64, i64>::new();
            for (n, delta, cut, cleared) in added {
                add(&mut board, n, delta, &mut room);
                *sums.entry(n).or_default() += delta;
                if cleared && cut {
                    sums.insert(n, 0);
                }
                if cut {
                    board = Board::decode(&board.encode()).unwrap();
                }
                for (n, sum) in &sums {
                    prop_assert!(*sum <= most(&board, *n), "{n}: {sum} > {}", most(&board, *n));
                }
            }
            prop_assert_eq!(Board::decode(&board.encode()).unwrap().encode(), board.encode());
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            let _ = Board::decode(&bytes);
        }
    }
}
