//! The databases of the Redis protocol: key spaces apart from each other, 0 to 15.
//!
//! Database 0 is what everybody sees: declared counters, HTTP, patterns. The others hold ad-hoc counters only. Each of
//! them stands on a *space*, a number that is part of the ids of its counters. Flushing a database gives it a new space:
//! from then on its old ids are nobody's, and whoever has time deletes them.
//!
//! ```text
//!  id in database 0:       its key as it is; if that begins with ff 00, as in space 0 below
//!  id in another database: ff 00, the space (6 bytes, big-endian), the key
//! ```
//!
//! No text begins with `ff`, so no declared counter, no pattern and nothing that comes over HTTP can name such an id.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// How many there are.
pub const DATABASES: usize = 16;

const MARKER: [u8; 2] = [0xff, 0];
const NUMBER_BYTES: usize = 6;
/// What stands before the key.
pub const SPACE_BYTES: usize = MARKER.len() + NUMBER_BYTES;

/// The number of a key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Space(u64);

impl Space {
    /// Of database 0. It is never given up.
    pub const MAIN: Space = Space(0);
    /// Of what the node counts for itself. No database stands on it, and it is never swept.
    pub const PROBES: Space = Space(Self::NUMBER_MAX - 1);
    const NUMBER_MAX: u64 = (1 << (8 * NUMBER_BYTES)) - 1;

    pub fn from_number(number: u64) -> Option<Space> {
        (number <= Self::NUMBER_MAX).then_some(Space(number))
    }

    pub fn number(self) -> u64 {
        self.0
    }

    /// Whether a key of database 0 is an id as it is.
    #[inline]
    pub fn is_own_id(key: &[u8]) -> bool {
        !key.starts_with(&MARKER)
    }

    /// The id of a key in this space.
    #[inline]
    pub fn id(self, key: &[u8]) -> Cow<'_, [u8]> {
        if self == Space::MAIN && Space::is_own_id(key) {
            return Cow::Borrowed(key);
        }
        Cow::Owned([&self.prefix()[..], key].concat())
    }

    /// The same for a key that is known when the program is made, in a space other than the first.
    pub(crate) const fn id_of<const BYTES: usize>(self, key: &str) -> [u8; BYTES] {
        assert!(self.0 != Space::MAIN.0 && BYTES == SPACE_BYTES + key.len());
        let (mut id, prefix, key) = ([0; BYTES], self.prefix(), key.as_bytes());
        let mut at = 0;
        while at < BYTES {
            id[at] = if at < SPACE_BYTES { prefix[at] } else { key[at - SPACE_BYTES] };
            at += 1;
        }
        id
    }

    /// What the ids of all keys that begin with `start` begin with.
    pub fn ids_from(self, start: &[u8]) -> Vec<u8> {
        self.id(start).into_owned()
    }

    /// The space of an id, and its key there.
    pub fn split(id: &[u8]) -> (Space, &[u8]) {
        match id.strip_prefix(&MARKER).and_then(|rest| rest.split_first_chunk::<NUMBER_BYTES>()) {
            Some((number, key)) => {
                let number = number.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
                (Space(number), key)
            }
            None => (Space::MAIN, id),
        }
    }

    /// What every id begins with that says its space.
    pub fn marker() -> [u8; 2] {
        MARKER
    }

    /// What stands behind the ids of all spaces in use, and before whatever else database 0 has.
    pub fn behind_all() -> Vec<u8> {
        Space(Self::NUMBER_MAX).prefix().to_vec()
    }

    const fn prefix(self) -> [u8; SPACE_BYTES] {
        let [_, _, a, b, c, d, e, f] = self.0.to_be_bytes();
        [MARKER[0], MARKER[1], a, b, c, d, e, f]
    }
}

