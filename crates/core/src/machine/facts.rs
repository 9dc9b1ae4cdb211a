//! The facts of a state, all together: their way to a cut, and the memory they take. Which there are is in
//! [`crate::ledger::facts`](crate::ledger).

use super::Machine;
use crate::ledger::{self, Facts, Kind, LedgerCut, LedgerKind, LookedUp};
use std::sync::Arc;

impl Machine {
    fn facts(&self) -> impl Iterator<Item = &dyn Kind> {
        self.fates.facts.facts().into_iter().chain(self.values.facts.facts()).map(|(_, kind)| kind)
    }

    pub(super) fn facts_mut(&mut self) -> impl Iterator<Item = &mut dyn Kind> {
        self.fates.facts.facts_mut().into_iter().chain(self.values.facts.facts_mut()).map(|(_, kind)| kind)
    }

    /// A kind that is looked up.
    pub fn looked_up(&self, kind: LedgerKind) -> &dyn LookedUp {
        let found = self.fates.facts.looked_up(kind).or_else(|| self.values.facts.looked_up(kind));
        found.expect("every kind that is looked up is one side's")
    }

    pub fn looked_up_mut(&mut self, kind: LedgerKind) -> &mut dyn LookedUp {
        let found = self.fates.facts.looked_up_mut(kind).or_else(|| self.values.facts.looked_up_mut(kind));
        found.expect("every kind that is looked up is one side's")
    }

    /// Everything up to here belongs to the cut. Costs nothing, however many facts there are.
    pub fn begin_facts_cut(&mut self) -> Arc<LedgerCut> {
        ledger::begin_cut(&mut self.fates.facts, &mut self.values.facts)
    }

    /// The store has the cut.
    pub fn finish_facts_cut(&mut self) {
        self.facts_mut().for_each(Kind::finish_cut);
    }

    /// The cut came to nothing: what was in it has changed since the last one.
    pub fn abort_facts_cut(&mut self) {
        self.facts_mut().for_each(Kind::abort_cut);
    }

    /// Nothing is staged: what the store has as well may go.
    pub fn forget_loaded(&mut self) {
        self.fates.facts.forget_loaded();
        self.values.facts.forget_loaded();
        self.values.table.forget_absent();
        self.values.forget_made();
    }

    /// Facts that the next cut would write.
    pub fn facts_changed(&self) -> usize {
        self.facts().map(Kind::changed).sum()
    }

    /// Memory of facts that only a cut lets go.
    pub fn facts_unsettled_bytes(&self) -> usize {
        self.facts().map(Kind::unsettled_bytes).sum()
    }

    /// Memory of facts.
    pub fn facts_bytes(&self) -> usize {
        self.facts().map(Kind::bytes).sum()
    }
}

#[cfg(test)]
mod tests;
