//! How many idempotency keys are known: a bound that refuses new ones and never forgets old ones before their time.

use std::collections::VecDeque;

/// Moments that are told apart in any case. Beyond it keys count by the 65,536th part of the time that they are kept.
const MOMENTS_MAX: usize = 1 << 17;
const PARTS: u64 = 1 << 16;
const HOUR_MS: u64 = 60 * 60 * 1000;

/// The last moment of an hour, for keys that were counted by the hour.
pub(crate) fn end_of_hour_ms(hour: u64) -> u64 {
    hour.saturating_add(1).saturating_mul(HOUR_MS)
}

/// Keys that are known, by the moment at which they came. All that it does is constant time but for what leaves, which leaves once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Ascending. Where several moments are one it is the last of them.
    moments: VecDeque<(u64, u64)>,
    keys: u64,
}

impl Quota {
    /// How many keys are known, if those are that came at a moment or later.
    pub fn used(&mut self, known_from_ms: u64) -> u64 {
        while let Some((_, keys)) = self.moments.pop_front_if(|(at_ms, _)| *at_ms < known_from_ms) {
            self.keys -= keys;
        }
        self.keys
    }

    /// Counts a key that comes now and is kept for so long.
    pub fn add(&mut self, log_time_ms: u64, keep_ms: u64) {
        let part_ms = (keep_ms / PARTS).max(1);
        let is_crowded = self.moments.len() >= MOMENTS_MAX;
        match self.moments.back_mut() {
            Some((at_ms, _)) if is_crowded && *at_ms / part_ms == log_time_ms / part_ms => *at_ms = log_time_ms,
            _ => {}
        }
        self.resume(log_time_ms, 1);
    }

    pub fn moments(&self) -> impl ExactSizeIterator<Item = &(u64, u64)> {
        self.moments.iter()
    }

    /// Counts keys of a moment that is not before the last.
    pub fn resume(&mut self, at_ms: u64, keys: u64) {
        match self.moments.back_mut() {
            Some((last_ms, here)) if *last_ms >= at_ms => *here += keys,
            _ => self.moments.push_back((at_ms, keys)),
        }
        self.keys += keys;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_as_long_as_it_is_known_and_not_a_moment_longer() {
        let mut quota = Quota::default();
        for at_ms in [0, 999, 999, 1000] {
            quota.add(at_ms, HOUR_MS);
        }
        let known = |log_time_ms: u64| (log_time_ms + 1).saturating_sub(HOUR_MS);
        for (log_time_ms, expected) in [(0, 4), (HOUR_MS - 1, 4), (HOUR_MS, 3), (HOUR_MS + 999, 1), (HOUR_MS + 1000, 0)]
        {
            assert_eq!(quota.used(known(log_time_ms)), expected, "at {log_time_ms}");
        }
    }

    #[test]
    fn counting_a_month_of_keys_takes_little_memory() {
        let mut quota = Quota::default();
        let keep_ms = 30 * 24 * HOUR_MS;
        for second in 0..keep_ms / 1000 {
            quota.add(second * 1000, keep_ms);
        }
        assert_eq!(quota.used(0), keep_ms / 1000);
        assert!(quota.moments().len() <= MOMENTS_MAX + PARTS as usize + 1, "{}", quota.moments().len());
        let part_ms = keep_ms / PARTS;
        assert!(quota.used(keep_ms - part_ms - 1000) >= part_ms / 1000, "none leaves before its time");
        assert!(quota.used(keep_ms - 1000) <= 1 + part_ms / 1000);
        assert_eq!(quota.used(keep_ms), 0);
    }
}