/// On which space each database stands, and how many counters it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Databases {
    spaces: [Space; DATABASES],
    /// The number of database 0 is not kept here: it has what the others leave.
    counters: [u64; DATABASES],
    /// Spaces that were given up, and how many counters are still in them; and that of probes, which no database has either.
    flushed: BTreeMap<u64, u64>,
    next_space: u64,
    /// Changes whenever a counter comes or goes.
    changes: u64,
}

impl Default for Databases {
    fn default() -> Databases {
        Databases {
            spaces: std::array::from_fn(|database| Space(database as u64)),
            counters: [0; DATABASES],
            flushed: BTreeMap::new(),
            next_space: DATABASES as u64,
            changes: 0,
        }
    }
}

impl Databases {
    pub fn spaces(&self) -> [Space; DATABASES] {
        self.spaces
    }

    /// How many counters there are outside of database 0, those that were flushed included.
    pub fn outside(&self) -> u64 {
        self.counters.iter().chain(self.flushed.values()).sum()
    }

    /// Whether only database 0 has counters.
    pub fn only_main(&self) -> bool {
        self.counters.iter().all(|counters| *counters == 0)
    }

    /// How many counters a database has, if all of them together have `all`.
    pub fn counters(&self, database: usize, all: u64) -> u64 {
        match database {
            0 => all.saturating_sub(self.outside()),
            other => self.counters[other],
        }
    }

    /// A space whose counters are nobody's any more.
    pub fn flushed(&self) -> Option<Space> {
        self.flushed.keys().copied().map(Space).find(|space| *space != Space::PROBES)
    }

    /// Nothing is left in a space that was given up.
    pub fn swept(&mut self, space: Space) {
        self.flushed.remove(&space.0);
    }

    /// How often a counter has come or gone.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A space that nobody has had, for the next flush.
    pub fn draw_space(&mut self) -> Space {
        let space = Space(self.next_space);
        assert!(space < Space::PROBES, "nobody flushes that often");
        self.next_space += 1;
        space
    }

    /// Puts a database other than 0 on another space, which is empty.
    pub(crate) fn flush(&mut self, database: usize, space: Space) {
        assert!(database != 0 && space != Space::MAIN, "database 0 stays where it is");
        let counters = std::mem::take(&mut self.counters[database]);
        let before = std::mem::replace(&mut self.spaces[database], space);
        if counters > 0 {
            self.flushed.insert(before.0, counters);
        }
        self.next_space = self.next_space.max(space.0 + 1);
        self.changes += 1;
    }

    /// There are no counters any more.
    pub(crate) fn clear(&mut self) {
        self.counters = [0; DATABASES];
        self.flushed.clear();
        self.changes += 1;
    }

    #[inline]
    pub(crate) fn created(&mut self, id: &[u8]) {
        self.changes += 1;
        if id.starts_with(&MARKER) {
            self.count(id, 1);
        }
    }

    #[inline]
    pub(crate) fn deleted(&mut self, id: &[u8]) {
        self.changes += 1;
        if id.starts_with(&MARKER) {
            self.count(id, -1);
        }
    }

    #[cold]
    fn count(&mut self, id: &[u8], change: i64) {
        let (space, _) = Space::split(id);
        match self.spaces.iter().position(|&own| own == space) {
            Some(0) => {}
            Some(database) => self.counters[database] = self.counters[database].saturating_add_signed(change),
            // Somebody had found the database before it was flushed, and wrote there after it was. Or it is a probe.
            None => {
                let counters = self.flushed.entry(space.0).or_default();
                *counters = counters.saturating_add_signed(change);
                if *counters == 0 {
                    self.flushed.remove(&space.0);
                }
            }
        }
    }

