//! How far what readers see is behind what has been accepted: the age of the oldest write that waits, now.
//!
//! A write from another thread waits in its queue, then in the commit under way. Each of these places has a mark: since when the
//! oldest in it waits. A scrape compares the marks with the clock, so the lag grows while a disk hangs and is 0 when
//! nothing waits.

use crate::clock::Clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tally_core::op::Stream;

/// The commit under way; the queues come before it.
const COMMIT: usize = Stream::ALL.len();

#[derive(Debug)]
pub struct Lag {
    clock: Clock,
    /// In microseconds of `clock`; 0 if nothing waits there.
    since_us: [AtomicU64; COMMIT + 1],
}

impl Lag {
    pub fn new(clock: Clock) -> Lag {
        Lag { clock, since_us: Default::default() }
    }

    /// The moment, never 0.
    pub fn now_us(&self) -> u64 {
        self.clock.passed().as_micros() as u64 + 1
    }

    pub fn since(&self, at_us: u64) -> Duration {
        Duration::from_micros(self.now_us().saturating_sub(at_us))
    }

    /// Something waits in a queue; if there is something before it, that waits longer.
    pub fn enqueued(&self, stream: usize, at_us: u64) {
        let _ = self.since_us[stream].compare_exchange(0, at_us, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// What is left in a queue came later than this; 0 if nothing is left.
    pub fn dequeued(&self, stream: usize, at_us: u64) {
        self.since_us[stream].store(at_us, Ordering::Release);
    }

    /// A commit has begun, or goes on.
    pub fn committing(&self, at_us: u64) {
        self.enqueued(COMMIT, at_us);
    }

    /// Everything in it is answered.
    pub fn committed(&self) {
        self.dequeued(COMMIT, 0);
    }

    pub fn seconds(&self) -> f64 {
        let marks = self.since_us.iter().map(|mark| mark.load(Ordering::Acquire)).filter(|mark| *mark > 0);
        marks.min().map_or(0.0, |oldest| self.since(oldest).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_waits_is_the_lag_and_nobody_is_none() {
        let lag = Lag::new(Clock::system());
        assert_eq!(lag.seconds(), 0.0);
        lag.enqueued(0, 1);
        lag.enqueued(0, u64::MAX);
        let waits = lag.seconds();
        assert!(lag.seconds() >= waits, "it grows while nothing happens");
        lag.committing(1);
        lag.dequeued(0, 0);
        assert!(lag.seconds() >= waits, "it waits in the commit now");
        lag.committed();
        assert_eq!(lag.seconds(), 0.0);
    }
}
