//! Which keys the store may have: a blocked Bloom filter. Its "no" is certain, its "maybe" is wrong for at most one key in
//! a hundred.
//!
//! A key is one bit in each of the eight words of one 64-byte block, so a question costs one cache line. The filter cannot be
//! rebuilt without the keys; it grows by another part of twice the size. Wrong answers of parts add up, and so small parts,
//! which are many and cost little, have room to spare (0.01 % each), and large ones, of which there are four at most
//! under [`FILTER_BYTES_MAX`], are filled to 0.23 %.
//!
//! A "no" that somebody relies on stays one: keys that come later may set the bits that were missing, so those bits are noted until
//! nobody relies on anything any more ([`Filter::was_denied`], [`Filter::forget_denied`]).

use crate::id::CellKey;
use crate::limits::FILTER_BYTES_MAX;

const WORDS: usize = 8;
type Block = [u64; WORDS];

/// The first part, in blocks: 1 MiB.
const BLOCKS_MIN: usize = 1 << 14;
/// The largest part that counts as small, in blocks: 16 MiB.
const BLOCKS_SMALL: usize = BLOCKS_MIN << 4;
/// Keys per block, on average, when a part is full: 24 bits per key while it is small, 13.5 bits then.
const KEYS_PER_BLOCK_SMALL: u64 = 21;
const KEYS_PER_BLOCK: u64 = 38;
/// Notes of so many keys are kept room for.
const FRESH_KEPT: usize = 1 << 16;

pub(super) struct Filter {
    /// The newest last.
    parts: Vec<FilterPart>,
    keys: u64,
    /// Bits that were set since nobody relied on a "no".
    fresh: Vec<FreshBits>,
    bytes_max: usize,
    gave_up: bool,
}

/// A key that was inserted, and in which words its bit was not set before.
struct FreshBits {
    key: CellKey,
    part: u8,
    words: u8,
}

struct FilterPart {
    /// Not blocks with an alignment of their own: only integers come from the system zeroed already, and hundreds of
    /// megabytes take a while to fill.
    words: Vec<u64>,
    /// The first word at the beginning of a cache line.
    start: usize,
    blocks: usize,
    room: u64,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { parts: Vec::new(), keys: 0, fresh: Vec::new(), bytes_max: FILTER_BYTES_MAX, gave_up: false }
    }
}

impl Filter {
    /// A filter for about so many keys, in one part; it gives up at once if they do not fit.
    pub fn for_keys(keys: u64, bytes_max: usize) -> Filter {
        let mut filter = Filter { bytes_max, ..Filter::default() };
        if keys > 0 {
            let keys = keys + keys / 4;
            let small = keys.div_ceil(KEYS_PER_BLOCK_SMALL);
            let blocks = if small <= BLOCKS_SMALL as u64 { small } else { keys.div_ceil(KEYS_PER_BLOCK) };
            filter.add_part(usize::try_from(blocks).unwrap_or(usize::MAX).max(BLOCKS_MIN));
        }
        filter
    }

    /// Whether the key may have been inserted. `false` is certain.
    #[inline]
    pub fn maybe(&self, key: CellKey) -> bool {
        self.has(key, &mask(key))
    }

    #[inline]
    fn has(&self, key: CellKey, mask: &Block) -> bool {
        self.gave_up || self.parts.iter().rev().any(|part| part.maybe(key, mask))
    }

    /// Answers whether it is certain that the key was not inserted before.
    pub fn insert(&mut self, key: CellKey) -> bool {
        let mask = mask(key);
        // A key that is answered "maybe" already needs no room.
        if self.has(key, &mask) {
            return false;
        }
        if self.parts.last().is_none_or(|part| part.room == 0) {
            self.grow();
        }
        let newest = self.parts.len().saturating_sub(1) as u8;
        if let Some(part) = self.parts.last_mut() {
            let words = part.insert(key, &mask);
            self.fresh.push(FreshBits { key, part: newest, words });
            self.keys += 1;
        }
        true
    }

