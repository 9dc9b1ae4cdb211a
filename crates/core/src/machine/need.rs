//! What a batch needs to know before it can be applied, and what the store said about it.
//!
//! Nothing in `apply` reads a disk. Whoever has a batch asks [`Machine::needs`] first, looks up what memory does not know,
//! and hands it in with [`Machine::load`].

use super::Machine;
use crate::counter::Mode;
use crate::id::CellKey;
use crate::ledger::{Answered, Claim, Correction, Entity, LedgerKey, Row as _};
use crate::memory::cell::CellRow;
use crate::op::{Op, OpKind, Stamp};
use crate::record::DecodeError;

/// Something that only the store knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    Cell(CellKey),
    Claim(CellKey),
    Entity(CellKey),
    Answer(CellKey),
    /// By its number.
    Correction(u64),
}

/// What the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    Cell(Option<CellRow>),
    Claim(Option<Claim>),
    Entity(Option<Entity>),
    Answer(Option<Answered>),
    Correction(Option<Correction>),
}

impl Need {
    /// The key of its row in the ledger; `None` if it is a cell, which has a place of its own.
    pub fn ledger_key(&self) -> Option<LedgerKey> {
        match *self {
            Need::Cell(_) => None,
            Need::Claim(key) => Some(LedgerKey::Claim(key)),
            Need::Entity(key) => Some(LedgerKey::Entity(key)),
            Need::Answer(key) => Some(LedgerKey::Answer(key)),
            Need::Correction(number) => Some(LedgerKey::Correction(number)),
        }
    }

    /// Reads the row that was found under [`Self::ledger_key`].
    pub fn decode(&self, row: Option<&[u8]>) -> Result<Stored, DecodeError> {
        Ok(match self {
            Need::Cell(_) => Stored::Cell(row.map(CellRow::decode).transpose()?),
            Need::Claim(_) => Stored::Claim(row.map(Claim::decode).transpose()?),
            Need::Entity(_) => Stored::Entity(row.map(Entity::decode).transpose()?),
            Need::Answer(_) => Stored::Answer(row.map(Answered::decode).transpose()?),
            Need::Correction(_) => Stored::Correction(row.map(Correction::decode).transpose()?),
        })
    }
}

impl Machine {
    /// Whether memory knows everything, whatever is asked.
    pub fn knows_all(&self) -> bool {
        let Machine { fates, values, .. } = self;
        values.table.cells().cold() == 0
            && fates.facts.claims.is_empty()
            && fates.facts.entities.is_empty()
            && values.facts.answers.is_empty()
    }

    /// What memory does not know of what these operations need. `found` is what was looked up already.
    pub fn needs<'f>(&self, ops: &[Op], stamps: &[Stamp], found: impl Fn(Need) -> Option<&'f Stored>) -> Vec<Need> {
        let mut needs = Vec::new();
        // What reverts a correction is the last of its batch.
        let reverts = ops.last().filter(|op| op.kind == OpKind::Remedy && op.arg != 0).map(|op| op.arg as u64);
        if self.knows_all() && reverts.is_none() {
            return needs;
        }
        if let Some(number) = reverts {
            self.revert_needs(number, &found, &mut needs);
        }
        let mut stamps = stamps.iter();
        let counts_blindly = self.values.table.counts_blindly();
        for op in ops {
            let may_wait = counts_blindly && self.needs_no_value(op);
            if !may_wait && op.cell != CellKey::NONE && !self.values.table.knows(op.cell) {
                needs.push(Need::Cell(op.cell));
            }
            if op.kind == OpKind::Size {
                // Only their rows say which of them are new.
                needs.extend(self.unsettled());
            }
            if let Some(stamp) = op.has_stamp().then(|| stamps.next()).flatten() {
                self.stamp_needs(op, stamp, &found, &mut needs);
            }
        }
        needs.retain(|need| found(*need).is_none());
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// An entry that only adds. One of an entity may take back what it has counted before in the same batch.
    fn needs_no_value(&self, op: &Op) -> bool {
        match op.kind {
            OpKind::Count => true,
            OpKind::Entry => self.fates.contracts.mode(op.counter) != Mode::Transition,
            _ => false,
        }
    }

    /// What has to be looked up so that every cell is settled.
    pub fn unsettled(&self) -> impl Iterator<Item = Need> {
        self.values.table.unsettled().map(Need::Cell)
    }

    fn stamp_needs<'f>(
        &self,
        op: &Op,
        stamp: &Stamp,
        found: &impl Fn(Need) -> Option<&'f Stored>,
        needs: &mut Vec<Need>,
    ) {
        let Machine { fates, values, .. } = self;
        match op.kind {
            OpKind::Claim if !fates.facts.claims.knows(stamp.key) => needs.push(Need::Claim(stamp.key)),
            OpKind::AddOnce | OpKind::Once if !values.facts.answers.knows(stamp.key) => {
                needs.push(Need::Answer(stamp.key))
            }
            OpKind::Remedy if stamp.key != CellKey::NONE && !values.facts.answers.knows(stamp.key) => {
                needs.push(Need::Answer(stamp.key));
            }
            OpKind::Entry if stamp.key != CellKey::NONE && fates.contracts.mode(op.counter) == Mode::Transition => {
                if !fates.facts.entities.knows(stamp.key) {
                    needs.push(Need::Entity(stamp.key));
                }
                // Undoing changes the cell that was counted then, which need not be the one of this entry.
                let entity = fates.facts.entities.in_memory(stamp.key).or(match found(Need::Entity(stamp.key)) {
                    Some(Stored::Entity(entity)) => entity.as_ref(),
                    _ => None,
                });
                if let Some(entity) = entity
                    && !self.values.table.knows(entity.cell)
                {
                    needs.push(Need::Cell(entity.cell));
                }
            }
            _ => {}
        }
    }

    /// The correction that is reverted, and the cells that it has changed.
    fn revert_needs<'f>(&self, number: u64, found: &impl Fn(Need) -> Option<&'f Stored>, needs: &mut Vec<Need>) {
        if !self.values.knows_made(number) {
            needs.push(Need::Correction(number));
        }
        let stored = match found(Need::Correction(number)) {
            Some(Stored::Correction(correction)) => correction.clone(),
            _ => None,
        };
        let made = self.values.made(number).or(stored);
        let cells = made.iter().flat_map(|made| &made.deltas).map(|delta| self.hasher.key(&delta.id));
        needs.extend(cells.filter(|cell| !self.values.table.knows(*cell)).map(Need::Cell));
    }

    /// Takes in what the store has, unless memory knows better.
    pub fn load(&mut self, need: Need, stored: Stored) {
        match (need, stored) {
            (Need::Cell(key), Stored::Cell(row)) => self.values.load(key, row),
            (Need::Claim(key), Stored::Claim(claim)) => self.fates.facts.claims.load(key, claim),
            (Need::Entity(key), Stored::Entity(entity)) => self.fates.facts.entities.load(key, entity),
            (Need::Answer(key), Stored::Answer(answer)) => self.values.facts.answers.load(key, answer),
            (Need::Correction(number), Stored::Correction(made)) => self.values.load_made(number, made),
            (need, stored) => unreachable!("{stored:?} does not answer {need:?}"),
        }
    }
}
