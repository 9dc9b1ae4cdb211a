//! The boxes: every entry (event × counter) ends in exactly one of them, and they add up to what was received.
//!
//! A node counts all six for each counter; per key only those other than `counted` are kept, where they are not zero. What
//! is kept here per key are *changes* since the last cut. The store adds them to what it has.

use super::LedgerKey;
use super::cut::{Change, Kind, LedgerRow, Rows};
use super::row::{Row, whole};
use crate::id::{CellKey, KeyHash};
use crate::memory::pending::{Overlay, Pending};
use crate::memory::stratum::{SHARDS, shard_of};
use crate::record::{DecodeError, put_signed, take_signed};
use hashbrown::HashMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxKind {
    Counted,
    Duplicate,
    Conflict,
    Rejected,
    Ignored,
    Late,
}

impl BoxKind {
    pub const ALL: [BoxKind; 6] =
        [BoxKind::Counted, BoxKind::Duplicate, BoxKind::Conflict, BoxKind::Rejected, BoxKind::Ignored, BoxKind::Late];

    pub fn name(self) -> &'static str {
        match self {
            BoxKind::Counted => "counted",
            BoxKind::Duplicate => "duplicate",
            BoxKind::Conflict => "conflict",
            BoxKind::Rejected => "rejected",
            BoxKind::Ignored => "ignored",
            BoxKind::Late => "late",
        }
    }
}

/// How many entries ended where. Signed, since an entry that was late leaves its box once it is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boxes {
    pub counted: i64,
    pub duplicate: i64,
    pub conflict: i64,
    pub rejected: i64,
    pub ignored: i64,
    pub late: i64,
}

impl Boxes {
    pub fn get(&self, kind: BoxKind) -> i64 {
        match kind {
            BoxKind::Counted => self.counted,
            BoxKind::Duplicate => self.duplicate,
            BoxKind::Conflict => self.conflict,
            BoxKind::Rejected => self.rejected,
            BoxKind::Ignored => self.ignored,
            BoxKind::Late => self.late,
        }
    }

    pub fn bump(&mut self, kind: BoxKind, n: i64) {
        *self.slot(kind) += n;
    }

    pub fn add(&mut self, other: &Boxes) {
        for kind in BoxKind::ALL {
            self.bump(kind, other.get(kind));
        }
    }

    /// Every entry is in one box, so this is how many there were.
    pub fn received(&self) -> i64 {
        self.numbers().iter().sum()
    }

    /// In the order of [`BoxKind::ALL`], which is that of its row.
    pub fn numbers(&self) -> [i64; 6] {
        BoxKind::ALL.map(|kind| self.get(kind))
    }

    pub fn is_zero(&self) -> bool {
        *self == Boxes::default()
    }

    fn slot(&mut self, kind: BoxKind) -> &mut i64 {
        match kind {
            BoxKind::Counted => &mut self.counted,
            BoxKind::Duplicate => &mut self.duplicate,
            BoxKind::Conflict => &mut self.conflict,
            BoxKind::Rejected => &mut self.rejected,
            BoxKind::Ignored => &mut self.ignored,
            BoxKind::Late => &mut self.late,
        }
    }
}

impl Row for Boxes {
    fn encode(&self, out: &mut Vec<u8>) {
        for kind in BoxKind::ALL {
            put_signed(out, self.get(kind));
        }
    }

    fn decode(bytes: &[u8]) -> Result<Boxes, DecodeError> {
        whole(bytes, |bytes| {
            let mut boxes = Boxes::default();
            for kind in BoxKind::ALL {
                *boxes.slot(kind) = take_signed(bytes)?;
            }
            Ok(boxes)
        })
    }
}

/// Boxes by cell, in shards by the top bits of the key: one that grows has its rows twice meanwhile, and a flood of rejected entries
/// has a row for every key there is.
#[derive(Clone)]
struct BoxCounts(Box<[HashMap<CellKey, Boxes, KeyHash>]>);

impl Default for BoxCounts {
    fn default() -> BoxCounts {
        BoxCounts(std::iter::repeat_with(HashMap::default).take(SHARDS).collect())
    }
}

impl BoxCounts {
    fn of(&mut self, cell: CellKey) -> &mut Boxes {
        self.0[shard_of(cell)].entry(cell).or_default()
    }

