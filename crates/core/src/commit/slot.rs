//! Where a commit begins and ends: a function of the log alone, so that a replay draws the same lines.
//!
//! A batch belongs to the commit before it if both are of one epoch and one slot of log time, it brings no configuration and
//! does not say that it begins one, by its head or by a tick as its first record. A commit is over when a batch of another one comes, or when somebody closes it: because the clock
//! has passed its slot, or because a cut ends there. If the next batch would still belong to it, it says in its head that it begins
//! one ([`Slots::must_mark`]), so that a replay draws the same line.

use super::audit::Audit;
use super::codec::{ToldCorrection, VoidBatch};
use super::exception::Exception;
use crate::counter::Declarations;
use crate::limits::COMMIT_SLOT_MS;
use crate::position::Position;
use std::sync::Arc;

/// What a commit says whether anybody listens or not.
#[derive(Clone, Debug)]
pub struct Slot {
    pub from: Position,
    pub to: Position,
    /// Of its last batch.
    pub log_time_ms: u64,
    /// The last correction that was visible at its end.
    pub generation: u64,
    pub exceptions: Vec<Exception>,
    pub audit: Audit,
    pub corrections: Vec<ToldCorrection>,
    /// The highest version of the rules that one of its batches is judged by; 0 if none of them says.
    pub rules: u32,
    pub voids: Vec<VoidBatch>,
    /// In force from its first batch on.
    pub declarations: Arc<Declarations>,
}

impl Slot {
    fn number(&self) -> u64 {
        self.log_time_ms / COMMIT_SLOT_MS
    }

    fn end_ms(&self) -> u64 {
        (self.number() + 1) * COMMIT_SLOT_MS
    }
}

/// Draws the lines.
#[derive(Clone, Debug)]
pub struct Slots {
    /// Behind the last batch.
    end: Position,
    open: Option<Slot>,
    /// The slot that was closed last, if no batch has come since.
    closed: Option<u64>,
}

impl Slots {
    /// Goes on behind the commits that end at `end`.
    pub fn new(end: Position) -> Slots {
        Slots { end, open: None, closed: None }
    }

    /// Whether a batch with this time must say that it begins a commit, to be of another commit than the one that was closed.
    pub fn must_mark(&self, log_time_ms: u64) -> bool {
        self.closed == Some(log_time_ms / COMMIT_SLOT_MS)
    }

    /// Behind the last batch that came.
    pub fn end(&self) -> Position {
        self.end
    }

    /// A batch comes that ends at `to`. Answers the commit that ends before it, if one does. `begins`: it says so.
    pub fn enter(
        &mut self,
        to: Position,
        log_time_ms: u64,
        begins: bool,
        declarations: &Arc<Declarations>,
    ) -> Option<Slot> {
        let joins = |open: &Slot| {
            !begins
                && open.to.epoch == to.epoch
                && open.number() == log_time_ms / COMMIT_SLOT_MS
                && Arc::ptr_eq(&open.declarations, declarations)
        };
        let closed = if self.open.as_ref().is_some_and(joins) { None } else { self.open.take() };
        let from = std::mem::replace(&mut self.end, to);
        self.closed = None;
        match &mut self.open {
            Some(open) => (open.to, open.log_time_ms) = (to, log_time_ms),
            None => {
                self.open = Some(Slot {
                    from,
                    to,
                    log_time_ms,
                    generation: 0,
                    exceptions: Vec::new(),
                    audit: Audit::default(),
                    corrections: Vec::new(),
                    rules: 0,
                    voids: Vec::new(),
                    declarations: declarations.clone(),
                });
            }
        }
        closed
    }

    /// No commit is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_none()
    }

    /// The commit that the last batch belongs to, to say what became of it.
    pub fn open(&mut self) -> Option<&mut Slot> {
        self.open.as_mut()
    }

    /// Whether the clock has passed the commit that is open.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.open.as_ref().is_some_and(|open| now_ms >= open.end_ms())
    }

    /// Closes what is open: no later batch is of it.
    pub fn close(&mut self) -> Option<Slot> {
        let closed = self.open.take()?;
        self.closed = Some(closed.number());
        Some(closed)
    }
}
