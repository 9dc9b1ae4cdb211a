//! Every kind of fact there is, once: the way of facts from memory to a cut follows from this list.

use super::State;
use crate::ledger::{Kind, LedgerCut};
use std::sync::Arc;

/// How many kinds there are.
const KINDS: usize = 10;

/// In the order of [`LedgerKind`](crate::ledger::LedgerKind), which is the order of their keys.
macro_rules! facts {
    ($state:ident $($mutable:tt)?) => {
        [
            &$($mutable)? $state.fates.claims,
            &$($mutable)? $state.fates.entities,
            &$($mutable)? $state.values.answers,
            &$($mutable)? $state.fates.boxes,
            &$($mutable)? $state.values.steps,
            &$($mutable)? $state.values.corrections,
            &$($mutable)? $state.fates.duplicates.rows,
            &$($mutable)? $state.fates.duplicates.by_id,
            &$($mutable)? $state.values.proposals,
            &$($mutable)? $state.fates.firsts,
        ]
    };
}

impl State {
    fn facts(&self) -> [&dyn Kind; KINDS] {
        facts!(self)
    }

    pub(super) fn facts_mut(&mut self) -> [&mut dyn Kind; KINDS] {
        facts!(self mut)
    }

    /// Everything up to here belongs to the cut. Costs nothing, however many facts there are.
    pub fn begin_facts_cut(&mut self) -> Arc<LedgerCut> {
        Arc::new(self.facts_mut().into_iter().map(Kind::begin_cut).collect())
    }

    /// The store has the cut.
    pub fn finish_facts_cut(&mut self) {
        self.facts_mut().into_iter().for_each(Kind::finish_cut);
    }

    /// The cut came to nothing: what was in it has changed since the last one.
    pub fn abort_facts_cut(&mut self) {
        self.facts_mut().into_iter().for_each(Kind::abort_cut);
    }

    /// Nothing is staged: what the store has as well may go.
    pub fn forget_loaded(&mut self) {
        self.fates.claims.forget_loaded();
        self.fates.entities.forget_loaded();
        self.values.answers.forget_loaded();
        self.values.table.forget_absent();
        self.values.forget_made();
    }

    /// Facts that the next cut would write.
    pub fn facts_changed(&self) -> usize {
        self.facts().into_iter().map(Kind::changed).sum()
    }

    /// Memory of facts that only a cut lets go.
    pub fn facts_unsettled_bytes(&self) -> usize {
        self.facts().into_iter().map(Kind::unsettled_bytes).sum()
    }

    /// Memory of facts.
    pub fn facts_bytes(&self) -> usize {
        self.facts().into_iter().map(Kind::bytes).sum()
    }
}

#[cfg(test)]
mod tests;
