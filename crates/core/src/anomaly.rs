//! Rates that jump: what each key came to in a minute of log time, held against what it used to come to.
//!
//! The memory of it is bounded whatever the number of keys, and wrong to one side only: a key came to no less than `after` ([`counts`])
//! and used to come to no more than `before` ([`history`]). So a jump that is told was one, unless the minute was looked at in samples
//! ([`weight`]); small ones may be missed where there are more keys than are kept.

mod counts;
mod history;
#[cfg(test)]
mod tests;

use crate::counter::Jumps;
use crate::id::CellKey;
use crate::limits::ANOMALY_RECORDS_MAX;
use counts::{Counted, Counts};
use history::History;
use xxhash_rust::xxh3::xxh3_64;

/// A minute of log time, in milliseconds.
pub const MINUTE_MS: u64 = 60_000;
/// So many minutes have to be known before anything is a jump.
pub const WARM_UP_MINUTES: u64 = 5;
/// In how many samples a key has to be found before their weight is believed: one that comes in one burst a minute is in one.
const SAMPLES_MIN: u32 = 3;

/// A key that came to far more in a minute than it used to.
#[derive(Clone, Debug, PartialEq)]
pub struct Jump {
    pub id: Box<[u8]>,
    /// What it used to come to in a minute.
    pub before: f64,
    /// That is only what it was at most: of keys that come to less, none is remembered by itself.
    pub is_bound: bool,
    /// What it came to in this one.
    pub after: u64,
}

impl Jump {
    pub fn factor(&self) -> f64 {
        self.after as f64 / self.before
    }
}

/// What was found in a minute.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The steepest first.
    pub jumps: Vec<Jump>,
    /// Which share of its records was looked at.
    pub share: f64,
}

/// How many records of its like each record of a commit stands for, if the commit is to be looked at. Of a large one only a share is, so
/// that looking costs no more than so much however much is written. It follows from the log alone.
pub fn weight(from_offset: u64, records: u64) -> Option<u64> {
    let weight = records.div_ceil(ANOMALY_RECORDS_MAX).max(1);
    xxh3_64(&from_offset.to_le_bytes()).is_multiple_of(weight).then_some(weight)
}

/// Looks at one minute after the other.
#[derive(Debug)]
pub struct Detector {
    rule: Jumps,
    counts: Counts,
    history: History,
    /// The commit whose entries are counted, and what each of its records stands for.
    commit: u32,
    weight: u64,
    /// Of this minute: records that there were, and that were looked at.
    records: u64,
    looked_at: u64,
}

impl Detector {
    pub fn new(rule: Jumps) -> Detector {
        let (counts, history) = (Counts::default(), History::default());
        Detector { rule, counts, history, commit: 0, weight: 1, records: 0, looked_at: 0 }
    }

    pub fn rule(&self) -> Jumps {
        self.rule
    }

    /// Minutes that are known.
    pub fn minutes(&self) -> u64 {
        self.history.minutes()
    }

    /// Another commit begins; answers whether its entries are to be counted.
    pub fn enter(&mut self, from_offset: u64, records: u64) -> bool {
        self.records += records;
        let Some(weight) = weight(from_offset, records) else { return false };
        (self.commit, self.weight) = (self.commit.wrapping_add(1), weight);
        self.looked_at += records;
        true
    }

    /// The records of the commit that was entered last could not be looked at after all.
    pub fn missed(&mut self, records: u64) {
        self.looked_at = self.looked_at.saturating_sub(records);
    }

    /// Something was counted for a key, up or down.
    #[inline]
    pub fn count(&mut self, cell: CellKey, id: &[u8], delta: i64) {
        self.count_many(cell, id, delta.unsigned_abs());
    }

    /// The same for several that come to so much together, each for itself.
    #[inline]
    pub fn count_many(&mut self, cell: CellKey, id: &[u8], amount: u64) {
        self.counts.add(cell, id, amount.saturating_mul(self.weight), self.commit);
    }

    /// The minute is over.
    pub fn end_minute(&mut self) -> Found {
        let is_warm = self.history.minutes() >= WARM_UP_MINUTES;
        let samples_min = if self.looked_at < self.records { SAMPLES_MIN } else { 0 };
        let Jumps { factor, least } = self.rule;
        let is_jump = |before: f64, counted: &Counted| {
            let Counted { amount, commits, .. } = *counted;
            is_warm && amount >= least && amount as f64 >= factor as f64 * before && commits >= samples_min
        };
        let mut jumps = self.history.end_minute(&mut self.counts, is_jump);
        jumps.sort_by(|one, other| other.factor().total_cmp(&one.factor()).then_with(|| one.id.cmp(&other.id)));
        let share = if self.records == 0 { 1.0 } else { self.looked_at as f64 / self.records as f64 };
        (self.records, self.looked_at) = (0, 0);
        Found { jumps, share }
    }
}
