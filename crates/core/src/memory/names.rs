//! Which ids came and went since the last cut. The store keeps ids in order, for patterns; memory keeps only these.

/// A journal of ids, in the order in which counters appeared and disappeared.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Per entry: whether the id exists, its length in two bytes, the id.
    bytes: Vec<u8>,
    entries: usize,
}

const HEADER_BYTES: usize = 3;

impl Names {
    pub fn created(&mut self, id: &[u8]) {
        self.push(id, true);
    }

    pub fn deleted(&mut self, id: &[u8]) {
        self.push(id, false);
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub fn clear(&mut self) {
        *self = Names::default();
    }

    /// Puts these changes before those of `later`.
    pub fn prepend_to(mut self, later: &mut Names) {
        self.bytes.extend_from_slice(&later.bytes);
        self.entries += later.entries;
        *later = self;
    }

    /// The last word on each id, in ascending order.
    pub fn sorted(&self) -> SortedNames<'_> {
        let mut order = Vec::with_capacity(self.entries);
        let mut at = 0;
        while at < self.bytes.len() {
            order.push(at);
            at += HEADER_BYTES + self.id(at).len();
        }
        order.sort_unstable_by(|&a, &b| self.id(a).cmp(self.id(b)).then(a.cmp(&b)));
        SortedNames { names: self, order, next: 0 }
    }

    /// The ids that begin with this and exist, of those in the journal.
    pub fn existing<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut existing = std::collections::BTreeSet::new();
        let mut at = 0;
        while at < self.bytes.len() {
            let id = self.id(at);
            if id.starts_with(prefix) {
                if self.bytes[at] != 0 {
                    existing.insert(id)
                } else {
                    existing.remove(id)
                };
            }
            at += HEADER_BYTES + id.len();
        }
        existing.into_iter()
    }

    fn push(&mut self, id: &[u8], exists: bool) {
        let len = u16::try_from(id.len()).expect("ids are at most ID_BYTES_MAX long");
        self.bytes.push(exists.into());
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(id);
        self.entries += 1;
    }

    fn id(&self, at: usize) -> &[u8] {
        let len = u16::from_le_bytes([self.bytes[at + 1], self.bytes[at + 2]]);
        &self.bytes[at + HEADER_BYTES..][..usize::from(len)]
    }
}

pub struct SortedNames<'a> {
    names: &'a Names,
    order: Vec<usize>,
    next: usize,
}

impl<'a> Iterator for SortedNames<'a> {
    /// An id, and whether it exists now.
    type Item = (&'a [u8], bool);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = *self.order.get(self.next)?;
            self.next += 1;
            let id = self.names.id(at);
            let again = self.order.get(self.next).is_some_and(|&later| self.names.id(later) == id);
            if !again {
                return Some((id, self.names.bytes[at] != 0));
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
        fn the_last_word_on_each_id_wins_in_order(changes: Vec<(u8, bool)>, split in 0usize..50) {
            let (mut names, mut later) = (Names::default(), Names::default());
            let mut model = BTreeMap::new();
            for (n, (id, exists)) in changes.iter().enumerate() {
                let id = vec![b'x'; usize::from(id % 7)];
                if n < split { &mut names } else { &mut later }.push(&id, *exists);
                model.insert(id, *exists);
            }
            names.prepend_to(&mut later);
            let sorted: Vec<_> = later.sorted().map(|(id, exists)| (id.to_vec(), exists)).collect();
            prop_assert_eq!(sorted, model.into_iter().collect::<Vec<_>>());
        }
    }
}
