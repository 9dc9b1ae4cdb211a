//! What would become of a batch of events, before anything of it has happened.
//!
//! The rule is known once, in `apply`: so a trial makes a small state of what decides the fates of the batch, and applies it
//! there. Whatever it needs is known by then, as for a batch that is appended. Values decide nothing, so none is copied. It
//! costs what the batch costs, and memory for what it touches.

use super::Machine;
use crate::counter::Stager;
use crate::op::{Answer, Batch, Op, OpKind, Stamp};
use std::sync::Arc;

impl Machine {
    /// The answers that [`Machine::apply`] would give to a batch of events.
    pub fn try_out(&self, batch: &Batch<'_>) -> Vec<Answer> {
        let mut small = self.excerpt(batch);
        let mut answers = Vec::new();
        small.apply(batch, &mut answers);
        answers
    }

    /// A state that decides of the batch what this one would.
    fn excerpt(&self, batch: &Batch<'_>) -> Machine {
        let mut small = Machine::new(self.hasher);
        small.stager = Stager::new(Arc::clone(self.declarations()), self.hasher);
        small.fates.contracts = self.fates.contracts.without_memories();
        small.values.declare(self.declarations());
        small.values.generations.current = self.values.generations.current;
        small.values.log_time_ms = self.values.log_time_ms;
        let mut stamps = batch.stamps.iter();
        for op in batch.ops {
            if let Some(stamp) = op.has_stamp().then(|| stamps.next()).flatten() {
                self.copy_known(op, stamp, &mut small);
            }
        }
        small
    }

    fn copy_known(&self, op: &Op, stamp: &Stamp, small: &mut Machine) {
        if let Some(key) = self.decided_by(op, stamp) {
            small.fates.facts.copy(&self.fates.facts, key);
        }
        match op.kind {
            OpKind::Claim => {}
            OpKind::Entry => small.fates.contracts.copy_known(&self.fates.contracts, op, stamp),
            other => unreachable!("{other:?} is no event"),
        }
    }
}
