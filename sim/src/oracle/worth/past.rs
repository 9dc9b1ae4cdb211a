//! What generations did to keys: corrections, clears and reverts. And which counts of entities are there, one by one.

use super::Worth;
use std::collections::BTreeMap;

/// What one entity counted: the fates partition, and a number there.
pub type CountId = (u32, u64);

/// What a correction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody has decided what is right.
    Adjusts,
    /// It brings back what the log says.
    Restores,
}

/// What changed the keys of a counter, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub counted: i64,
    pub adjusted: i64,
    pub restored: i64,
}

#[derive(Clone, Debug, Default)]
pub struct Past {
    /// What a generation did to a key.
    deeds: BTreeMap<(u64, String), (Kind, i64)>,
    /// By the name of the counter.
    sums: BTreeMap<String, Sums>,
    counts: BTreeMap<CountId, Count>,
}

#[derive(Clone, Debug)]
struct Count {
    key: String,
    is_there: bool,
    /// The generation that took it or brought it back last.
    turned_by: Option<u64>,
    /// Its entity has taken it back since.
    is_undone: bool,
    /// It was judged before a clear that it stands behind.
    is_behind: bool,
}

impl Worth {
    /// An entity counts.
    pub fn count(&mut self, to: u64, key: &str, id: CountId, is_behind: bool) {
        self.change(to, key, 1, None);
        let count = Count { key: key.to_owned(), is_there: true, turned_by: None, is_undone: false, is_behind };
        assert!(self.past.counts.insert(id, count).is_none(), "what counts counts once");
    }

    /// An entity takes back what it counted: what a clear has taken is not taken twice. Answers whether it had been judged before a
    /// clear that it stood behind.
    pub fn undo(&mut self, to: u64, id: CountId) -> bool {
        let count = self.past.counts.get_mut(&id).expect("it has counted");
        count.is_undone = true;
        let (key, is_there, is_behind) = (count.key.clone(), count.is_there, count.is_behind);
        if is_there {
            self.change(to, &key, -1, None);
        }
        is_behind
    }

    pub fn correct(&mut self, to: u64, key: &str, kind: Kind, delta: i64, generation: u64) {
        let sums = self.past.sums(key);
        *match kind {
            Kind::Adjusts => &mut sums.adjusted,
            Kind::Restores => &mut sums.restored,
        } += delta;
        self.shift(to, key, delta, Some(generation));
        self.past.deeds.entry((generation, key.to_owned())).or_insert((kind, 0)).1 += delta;
    }

    /// What changed the keys of each counter.
    pub fn sums(&self) -> impl Iterator<Item = (&str, Sums)> {
        self.past.sums.iter().map(|(counter, sums)| (counter.as_str(), *sums))
    }

    /// Keys that are not 0 are, and what counted for them is not there any more.
    pub fn clear(&mut self, to: u64, is_cleared: impl Fn(&str) -> bool, generation: u64) {
        let keys = self.now().filter(|(key, value, _)| is_cleared(key) && value.is_some_and(|value| value != 0));
        let keys: Vec<(String, i64)> = keys.map(|(key, value, _)| (key.to_owned(), value.unwrap_or(0))).collect();
        for (key, value) in keys {
            self.correct(to, &key, Kind::Adjusts, -value, generation);
            self.past.turn(generation, |count| count.key == key && count.is_there);
        }
    }

    /// The opposite of what a generation did. What was taken back meanwhile stays so.
    pub fn revert(&mut self, to: u64, of: u64, generation: u64) {
        let deeds = self.past.deeds.range((of, String::new())..(of + 1, String::new()));
        let deeds: Vec<(String, Kind, i64)> =
            deeds.map(|((_, key), (kind, delta))| (key.clone(), *kind, *delta)).collect();
        for (key, kind, delta) in deeds {
            let turned = |count: &Count| count.key == key && count.turned_by == Some(of);
            let undone = self.past.counts.values().filter(|count| turned(count) && count.is_undone);
            let undone: i64 = undone.map(|count| if count.is_there { 1 } else { -1 }).sum();
            self.correct(to, &key, kind, undone - delta, generation);
            self.past.turn(generation, turned);
        }
    }
}

impl Past {
    pub(super) fn sums(&mut self, key: &str) -> &mut Sums {
        let counter = key.split(':').next().unwrap_or(key);
        self.sums.entry(counter.to_owned()).or_default()
    }

    /// A generation takes what is there, or brings back what is not. Of what is undone nobody has to know any more.
    fn turn(&mut self, generation: u64, which: impl Fn(&Count) -> bool) {
        for count in self.counts.values_mut().filter(|count| which(count)) {
            count.is_there = !count.is_there;
            count.turned_by = if count.is_undone { None } else { Some(generation) };
        }
    }
}
