//! One shape for everything that goes on in the background: a unit of work, a wait that can be interrupted, a status that an
//! operator sees.
//!
//! A [`Work`] does one unit at a time and says what comes next; [`run`] calls it, waits, backs off after errors and keeps its
//! [`Status`] up to date. Units are large beside that: a look at the clock, a page of rows, a cut; never an event. Where a work runs
//! and by which clock it waits is not its business: [`Workers`] has the spawner and the clock, so that a simulation can run
//! all of it on one thread in a time of its own.

mod run;
mod spawn;
mod status;
#[cfg(test)]
mod tests;

pub use spawn::{Spawner, Workers};
pub use status::{Board, LastError, ShownStatus, Status, WorkerState};

use crate::clock::Clock;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Something that is done in the background, a unit at a time.
pub trait Work {
    /// One unit. It is not interrupted: a stop waits for its end, so a long one is told in parts.
    fn work(&mut self, context: &Context) -> impl Future<Output = Result<Next, WorkFailure>>;

    /// Ends when there is something to do, beside being woken and beside the time that the last unit named; breaks if there will
    /// never be anything again. It may be dropped at any point and begun anew.
    fn wait(&mut self) -> impl Future<Output = ControlFlow<()>> {
        std::future::pending()
    }
}

/// What comes after a unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another one, at once.
    Again,
    /// Another one after this time, or when it is woken.
    After(Duration),
    /// Nothing until it is woken.
    WhenWoken,
}

/// Why a unit of work was not done, in words for people.
#[derive(Debug)]
pub struct WorkFailure(String);

impl<E: std::fmt::Display> From<E> for WorkFailure {
    fn from(error: E) -> WorkFailure {
        WorkFailure(error.to_string())
    }
}

/// When a unit that failed is tried again: after the first time, then after twice as long each time it fails again.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    pub first: Duration,
    pub most: Duration,
}

impl Retry {
    /// It is not tried again: whoever asked for it was told, and the next one is another's.
    pub const NEVER: Retry = Retry::every(Duration::ZERO);

    pub const fn every(time: Duration) -> Retry {
        Retry { first: time, most: time }
    }

    /// How long to wait after so many errors in a row; `None` if there is nothing to wait for.
    fn pause(self, errors_in_a_row: u64) -> Option<Duration> {
        let doubled = errors_in_a_row.saturating_sub(1).min(16) as u32;
        let time = self.first.saturating_mul(1 << doubled).min(self.most);
        (!time.is_zero()).then_some(time)
    }
}

/// Ends the wait of a worker. Clones wake the same one; to be woken once before a wait is enough to end it.
#[derive(Clone, Debug, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    pub fn wake(&self) {
        self.0.notify_one();
    }

    async fn woken(&self) {
        self.0.notified().await;
    }
}

/// What is known of a worker before it begins.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: String,
    /// In a sentence that goes on from its name.
    pub does: &'static str,
    /// What ends its wait, beside time.
    pub waits_for: &'static str,
    pub retry: Retry,
    /// Writes depend on it: if it breaks in the middle of a unit, none are taken any more.
    pub is_vital: bool,
    /// It talks to others over a network.
    pub is_networked: bool,
    /// Whoever wakes it waits for what comes of it, be it another error; otherwise only time ends the pause after one.
    pub is_tried_again_when_woken: bool,
    pub wake: Wake,
}

impl Spec {
    /// A worker that waits for time alone, and without which a node can do.
    pub fn new(name: impl Into<String>, does: &'static str, retry: Retry) -> Spec {
        Spec {
            name: name.into(),
            does,
            waits_for: "the next round",
            retry,
            is_vital: false,
            is_networked: false,
            is_tried_again_when_woken: false,
            wake: Wake::default(),
        }
    }

    pub fn waits_for(self, waits_for: &'static str) -> Spec {
        Spec { waits_for, ..self }
    }

    pub fn woken_by(self, wake: &Wake) -> Spec {
        Spec { wake: wake.clone(), ..self }
    }

    pub fn networked(self) -> Spec {
        Spec { is_networked: true, ..self }
    }

    pub fn tried_again_when_woken(self) -> Spec {
        Spec { is_tried_again_when_woken: true, ..self }
    }

    pub fn vital(self) -> Spec {
        Spec { is_vital: true, ..self }
    }
}

/// What a worker has of the world.
pub struct Context {
    clock: Clock,
    status: Arc<Status>,
    spawner: Spawner,
    stop: watch::Receiver<bool>,
}

impl Context {
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether this worker shares its thread with whoever it works for: then it must not block until they go on.
    pub fn is_among_others(&self) -> bool {
        self.spawner == Spawner::Here
    }

    pub fn is_stopping(&self) -> bool {
        // A sender that is gone is a node that is gone.
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    /// Tells how much waits to be done.
    pub fn queue(&self, length: usize) {
        self.status.update(|shown| shown.queue = Some(length as u64));
    }

    /// Tells how far it is, in words.
    pub fn progress(&self, words: String) {
        self.status.update(|shown| shown.progress = Some(words));
    }

    /// Ends when the node stops: for what nobody should wait for then.
    pub async fn stopped(&self) {
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }
}
