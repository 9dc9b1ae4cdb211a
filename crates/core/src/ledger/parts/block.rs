//! A row of parts: what one key came to in one bucket of one roll-up, by the values of the roll-up's dimensions.
//!
//! A byte says how many dimensions there are; then, for each part, the value of each behind its length, and the sum, zigzag. Parts stand in
//! the order in which they came first, and none ever leaves: what is admitted follows from the log alone.

use crate::record::{DecodeError, put_bytes, put_signed, take_byte, take_bytes, take_signed};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// The value of what the event does not say.
pub const NONE: &str = "(none)";
/// What was corrected without saying which part it belongs to.
pub const CORRECTION: &str = "(correction)";
/// What came when there were as many values as are admitted.
pub const OTHER: &str = "other";

pub struct Block {
    width: u8,
    texts: Vec<u8>,
    parts: Vec<BlockPart>,
    /// Only where there are many.
    index: Option<(HashTable<u32>, DefaultHashBuilder)>,
}

/// So many parts are looked through one by one.
const FEW: usize = 8;

#[derive(Clone, Copy)]
struct BlockPart {
    start: u32,
    end: u32,
    sum: i64,
}

impl Block {
    pub fn new(width: u8) -> Block {
        Block { width, texts: Vec::new(), parts: Vec::new(), index: None }
    }

    /// What a row holds.
    pub fn decode(row: &[u8]) -> Result<Block, DecodeError> {
        let mut block = Block::new(0);
        block.read(row)?;
        Ok(block)
    }

    /// Begins anew, with the room it has.
    pub fn begin(&mut self, width: u8) {
        self.width = width;
        self.texts.clear();
        self.parts.clear();
        self.index = None;
    }

    /// Begins anew with what a row holds.
    pub fn read(&mut self, row: &[u8]) -> Result<(), DecodeError> {
        let mut parts = BlockParts::of(row)?;
        self.begin(parts.width);
        while let Some((values, sum)) = parts.take()? {
            *self.entry(values) += sum;
        }
        Ok(())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(1 + self.texts.len() + 3 * self.parts.len());
        row.push(self.width);
        for part in &self.parts {
            row.extend_from_slice(self.values(part));
            put_signed(&mut row, part.sum);
        }
        row
    }

    /// Adds to a part; if it is new and there are so many already, to the one of all others. Answers whether it was admitted.
    pub fn add(&mut self, values: &[u8], delta: i64, most: usize) -> bool {
        let is_admitted = self.admits(values, most);
        let to = if is_admitted { values } else { &self.others() };
        let sum = self.entry(to);
        *sum = sum.saturating_add(delta);
        is_admitted
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether what is added to a part goes there.
    pub fn admits(&self, values: &[u8], most: usize) -> bool {
        self.parts.len() < most || self.has(values) || is_a_word(values)
    }

    pub fn has(&self, values: &[u8]) -> bool {
        self.find(values).is_some()
    }

    fn find(&self, values: &[u8]) -> Option<usize> {
        match &self.index {
            None => self.parts.iter().position(|part| self.values(part) == values),
            Some((index, hash)) => {
                let is_it = |at: &u32| self.values(&self.parts[*at as usize]) == values;
                index.find(hash.hash_one(values), is_it).map(|at| *at as usize)
            }
        }
    }

    /// Each part's values, one behind the other and each behind its length, and its sum.
    pub fn parts(&self) -> impl Iterator<Item = (&[u8], i64)> {
        self.parts.iter().map(|part| (self.values(part), part.sum))
    }

    fn values(&self, part: &BlockPart) -> &[u8] {
        &self.texts[part.start as usize..part.end as usize]
    }

    fn others(&self) -> Vec<u8> {
        let mut others = Vec::new();
        (0..self.width).for_each(|_| put_bytes(&mut others, OTHER.as_bytes()));
        others
    }

    fn entry(&mut self, values: &[u8]) -> &mut i64 {
        let at = self.find(values).unwrap_or_else(|| self.push(values));
        &mut self.parts[at].sum
    }

    fn push(&mut self, values: &[u8]) -> usize {
        let start = self.texts.len() as u32;
        self.texts.extend_from_slice(values);
        self.parts.push(BlockPart { start, end: self.texts.len() as u32, sum: 0 });
        let at = self.parts.len() - 1;
        match &self.index {
            Some(_) => self.learn(at),
            None if at >= FEW => {
                self.index = Some(Default::default());
                (0..=at).for_each(|at| self.learn(at));
            }
            None => {}
        }
        at
    }

    fn learn(&mut self, at: usize) {
        let Block { texts, parts, index, .. } = self;
        let Some((index, hash)) = index else { return };
        let hashed = |at: &u32| {
            let BlockPart { start, end, .. } = parts[*at as usize];
            hash.hash_one(&texts[start as usize..end as usize])
        };
        index.insert_unique(hashed(&(at as u32)), at as u32, hashed);
    }
}

/// Whether all values stand for what has none of its own; there is room for it in any case.
fn is_a_word(values: &[u8]) -> bool {
    values_of(values).all(|value| [NONE, CORRECTION, OTHER].iter().any(|word| word.as_bytes() == value))
}

/// The values of a part, one by one.
pub fn values_of(mut values: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || if values.is_empty() { None } else { take_bytes(&mut values).ok() })
}

