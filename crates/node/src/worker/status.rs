//! What an operator sees of each worker.

use super::Spec;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// A unit of work is under way.
    Busy,
    /// There is nothing to do until something comes.
    Idle,
    /// There is nothing to do until a time.
    Waiting,
    /// The last unit failed, and is tried again after a while.
    Throttled,
    /// It has come to its end.
    Done,
    /// It broke in the middle of a unit, and is not tried again.
    Failed,
}

impl WorkerState {
    pub const ALL: [WorkerState; 6] = [
        WorkerState::Busy,
        WorkerState::Idle,
        WorkerState::Waiting,
        WorkerState::Throttled,
        WorkerState::Done,
        WorkerState::Failed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            WorkerState::Busy => "busy",
            WorkerState::Idle => "idle",
            WorkerState::Waiting => "waiting",
            WorkerState::Throttled => "throttled",
            WorkerState::Done => "done",
            WorkerState::Failed => "failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    pub text: Arc<str>,
    /// By the node's clock.
    pub at_ms: u64,
}

/// A worker as it is at a moment.
#[derive(Clone, Debug)]
pub struct ShownStatus {
    pub state: WorkerState,
    /// Units that were begun and came to a good end.
    pub units: u64,
    pub errors: u64,
    pub errors_in_a_row: u64,
    pub last_error: Option<LastError>,
    /// When a wait for time ends, by the node's clock.
    pub next_at_ms: Option<u64>,
    /// How much waits to be done, as of its last word.
    pub queue: Option<u64>,
    /// How far it is, as of its last word.
    pub progress: Option<String>,
}

/// One worker and what it is doing.
#[derive(Debug)]
pub struct Status {
    pub spec: Spec,
    shown: Mutex<ShownStatus>,
}

impl Status {
    fn new(spec: Spec) -> Status {
        let shown = ShownStatus {
            state: WorkerState::Waiting,
            units: 0,
            errors: 0,
            errors_in_a_row: 0,
            last_error: None,
            next_at_ms: None,
            queue: None,
            progress: None,
        };
        Status { spec, shown: Mutex::new(shown) }
    }

    pub fn update<T>(&self, change: impl FnOnce(&mut ShownStatus) -> T) -> T {
        change(&mut self.shown.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn shown(&self) -> ShownStatus {
        self.update(|shown| shown.clone())
    }

    pub(super) fn enters(&self, state: WorkerState) {
        self.update(|shown| (shown.state, shown.next_at_ms) = (state, None));
    }

    /// A unit was done. Answers how many had failed before it.
    pub(super) fn did(&self) -> u64 {
        self.update(|shown| {
            shown.units += 1;
            std::mem::take(&mut shown.errors_in_a_row)
        })
    }

    /// A unit failed. Answers how many did in a row.
    pub(super) fn erred(&self, text: &str, at_ms: u64) -> u64 {
        self.update(|shown| {
            shown.errors += 1;
            shown.errors_in_a_row += 1;
            shown.last_error = Some(LastError { text: text.into(), at_ms });
            shown.errors_in_a_row
        })
    }

    /// Nothing is under way, so there is no progress to tell, unless it will be gone on with.
    pub(super) fn pauses(&self, state: WorkerState, now_ms: u64, time: Option<Duration>) {
        let next_at_ms = time.map(|time| now_ms + time.as_millis() as u64);
        self.update(|shown| {
            (shown.state, shown.next_at_ms) = (state, next_at_ms);
            shown.progress.take_if(|_| state != WorkerState::Throttled);
        });
    }
}

/// Every worker there is, in the order in which they began.
#[derive(Debug, Default)]
pub struct Board {
    statuses: Mutex<Vec<Arc<Status>>>,
}

impl Board {
    pub(super) fn add(&self, spec: Spec) -> Arc<Status> {
        let status = Arc::new(Status::new(spec));
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).push(status.clone());
        status
    }

    pub fn statuses(&self) -> Vec<Arc<Status>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
