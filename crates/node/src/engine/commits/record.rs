//! The writer's part: which commit a batch belongs to, and what is handed on when one is over.
//!
//! While nobody follows that is one small message for each slot of log time. While somebody does, every batch goes along by
//! move, with what it changed; if whoever makes commits falls behind, the writer waits.

use std::sync::Arc;
use tally_core::commit::{Slot, Slots, VoidBatch, exceptions, told_correction};
use tally_core::counter::Declarations;
use tally_core::fates::Void;
use tally_core::machine::Machine;
use tally_core::memory::cell::ValueChanges;
use tally_core::op::{Answer, Batch, Submission};
use tally_core::position::Position;

/// What is handed on.
pub(in crate::engine) enum CommitStep {
    /// A batch of the commit that is open has changed values.
    Changed { changed: Changed, declarations: Arc<Declarations> },
    /// Deltas are recorded from here on, at this time.
    Followed { at: Position, log_time_ms: u64 },
    /// The commit is over. It has deltas if every batch of it was followed.
    Closed { slot: Slot, followed: bool },
}

/// A batch and what it has changed; or their memory, which goes round: these are the largest things that a batch needs.
#[derive(Default)]
pub(in crate::engine) struct Changed {
    pub changes: ValueChanges,
    pub batch: Submission,
}

pub(in crate::engine) struct Recorder {
    slots: Slots,
    /// The commit that is open was followed from its beginning.
    followed: bool,
}

/// What became of a batch.
pub(in crate::engine) struct Applied<'a> {
    pub batch: &'a Batch<'a>,
    pub count: u32,
    /// The position behind it.
    pub to: Position,
    pub answers: &'a [Answer],
    /// Some entry of it was not simply counted.
    pub exceptional: bool,
    pub void: Option<Void>,
}

impl Recorder {
    /// Goes on behind the commits that end at `end`.
    pub fn new(end: Position) -> Recorder {
        Recorder { slots: Slots::new(end), followed: false }
    }

    /// Whether a batch with this time must say that it begins a commit, to be of another commit than the one that was closed.
    pub fn must_mark(&self, log_time_ms: u64) -> bool {
        self.slots.must_mark(log_time_ms)
    }

    /// Behind the last batch.
    pub fn end(&self) -> Position {
        self.slots.end()
    }

    /// Notes a batch that was applied. Answers the commit that ended before it, and what it has changed if that is to be handed
    /// on, in this order.
    pub fn applied(
        &mut self,
        state: &mut Machine,
        applied: &Applied<'_>,
    ) -> (Option<CommitStep>, Option<ValueChanges>) {
        let Applied { batch, count, to, answers, exceptional, void } = *applied;
        let is_new = self.slots.is_empty();
        let closed = self.slots.enter(to, batch.log_time_ms, batch.begins(), state.declarations());
        let closed = closed.map(|slot| CommitStep::Closed { slot, followed: self.followed });
        if is_new || closed.is_some() {
            self.followed = state.values.table.is_followed();
        }
        let open = self.slots.open().expect("a batch has just entered");
        open.generation = state.values.generations.current;
        if exceptional {
            exceptions(batch, count, answers, open);
        }
        open.corrections.extend(told_correction(batch, answers, state.just_made()));
        open.rules = open.rules.max(batch.head.map_or(0, |head| head.rules));
        open.voids.extend(void.map(|why| VoidBatch { offset: batch.offset, why }));
        let changes = state.values.table.take_changes().filter(|changes| self.followed && !changes.is_empty());
        (closed, changes)
    }

    /// Closes the commit that is open: no later batch will be of it.
    pub fn close(&mut self) -> Option<CommitStep> {
        self.slots.close().map(|slot| CommitStep::Closed { slot, followed: self.followed })
    }

    /// The same, if the clock has passed it.
    pub fn close_if_over(&mut self, now_ms: u64) -> Option<CommitStep> {
        if self.slots.is_over(now_ms) { self.close() } else { None }
    }
}
