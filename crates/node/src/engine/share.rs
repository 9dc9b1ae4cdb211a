//! How much of what waits goes into one commit: so much that the commit is short, since whatever comes next waits for its end.
//!
//! A commit takes [`AIM_US`], or three times what its sync takes where that is slow: otherwise most of the time would go into syncs of
//! next to nothing. Past the page cache a sync does not depend on how much was written.

use std::time::Duration;
use tally_core::limits::{COMMIT_SHARE_BYTES_MAX, COMMIT_SHARE_BYTES_MIN};

/// How long a commit should take, in microseconds.
const AIM_US: u64 = 1_000;

#[derive(Debug)]
pub(super) struct Share {
    bytes: usize,
    /// About how long a sync takes that nothing but the disk holds up, in microseconds.
    sync_us: u64,
}

impl Share {
    pub fn new() -> Share {
        Share { bytes: COMMIT_SHARE_BYTES_MIN, sync_us: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Learns from a commit of so many bytes, how long it took, and how long its sync took of that.
    pub fn committed(&mut self, bytes: usize, took: Duration, sync_took: Duration) {
        self.learn_sync(sync_took.as_micros() as u64);
        let rest_us = took.saturating_sub(sync_took).as_micros() as u64;
        if rest_us + self.sync_us > AIM_US.max(3 * self.sync_us) {
            self.bytes = (self.bytes - self.bytes / 8).max(COMMIT_SHARE_BYTES_MIN);
        } else if 2 * bytes >= self.bytes {
            // A smaller one says nothing of larger ones.
            self.bytes = (self.bytes + self.bytes / 8).min(COMMIT_SHARE_BYTES_MAX);
        }
    }

    /// What most syncs take longer than: a slow disk is slow each time, while a thread that has to wait for a processor behind its
    /// sync says nothing of the disk.
    fn learn_sync(&mut self, took_us: u64) {
        self.sync_us = match took_us < self.sync_us {
            true => self.sync_us - (self.sync_us - took_us).div_ceil(4),
            false => self.sync_us + (took_us - self.sync_us).min(self.sync_us / 16 + 1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share after many full commits on a disk whose sync takes so long, and where each MiB takes so long.
    fn settled(sync_us: u64, mib_us: u64) -> usize {
        let mut share = Share::new();
        for _ in 0..1000 {
            let (bytes, sync_took) = (share.bytes(), Duration::from_micros(sync_us));
            share.committed(bytes, sync_took + Duration::from_micros(mib_us * bytes as u64 / (1 << 20)), sync_took);
        }
        share.bytes()
    }

    fn about(bytes: usize, expected: usize) {
        assert!(bytes.abs_diff(expected) <= expected / 4, "{bytes}");
    }

    #[test]
    fn the_share_is_what_a_short_commit_holds_and_has_bounds() {
        about(settled(200, 800), 1 << 20);
        about(settled(200, 1_600), 1 << 19);
        assert_eq!(settled(10, 10), COMMIT_SHARE_BYTES_MAX);
        assert_eq!(settled(10, 100_000), COMMIT_SHARE_BYTES_MIN);
    }

    #[test]
    fn where_every_sync_is_slow_commits_are_larger() {
        assert!(settled(2_000, 2_000) > 1 << 20);
        assert_eq!(settled(10_000, 2_000), COMMIT_SHARE_BYTES_MAX);
    }

    #[test]
    fn a_sync_that_is_slow_now_and_then_makes_commits_neither_larger_nor_smaller() {
        let mut share = Share::new();
        for n in 0..1000 {
            let (bytes, sync_took) = (share.bytes(), Duration::from_micros(if n % 2 == 0 { 200 } else { 3_000 }));
            share.committed(bytes, sync_took + Duration::from_micros(800 * bytes as u64 / (1 << 20)), sync_took);
        }
        about(share.bytes(), 1 << 20);
    }

    #[test]
    fn small_commits_say_nothing_of_large_ones() {
        let mut share = Share::new();
        (0..1000).for_each(|_| share.committed(100, Duration::from_micros(10), Duration::ZERO));
        assert_eq!(share.bytes(), COMMIT_SHARE_BYTES_MIN);
    }
}
