//! Which ids came and went since the last cut. The store keeps ids in order, for patterns; memory keeps only these.

use crate::limits::ID_BYTES_MAX;

/// A journal of ids, in the order in which counters appeared and disappeared.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Per entry: whether the id exists, its length in two bytes, the id. In pages, since one that grows for ever would be copied
    /// whole now and then, while everybody waits. No entry is in two of them.
    pages: Vec<Vec<u8>>,
    bytes: usize,
    entries: usize,
}

/// Where an entry stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    page: u32,
    at: u32,
}

const HEADER_BYTES: usize = 3;
const PAGE_BYTES: usize = 64 * 1024;
const _: () = assert!(HEADER_BYTES + ID_BYTES_MAX <= PAGE_BYTES);

impl Names {
    pub fn created(&mut self, id: &[u8]) {
        self.push(id, true);
    }

    pub fn deleted(&mut self, id: &[u8]) {
        self.push(id, false);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub fn clear(&mut self) {
        *self = Names::default();
    }

    /// Puts these changes before those of `later`.
    pub fn prepend_to(mut self, later: &mut Names) {
        self.pages.append(&mut later.pages);
        self.bytes += later.bytes;
        self.entries += later.entries;
        *later = self;
    }

    /// The last word on each id, in ascending order.
    pub fn sorted(&self) -> SortedNames<'_> {
        let common = self.common_bytes();
        let mut order = Vec::with_capacity(self.entries);
        order.extend(self.places().map(|place| (glimpse(&self.id(place)[common..]), place)));
        // The ids of most are told apart without a trip to the page that each stands on.
        order.sort_unstable_by(|(a, first), (b, second)| {
            a.cmp(b).then_with(|| self.id(*first).cmp(self.id(*second))).then(first.cmp(second))
        });
        SortedNames { names: self, order: order.into_iter().map(|(_, place)| place).collect(), next: 0 }
    }

    /// How many bytes all ids begin with alike: keys of one counter have its name in common.
    fn common_bytes(&self) -> usize {
        let mut ids = self.places().map(|place| self.id(place));
        let Some(first) = ids.next() else { return 0 };
        ids.fold(first.len(), |common, id| {
            let alike = |common: usize| id.get(..common).is_some_and(|begin| begin == &first[..common]);
            if alike(common) { common } else { id.iter().zip(first).take_while(|(a, b)| a == b).count() }
        })
    }

    /// The ids that begin with this and exist, of those in the journal.
    pub fn existing<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut existing = std::collections::BTreeSet::new();
        for place in self.places() {
            let id = self.id(place);
            if id.starts_with(prefix) {
                if self.exists(place) {
                    existing.insert(id)
                } else {
                    existing.remove(id)
                };
            }
        }
        existing.into_iter()
    }

    fn push(&mut self, id: &[u8], exists: bool) {
        let len = u16::try_from(id.len()).expect("ids are at most ID_BYTES_MAX long");
        let bytes = HEADER_BYTES + id.len();
        if self.pages.last().is_none_or(|page| page.len() + bytes > PAGE_BYTES) {
            self.pages.push(Vec::new());
        }
        let page = self.pages.last_mut().expect("there is one with room");
        page.push(exists.into());
        page.extend_from_slice(&len.to_le_bytes());
        page.extend_from_slice(id);
        self.bytes += bytes;
        self.entries += 1;
    }

    /// Every entry, in the order in which they came.
    fn places(&self) -> impl Iterator<Item = Place> {
        (0..).zip(&self.pages).flat_map(move |(page, bytes)| {
            let mut next = 0;
            std::iter::from_fn(move || {
                let place = Place { page, at: next };
                ((next as usize) < bytes.len()).then(|| {
                    next += (HEADER_BYTES + self.id(place).len()) as u32;
                    place
                })
            })
        })
    }

    fn entry(&self, place: Place) -> &[u8] {
        &self.pages[place.page as usize][place.at as usize..]
    }

    fn exists(&self, place: Place) -> bool {
        self.entry(place)[0] != 0
    }

    fn id(&self, place: Place) -> &[u8] {
        let entry = self.entry(place);
        let len = u16::from_le_bytes([entry[1], entry[2]]);
        &entry[HEADER_BYTES..][..usize::from(len)]
    }
}

/// The first bytes of a text as a number: texts in order are numbers in order, but may share one.
fn glimpse(text: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = text.len().min(8);
    bytes[..len].copy_from_slice(&text[..len]);
    u64::from_be_bytes(bytes)
}

pub struct SortedNames<'a> {
    names: &'a Names,
    order: Vec<Place>,
    next: usize,
}

impl<'a> Iterator for SortedNames<'a> {
    /// An id, and whether it exists now.
    type Item = (&'a [u8], bool);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let place = *self.order.get(self.next)?;
            self.next += 1;
            let id = self.names.id(place);
            let again = self.order.get(self.next).is_some_and(|&later| self.names.id(later) == id);
            if !again {
                return Some((id, self.names.exists(place)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn ids_come_in_order_whatever_they_begin_with(
            begin in "[a-c]{0,3}",
            ends in proptest::collection::btree_set(proptest::collection::vec(0u8..3, 0..12), 0..60),
        ) {
            let ids: Vec<Vec<u8>> = ends.iter().map(|end| [begin.as_bytes(), end.as_slice()].concat()).collect();
            let mut names = Names::default();
            ids.iter().rev().for_each(|id| names.created(id));
            prop_assert!(names.sorted().map(|(id, _)| id.to_vec()).eq(ids));
        }

        #[test]
        fn the_last_word_on_each_id_wins_in_order(
            changes in proptest::collection::vec((0..7usize, any::<bool>()), 0..100), split in 0usize..50, long in 1..ID_BYTES_MAX / 7
        ) {
            let (mut names, mut later) = (Names::default(), Names::default());
            let mut model = BTreeMap::new();
            for (n, (id, exists)) in changes.iter().enumerate() {
                // The longest fill pages.
                let id = vec![b'x'; id * long];
                if n < split { &mut names } else { &mut later }.push(&id, *exists);
                model.insert(id, *exists);
            }
            names.prepend_to(&mut later);
            let sorted: Vec<_> = later.sorted().map(|(id, exists)| (id.to_vec(), exists)).collect();
            prop_assert_eq!(sorted, model.into_iter().collect::<Vec<_>>());
        }
    }
}
