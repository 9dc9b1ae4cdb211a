//! What is wrong with the node at the moment, told everywhere at once: in its log when it begins and ends, at `/readyz` and as
//! a metric while it lasts.
//!
//! Whoever notices that something is refused, or soon will be, raises a trouble; whoever sees it pass clears it. Both may be
//! said again and again: only a change is told.

use super::Refusal;
use crate::metrics::Metrics;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
    /// A worker broke that writes depend on: no writes until a restart.
    WorkerFailed,
    /// A batch was void and may not have counted: two senders take themselves for the same, or one is forgotten.
    Voided,
}

impl Trouble {
    pub const ALL: [Trouble; 7] = [
        Trouble::Clock,
        Trouble::DiskFull,
        Trouble::LogFailed,
        Trouble::Crowded,
        Trouble::RepeatsFull,
        Trouble::WorkerFailed,
        Trouble::Voided,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::Clock => "clock",
            Trouble::DiskFull => "disk_full",
            Trouble::LogFailed => "log_failed",
            Trouble::Crowded => "crowded",
            Trouble::RepeatsFull => "repeats_full",
            Trouble::WorkerFailed => "worker_failed",
            Trouble::Voided => "voided",
        }
    }

    /// Whether all writes are refused while it lasts, so that a balancer should send them elsewhere.
    pub fn refuses_all_writes(self) -> bool {
        match self {
            Trouble::DiskFull | Trouble::LogFailed | Trouble::Crowded | Trouble::WorkerFailed => true,
            Trouble::Clock | Trouble::RepeatsFull | Trouble::Voided => false,
        }
    }
}

/// The troubles that last, and what each of them is about.
#[derive(Debug)]
pub struct Troubles {
    lasting: Mutex<BTreeMap<Trouble, Arc<str>>>,
    metrics: Arc<Metrics>,
    /// Why no write is taken any more.
    failed: OnceLock<Refusal>,
}

impl Troubles {
    pub fn new(metrics: Arc<Metrics>) -> Troubles {
        for trouble in Trouble::ALL {
            metrics.trouble(trouble).set(0);
        }
        Troubles { lasting: Mutex::default(), metrics, failed: OnceLock::new() }
    }

    /// Says that a trouble is there; `what` names what is wrong and what helps.
    pub fn raise(&self, trouble: Trouble, what: &str) {
        let before = self.lasting.lock().unwrap_or_else(PoisonError::into_inner).insert(trouble, what.into());
        if before.is_none() {
            tracing::error!(trouble = trouble.name(), "{what}");
            self.metrics.trouble(trouble).set(1);
        }
    }

    /// Says that the log has failed. After this no write is taken any more; the first reason for that stays.
    pub fn fail_log(&self, reason: &str) -> Refusal {
        self.fail(Trouble::LogFailed, Refusal::LogFailed(reason.into()))
    }

    /// The same for a worker that broke and may have left something half done.
    pub fn fail_worker(&self, name: &str, error: &str) -> Refusal {
        self.fail(Trouble::WorkerFailed, Refusal::WorkerFailed(format!("{name}: {error}").into()))
    }

    fn fail(&self, trouble: Trouble, refusal: Refusal) -> Refusal {
        self.raise(trouble, &refusal.to_string());
        self.failed.get_or_init(|| refusal).clone()
    }

    /// Why no write is taken any more, if none is.
    pub fn failed(&self) -> Option<&Refusal> {
        self.failed.get()
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
    #[test]
    fn a_worker_that_broke_ends_all_writes_for_the_first_reason() {
        let troubles = Troubles::new(Arc::new(Metrics::new()));
        assert!(troubles.failed().is_none());
        troubles.fail_worker("tick", "it panicked: why");
        let what = "a worker has broken, and Tally takes no more writes until it is restarted: tick: it panicked: why";
        assert_eq!(troubles.fail_log("later").to_string(), what);
        assert_eq!(troubles.failed().unwrap().to_string(), what);
        assert_eq!(troubles.lasting().last(), Some(&(Trouble::WorkerFailed, what.into())));
    }
}