    /// Whether a key was denied before the keys came that were inserted since nobody relied on that. `true` is certain.
    #[cold]
    pub fn was_denied(&self, key: CellKey) -> bool {
        let mask = mask(key);
        self.parts.iter().enumerate().all(|(number, part)| {
            let block = part.block_of(key);
            let set_a_missing_bit = |fresh: &FreshBits| {
                let theirs = self::mask(fresh.key);
                usize::from(fresh.part) == number
                    && part.block_of(fresh.key) == block
                    && (0..WORDS).any(|word| fresh.words & 1 << word != 0 && theirs[word] == mask[word])
            };
            !part.maybe(key, &mask) || self.fresh.iter().any(set_a_missing_bit)
        })
    }

    /// Nobody relies on what was denied.
    pub fn forget_denied(&mut self) {
        if self.fresh.capacity() > FRESH_KEPT {
            self.fresh = Vec::new();
        }
        self.fresh.clear();
    }

    /// Keys that were inserted, removed rows among them.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.blocks * size_of::<Block>()).sum()
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub fn limit(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        if self.bytes() > bytes_max {
            self.give_up();
        }
    }

    /// It has reached its bound and answers "maybe" to everything.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    fn grow(&mut self) {
        let twice = self.parts.last().map_or(BLOCKS_MIN, |part| 2 * part.blocks);
        let left = (self.bytes_max.saturating_sub(self.bytes())) / size_of::<Block>();
        // The last part takes what is left under the bound.
        self.add_part(if left >= BLOCKS_MIN { twice.min(left) } else { twice });
    }

    fn add_part(&mut self, blocks: usize) {
        if blocks.saturating_mul(size_of::<Block>()) > self.bytes_max.saturating_sub(self.bytes()) {
            return self.give_up();
        }
        self.parts.push(FilterPart::new(blocks));
    }

    fn give_up(&mut self) {
        self.parts = Vec::new();
        self.gave_up = true;
    }
}

impl FilterPart {
    fn new(blocks: usize) -> FilterPart {
        let words = vec![0u64; (blocks + 1) * WORDS];
        // If it cannot be told, a block may take two cache lines.
        let start = words.as_ptr().align_offset(size_of::<Block>()).min(WORDS);
        let keys_per_block = if blocks <= BLOCKS_SMALL { KEYS_PER_BLOCK_SMALL } else { KEYS_PER_BLOCK };
        FilterPart { words, start, blocks, room: blocks as u64 * keys_per_block }
    }

    #[inline]
    fn maybe(&self, key: CellKey, mask: &Block) -> bool {
        let block = &self.words[self.block_of(key)..][..WORDS];
        // All words without a branch between them.
        block.iter().zip(mask).fold(0, |missing, (word, bit)| missing | bit & !word) == 0
    }

    /// Answers in which words its bit was not set before.
    fn insert(&mut self, key: CellKey, mask: &Block) -> u8 {
        let at = self.block_of(key);
        let mut fresh = 0;
        for (number, (word, bit)) in self.words[at..][..WORDS].iter_mut().zip(mask).enumerate() {
            fresh |= u8::from(*word & bit == 0) << number;
            *word |= bit;
        }
        self.room -= 1;
        fresh
    }

    /// Where a key's block begins: the upper half of the key as a fraction of 2⁶⁴, times the number of blocks.
    #[inline]
    fn block_of(&self, key: CellKey) -> usize {
        let upper = key.as_u128() >> 64;
        self.start + ((upper * self.blocks as u128) >> 64) as usize * WORDS
    }
}

