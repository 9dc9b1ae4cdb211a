//! What the keys of one values partition are worth, at every position of its log.

mod past;

use std::collections::BTreeMap;

pub use past::{CountId, Kind, Past, Sums};

#[derive(Clone, Debug, Default)]
pub struct Worth {
    pub log_time_ms: u64,
    pub control: u64,
    keys: BTreeMap<String, Key>,
    /// Idempotency keys, with what was asked and answered.
    once: BTreeMap<(String, String), (i64, i64)>,
    past: Past,
}

#[derive(Clone, Debug, Default)]
struct Key {
    value: Option<i64>,
    generation: u64,
    ends_ms: Option<u64>,
    /// Positions behind which it was what.
    history: Vec<(u64, Option<i64>, u64)>,
}

/// What an operation must be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Value(i64),
    Repeated(i64),
    OtherDelta(i64),
    Done(bool),
}

const FIVE_MINUTES_MS: u64 = 5 * 60 * 1000;

impl Worth {
    /// A message ends at a position: counters that are over are gone before it.
    pub fn pass_time(&mut self, to: u64, appended_ms: u64, clock_ms: u64) {
        self.log_time_ms = self.log_time_ms.max(appended_ms.min(clock_ms + FIVE_MINUTES_MS));
        let now_ms = self.log_time_ms;
        for key in self.keys.values_mut().filter(|key| key.ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms)) {
            *key = Key { value: None, generation: 0, ends_ms: None, history: std::mem::take(&mut key.history) };
            key.note(to);
        }
    }

    /// Adds what counted, late or not.
    pub fn change(&mut self, to: u64, key: &str, delta: i64, generation: Option<u64>) {
        self.past.sums(key).counted += delta;
        self.shift(to, key, delta, generation);
    }

    fn shift(&mut self, to: u64, key: &str, delta: i64, generation: Option<u64>) {
        let key = self.keys.entry(key.to_owned()).or_default();
        key.value = Some(key.value.unwrap_or(0) + delta);
        key.generation = key.generation.max(generation.unwrap_or(0));
        key.note(to);
    }

    pub fn add(&mut self, to: u64, key: &str, delta: i64) -> Expected {
        self.change(to, key, delta, None);
        Expected::Value(self.keys[key].value.expect("it was just added to"))
    }

    pub fn add_once(&mut self, to: u64, key: &str, id: &str, delta: i64) -> Expected {
        match self.once.get(&(key.to_owned(), id.to_owned())) {
            Some((asked, answered)) if *asked == delta => Expected::Repeated(*answered),
            Some((asked, _)) => Expected::OtherDelta(*asked),
            None => {
                let expected = self.add(to, key, delta);
                let Expected::Value(value) = expected else { unreachable!("an addition has a value") };
                self.once.insert((key.to_owned(), id.to_owned()), (delta, value));
                expected
            }
        }
    }

    pub fn expire(&mut self, to: u64, key: &str, at_ms: u64) -> Expected {
        let now_ms = self.log_time_ms;
        let Some(key) = self.keys.get_mut(key).filter(|key| key.value.is_some()) else { return Expected::Done(false) };
        key.ends_ms = Some(at_ms);
        if at_ms <= now_ms {
            (key.value, key.generation, key.ends_ms) = (None, 0, None);
            key.note(to);
        }
        Expected::Done(true)
    }

    /// What a key is worth now, and its generation.
    pub fn now(&self) -> impl Iterator<Item = (&str, Option<i64>, u64)> {
        self.keys.iter().map(|(key, known)| (key.as_str(), known.value, known.generation))
    }

    /// What a key was worth at a position.
    pub fn at(&self, key: &str, position: u64) -> (Option<i64>, u64) {
        let history = self.keys.get(key).map_or(&[][..], |key| &key.history);
        let last = history.iter().rev().find(|(to, ..)| *to <= position);
        last.map_or((None, 0), |(_, value, generation)| (*value, *generation))
    }
}

impl Key {
    fn note(&mut self, to: u64) {
        if self.history.last().is_some_and(|(last, ..)| *last == to) {
            self.history.pop();
        }
        self.history.push((to, self.value, self.generation));
    }
}
