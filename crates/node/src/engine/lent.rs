//! The state while the writer waits for the disk: nobody changes it, so whoever asks something is answered from it at once, on
//! its own thread, however long the disk takes.
//!
//! What is lent is what the last commit left, and all of that: the writer lends it only between two of them. Whoever was
//! acknowledged finds his write in it, and what is on its way to the disk nobody sees yet. When the disk is done the writer waits for
//! the answer that is being made, as it would if it made it itself, and for no other.

use super::question::Question;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tally_core::machine::Machine;

const HELD: &str = "the writer lends the state only while it does nothing but wait";

/// Where the state is while it is lent.
#[derive(Default)]
pub(super) struct Lent {
    state: Mutex<Option<Box<Machine>>>,
    /// The writer does not want it back yet. Without it, many who ask could keep the writer waiting for each of them.
    may_begin: AtomicBool,
}

impl Lent {
    /// Answers a question if the state is lent; gives it back if it is not.
    pub fn answer<Q: Question>(&self, question: Q) -> Result<Q::Answer, Q> {
        if !self.may_begin.load(Ordering::Acquire) {
            return Err(question);
        }
        match &*self.lock() {
            Some(state) if self.may_begin.load(Ordering::Acquire) => Ok(question.answer(state)),
            _ => Err(question),
        }
    }

    /// Only for as long as an answer takes, or less.
    fn lock(&self) -> MutexGuard<'_, Option<Box<Machine>>> {
        // Answers change nothing, so one that panicked has left nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state, in the hands of the writer.
pub(super) struct HeldState {
    state: Option<Box<Machine>>,
    lent: Arc<Lent>,
}

impl HeldState {
    pub fn new(state: Machine, lent: Arc<Lent>) -> HeldState {
        HeldState { state: Some(Box::new(state)), lent }
    }

    /// Lends the state while something is waited for.
    pub fn lend<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        *self.lent.lock() = self.state.take();
        self.lent.may_begin.store(true, Ordering::Release);
        let result = wait();
        self.lent.may_begin.store(false, Ordering::Release);
        self.state = self.lent.lock().take();
        result
    }
}

impl Deref for HeldState {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        self.state.as_ref().expect(HELD)
    }
}

impl DerefMut for HeldState {
    fn deref_mut(&mut self) -> &mut Machine {
        self.state.as_mut().expect(HELD)
    }
}
