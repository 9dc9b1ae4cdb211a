//! Additions by name that were combined into one record.

use super::{Belongs, Values};
use crate::combined::{Additions, bound_of};
use crate::memory::cell::Added;
use crate::op::{Answer, Op};

impl Values {
    /// Adds what fits, as if each stood by itself. The cell is known.
    pub(crate) fn add_many(&mut self, op: &Op, name: &[u8], deltas: Additions<'_>) -> Answer {
        let before = self.table.get(op.cell).unwrap_or(0);
        let (counted, mut sum) = deltas.fitting(before, bound_of(op));
        if counted > 0 {
            // From one end of 64 bits to the other takes more than one addition.
            loop {
                let part = sum.clamp(i64::MIN.into(), i64::MAX.into());
                self.add_part(op, name, part as i64);
                sum -= part;
                if sum == 0 {
                    break;
                }
            }
        }
        Answer::Many { before, counted }
    }

    fn add_part(&mut self, op: &Op, name: &[u8], delta: i64) {
        if op.counter != Op::AD_HOC {
            self.sums.counted(op.counter, delta);
            self.roll(op.counter, op.cell, name, delta, Belongs::Nowhere);
        }
        let added = self.table.count(op.cell, delta);
        match added {
            Added::Created(_) => self.note_created(name),
            Added::Value(_) => {}
            other => unreachable!("{other:?}: what fits was looked at before"),
        }
        if op.counter != Op::AD_HOC && self.lists.rises(op.counter, added, delta) {
            self.lead_named(op, name);
        }
    }
}
