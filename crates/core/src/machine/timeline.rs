//! Where in the log time was what, and which declarations were in force there.
//!
//! The memory of repeats ([`crate::memory::dedup`]) is not part of a checkpoint: a start rebuilds it from the last two windows of
//! the log. This says where they begin, so that the log is kept from there.

use crate::counter::{ConfigErrors, Declarations};
use std::collections::VecDeque;

/// How far apart in log time two marks are, at least.
pub(super) const MARK_EVERY_MS: u64 = 1000;

#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// Log time and offset of some batches, both ascending.
    marks: VecDeque<(u64, u64)>,
    /// The declarations that are still needed, with the offset from which each is in force.
    configs: VecDeque<Config>,
    /// The offsets of void batches, ascending.
    voids: VecDeque<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub from: u64,
    pub version: u64,
    pub yaml: Box<str>,
}

impl Config {
    pub fn declarations(&self) -> Result<Declarations, ConfigErrors> {
        Ok(Declarations::parse(&self.yaml)?.with_version(self.version))
    }
}

impl Timeline {
    /// Notes a batch. Answers `true` about once a second.
    #[inline]
    pub fn passed(&mut self, log_time_ms: u64, offset: u64) -> bool {
        let due = self.marks.back().is_none_or(|(last_ms, _)| log_time_ms >= last_ms + MARK_EVERY_MS);
        if due {
            self.marks.push_back((log_time_ms, offset));
        }
        due
    }

    pub fn configured(&mut self, from: u64, declarations: &Declarations) {
        self.configs.push_back(Config { from, version: declarations.version(), yaml: declarations.yaml().into() });
    }

    /// An offset before which no batch of `since_ms` or later stands; forgets what lies before it.
    pub fn needed_from(&mut self, since_ms: u64) -> Option<u64> {
        while self.marks.get(1).is_some_and(|(time_ms, _)| *time_ms < since_ms) {
            self.marks.pop_front();
        }
        let needed = self.marks.front().map(|(_, offset)| *offset);
        self.forget_voids(needed.unwrap_or(0));
        needed
    }

    pub fn voided(&mut self, offset: u64) {
        self.voids.push_back(offset);
    }

    pub fn was_void(&self, offset: u64) -> bool {
        self.voids.binary_search(&offset).is_ok()
    }

    pub fn voids(&self) -> usize {
        self.voids.len()
    }

    /// Those from an offset on; forgets earlier ones.
    pub fn voids_from(&mut self, offset: u64) -> &VecDeque<u64> {
        self.forget_voids(offset);
        &self.voids
    }

    fn forget_voids(&mut self, before: u64) {
        while self.voids.front().is_some_and(|offset| *offset < before) {
            self.voids.pop_front();
        }
    }

    /// The declarations in force at `offset` and all later ones; forgets earlier ones.
    pub fn configs_from(&mut self, offset: u64) -> &VecDeque<Config> {
        while self.configs.get(1).is_some_and(|next| next.from <= offset) {
            self.configs.pop_front();
        }
        &self.configs
    }

    pub fn resume(&mut self, configs: VecDeque<Config>) {
        self.configs = configs;
    }

    pub fn resume_voids(&mut self, voids: VecDeque<u64>) {
        self.voids = voids;
    }

    pub fn first_config(&self) -> Option<&Config> {
        self.configs.front()
    }

    pub fn last_config(&self) -> Option<&Config> {
        self.configs.back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_needed_from_a_batch_before_the_moment_asked_for() {
        let mut timeline = Timeline::default();
        for (time_ms, offset) in [(1000, 0), (1500, 10), (2100, 20), (3100, 30), (9000, 40)] {
            timeline.passed(time_ms, offset);
        }
        assert_eq!(timeline.needed_from(900), Some(0));
        assert_eq!(timeline.needed_from(2100), Some(0), "an earlier batch may have the same time");
        assert_eq!(timeline.needed_from(2101), Some(20));
        assert_eq!(timeline.needed_from(100_000), Some(40));
        timeline.passed(12_000, 60);
        assert_eq!(timeline.needed_from(2100), Some(40), "what was before may be gone");
    }

    #[test]
    fn declarations_are_kept_while_a_batch_under_them_is_needed() {
        let mut timeline = Timeline::default();
        for (from, version) in [(0, 1), (10, 2), (20, 3)] {
            timeline.configured(from, &Declarations::default().with_version(version));
        }
        let versions = |timeline: &mut Timeline, at| -> Vec<u64> {
            timeline.configs_from(at).iter().map(|config| config.version).collect()
        };
        assert_eq!(versions(&mut timeline, 9), [1, 2, 3]);
        assert_eq!(versions(&mut timeline, 10), [2, 3]);
        assert_eq!(versions(&mut timeline, 25), [3]);
    }
}