/// Goes through the parts of a row.
pub struct BlockParts<'a> {
    pub width: u8,
    rest: &'a [u8],
}

impl<'a> BlockParts<'a> {
    pub fn of(mut row: &'a [u8]) -> Result<BlockParts<'a>, DecodeError> {
        let width = take_byte(&mut row)?;
        Ok(BlockParts { width, rest: row })
    }

    /// What has not been taken.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The sum of the next part, whose values are known to have so many bytes.
    #[inline]
    pub fn take_sum_behind(&mut self, bytes: usize) -> Result<i64, DecodeError> {
        self.rest = self.rest.get(bytes..).ok_or(DecodeError::Truncated)?;
        take_signed(&mut self.rest)
    }

    /// The values of the next part, as they stand, and its sum.
    pub fn take(&mut self) -> Result<Option<(&'a [u8], i64)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let begun = self.rest;
        for _ in 0..self.width {
            take_bytes(&mut self.rest)?;
        }
        let values = &begun[..begun.len() - self.rest.len()];
        Ok(Some((values, take_signed(&mut self.rest)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(texts: &[&str]) -> Vec<u8> {
        let mut values = Vec::new();
        texts.iter().for_each(|text| put_bytes(&mut values, text.as_bytes()));
        values
    }

    #[test]
    fn the_bytes_of_a_row_are_pinned() {
        let mut block = Block::new(2);
        block.add(&values(&["DE", "tv"]), 3, 10);
        block.add(&values(&["(none)", ""]), -1, 10);
        block.add(&values(&["DE", "tv"]), 1, 10);
        assert_eq!(block.encode(), b"\x02\x02DE\x02tv\x08\x06(none)\x00\x01");
        let mut hours = Block::new(0);
        hours.add(b"", 5, 10);
        assert_eq!(hours.encode(), [0, 10]);
    }

    #[test]
    fn the_first_values_are_admitted_and_the_rest_is_other() {
        let mut block = Block::new(1);
        let admitted = ["a", "b", "a", "c", "(none)", "b"].map(|value| block.add(&values(&[value]), 1, 2));
        assert_eq!(admitted, [true, true, true, false, true, true]);
        let parts: Vec<_> = block.parts().map(|(values, sum)| (values.to_vec(), sum)).collect();
        let expected = [("a", 2), ("b", 2), ("other", 1), ("(none)", 1)];
        assert_eq!(parts, expected.map(|(value, sum)| (values(&[value]), sum)));
    }

    proptest! {
        #[test]
        fn a_row_survives_its_bytes_and_adds_up_whenever_it_is_written(
            added in prop::collection::vec(("[a-d]", -5i64..5, any::<bool>()), 0..40),
            most in 1usize..5,
        ) {
            let (mut whole, mut written) = (Block::new(1), Block::new(1));
            for (text, delta, cut) in &added {
                whole.add(&values(&[text]), *delta, most);
                written.add(&values(&[text]), *delta, most);
                if *cut {
                    written = Block::decode(&written.encode()).unwrap();
                }
            }
            prop_assert_eq!(whole.encode(), written.encode());
            let sum: i64 = whole.parts().map(|(_, sum)| sum).sum();
            prop_assert_eq!(sum, added.iter().map(|(_, delta, _)| delta).sum::<i64>());
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            let _ = Block::decode(&bytes);
        }
    }
}
