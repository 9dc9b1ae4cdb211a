//! What boards say together: who may have come to most, and how much everybody else came to at most.

use crate::counter::rollup::Minutes;
use crate::id::CellKey;
use crate::ledger::BoardLine;
use crate::ledger::boards::board::{Board, PairName};
use crate::values::Values;
use hashbrown::{HashMap, HashSet};
use std::cmp::Reverse;
use std::sync::Arc;

/// A key that may be among those that came to most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub cell: CellKey,
    pub id: Arc<[u8]>,
}

/// Keys to look at, and what can be said of all others.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    pub keys: Vec<Candidate>,
    /// `None` if nobody knows.
    pub rest: Option<RestBound>,
}

/// How much a key came to at most that is no candidate.
#[derive(Clone, Debug, Default)]
pub struct RestBound {
    /// For any value.
    any: i64,
    /// For some values it may be more.
    by_value: HashMap<Arc<[u8]>, i64>,
}

impl RestBound {
    /// For a value of the dimension; without one it is the empty text.
    pub fn of(&self, value: &[u8]) -> i64 {
        self.by_value.get(value).map_or(self.any, |most| self.any.max(*most))
    }
}

/// How many keys are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// For one value.
    pub per_value: usize,
    pub all: usize,
}

impl Values {
    /// The keys of a line of boards that may have come to most in some hours, and a bound for the others.
    pub fn top_candidates(&self, line: BoardLine, hours: &[Minutes], sample: Sample) -> Candidates {
        match self.facts.boards.of(line, hours) {
            Some(boards) => self.choose_candidates(&Merged::of(&boards), sample, true),
            // Those that are known are better than nobody.
            None => {
                let known: Vec<_> =
                    hours.iter().filter_map(|hour| self.facts.boards.of(line, &[*hour])).flatten().collect();
                self.choose_candidates(&Merged::of(&known), sample, false)
            }
        }
    }

    fn choose_candidates(&self, merged: &Merged<'_>, sample: Sample, is_known: bool) -> Candidates {
        let ids = merged.ids(sample);
        let keys = ids.iter().map(|id| Candidate { cell: self.hasher.key(id), id: (*id).clone() }).collect();
        Candidates { keys, rest: is_known.then(|| merged.without(&ids)) }
    }
}

/// An id, and the most that it came to.
type Bounded<'a> = (Reverse<i64>, &'a Arc<[u8]>);

/// Pairs of several boards, each once with the most that it came to on all of them.
#[derive(Default)]
struct Merged<'a> {
    named: Vec<(i64, &'a PairName)>,
    /// The most of any pair that is not named.
    unnamed: i64,
}

impl<'a> Merged<'a> {
    fn of(boards: &[&'a Board]) -> Merged<'a> {
        let mut merged = Merged::default();
        let buckets = boards.iter().map(|board| board.buckets()).max().unwrap_or(0);
        let mut standing: Vec<(u128, i64, Option<&PairName>)> = Vec::new();
        for bucket in 0..buckets {
            let lost = boards.iter().fold(0i64, |sum, board| sum.saturating_add(board.lost(bucket)));
            standing.clear();
            for board in boards {
                let here = board.standing(bucket, buckets);
                standing.extend(here.map(|pair| (pair.pair, pair.most.saturating_sub(board.lost(bucket)), pair.name)));
            }
            standing.sort_unstable_by_key(|(pair, ..)| *pair);
            merged.unnamed = merged.unnamed.max(lost);
            standing.chunk_by(|a, b| a.0 == b.0).for_each(|pair| merged.add(lost, pair));
        }
        merged
    }

    /// A pair, with what it came to at most beyond what others may have, on each board where it stands.
    fn add(&mut self, lost: i64, pair: &[(u128, i64, Option<&'a PairName>)]) {
        let most = pair.iter().fold(lost, |sum, (_, beyond, _)| sum.saturating_add(*beyond));
        match pair.iter().find_map(|(.., name)| *name) {
            Some(name) => self.named.push((most, name)),
            None => self.unnamed = self.unnamed.max(most),
        }
    }

    /// The ids to look at: for each value those with the greatest bounds, beginning with the values that have most.
    fn ids(&self, sample: Sample) -> HashSet<&'a Arc<[u8]>> {
        let mut by_value: HashMap<&[u8], Vec<Bounded<'a>>> = HashMap::new();
        for (most, name) in &self.named {
            by_value.entry(&name.value).or_default().push((Reverse(*most), &name.id));
        }
        let mut values: Vec<_> = by_value.into_values().collect();
        let worth =
            |keys: &Vec<Bounded<'_>>| Reverse(keys.iter().map(|(Reverse(most), _)| i128::from(*most)).sum::<i128>());
        values.sort_by_cached_key(worth);
        let mut ids = HashSet::new();
        for mut keys in values {
            keys.sort_unstable();
            for (_, id) in keys.into_iter().take(sample.per_value) {
                if ids.len() == sample.all {
                    return ids;
                }
                ids.insert(id);
            }
        }
        ids
    }

    /// What everybody else came to at most.
    fn without(&self, ids: &HashSet<&Arc<[u8]>>) -> RestBound {
        let mut rest = RestBound { any: self.unnamed, by_value: HashMap::new() };
        for (most, name) in self.named.iter().filter(|(_, name)| !ids.contains(&name.id)) {
            let bound = rest.by_value.entry(name.value.clone()).or_default();
            *bound = (*bound).max(*most);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CellHasher;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn pair(n: u64) -> u128 {
        CellHasher::new(3).key(&n.to_le_bytes()).as_u128()
    }

    fn name(n: u64) -> PairName {
        PairName { id: n.to_string().into_bytes().into(), value: Arc::default() }
    }

    proptest! {
        /// Some pairs never get a name, and boards are of different sizes.
        #[test]
        fn boards_together_bound_every_pair_that_is_not_looked_at(
            added in prop::collection::vec((0usize..3, 0u64..90, -3i64..40), 1..500),
            rooms in prop::array::uniform3(0usize..9000),
            sample in 0usize..20,
        ) {
            let (mut boards, mut rooms) = ([(); 3].map(|()| Board::default()), rooms);
            let mut sums = BTreeMap::<u64, i64>::new();
            for (at, n, delta) in added {
                if boards[at].add(pair(n), delta, &mut rooms[at]) && n % 5 != 0 {
                    boards[at].name(pair(n), name(n), &mut rooms[at]);
                }
                *sums.entry(n).or_default() += delta;
            }
            let merged = Merged::of(&boards.each_ref());
            let ids = merged.ids(Sample { per_value: sample, all: 15 });
            prop_assert!(ids.len() <= sample.min(15));
            let rest = merged.without(&ids).of(b"");
            for (n, sum) in sums.iter().filter(|(n, _)| !ids.contains(&name(**n).id)) {
                prop_assert!(*sum <= rest, "{n} came to {sum}, and the bound is {rest}");
            }
        }
    }
}
