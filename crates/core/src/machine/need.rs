//! What a batch needs to know before it can be applied, and what the store said about it.
//!
//! Nothing in `apply` reads a disk. Whoever has a batch asks [`Machine::needs`] first, looks up what memory does not know,
//! and hands it in with [`Machine::load`].

use super::Machine;
use crate::id::CellKey;
use crate::ledger::{Correction, FactKey, FactRow, LedgerKey, Row as _};
use crate::memory::cell::CellRow;
use crate::op::{Op, OpKind, Stamp};
use crate::record::DecodeError;

/// Something that only the store knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    Cell(CellKey),
    Fact(FactKey),
    /// By its number.
    Correction(u64),
}

/// What the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    Cell(Option<CellRow>),
    Fact(FactRow),
    Correction(Option<Correction>),
}

impl Need {
    /// The key of its row in the ledger; `None` if it is a cell, which has a place of its own.
    pub fn ledger_key(&self) -> Option<LedgerKey> {
        match *self {
            Need::Cell(_) => None,
            Need::Fact(key) => Some(key.ledger_key()),
            Need::Correction(number) => Some(LedgerKey::Correction(number)),
        }
    }

    /// Reads the row that was found under [`Self::ledger_key`].
    pub fn decode(&self, row: Option<&[u8]>) -> Result<Stored, DecodeError> {
        Ok(match self {
            Need::Cell(_) => Stored::Cell(row.map(CellRow::decode).transpose()?),
            Need::Fact(key) => Stored::Fact(key.decode(row)?),
            Need::Correction(_) => Stored::Correction(row.map(Correction::decode).transpose()?),
        })
    }
}

impl Machine {
    /// Whether memory knows everything, whatever is asked.
    pub fn knows_all(&self) -> bool {
        let Machine { fates, values, .. } = self;
        values.table.cells().cold() == 0 && fates.facts.has_none_to_look_up() && values.facts.has_none_to_look_up()
    }

    fn knows(&self, key: FactKey) -> bool {
        let known = self.fates.facts.knows(key).or_else(|| self.values.facts.knows(key));
        known.expect("every fact is one side's")
    }

    /// The fact that decides what becomes of an operation, if one does.
    pub(super) fn decided_by(&self, op: &Op, stamp: &Stamp) -> Option<FactKey> {
        match op.kind {
            OpKind::Claim => Some(FactKey::Claim(stamp.key)),
            OpKind::Know => Some(FactKey::Entity(stamp.key)),
            OpKind::AddOnce | OpKind::Once => Some(FactKey::Answer(stamp.key)),
            OpKind::Remedy if stamp.key != CellKey::NONE => Some(FactKey::Answer(stamp.key)),
            OpKind::Entry => self.fates.contracts.mode(op.counter).decided_by(stamp),
            _ => None,
        }
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
        let none_is_cold = self.values.table.cells().cold() == 0;
        let counts_blindly = self.values.table.counts_blindly();
        for op in ops {
            let may_wait = none_is_cold || counts_blindly && self.needs_no_value(op);
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
            OpKind::Entry => !self.fates.contracts.mode(op.counter).terms().takes_back,
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
        let Some(key) = self.decided_by(op, stamp) else { return };
        if !self.knows(key) {
            needs.push(Need::Fact(key));
        }
        if op.kind == OpKind::AddOnce
            && let Some(older) = self.values.key_of_format_4(stamp, self.log_time_ms()).map(FactKey::Answer)
            && !self.knows(older)
        {
            needs.push(Need::Fact(older));
        }
        // Undoing changes the cell that was counted then, which need not be the one of this entry.
        if let FactKey::Entity(hash) = key {
            let entity = self.fates.facts.entities.in_memory(hash).or(match found(Need::Fact(key)) {
                Some(Stored::Fact(FactRow::Entity(entity))) => entity.as_ref(),
                _ => None,
            });
            needs.extend(
                entity.filter(|entity| !self.values.table.knows(entity.cell)).map(|entity| Need::Cell(entity.cell)),
            );
        }
    }

    /// The correction that is reverted, and the cells that it has changed.
    pub(super) fn revert_needs<'f>(
        &self,
        number: u64,
        found: &impl Fn(Need) -> Option<&'f Stored>,
        needs: &mut Vec<Need>,
    ) {
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
            (Need::Fact(key), Stored::Fact(row)) => {
                let others = self.fates.facts.load(key, row);
                let left = others.and_then(|(key, row)| self.values.facts.load(key, row));
                assert!(left.is_none(), "{left:?} is no fact of either side");
            }
            (Need::Correction(number), Stored::Correction(made)) => self.values.load_made(number, made),
            (need, stored) => unreachable!("{stored:?} does not answer {need:?}"),
        }
    }
}
