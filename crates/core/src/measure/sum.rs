//! A sum: the key keeps one integer, and an entry adds its delta to it.

use super::Gauge;
use crate::fates::Scene;
use crate::ledger::Entity;
use crate::memory::cell::Added;
use crate::op::Op;
use crate::values::Values;

pub(crate) struct Sum;

impl Gauge for Sum {
    const NAME: &'static str = "sum";
    const ABOUT: &'static str = "What all events come to.";

    #[inline]
    fn count(values: &mut Values, op: &Op, scene: &Scene<'_>) {
        let added = values.table.count(op.cell, op.arg);
        match added {
            Added::Value(_) | Added::Overflow => {}
            Added::Created(_) => values.name_entry(op, scene),
            Added::Unknown => values.count_blindly(op, scene),
        }
        if values.lists.rises(op.counter, added, op.arg) {
            values.lead_entry(op, scene);
        }
    }

    fn take_back(values: &mut Values, counted: &Entity) -> bool {
        values.uncount(counted)
    }
}
