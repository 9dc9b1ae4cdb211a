//! The rows of one key as additions leave them: the one rule for a cut and for a read.

use super::block::{Block, OTHER};
use super::split::{Role, Split, SplitRollup, texts};
use crate::counter::rollup::Minutes;
use crate::id::CellKey;
use crate::ledger::LedgerKey;
use crate::ledger::cut::{Change, LedgerRow, StoredRows};
use crate::limits::PARTS_PER_ROW_MAX;
use crate::record::DecodeError;
use std::collections::{BTreeMap, VecDeque};

/// Blocks that are kept for keys to come: as many as most keys have.
const SPARE_MAX: usize = 8;

/// The rows of one key that are changed.
pub struct Blocks<'a> {
    cell: CellKey,
    stored: &'a dyn StoredRows,
    is_cleared: bool,
    /// Only this roll-up is of interest, and what decides about its values.
    only: Option<u16>,
    /// In order. Most keys have a few, and a cut has many keys.
    blocks: Vec<ChangedBlock>,
    /// Room for the values of the part at hand, and for blocks of keys to come.
    values: Vec<u8>,
    spare: Vec<Block>,
}

/// A row that is changed.
struct ChangedBlock {
    place: (u16, Minutes),
    /// Its key in the store.
    key: Vec<u8>,
    block: Block,
}

impl<'a> Blocks<'a> {
    pub fn new(cell: CellKey, stored: &'a dyn StoredRows, is_cleared: bool) -> Blocks<'a> {
        let (blocks, values, spare) = (Vec::new(), Vec::new(), Vec::new());
        Blocks { cell, stored, is_cleared, only: None, blocks, values, spare }
    }

    /// Goes on to another key, with the same room: a cut has millions of them.
    pub(super) fn begin(&mut self, cell: CellKey, is_cleared: bool) {
        self.spare.extend(self.blocks.drain(..).map(|changed| changed.block));
        self.spare.truncate(SPARE_MAX);
        (self.cell, self.is_cleared) = (cell, is_cleared);
    }

    /// Leaves the other roll-ups out.
    pub fn only(mut self, number: u16) -> Blocks<'a> {
        self.only = Some(number);
        self
    }

    /// A row as it stands now, if anything was added to it.
    pub fn get(&self, number: u16, bucket: Minutes) -> Option<&Block> {
        self.place(number, bucket).ok().map(|at| &self.blocks[at].block)
    }

    /// The rows of a roll-up that something was added to.
    pub fn of(&self, number: u16) -> impl Iterator<Item = (Minutes, &Block)> {
        let of_rollup = self.blocks.iter().filter(move |changed| changed.place.0 == number);
        of_rollup.map(|changed| (changed.place.1, &changed.block))
    }

    fn place(&self, number: u16, bucket: Minutes) -> Result<usize, usize> {
        self.blocks.binary_search_by_key(&(number, bucket), |changed| changed.place)
    }

    pub(super) fn add(&mut self, split: &Split, values: &[u8], bucket: Minutes, delta: i64) -> Result<(), DecodeError> {
        let mut texts = texts(split, values)?;
        for rollup in &split.rollups {
            if rollup.role == Role::Counts && self.only.is_some_and(|only| only != rollup.number) {
                continue;
            }
            let mut values = std::mem::take(&mut self.values);
            rollup.project(&texts, &mut values);
            let bucket = rollup.bucket(split, bucket);
            let most = rollup.admits.map_or(PARTS_PER_ROW_MAX, |most| PARTS_PER_ROW_MAX.min(most as usize));
            let block = self.block(rollup, bucket)?;
            let is_admitted = match rollup.role {
                Role::Asked => block.admits(&values, most),
                Role::Counts | Role::Decides => block.add(&values, delta, most),
            };
            self.values = values;
            if rollup.role != Role::Counts && !is_admitted {
                texts[usize::from(rollup.dimensions[0])] = OTHER.as_bytes();
            }
        }
        Ok(())
    }

    fn block(&mut self, rollup: &SplitRollup, bucket: Minutes) -> Result<&mut Block, DecodeError> {
        let at = match self.place(rollup.number, bucket) {
            Ok(at) => at,
            Err(at) => {
                let key = LedgerKey::Part(self.cell, rollup.number, bucket).encode();
                let row = if self.is_cleared { None } else { self.stored.row(&key) };
                let width = rollup.dimensions.len() as u8;
                let mut block = self.spare.pop().unwrap_or_else(|| Block::new(width));
                match row {
                    Some(row) => block.read(&row)?,
                    None => block.begin(width),
                }
                self.blocks.insert(at, ChangedBlock { place: (rollup.number, bucket), key, block });
                at
            }
        };
        Ok(&mut self.blocks[at].block)
    }

    /// Appends the rows as they are to be written, in the order of their keys. Those of `void` that are not among them go.
    pub(super) fn take_rows(&mut self, void: Vec<Vec<u8>>, out: &mut VecDeque<LedgerRow>) {
        // One that was only asked what it admits may have nothing to write.
        let written = self.blocks.iter_mut().filter(|changed| !changed.block.is_empty());
        let rows = written.map(|ChangedBlock { key, block, .. }| LedgerRow {
            key: std::mem::take(key),
            change: Change::Put(block.encode()),
        });
        if void.is_empty() {
            out.extend(rows);
            return;
        }
        let gone = void.into_iter().map(|key| (key, Change::Delete));
        let all: BTreeMap<_, _> = gone.chain(rows.map(|row| (row.key, row.change))).collect();
        out.extend(all.into_iter().map(|(key, change)| LedgerRow { key, change }));
    }
}
