//! What a cut has to tell the store about the ledger. It is made by a move and encoded by whoever writes it.

use super::boxes::Sums;
use super::journal::Page;
use super::key::LedgerKey;
use super::proposals::Changes;
use super::row::{Answered, Claim, Entity, Row};
use super::stratum::Stratum;
use crate::id::CellKey;
use std::sync::Arc;

/// One change to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRow {
    /// The bytes of a [`LedgerKey`].
    pub key: Vec<u8>,
    pub change: Change,
}

impl LedgerRow {
    /// What its value takes.
    pub fn bytes(&self) -> usize {
        match &self.change {
            Change::Put(value) | Change::Merge(value) => value.len(),
            Change::Delete => 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(Vec<u8>),
    Delete,
    /// To be joined with what is there, by [`super::merge`].
    Merge(Vec<u8>),
}

/// All changes to the ledger up to one position.
pub struct LedgerCut {
    pub(super) claims: Arc<Stratum<Claim>>,
    pub(super) entities: Arc<Stratum<Entity>>,
    pub(super) answers: Arc<Stratum<Answered>>,
    pub(super) boxes: Arc<Sums>,
    pub(super) steps: Arc<Page<(CellKey, u64)>>,
    pub(super) corrections: Arc<Page<u64>>,
    pub(super) duplicates: Arc<Page<(u64, u32)>>,
    pub(super) duplicates_by_id: Arc<Page<(CellKey, u64, u32)>>,
    pub(super) proposals: Arc<Changes>,
}

impl LedgerCut {
    pub fn is_empty(&self) -> bool {
        self.rows().next().is_none()
    }

    /// The changes in strictly ascending order of their keys. They are sorted and encoded on the way.
    pub fn rows(&self) -> impl Iterator<Item = LedgerRow> + '_ {
        let claims = of_stratum(&self.claims, LedgerKey::Claim);
        let entities = of_stratum(&self.entities, LedgerKey::Entity);
        let answers = of_stratum(&self.answers, LedgerKey::Answer);
        let boxes = of_sums(&self.boxes);
        let steps = of_page(&self.steps, |(cell, generation)| LedgerKey::Step(cell, generation));
        let corrections = of_page(&self.corrections, LedgerKey::Correction);
        let duplicates = of_page(&self.duplicates, |(offset, index)| LedgerKey::Duplicate(offset, index));
        let by_id = of_page(&self.duplicates_by_id, |(id, offset, index)| LedgerKey::DuplicateOf(id, offset, index));
        // In the order of `LedgerKind`.
        claims
            .chain(entities)
            .chain(answers)
            .chain(boxes)
            .chain(steps)
            .chain(corrections)
            .chain(duplicates)
            .chain(by_id)
            .chain(of_proposals(&self.proposals))
    }
}

fn of_stratum<V: Row>(stratum: &Stratum<V>, key: fn(CellKey) -> LedgerKey) -> impl Iterator<Item = LedgerRow> {
    stratum.sorted().map(move |(hash, row)| {
        let change = row.map_or(Change::Delete, |row| Change::Put(row.to_bytes()));
        LedgerRow { key: key(hash).encode(), change }
    })
}

fn of_sums(sums: &Sums) -> impl Iterator<Item = LedgerRow> {
    let sorted = move || {
        let mut sorted: Vec<_> = sums.iter().filter(|(_, boxes)| !boxes.is_zero()).collect();
        sorted.sort_unstable_by_key(|(cell, _)| **cell);
        sorted
    };
    std::iter::once_with(sorted).flatten().map(|(cell, boxes)| LedgerRow {
        key: LedgerKey::Boxes(*cell).encode(),
        change: Change::Merge(boxes.to_bytes()),
    })
}

fn of_page<K: Copy>(page: &Page<K>, key: fn(K) -> LedgerKey) -> impl Iterator<Item = LedgerRow> {
    page.rows.iter().map(move |(place, row)| LedgerRow { key: key(*place).encode(), change: Change::Put(row.to_vec()) })
}

fn of_proposals(changes: &Changes) -> impl Iterator<Item = LedgerRow> {
    changes.iter().map(|(number, row)| {
        let change = row.as_ref().map_or(Change::Delete, |row| Change::Put(row.to_vec()));
        LedgerRow { key: LedgerKey::Proposal(*number).encode(), change }
    })
}
