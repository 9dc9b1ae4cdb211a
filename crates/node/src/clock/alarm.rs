//! Those who wait for the hands of a clock to reach a moment.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// By the moment they wait for, and in the order in which they came.
type Sleepers = BTreeMap<(u64, u64), Waker>;

#[derive(Debug, Default)]
pub(super) struct Alarms {
    state: Mutex<AlarmState>,
}

#[derive(Debug, Default)]
struct AlarmState {
    waiting: Sleepers,
    /// How many alarms were set so far.
    set: u64,
}

/// One that waits. It is taken back when this is dropped.
pub(super) struct Alarm<'a> {
    alarms: &'a Alarms,
    /// When it is due, and its number.
    key: (u64, u64),
}

impl Alarms {
    pub fn set(&self, due_ms: u64) -> Alarm<'_> {
        let mut state = self.lock();
        state.set += 1;
        Alarm { alarms: self, key: (due_ms, state.set) }
    }

    /// The first moment that somebody waits for.
    pub fn first_ms(&self) -> Option<u64> {
        self.lock().waiting.keys().next().map(|(due_ms, _)| *due_ms)
    }

    /// Wakes those who are due, the first of them first.
    pub fn ring(&self, now_ms: u64) {
        let due = {
            let mut state = self.lock();
            let later = state.waiting.split_off(&(now_ms + 1, 0));
            std::mem::replace(&mut state.waiting, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, AlarmState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alarm<'_> {
    /// The time is read while nobody can ring, so that no ring is missed.
    pub fn poll(&self, context: &Context<'_>, now_ms: impl Fn() -> u64) -> Poll<()> {
        let mut state = self.alarms.lock();
        if now_ms() >= self.key.0 {
            return Poll::Ready(());
        }
        state.waiting.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.alarms.lock().waiting.remove(&self.key);
    }
}
