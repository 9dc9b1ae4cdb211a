//! What may be found in keys that several connections change: increments and decrements apart, acknowledged and
//! attempted apart.

use anyhow::{Result, ensure};

/// What was done to one key since its base.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amounts {
    up_attempted: i64,
    up_acknowledged: i64,
    down_attempted: i64,
    down_acknowledged: i64,
}

impl Amounts {
    pub fn attempt(&mut self, delta: i64) {
        if delta >= 0 { self.up_attempted += delta } else { self.down_attempted -= delta }
    }

    pub fn acknowledge(&mut self, delta: i64) {
        if delta >= 0 { self.up_acknowledged += delta } else { self.down_acknowledged -= delta }
    }

    fn absorb(&mut self, other: Amounts) {
        self.up_attempted += other.up_attempted;
        self.up_acknowledged += other.up_acknowledged;
        self.down_attempted += other.down_attempted;
        self.down_acknowledged += other.down_acknowledged;
    }
}

/// Keys, their last known values and what was done to them since.
pub struct Ranges {
    keys: Vec<String>,
    bases: Vec<i64>,
    amounts: Vec<Amounts>,
}

impl Ranges {
    pub fn new(keys: Vec<String>) -> Ranges {
        Ranges { bases: vec![0; keys.len()], amounts: vec![Amounts::default(); keys.len()], keys }
    }

    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Takes over what a lane did, and leaves it with nothing done.
    pub fn absorb(&mut self, lane: &mut [Amounts]) {
        assert_eq!(lane.len(), self.amounts.len(), "a lane keeps an amount for every key");
        for (mine, theirs) in self.amounts.iter_mut().zip(lane) {
            mine.absorb(std::mem::take(theirs));
        }
    }

    /// Checks every key, and starts anew from what was found.
    pub fn verify(&mut self, found: &[Option<i64>]) -> Result<()> {
        assert_eq!(found.len(), self.keys.len(), "every key was read");
        for (n, found) in found.iter().enumerate() {
            let (base, amounts) = (self.bases[n], self.amounts[n]);
            let value = found.unwrap_or(0);
            let least = base + amounts.up_acknowledged - amounts.down_attempted;
            let most = base + amounts.up_attempted - amounts.down_acknowledged;
            ensure!(
                (least..=most).contains(&value),
                "key {}: acknowledged {least} ≤ found {value} ≤ attempted {most} does not hold (base {base}, {amounts:?})",
                self.keys[n]
            );
            self.bases[n] = value;
            self.amounts[n] = Amounts::default();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(changes: &[(i64, bool)]) -> Ranges {
        let mut lane = [Amounts::default()];
        for &(delta, acknowledged) in changes {
            lane[0].attempt(delta);
            if acknowledged {
                lane[0].acknowledge(delta);
            }
        }
        let mut ranges = Ranges::new(vec!["k".to_owned()]);
        ranges.absorb(&mut lane);
        ranges
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_what_was_not_may_be() {
        for (value, holds) in [(4, false), (5, true), (7, true), (8, true), (9, false)] {
            assert_eq!(after(&[(5, true), (3, false)]).verify(&[Some(value)]).is_ok(), holds, "{value}");
        }
    }

    #[test]
    fn increments_and_decrements_do_not_hide_each_other() {
        for (value, holds) in [(4, false), (5, true), (9, true), (10, false)] {
            assert_eq!(after(&[(10, true), (-1, true), (-4, false)]).verify(&[Some(value)]).is_ok(), holds, "{value}");
        }
        assert!(after(&[(1, true)]).verify(&[None]).is_err(), "a lost key is a lost count");
    }

    #[test]
    fn what_was_found_is_the_next_base() {
        let mut ranges = after(&[(5, false)]);
        ranges.verify(&[Some(5)]).unwrap();
        assert!(ranges.verify(&[Some(4)]).is_err());
        ranges.verify(&[Some(5)]).unwrap();
    }
}