    /// What a checkpoint keeps: the next space, each database's space and counters, and those of each space given up.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let each = self.spaces.iter().zip(&self.counters).map(|(space, counters)| (space.0, *counters));
        let flushed = self.flushed.iter().map(|(space, counters)| (*space, *counters));
        let pairs = each.chain(flushed).flat_map(|(space, counters)| [space, counters]);
        [self.next_space].into_iter().chain(pairs).collect()
    }

    /// The databases of [`Self::numbers`]; `None` if they cannot be.
    pub(crate) fn from_numbers(numbers: &[u64]) -> Option<Databases> {
        let (&next_space, pairs) = numbers.split_first()?;
        let mut databases = Databases { next_space, ..Databases::default() };
        let (pairs, []) = pairs.as_chunks::<2>() else { return None };
        let (each, flushed) = pairs.split_at_checked(DATABASES)?;
        for (database, [space, counters]) in each.iter().enumerate() {
            databases.spaces[database] = Space::from_number(*space)?;
            databases.counters[database] = *counters;
        }
        databases.flushed = flushed.iter().map(|[space, counters]| (*space, *counters)).collect();
        (databases.spaces[0] == Space::MAIN).then_some(databases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_ids_of_other_databases_are_pinned() {
        assert_eq!(Space::MAIN.id(b"views:7").as_ref(), b"views:7");
        assert_eq!(Space(3).id(b"views:7").as_ref(), b"\xff\0\0\0\0\0\0\x03views:7");
        assert_eq!(Space::MAIN.id(b"\xff\0x").as_ref(), b"\xff\0\0\0\0\0\0\0\xff\0x");
        assert_eq!(Space::MAIN.id(b"\xff\x01x").as_ref(), b"\xff\x01x");
    }

    proptest! {
        #[test]
        fn a_key_survives_its_id_and_no_two_spaces_share_one(
            key in vec(prop_oneof![Just(0xff), Just(0), Just(1), any::<u8>()], 0..12),
            other in vec(prop_oneof![Just(0xff), Just(0), Just(1), any::<u8>()], 0..12),
            spaces in (0u64..4, 0u64..4),
        ) {
            let (space, other_space) = (Space(spaces.0), Space(spaces.1));
            let id = space.id(&key);
            prop_assert_eq!(Space::split(&id), (space, &key[..]));
            let same = (space, &key) == (other_space, &other);
            prop_assert_eq!(same, id == other_space.id(&other));
            if space != Space::MAIN {
                prop_assert!(id[..] < Space::behind_all()[..]);
            }
        }

        #[test]
        fn no_text_is_an_id_of_another_database(text: String) {
            prop_assert_eq!(Space::split(text.as_bytes()), (Space::MAIN, text.as_bytes()));
        }
    }

    #[test]
    fn counters_are_counted_in_the_database_they_are_in() {
        let mut databases = Databases::default();
        let [_, one, two, ..] = databases.spaces();
        databases.created(b"a");
        databases.created(&one.id(b"a"));
        databases.created(&one.id(b"b"));
        databases.created(&two.id(b"a"));
        let counters = |databases: &Databases, all| [0, 1, 2, 3].map(|n| databases.counters(n, all));
        assert_eq!(counters(&databases, 4), [1, 2, 1, 0]);
        let fresh = databases.draw_space();
        databases.flush(1, fresh);
        assert_eq!(counters(&databases, 4), [1, 0, 1, 0]);
        databases.deleted(&one.id(b"a"));
        databases.created(&fresh.id(b"c"));
        assert_eq!(counters(&databases, 4), [1, 1, 1, 0]);
        let kept = Databases::from_numbers(&databases.numbers()).unwrap();
        assert_eq!(kept.numbers(), databases.numbers());
        assert_eq!(databases.flushed(), Some(one));
        databases.deleted(&one.id(b"b"));
        assert_eq!(databases.flushed(), None);
    }

    #[test]
    fn what_probes_count_is_in_no_database_and_never_swept() {
        let mut databases = Databases::default();
        databases.created(b"a");
        databases.created(&Space::PROBES.id(b"p"));
        assert_eq!((databases.counters(0, 2), databases.only_main(), databases.flushed()), (1, true, None));
        let kept = Databases::from_numbers(&databases.numbers()).unwrap();
        assert_eq!((kept.counters(0, 2), kept.flushed()), (1, None));
    }
}
