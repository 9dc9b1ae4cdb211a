//! The rows of one key as additions leave them: the one rule for a cut and for a read.

use super::block::{Block, OTHER};
use super::split::{Split, SplitRollup, texts};
use crate::counter::rollup::Minutes;
use crate::id::CellKey;
use crate::ledger::LedgerKey;
use crate::ledger::cut::{Change, LedgerRow, StoredRows};
use crate::limits::PARTS_PER_ROW_MAX;
use crate::record::DecodeError;
use std::collections::BTreeMap;

/// The rows of one key that are changed.
pub struct Blocks<'a> {
    cell: CellKey,
    stored: &'a dyn StoredRows,
    is_cleared: bool,
    /// Only this roll-up is of interest, and what decides about its values.
    only: Option<u16>,
    /// In order. Most keys have a few, and a cut has many keys.
    blocks: Vec<((u16, Minutes), Block)>,
    /// Room for the values of the part at hand.
    values: Vec<u8>,
}

impl<'a> Blocks<'a> {
    pub fn new(cell: CellKey, stored: &'a dyn StoredRows, is_cleared: bool) -> Blocks<'a> {
        Blocks { cell, stored, is_cleared, only: None, blocks: Vec::with_capacity(2), values: Vec::with_capacity(32) }
    }

    /// Leaves the other roll-ups out.
    pub fn only(mut self, number: u16) -> Blocks<'a> {
        self.only = Some(number);
        self
    }

    /// A row as it stands now, if anything was added to it.
    pub fn get(&self, number: u16, bucket: Minutes) -> Option<&Block> {
        self.place(number, bucket).ok().map(|at| &self.blocks[at].1)
    }

    /// The rows of a roll-up that something was added to.
    pub fn of(&self, number: u16) -> impl Iterator<Item = (Minutes, &Block)> {
        let of_rollup = self.blocks.iter().filter(move |((of, _), _)| *of == number);
        of_rollup.map(|((_, bucket), block)| (*bucket, block))
    }

    fn place(&self, number: u16, bucket: Minutes) -> Result<usize, usize> {
        self.blocks.binary_search_by_key(&(number, bucket), |(known, _)| *known)
    }

    pub(super) fn add(&mut self, split: &Split, values: &[u8], bucket: Minutes, delta: i64) -> Result<(), DecodeError> {
        let mut texts = texts(split, values)?;
        for rollup in &split.rollups {
            if rollup.admits.is_none() && self.only.is_some_and(|only| only != rollup.number) {
                continue;
            }
            let mut values = std::mem::take(&mut self.values);
            rollup.project(&texts, &mut values);
            let bucket = rollup.bucket(split, bucket);
            let most = rollup.admits.map_or(PARTS_PER_ROW_MAX, |most| PARTS_PER_ROW_MAX.min(most as usize));
            let is_admitted = self.block(rollup, bucket)?.add(&values, delta, most);
            self.values = values;
            if rollup.admits.is_some() && !is_admitted {
                texts[usize::from(rollup.dimensions[0])] = OTHER.as_bytes();
            }
        }
        Ok(())
    }

    fn block(&mut self, rollup: &SplitRollup, bucket: Minutes) -> Result<&mut Block, DecodeError> {
        let at = match self.place(rollup.number, bucket) {
            Ok(at) => at,
            Err(at) => {
                let key = LedgerKey::Part(self.cell, rollup.number, bucket);
                let row = if self.is_cleared { None } else { self.stored.row(&key.encode()) };
                let new = || Ok(Block::new(rollup.dimensions.len() as u8));
                let block = row.map_or_else(new, |row| Block::decode(&row))?;
                self.blocks.insert(at, ((rollup.number, bucket), block));
                at
            }
        };
        Ok(&mut self.blocks[at].1)
    }

    /// The rows as they are to be written, in the order of their keys. Those of `void` that are not among them go.
    pub(super) fn into_rows(self, void: Vec<Vec<u8>>) -> Vec<LedgerRow> {
        let cell = self.cell;
        let rows = self.blocks.into_iter().map(|((number, bucket), block)| {
            (LedgerKey::Part(cell, number, bucket).encode(), Change::Put(block.encode()))
        });
        let row = |(key, change)| LedgerRow { key, change };
        if void.is_empty() {
            return rows.map(row).collect();
        }
        let gone = void.into_iter().map(|key| (key, Change::Delete));
        gone.chain(rows).collect::<BTreeMap<_, _>>().into_iter().map(row).collect()
    }
}