/// One bit per word, chosen by six bits each of the key's lower half, above the flag bits, which are always zero.
#[inline]
fn mask(key: CellKey) -> Block {
    let bits = (key.as_u128() >> CellKey::FLAG_BITS) as u64;
    std::array::from_fn(|word| 1 << (bits >> (6 * word) & 63))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CellHasher;

    fn key(n: u64) -> CellKey {
        CellHasher::new(1).key(&n.to_le_bytes())
    }

    /// Inserts so many keys; answers how many of as many others are taken for them.
    fn false_positives(filter: &mut Filter, keys: u64) -> u64 {
        (0..keys).for_each(|n| _ = filter.insert(key(n)));
        assert!((0..keys).all(|n| filter.maybe(key(n))), "a key that was inserted is never denied");
        (keys..2 * keys).filter(|n| filter.maybe(key(*n))).count() as u64
    }

    #[test]
    fn a_million_keys_are_mistaken_for_others_once_in_a_hundred_times_at_most() {
        let mut grown = Filter::default();
        let mut sized = Filter::for_keys(1_000_000, FILTER_BYTES_MAX);
        for filter in [&mut grown, &mut sized] {
            let wrong = false_positives(filter, 1_000_000);
            assert!(wrong <= 10_000, "{wrong} of a million");
            assert!(filter.bytes() <= 4 << 20, "{} bytes", filter.bytes());
        }
        assert_eq!((grown.parts.len(), sized.parts.len()), (2, 1));
    }

    #[test]
    fn a_large_part_is_right_about_997_keys_in_a_thousand_when_it_is_full() {
        let mut filter = Filter::default();
        let blocks = BLOCKS_SMALL + 1;
        filter.add_part(blocks);
        let keys = blocks as u64 * KEYS_PER_BLOCK;
        (0..keys).for_each(|n| _ = filter.parts[0].insert(key(n), &mask(key(n))));
        let wrong = (keys..keys + 1_000_000).filter(|n| filter.maybe(key(*n))).count();
        assert!((1_500..3_000).contains(&wrong), "{wrong} of a million");
    }

    #[test]
    fn a_key_that_was_denied_is_known_to_have_been_whatever_came_since() {
        let mut filter = Filter::default();
        let (before, since) = (330_000, 60_000);
        (0..before).for_each(|n| _ = filter.insert(key(n)));
        filter.forget_denied();
        let denied: Vec<_> = (before + since..before + since + 1_000_000).filter(|n| !filter.maybe(key(*n))).collect();
        (before..before + since).for_each(|n| _ = filter.insert(key(n)));
        assert_eq!(filter.parts.len(), 2, "they came to two parts");
        let taken_for_others: Vec<_> = denied.iter().filter(|n| filter.maybe(key(**n))).collect();
        assert!(taken_for_others.len() > 10, "{}", taken_for_others.len());
        assert!(taken_for_others.iter().all(|n| filter.was_denied(key(**n))));
        assert!((0..before).step_by(97).all(|n| !filter.was_denied(key(n))), "what was there was not denied");
        filter.forget_denied();
        assert!(taken_for_others.iter().all(|n| !filter.was_denied(key(**n))));
    }

    #[test]
    fn an_empty_filter_denies_everything_and_takes_no_memory() {
        let filter = Filter::default();
        assert!(!filter.maybe(key(1)));
        assert_eq!(filter.bytes(), 0);
    }

    #[test]
    fn at_its_bound_a_filter_gives_up_and_answers_maybe() {
        // Parts of one and two MiB; what is left is too little for a third.
        let bytes_max = (3 << 20) + (900 << 10);
        let mut filter = Filter::default();
        filter.limit(bytes_max);
        let mut n = 0;
        while !filter.gave_up() {
            filter.insert(key(n));
            n += 1;
            assert!(filter.bytes() <= bytes_max);
        }
        assert!(n > 3 * BLOCKS_MIN as u64 * KEYS_PER_BLOCK_SMALL);
        assert_eq!(filter.bytes(), 0);
        assert!(filter.maybe(key(n + 1)));
        filter.insert(key(n + 1));
        assert!(Filter::for_keys(10_000_000, bytes_max).gave_up());
    }

    #[test]
    fn the_last_part_takes_what_the_bound_leaves() {
        let bytes_max = (1 << 20) + (1100 << 10);
        let mut filter = Filter::default();
        filter.limit(bytes_max);
        (0..400_000).for_each(|n| _ = filter.insert(key(n)));
        assert_eq!(filter.bytes(), bytes_max);
    }

    #[test]
    fn a_key_that_comes_again_takes_no_room() {
        let mut filter = Filter::default();
        (0..1_000_000).for_each(|n| _ = filter.insert(key(n % 100)));
        assert_eq!((filter.keys(), filter.parts.len()), (100, 1));
    }
}
