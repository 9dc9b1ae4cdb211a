//! What became of entries, as the commits say and as the archive does: the same, entry by entry.

use super::files::{Tables, of_fault};
use super::report::{Check, Finding, Fix};
use super::scratch::Scratch;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tally_archive::{ArchivedFate, FatesInOrder, Table};
use tally_core::commit::Commit;
use tally_core::counter::Declarations;

pub struct Fates<'a> {
    rows: FatesInOrder,
    /// Every fate from the first to the second must be there.
    from: u64,
    to: u64,
    declared: BTreeMap<u64, Arc<Declarations>>,
    scratch: &'a Scratch,
    compared: u64,
    check: Check,
}

impl<'a> Fates<'a> {
    pub fn new(tables: &Tables, scratch: &'a Scratch) -> Fates<'a> {
        Fates {
            rows: FatesInOrder::new(tables.fates.clone()),
            from: tables.from.unwrap_or(u64::MAX),
            to: tables.reached(Table::Fates),
            declared: tables.declared.clone(),
            scratch,
            compared: 0,
            check: Check::new("fates"),
        }
    }

    /// Holds what a commit says against the rows of its records.
    pub fn commit(&mut self, commit: &Commit) {
        // Of what is before it there are commits no more, or they cannot be read.
        while self.rows.next_before(commit.from.offset).is_some() {}
        let archived = std::iter::from_fn(|| self.rows.next_before(commit.to.offset)).collect();
        let faults = self.rows.take_faults();
        let can_compare = faults.is_empty() && self.from <= commit.from.offset && commit.to.offset <= self.to;
        faults.into_iter().for_each(|fault| self.check.find(of_fault(fault, self.scratch)));
        if can_compare {
            self.compare(commit, archived);
        }
    }

    /// Both are in the order of the log, so what is looked for is the first that is left, if nothing differs.
    fn compare(&mut self, commit: &Commit, mut archived: VecDeque<ArchivedFate>) {
        for exception in &commit.exceptions {
            let told = ArchivedFate {
                offset: exception.offset,
                counter: String::from_utf8_lossy(&exception.counter).into_owned(),
                fate: exception.fate.name().to_owned(),
            };
            self.compared += 1;
            match archived.iter().take_while(|fate| fate.offset <= told.offset).position(|fate| *fate == told) {
                Some(at) => drop(archived.remove(at)),
                None if self.is_kept(&exception.counter) => {
                    self.find(&told, "the commits say so, and the archive does not")
                }
                None => {}
            }
        }
        for fate in archived {
            self.find(&fate, "the archive says so, and the commits do not");
        }
    }

    /// Whether what became of entries of a counter is of interest, whenever it was archived.
    fn is_kept(&self, counter: &[u8]) -> bool {
        let is_kept = |declarations: &Arc<Declarations>| {
            declarations.find(counter).is_none_or(|index| declarations.counter(index).is_archived)
        };
        self.declared.values().all(is_kept)
    }

    fn find(&mut self, fate: &ArchivedFate, who: &str) {
        let ArchivedFate { offset, counter, fate } = fate;
        let what = format!("record {offset} is {fate} for {counter}: {who}");
        let finding = Finding::new(what, Fix::Archive).at_record(*offset);
        self.check.find(Finding { counter: Some(counter.clone()), ..finding });
    }

    pub fn finish(mut self) -> Check {
        self.check.said = format!("{} entries that were not simply counted", self.compared);
        if self.to == 0 && self.check.findings.is_empty() {
            self.check.skipped = Some("there is no archive, or it has not begun".to_owned());
        }
        self.check
    }
}
