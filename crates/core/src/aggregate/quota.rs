//! How many idempotency keys are kept: a bound that refuses new ones and never forgets old ones before their time.

use std::collections::BTreeMap;

const HOUR_MS: u64 = 60 * 60 * 1000;

/// Keys that are kept, by the hour in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Quota {
    pub hours: BTreeMap<u64, u64>,
}

impl Quota {
    /// How many keys are kept at this time; those of an hour go when the last of them may go.
    pub fn used(&mut self, log_time_ms: u64, keep_ms: u64) -> u64 {
        while let Some((hour, _)) = self.hours.first_key_value()
            && ((hour + 1) * HOUR_MS).saturating_add(keep_ms) <= log_time_ms
        {
            self.hours.pop_first();
        }
        self.hours.values().sum()
    }

    pub fn add(&mut self, log_time_ms: u64) {
        *self.hours.entry(log_time_ms / HOUR_MS).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_count_until_the_last_of_their_hour_may_go() {
        let mut quota = Quota::default();
        quota.add(0);
        quota.add(HOUR_MS - 1);
        quota.add(HOUR_MS);
        assert_eq!(quota.used(HOUR_MS, 10), 3);
        assert_eq!(quota.used(HOUR_MS + 9, 10), 3);
        assert_eq!(quota.used(HOUR_MS + 10, 10), 1);
        assert_eq!(quota.used(u64::MAX - 1, u64::MAX), 1, "what is kept forever never goes");
    }
}
