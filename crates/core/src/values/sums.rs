//! What the values of each declared counter have to add up to, summed where they change.

use crate::counter::{Declarations, Declared, Measure};
use crate::id::name_of;
use crate::ledger::Purpose;
use std::collections::BTreeMap;

/// What the values of a counter's keys have to add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// What entries and additions by name have changed.
    pub counted: i128,
    /// What corrections have adjusted: what people decided, which no recount may undo.
    pub adjusted: i128,
    /// What corrections have restored: a recount comes to the same.
    pub restored: i128,
    /// Anything was ever changed, whatever it has come to since.
    pub is_touched: bool,
}

impl Sums {
    /// What corrections have changed, but for late entries that they let count.
    pub fn corrected(&self) -> i128 {
        self.adjusted + self.restored
    }

    /// The sum that corrections for a purpose go into.
    pub(crate) fn by(&mut self, purpose: Purpose) -> &mut i128 {
        match purpose {
            Purpose::Count => &mut self.counted,
            Purpose::Adjust => &mut self.adjusted,
            Purpose::Restore => &mut self.restored,
        }
    }
}

/// The sums of all counters there ever were; `None` for one that counted under a version that did not add up.
#[derive(Default)]
pub(crate) struct AllSums {
    /// In the order of the declarations.
    active: Vec<ActiveSums>,
    retired: BTreeMap<Box<str>, Option<Sums>>,
}

/// Those of a counter that is declared, and what its keys keep.
struct ActiveSums {
    name: Box<str>,
    measure: Measure,
    sums: Option<Sums>,
}

impl AllSums {
    /// Goes over to new declarations. A counter keeps what it has by its name.
    pub fn declare(&mut self, declarations: &Declarations) {
        self.retired.extend(self.active.drain(..).map(|active| (active.name, active.sums)));
        for counter in declarations.all_counters() {
            let sums = self.retired.remove(&counter.name).unwrap_or(Some(Sums::default()));
            self.active.push(ActiveSums { name: counter.name.clone(), measure: counter.measure, sums });
        }
    }

    pub fn resume(&mut self, name: Box<str>, sums: Option<Sums>) {
        self.retired.insert(name, sums);
    }

    pub fn of(&self, name: &str) -> Option<Sums> {
        let active = self.active.iter().find(|active| *active.name == *name).map(|active| active.sums);
        active.or_else(|| self.retired.get(name).copied()).flatten()
    }

    /// Whether nothing was ever counted for it.
    pub fn is_untouched(&self, name: &str) -> bool {
        let is_known = self.retired.contains_key(name) || self.active.iter().any(|active| *active.name == *name);
        !is_known || self.of(name).is_some_and(|sums| !sums.is_touched)
    }

    /// Answers what the counter's keys keep.
    #[inline]
    pub fn counted(&mut self, counter: u16, change: i64) -> Measure {
        let active = &mut self.active[usize::from(counter)];
        if let Some(sums) = &mut active.sums {
            sums.counted += i128::from(change);
            sums.is_touched = true;
        }
        active.measure
    }

    pub fn measure(&self, counter: u16) -> Measure {
        self.active[usize::from(counter)].measure
    }

    /// The sums of the counter that a cell belongs to, declared or not any more, which are about to change.
    pub fn of_cell(&mut self, declarations: &Declarations, id: &[u8]) -> Option<&mut Sums> {
        let sums = match declarations.declared(id) {
            Declared::Now(index) => self.active[usize::from(index)].sums.as_mut(),
            _ => self.retired.get_mut(std::str::from_utf8(name_of(id)).ok()?)?.as_mut(),
        }?;
        sums.is_touched = true;
        Some(sums)
    }

    /// Every value is gone.
    pub fn clear(&mut self) {
        let active = self.active.iter_mut().map(|active| &mut active.sums);
        active.chain(self.retired.values_mut()).for_each(|sums| *sums = Some(Sums::default()));
    }
}