    fn get(&self, cell: CellKey) -> Boxes {
        self.0[shard_of(cell)].get(&cell).copied().unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.0.iter().map(HashMap::len).sum()
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(HashMap::allocation_size).sum()
    }
}

impl Overlay for BoxCounts {
    fn overlay(&mut self, newer: BoxCounts) {
        for (cell, boxes) in newer.0.into_iter().flatten() {
            self.of(cell).add(&boxes);
        }
    }
}

/// Changes to the boxes of cells since the last cut.
#[derive(Default)]
pub struct KeyBoxes {
    sums: Pending<BoxCounts>,
}

impl KeyBoxes {
    /// `counted` is not kept per key: it would be a second row for every counter.
    pub fn add(&mut self, cell: CellKey, kind: BoxKind, n: i64) {
        debug_assert_ne!(kind, BoxKind::Counted);
        self.sums.recent.of(cell).bump(kind, n);
    }

    /// What has to be added to the store's row of this cell.
    pub fn get(&self, cell: CellKey) -> Boxes {
        let mut sum = Boxes::default();
        for sums in self.sums.newest_first() {
            sum.add(&sums.get(cell));
        }
        sum
    }
}

impl Kind for KeyBoxes {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        self.sums.begin_cut()
    }

    fn finish_cut(&mut self) {
        self.sums.finish_cut();
    }

    fn abort_cut(&mut self) {
        self.sums.abort_cut();
    }

    fn clear(&mut self) {
        *self = KeyBoxes::default();
    }

    fn changed(&self) -> usize {
        self.sums.recent.len()
    }

    fn unsettled_bytes(&self) -> usize {
        self.bytes()
    }

    fn bytes(&self) -> usize {
        self.sums.newest_first().map(BoxCounts::bytes).sum()
    }
}

impl Rows for BoxCounts {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        let row = |(cell, boxes): (&CellKey, &Boxes)| {
            LedgerRow::new(LedgerKey::Boxes(*cell), Change::Add(boxes.numbers().into()))
        };
        // Shards in order are keys in order.
        let sorted = self.0.iter().flat_map(|shard| {
            let mut sorted: Vec<_> = shard.iter().filter(|(_, boxes)| !boxes.is_zero()).collect();
            sorted.sort_unstable_by_key(|(cell, _)| **cell);
            sorted
        });
        Box::new(sorted.map(row))
    }
}

#[cfg(test)]
mod tests {
    use super::super::add::add;
    use super::super::row::tests::check;
    use super::*;
    use proptest::prelude::*;

    fn boxes(n: [i64; 6]) -> Boxes {
        let mut boxes = Boxes::default();
        for (kind, n) in BoxKind::ALL.into_iter().zip(n) {
            boxes.bump(kind, n);
        }
        boxes
    }

    proptest! {
        #[test]
        fn boxes_survive_their_bytes(n: [i64; 6]) {
            check(&boxes(n));
        }

        #[test]
        fn what_the_store_adds_up_is_the_sum_box_by_box(a: [i32; 6], b: [i32; 6]) {
            let (a, b) = (boxes(a.map(i64::from)), boxes(b.map(i64::from)));
            let added = add(Some(&a.to_bytes()), &b.numbers()).unwrap();
            let mut sum = a;
            sum.add(&b);
            prop_assert_eq!(added.map(|bytes| Boxes::decode(&bytes).unwrap()).unwrap_or_default(), sum);
            prop_assert_eq!(sum.received(), a.received() + b.received());
        }
    }

    #[test]
    fn the_bytes_of_boxes_are_pinned() {
        assert_eq!(boxes([1, 2, 3, 4, 5, -1]).to_bytes(), [2, 4, 6, 8, 10, 1]);
    }

    #[test]
    fn each_box_has_a_name_of_its_own() {
        let names = BoxKind::ALL.map(BoxKind::name);
        assert_eq!(names, ["counted", "duplicate", "conflict", "rejected", "ignored", "late"]);
        for (n, kind) in BoxKind::ALL.into_iter().enumerate() {
            let mut boxes = Boxes::default();
            boxes.bump(kind, 1);
            assert_eq!(BoxKind::ALL.map(|kind| boxes.get(kind)), std::array::from_fn(|at| i64::from(at == n)));
        }
    }
}
