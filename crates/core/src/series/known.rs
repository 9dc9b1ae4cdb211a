//! The parts of a series: combinations of values, each once and known by a number.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::cmp::Ordering;
use std::hash::BuildHasher;

/// The number of a part.
pub type Part = u32;

#[derive(Clone, Debug, Default)]
pub(super) struct KnownParts {
    /// Their values, one part behind the other.
    texts: Vec<u8>,
    parts: Vec<KnownPart>,
    index: HashTable<Part>,
    hash: DefaultHashBuilder,
    /// Which one came first in its row the last time.
    first: Part,
}

#[derive(Clone, Copy, Debug)]
struct KnownPart {
    /// How its values begin, which is all of most, and which bits that are.
    head: u64,
    mask: u64,
    /// Where its values stand.
    start: u32,
    end: u32,
    /// Which one came behind it the last time: rows of a key mostly have the same parts in the same order.
    next: Part,
}

const HEAD_BYTES: usize = size_of::<u64>();

impl KnownPart {
    fn new(values: &[u8], start: u32, next: Part) -> KnownPart {
        let mut head = [0; HEAD_BYTES];
        head.iter_mut().zip(values).for_each(|(head, byte)| *head = *byte);
        let beyond = HEAD_BYTES.saturating_sub(values.len()) as u32;
        let mask = u64::MAX.checked_shr(8 * beyond).unwrap_or(0);
        KnownPart { head: u64::from_le_bytes(head), mask, start, end: start + values.len() as u32, next }
    }

    #[inline]
    fn len(&self) -> usize {
        (self.end - self.start) as usize
    }
}

impl KnownParts {
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// All of them, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = Part> + use<> {
        0..self.len() as Part
    }

    #[inline]
    pub fn values(&self, part: Part) -> &[u8] {
        let KnownPart { start, end, .. } = self.parts[part as usize];
        &self.texts[start as usize..end as usize]
    }

    /// The part that came behind another one of its row the last time, or first, and how many bytes its values have: if the rest of a
    /// row begins with it again. No values begin with others, since a length stands before each.
    #[inline]
    pub fn expected(&self, before: Option<Part>, rest: &[u8]) -> Option<(Part, usize)> {
        let next = before.map_or(self.first, |before| self.parts[before as usize].next);
        let part = self.parts.get(next as usize)?;
        let head = u64::from_le_bytes(*rest.first_chunk()?);
        let is_it = head & part.mask == part.head && (part.len() <= HEAD_BYTES || rest.starts_with(self.values(next)));
        is_it.then(|| (next, part.len()))
    }

    /// The number of the values that come behind another part of their row, or first.
    pub fn behind(&mut self, before: Option<Part>, values: &[u8]) -> Part {
        let part = self.number(values);
        *before.map_or(&mut self.first, |before| &mut self.parts[before as usize].next) = part;
        part
    }

    /// The number of some values.
    pub fn number(&mut self, values: &[u8]) -> Part {
        let hashed = self.hash.hash_one(values);
        match self.index.find(hashed, |part| *self.values(*part) == *values) {
            Some(part) => *part,
            None => self.push(hashed, values),
        }
    }

    fn push(&mut self, hashed: u64, values: &[u8]) -> Part {
        let part = self.len() as Part;
        let start = u32::try_from(self.texts.len()).expect("an answer has less than 4 GiB of names");
        self.texts.extend_from_slice(values);
        self.parts.push(KnownPart::new(values, start, part + 1));
        let KnownParts { texts, parts, index, hash, .. } = self;
        index.insert_unique(hashed, part, |part| {
            let KnownPart { start, end, .. } = parts[*part as usize];
            hash.hash_one(&texts[start as usize..end as usize])
        });
        part
    }

    /// In the order of their values.
    #[inline]
    pub fn compare(&self, a: Part, b: Part) -> Ordering {
        let head = |part: Part| self.parts[part as usize].head.swap_bytes();
        head(a).cmp(&head(b)).then_with(|| self.values(a).cmp(self.values(b)))
    }
}
