//! Old rows of a roll-up: where they stand, and what is to become of them.

use super::{Band, Fold};
use crate::available::{Available, Moved};
use crate::counter::rollup::{Minutes, Unit};
use crate::id::CellKey;
use crate::ledger::LedgerKey;
use crate::record::DecodeError;
use std::ops::Range;

/// The buckets of a roll-up that have become old by some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldBuckets {
    pub rollup: u16,
    pub unit: Unit,
    /// As which it may have buckets beside its own.
    pub coarser: Vec<Unit>,
    pub available: Available,
}

/// Where old rows of a key may stand.
pub struct OldRows {
    cell: CellKey,
    band: Band,
    unit: Unit,
    pub keys: Range<Vec<u8>>,
}

impl OldBuckets {
    /// Where those of a key may stand, the finest first.
    pub fn rows_of(&self, cell: CellKey) -> impl Iterator<Item = OldRows> {
        let own = (Band::new(self.rollup, None), self.unit);
        let coarser = self.coarser.iter().map(|unit| (Band::new(self.rollup, Some(*unit)), *unit));
        std::iter::once(own).chain(coarser).filter_map(move |(band, unit)| {
            let before = self.available.moved_before(unit);
            let keys = LedgerKey::parts_within(cell, band.number(), &(0..before));
            (before > 0).then_some(OldRows { cell, band, unit, keys })
        })
    }

    /// Notes what is to become of a row that stands among these; answers whether it is old. Rows come in the order of their keys.
    pub fn note(&self, rows: &OldRows, key: &[u8], folds: &mut Vec<Fold>) -> Result<bool, DecodeError> {
        let LedgerKey::Part(_, _, bucket) = LedgerKey::decode(key)? else { return Ok(false) };
        let to = match self.available.moved(rows.unit, bucket) {
            None => return Ok(false),
            Some(Moved::Away) => None,
            Some(Moved::Into(unit)) => Some((Band::new(self.rollup, Some(unit)), unit)),
        };
        let goes_with = |fold: &Fold| fold.cell == rows.cell && fold.from == rows.band && fold.to == to;
        match folds.last_mut().filter(|fold| goes_with(fold)) {
            // What is older never goes into something finer, so there is nothing between them that goes elsewhere.
            Some(fold) => fold.buckets.end = bucket + 1,
            None => folds.push(self.fold(rows, to, bucket)),
        }
        Ok(true)
    }

    fn fold(&self, rows: &OldRows, to: Option<(Band, Unit)>, bucket: Minutes) -> Fold {
        Fold { cell: rows.cell, from: rows.band, to, zone: self.available.zone().clone(), buckets: bucket..bucket + 1 }
    }
}
