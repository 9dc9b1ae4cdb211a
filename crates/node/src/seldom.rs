//! Log lines about what may happen very often: one now and then says it as well as a million.

use crate::clock::Stopwatch;
use std::sync::Mutex;
use std::time::Duration;

/// Lets something be said once in a while.
#[derive(Debug)]
pub struct Seldom {
    every: Duration,
    last: Mutex<Option<Stopwatch>>,
}

impl Seldom {
    pub const fn new(every: Duration) -> Seldom {
        Seldom { every, last: Mutex::new(None) }
    }

    /// Whether it is time to say it again. Whoever is told so says it.
    pub fn is_due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_due = last.is_none_or(|last| last.elapsed() >= self.every);
        if is_due {
            *last = Some(Stopwatch::start());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_said_at_once_and_then_not_for_a_while() {
        let seldom = Seldom::new(Duration::from_secs(3600));
        assert!(seldom.is_due());
        assert!(!seldom.is_due());
        let often = Seldom::new(Duration::ZERO);
        assert!(often.is_due() && often.is_due());
    }
}
