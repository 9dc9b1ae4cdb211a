//! The keys of a counter that are worth most.
//!
//! A bounded set of *candidates*, and a bound: **every key that is no candidate is worth at most that much.** A key becomes a
//! candidate when it rises above the bound. When there are twice as many as can be asked for, the least quarter leaves, and the
//! bound is the greatest value that left. Candidates may fall; what they are worth is read when somebody asks. If the last one that is told is
//! worth no less than the bound, nobody is missing. If too many have fallen for that, somebody has to go through all keys once, and until then
//! the answer says so.
//!
//! Cells of candidates stay in memory ([`Table::keep`]), so what they are worth is always known.

use super::{KEY_BYTES, Room};
use crate::id::CellKey;
use crate::memory::cell::{Added, Table};
use std::cmp::Reverse;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Leaders {
    ids: BTreeMap<CellKey, Box<[u8]>>,
    bytes: usize,
    /// What a key is worth at most that is no candidate.
    bound: i64,
    /// The same for those that a walk has passed and those that came since it began; without a walk it is the bound.
    passed: i64,
    /// The lesser of the two: who is worth no more need not be looked at.
    low: i64,
    walk: Walk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    None,
    Wanted,
    UnderWay,
}

/// A key, and what it is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedKey {
    pub id: Box<[u8]>,
    /// The true sum; a counter with a floor shows less of it.
    pub value: i64,
    pub generation: u64,
}

/// The keys of a counter that are worth most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greatest {
    /// In descending order of values, those of one value by their ids.
    pub keys: Vec<RankedKey>,
    /// Whether these are those that are worth most. Of several that are worth as much as the last of them, any may be told.
    pub is_exact: bool,
    /// No other key is worth more than this; `None` if nobody knows.
    pub bound: Option<i64>,
    /// A walk would tell more, and is not under way.
    pub needs_walk: bool,
}

impl Leaders {
    /// Of a counter without keys.
    pub fn of_none() -> Leaders {
        Leaders::with_bound(i64::MIN, Walk::None)
    }

    /// Of a counter of which nobody knows what keys it has.
    pub fn unknown() -> Leaders {
        Leaders::with_bound(i64::MAX, Walk::Wanted)
    }

    fn with_bound(bound: i64, walk: Walk) -> Leaders {
        Leaders { ids: BTreeMap::new(), bytes: 0, bound, passed: bound, low: bound, walk }
    }

    /// As they were at a checkpoint. A walk that was under way begins again.
    pub fn resume(table: &mut Table, bound: i64, walks: bool, ids: BTreeMap<CellKey, Box<[u8]>>) -> Leaders {
        let bytes = ids.values().map(|id| KEY_BYTES + id.len()).sum();
        ids.keys().for_each(|cell| table.keep(*cell));
        Leaders { ids, bytes, ..Leaders::with_bound(bound, if walks { Walk::Wanted } else { Walk::None }) }
    }

    /// What a checkpoint has to know beside the ids.
    pub fn standing(&self) -> (i64, bool) {
        (self.bound, self.walk != Walk::None)
    }

    pub fn ids(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ids.values().map(|id| &**id)
    }

