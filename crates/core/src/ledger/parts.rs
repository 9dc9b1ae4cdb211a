//! Parts: what the values of keys are split into, by dimensions and time ([`crate::counter::rollup`]).
//!
//! Memory has what was *added* since the last cut, and never what a part is worth: an entry counts for its parts without anybody having
//! looked them up. For each key it keeps the finest that any roll-up asks for, in the order in which it came first; whoever writes a
//! cut works out the rows of each roll-up from it and from what the store has ([`Blocks`]), and so does whoever reads. So the two cannot
//! differ, and what a key admits is decided in the order of the log wherever cuts fall.

mod band;
pub mod block;
mod blocks;
mod counts;
mod fold;
mod old;
mod since;
mod split;
mod tuples;

use super::cut::{Kind, Rows};
use crate::counter::rollup::Minutes;
use crate::id::CellKey;
use crate::memory::pending::Pending;
use counts::PartCounts;
use fold::PendingFolds;
use std::sync::Arc;

pub use band::{Band, ROLLUP_NUMBERS_MAX};
pub use blocks::Blocks;
pub use fold::Fold;
pub use old::{OldBuckets, OldRows};
pub use since::PartsSince;
pub use split::{Role, Split, SplitRollup};

/// So many counts are about as much work as one row of another kind.
const COUNTS_PER_ROW: usize = 8;

/// What was added to the parts of keys since the last cut.
#[derive(Default)]
pub struct Parts {
    counts: Pending<PartCounts>,
    folds: PendingFolds,
}

impl Parts {
    /// Adds to the parts of a key and of its counter as a whole, or only to those of the latter. `values` has one for each dimension of the
    /// split, each behind its length; `bucket` is one of its unit.
    #[inline]
    pub fn add(&mut self, cell: Option<CellKey>, split: &Arc<Split>, values: &[u8], bucket: Minutes, delta: i64) {
        self.counts.recent.add(cell, split, values, bucket, delta);
    }

    /// Fetches where the next addition to a key goes.
    #[inline]
    pub fn prefetch(&self, cell: CellKey) {
        self.counts.recent.prefetch(cell);
    }

    /// A key begins anew: what it had is void, in the store as well.
    pub fn clear_key(&mut self, cell: CellKey) {
        self.counts.recent.clear(cell);
    }

    /// Old rows are to be rolled up with the next cut, and not those that were to be before.
    pub fn fold(&mut self, folds: Vec<Fold>) {
        self.folds.wait(folds);
    }

    /// What was added to the parts of one key.
    pub fn of(&self, cell: CellKey) -> PartsSince {
        let mut since = PartsSince::default();
        self.counts.oldest_first().for_each(|counts| counts.tell(cell, &mut since));
        since
    }
}

impl Kind for Parts {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        self.folds.begin_cut(self.counts.begin_cut())
    }

    fn finish_cut(&mut self) {
        self.counts.finish_cut();
        self.folds.finish_cut();
    }

    fn abort_cut(&mut self) {
        self.counts.abort_cut();
        self.folds.abort_cut();
    }

    fn clear(&mut self) {
        *self = Parts::default();
    }

    /// They are small, and many of them are one row.
    fn changed(&self) -> usize {
        self.counts.recent.len / COUNTS_PER_ROW
    }

    fn unsettled_bytes(&self) -> usize {
        self.bytes()
    }

    fn bytes(&self) -> usize {
        self.counts.newest_first().map(PartCounts::bytes).sum::<usize>() + self.folds.bytes()
    }
}
