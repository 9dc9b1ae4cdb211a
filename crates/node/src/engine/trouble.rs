//! What is wrong with the node at the moment, told everywhere at once: in its log when it begins and ends, at `/readyz` and as
//! a metric while it lasts.
//!
//! Whoever notices that something is refused, or soon will be, raises a trouble; whoever sees it pass clears it. Both may be
//! said again and again: only a change is told.

use crate::metrics::Metrics;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// The wall clock and the time of the log are far apart.
    Clock,
    /// The disk has no room for the log.
    DiskFull,
    /// The log has failed: no writes until a restart.
    LogFailed,
    /// Changes fill the memory, and no checkpoint has taken them yet.
    Crowded,
    /// There is no memory for more repeats of display counters.
    RepeatsFull,
}

impl Trouble {
    pub const ALL: [Trouble; 5] =
        [Trouble::Clock, Trouble::DiskFull, Trouble::LogFailed, Trouble::Crowded, Trouble::RepeatsFull];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::Clock => "clock",
            Trouble::DiskFull => "disk_full",
            Trouble::LogFailed => "log_failed",
            Trouble::Crowded => "crowded",
            Trouble::RepeatsFull => "repeats_full",
        }
    }

    /// Whether all writes are refused while it lasts, so that a balancer should send them elsewhere.
    pub fn refuses_all_writes(self) -> bool {
        match self {
            Trouble::DiskFull | Trouble::LogFailed | Trouble::Crowded => true,
            Trouble::Clock | Trouble::RepeatsFull => false,
        }
    }
}

/// The troubles that last, and what each of them is about.
#[derive(Debug)]
pub struct Troubles {
    lasting: Mutex<BTreeMap<Trouble, Arc<str>>>,
    metrics: Arc<Metrics>,
}

impl Troubles {
    pub fn new(metrics: Arc<Metrics>) -> Troubles {
        for trouble in Trouble::ALL {
            metrics.trouble(trouble).set(0);
        }
        Troubles { lasting: Mutex::default(), metrics }
    }

    /// Says that a trouble is there; `what` names what is wrong and what helps.
    pub fn raise(&self, trouble: Trouble, what: &str) {
        let before = self.lasting.lock().unwrap_or_else(PoisonError::into_inner).insert(trouble, what.into());
        if before.is_none() {
            tracing::error!(trouble = trouble.name(), "{what}");
            self.metrics.trouble(trouble).set(1);
        }
    }

    /// Says that a trouble has passed.
    pub fn clear(&self, trouble: Trouble) {
        let before = self.lasting.lock().unwrap_or_else(PoisonError::into_inner).remove(&trouble);
        if before.is_some() {
            tracing::info!(trouble = trouble.name(), "this trouble has passed");
            self.metrics.trouble(trouble).set(0);
        }
    }

    pub fn lasting(&self) -> Vec<(Trouble, Arc<str>)> {
        let lasting = self.lasting.lock().unwrap_or_else(PoisonError::into_inner);
        lasting.iter().map(|(trouble, what)| (*trouble, what.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_lasts_from_its_first_word_to_its_end() {
        let metrics = Arc::new(Metrics::new());
        let troubles = Troubles::new(metrics.clone());
        troubles.raise(Trouble::DiskFull, "no room");
        troubles.raise(Trouble::DiskFull, "still no room");
        assert_eq!(troubles.lasting(), [(Trouble::DiskFull, "still no room".into())]);
        assert!(metrics.encode().contains("tally_trouble{kind=\"disk_full\"} 1"), "{}", metrics.encode());
        troubles.clear(Trouble::DiskFull);
        troubles.clear(Trouble::LogFailed);
        assert!(troubles.lasting().is_empty());
        assert!(metrics.encode().contains("tally_trouble{kind=\"disk_full\"} 0"));
    }
}
