//! The ledger: what Tally remembers beside counts, so that each event counts exactly as its counter promises.
//!
//! Event ids that were claimed, states of entities, answers to idempotency keys; boxes, corrections and their steps, and the
//! audit of duplicates. It belongs to the one writer, changes with the cells, and goes to the store in the same cut: claiming an
//! event id and counting the event are one commit.
//!
//! Rows that decide an event's fate are in a [`Layer`], which tells whether memory knows a key or the store has to be asked.
//! The others are only written: memory has what is new since the last cut, and a reader looks into the store as well.

mod audit;
mod boxes;
mod correction;
mod cut;
mod filter;
mod history;
mod journal;
mod key;
mod layer;
mod pending;
mod proposals;
mod row;
mod stratum;
#[cfg(test)]
mod tests;

pub use audit::{Duplicate, DuplicatePlace, Duplicates};
pub use boxes::{BoxKind, Boxes, KeyBoxes, merge};
pub use correction::{Cause, Correction, Corrections, Delta, Proposal};
pub use cut::{Change, LedgerCut, LedgerRow};
pub use history::{FORGOTTEN_AT, Step, Steps};
pub use journal::Journal;
pub use key::{LedgerKey, LedgerKind};
pub use layer::Layer;
pub use proposals::{Proposals, read as read_proposal};
pub use row::{Answered, Claim, Entity, Row};

use std::sync::Arc;

#[derive(Default)]
pub struct Ledger {
    /// Event ids.
    pub claims: Layer<Claim>,
    /// States of entities.
    pub entities: Layer<Entity>,
    /// Idempotency keys.
    pub answers: Layer<Answered>,
    pub boxes: KeyBoxes,
    pub duplicates: Duplicates,
    pub corrections: Corrections,
    pub proposals: Proposals,
    pub steps: Steps,
}

impl Ledger {
    /// Everything up to here belongs to the cut. Costs nothing, however much there is.
    pub fn begin_cut(&mut self) -> Arc<LedgerCut> {
        Arc::new(LedgerCut {
            claims: self.claims.begin_cut(),
            entities: self.entities.begin_cut(),
            answers: self.answers.begin_cut(),
            boxes: self.boxes.begin_cut(),
            steps: self.steps.begin_cut(),
            corrections: self.corrections.begin_cut(),
            duplicates: self.duplicates.rows.begin_cut(),
            duplicates_by_id: self.duplicates.by_id.begin_cut(),
            proposals: self.proposals.begin_cut(),
        })
    }

    /// The store has the cut.
    pub fn finish_cut(&mut self) {
        self.claims.finish_cut();
        self.entities.finish_cut();
        self.answers.finish_cut();
        self.boxes.finish_cut();
        self.steps.finish_cut();
        self.corrections.finish_cut();
        self.duplicates.rows.finish_cut();
        self.duplicates.by_id.finish_cut();
        self.proposals.finish_cut();
    }

    /// The cut came to nothing: what was in it has changed since the last one.
    pub fn abort_cut(&mut self) {
        self.claims.abort_cut();
        self.entities.abort_cut();
        self.answers.abort_cut();
        self.boxes.abort_cut();
        self.steps.abort_cut();
        self.corrections.abort_cut();
        self.duplicates.rows.abort_cut();
        self.duplicates.by_id.abort_cut();
        self.proposals.abort_cut();
    }

    /// Nothing is staged: what the store has as well may go.
    pub fn forget_loaded(&mut self) {
        self.claims.forget_loaded();
        self.entities.forget_loaded();
        self.answers.forget_loaded();
    }

    /// A flush: forgets everything, what the store has and what is on its way there included. Proposals stay open.
    pub fn clear(&mut self) {
        self.claims.clear();
        self.entities.clear();
        self.answers.clear();
        self.boxes = KeyBoxes::default();
        self.duplicates = Duplicates::default();
        self.corrections = Corrections::default();
        self.steps = Steps::default();
        self.proposals.rewrite();
    }

    /// Rows that the next cut would write.
    pub fn changed(&self) -> usize {
        let layers = self.claims.changed() + self.entities.changed() + self.answers.changed();
        let journals = self.duplicates.changed() + self.corrections.changed() + self.steps.changed();
        layers + self.boxes.changed() + journals + self.proposals.changed()
    }

    /// Memory of rows that only a cut lets go.
    pub fn unsettled_bytes(&self) -> usize {
        let layers = self.claims.unsettled_bytes() + self.entities.unsettled_bytes() + self.answers.unsettled_bytes();
        let journals = self.duplicates.bytes() + self.corrections.bytes() + self.steps.bytes();
        layers + self.boxes.bytes() + journals + self.proposals.unsettled_bytes()
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        let layers = self.claims.bytes() + self.entities.bytes() + self.answers.bytes();
        let journals = self.duplicates.bytes() + self.corrections.bytes() + self.steps.bytes();
        layers + self.boxes.bytes() + journals + self.proposals.bytes()
    }
}
