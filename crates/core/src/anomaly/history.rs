//! What keys used to come to in a minute: the mean of the minutes before, the older ones with less and less weight.
//!
//! Only keys that come to something are remembered by themselves; every other one came to no more than [`History::floor`].

use super::Jump;
use super::counts::{Counted, Counts};
use crate::id::{CellKey, KeyHash};
use crate::limits::ANOMALY_HISTORY_MAX;
use hashbrown::HashMap;

/// So many minutes have a say, about: what is longer ago is forgotten.
const MINUTES: u64 = 30;
/// A key that comes to less than this in a minute is not remembered.
const QUIET: f64 = 1.0;

#[derive(Debug)]
pub(super) struct History {
    keys: HashMap<CellKey, Known, KeyHash>,
    /// What any key that is not among them came to at most.
    floor: f64,
    minutes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    rate: f64,
    /// A jump was told, and it has not calmed down since.
    is_raised: bool,
}

impl Default for History {
    fn default() -> History {
        History { keys: HashMap::default(), floor: QUIET, minutes: 0 }
    }
}

impl History {
    /// Minutes that are known.
    pub fn minutes(&self) -> u64 {
        self.minutes
    }

    /// Takes in what keys came to in a minute, and answers those whose rate has jumped and had not before.
    pub fn end_minute(&mut self, counts: &mut Counts, is_jump: impl Fn(f64, &Counted) -> bool) -> Vec<Jump> {
        self.minutes += 1;
        let share = 1.0 / self.minutes.min(MINUTES) as f64;
        let (floor, bound) = (self.floor, counts.bound());
        let mut jumps = Vec::new();
        for (cell, known) in &mut self.keys {
            let counted = counts.take(*cell);
            let jumped = counted.as_ref().is_some_and(|counted| is_jump(known.rate, counted));
            let amount = counted.as_ref().map_or(0, |counted| counted.amount);
            if let Some(counted) = counted.filter(|_| jumped && !known.is_raised) {
                jumps.push(Jump { id: counted.id, before: known.rate, is_bound: false, after: counted.amount });
            }
            known.is_raised = jumped;
            known.rate = blend(known.rate, amount, bound, share);
        }
        for (cell, counted) in counts.finish() {
            let known = Known { rate: blend(floor, counted.amount, bound, share), is_raised: is_jump(floor, &counted) };
            if known.is_raised {
                jumps.push(Jump { id: counted.id, before: floor, is_bound: true, after: counted.amount });
            }
            if known.rate > QUIET {
                self.keys.insert(cell, known);
            }
        }
        self.floor = blend(floor, 0, bound, share).max(QUIET);
        self.make_room();
        jumps
    }

    fn make_room(&mut self) {
        let floor = self.floor;
        self.keys.retain(|_, known| known.rate > floor || known.is_raised);
        if self.keys.len() <= ANOMALY_HISTORY_MAX {
            return;
        }
        let mut rates: Vec<f64> = self.keys.values().map(|known| known.rate).collect();
        let middle = rates.len() / 2;
        let (_, median, _) = rates.select_nth_unstable_by(middle, f64::total_cmp);
        let median = *median;
        self.floor = self.floor.max(median);
        self.keys.retain(|_, known| known.rate > median);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

/// A rate after one more minute, in which it came to so much and at most `bound` beyond.
fn blend(rate: f64, amount: u64, bound: u64, share: f64) -> f64 {
    rate + (amount.saturating_add(bound) as f64 - rate) * share
}