    pub fn cells(&self) -> impl Iterator<Item = CellKey> {
        self.ids.keys().copied()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn passed(&self) -> i64 {
        self.passed
    }

    /// Whether an addition brings a key over a bound. Most bring none anywhere near it.
    #[inline]
    pub fn rises(&self, added: Added, delta: i64) -> bool {
        match added {
            Added::Value(after) => after > self.low && self.crosses(after.saturating_sub(delta), after),
            Added::Created(after) => after > self.low,
            Added::Overflow | Added::Unknown => false,
        }
    }

    fn crosses(&self, before: i64, after: i64) -> bool {
        before <= self.bound && after > self.bound || before <= self.passed && after > self.passed
    }

    /// A key has risen, and is a candidate from now on.
    pub fn admit(&mut self, table: &mut Table, cell: CellKey, id: &[u8], room: Room) {
        if self.ids.contains_key(&cell) {
            return;
        }
        table.keep(cell);
        self.ids.insert(cell, id.into());
        self.bytes += KEY_BYTES + id.len();
        if self.ids.len() > 2 * room.keys || self.bytes > room.bytes {
            self.thin_out(table);
        }
    }

    /// The least quarter leaves, and with it those that were deleted. So many can fall before too few are left as are beyond what can be
    /// asked for.
    fn thin_out(&mut self, table: &mut Table) {
        let mut worth: Vec<_> = self.worth(table).map(|(value, _, cell)| (value, cell)).collect();
        worth.sort_unstable();
        let left = worth.split_off(worth.len() - worth.len().div_ceil(4));
        let stay = worth.into_iter().filter_map(|(_, cell)| self.ids.remove_entry(&cell)).collect();
        self.ids.keys().for_each(|cell| table.let_go(*cell));
        self.ids = stay;
        self.bytes = self.ids.values().map(|id| KEY_BYTES + id.len()).sum();
        let greatest = left.first().map_or(i64::MIN, |(Reverse(value), _)| *value);
        self.bound = self.bound.max(greatest);
        self.passed = self.passed.max(greatest);
        self.low = self.bound.min(self.passed);
    }

    /// What candidates are worth. One that memory does not have was deleted and has not risen since, so the bound holds for it.
    fn worth(&self, table: &Table) -> impl Iterator<Item = (Reverse<i64>, &[u8], CellKey)> {
        let value = |cell: CellKey| if table.knows(cell) { table.get(cell) } else { None };
        self.ids.iter().filter_map(move |(cell, id)| Some((Reverse(value(*cell)?), &**id, *cell)))
    }

    /// Up to `limit` of them behind one.
    pub fn greatest(&self, table: &Table, behind: Option<(i64, &[u8])>, limit: usize) -> Greatest {
        let mut keys: Vec<_> = self.worth(table).collect();
        let has_fallen = keys.iter().any(|(Reverse(value), ..)| *value < self.bound);
        if let Some((value, id)) = behind {
            keys.retain(|(worth, own, _)| (*worth, *own) > (Reverse(value), id));
        }
        if keys.len() > limit {
            keys.select_nth_unstable(limit);
            keys.truncate(limit);
        }
        keys.sort_unstable();
        let others = self.others(table);
        let last = keys.last().filter(|_| keys.len() == limit).map(|(Reverse(value), ..)| *value);
        let is_exact = others == i64::MIN || last.is_some_and(|last| last >= others);
        let ranked = |(Reverse(value), id, cell): (Reverse<i64>, &[u8], CellKey)| RankedKey {
            id: id.into(),
            value,
            generation: table.mark(cell).generation,
        };
        Greatest {
            keys: keys.into_iter().map(ranked).collect(),
            is_exact,
            bound: Some(others).filter(|others| *others != i64::MAX),
            needs_walk: !is_exact && self.walk == Walk::None && has_fallen,
        }
    }

    /// What a key is worth at most that is no candidate, those included whose rows have not come yet: what was counted for them is
    /// on top of a row that is within the bound, or of none.
    fn others(&self, table: &Table) -> i64 {
        let counted = table.most_unsettled();
        counted.map_or(self.bound, |counted| self.bound.max(self.bound.saturating_add(counted)).max(counted))
    }

    pub fn want_walk(&mut self) {
        if self.walk == Walk::None {
            self.walk = Walk::Wanted;
        }
    }

    /// Whether a walk was wanted; it begins.
    pub fn begin_walk(&mut self) -> bool {
        if self.walk != Walk::Wanted {
            return false;
        }
        self.walk = Walk::UnderWay;
        (self.passed, self.low) = (i64::MIN, i64::MIN);
        true
    }

    /// Every key was passed, or came since, unless all of them were flushed meanwhile.
    pub fn end_walk(&mut self) {
        if self.walk == Walk::UnderWay {
            self.walk = Walk::None;
            (self.bound, self.low) = (self.passed, self.passed);
        }
    }
}
