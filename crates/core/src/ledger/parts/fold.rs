//! Buckets that have become old are rolled into coarser ones, or go.
//!
//! A fold moves rows of one key, by the thread that writes a cut and behind everything that the cut adds to them: each old row is added
//! to its coarse one and deleted, in the same step of the store. So whoever reads a store finds what was counted in one of the two, and
//! what it comes to never changes. Whoever looks for old rows may be late or look twice: where there are none, nothing happens.

use super::Band;
use super::block::{Block, BlockParts};
use super::counts::PartCounts;
use crate::counter::rollup::{Minutes, Unit, Zone};
use crate::id::CellKey;
use crate::ledger::LedgerKey;
use crate::ledger::cut::{Change, LedgerRow, NoRows, Rows, StoredRows};
use crate::limits::PARTS_PER_ROW_MAX;
use crate::record::DecodeError;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Rows of one key that are to be moved.
#[derive(Clone, Debug)]
pub struct Fold {
    pub cell: CellKey,
    pub from: Band,
    /// Where to, and its unit; `None` if they are to be deleted.
    pub to: Option<(Band, Unit)>,
    pub zone: Zone,
    /// Which of them.
    pub buckets: Range<Minutes>,
}

/// Folds that wait for a cut, and those that are in it.
#[derive(Default)]
pub(super) struct PendingFolds {
    waiting: Vec<Fold>,
    flying: Arc<[Fold]>,
}

impl PendingFolds {
    /// These are to be in the next cut, and none that was to be before: whoever looks for them waits for their end.
    pub fn wait(&mut self, mut folds: Vec<Fold>) {
        folds.sort_by_key(|fold| fold.cell);
        self.waiting = folds;
    }

    /// The rows of a cut: what was added, and what is moved then.
    pub fn begin_cut(&mut self, counts: Arc<PartCounts>) -> Arc<dyn Rows> {
        self.flying = std::mem::take(&mut self.waiting).into();
        match self.flying.is_empty() {
            true => counts,
            false => Arc::new(FoldedCounts { counts, folds: self.flying.clone() }),
        }
    }

    pub fn finish_cut(&mut self) {
        self.flying = Arc::default();
    }

    /// They are in the next one, unless others are by now.
    pub fn abort_cut(&mut self) {
        let flying = std::mem::take(&mut self.flying);
        if self.waiting.is_empty() {
            self.waiting = flying.to_vec();
        }
    }

    pub fn bytes(&self) -> usize {
        (self.waiting.capacity() + self.flying.len()) * size_of::<Fold>()
    }
}

/// What was added in a stretch of the log, and what is moved behind it.
struct FoldedCounts {
    counts: Arc<PartCounts>,
    /// In the order of their cells.
    folds: Arc<[Fold]>,
}

impl Rows for FoldedCounts {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        self.rows_over(&NoRows)
    }

    /// Only the rows of one cell are held at a time.
    fn rows_over<'a>(&'a self, stored: &'a dyn StoredRows) -> Box<dyn Iterator<Item = LedgerRow> + 'a> {
        let mut added = self.counts.rows_over(stored).peekable();
        let mut cells = self.folds.chunk_by(|a, b| a.cell == b.cell).peekable();
        let mut folded = Vec::new().into_iter();
        Box::new(std::iter::from_fn(move || {
            loop {
                if let Some(row) = folded.next() {
                    return Some(row);
                }
                let Some(folds) = cells.peek() else { return added.next() };
                let range = LedgerKey::parts_of(folds[0].cell);
                if let Some(before) = added.next_if(|row| row.key < range.start) {
                    return Some(before);
                }
                let mut rows = CellRows { stored, changed: BTreeMap::new() };
                while let Some(row) = added.next_if(|row| row.key < range.end) {
                    rows.changed.insert(row.key, row.change);
                }
                folded = rows.folded(folds).into_iter();
                cells.next();
            }
        }))
    }
}

/// The rows of one cell, as they are and as the cut changes them.
struct CellRows<'a> {
    stored: &'a dyn StoredRows,
    changed: BTreeMap<Vec<u8>, Change>,
}

impl CellRows<'_> {
    fn folded(mut self, folds: &[Fold]) -> Vec<LedgerRow> {
        for fold in folds {
            if let Err(error) = self.fold(fold) {
                self.stored.damaged(&LedgerKey::parts_of(fold.cell).start, error);
            }
        }
        self.changed.into_iter().map(|(key, change)| LedgerRow { key, change }).collect()
    }

    fn fold(&mut self, fold: &Fold) -> Result<(), DecodeError> {
        let mut under_way: Option<(Vec<u8>, Block)> = None;
        for (key, bucket) in self.keys(fold)? {
            let Some(row) = self.row(&key) else { continue };
            if let Some((band, unit)) = fold.to {
                let coarse = unit.bucket(bucket, &fold.zone);
                let coarse = LedgerKey::Part(fold.cell, band.number(), coarse).encode();
                if under_way.as_ref().is_none_or(|(known, _)| *known != coarse) {
                    self.put(under_way.take());
                    let block = self.row(&coarse).map(|row| Block::decode(&row)).transpose()?;
                    under_way = Some((coarse, block.unwrap_or_else(|| Block::new(row.first().copied().unwrap_or(0)))));
                }
                under_way.as_mut().map_or(Ok(()), |(_, block)| add_row(block, &row))?;
            }
            self.changed.insert(key, Change::Delete);
        }
        self.put(under_way);
        Ok(())
    }

    fn put(&mut self, row: Option<(Vec<u8>, Block)>) {
        self.changed.extend(row.map(|(key, block)| (key, Change::Put(block.encode()))));
    }

    fn row(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.changed.get(key) {
            Some(Change::Put(row)) => Some(row.clone()),
            Some(Change::Delete) => None,
            Some(Change::Add(_)) => unreachable!("parts are put"),
            None => self.stored.row(key),
        }
    }

    /// The keys of the old rows with their buckets, in order. Some may be gone by now.
    fn keys(&self, fold: &Fold) -> Result<BTreeMap<Vec<u8>, Minutes>, DecodeError> {
        let range = LedgerKey::parts_within(fold.cell, fold.from.number(), &fold.buckets);
        let changed = self.changed.range(range.clone()).map(|(key, _)| key.clone());
        let all = self.stored.keys(&range).into_iter().chain(changed);
        let bucket = |key: Vec<u8>| match LedgerKey::decode(&key)? {
            LedgerKey::Part(_, _, bucket) => Ok((key, bucket)),
            other => unreachable!("{other:?} stands among parts"),
        };
        all.map(bucket).collect()
    }
}

/// Adds what an old row holds.
fn add_row(block: &mut Block, row: &[u8]) -> Result<(), DecodeError> {
    let mut parts = BlockParts::of(row)?;
    while let Some((values, sum)) = parts.take()? {
        block.add(values, sum, PARTS_PER_ROW_MAX);
    }
    Ok(())
}
