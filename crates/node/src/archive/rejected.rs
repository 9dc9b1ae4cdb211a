//! Why entries were rejected. A commit says only that they were; but what an event says, and what its counters ask for, are both
//! known, and to hold the one against the other is a function of the two ([`Stager`]), as it was when the event came.

use std::collections::BTreeMap;
use std::sync::Arc;
use tally_archive::Reasons;
use tally_core::commit::Commit;
use tally_core::counter::{Declarations, Stager};
use tally_core::event::Event;
use tally_core::id::CellHasher;
use tally_core::ledger::BoxKind;
use tally_core::op::Submission;

/// What its counter had no objection to.
const NO_ROOM: &str = "the memory of repeats was full";

/// The entries that a commit says were rejected.
pub struct Rejected {
    /// The counters that rejected a record.
    by: BTreeMap<u64, Vec<Box<[u8]>>>,
    pub reasons: Reasons,
}

impl Rejected {
    pub fn of(commit: &Commit) -> Rejected {
        let mut by: BTreeMap<u64, Vec<Box<[u8]>>> = BTreeMap::new();
        for exception in commit.exceptions.iter().filter(|exception| exception.fate == BoxKind::Rejected) {
            by.entry(exception.offset).or_default().push(exception.counter.clone());
        }
        Rejected { by, reasons: Reasons::default() }
    }

    /// Finds out why an event was rejected, if it was, under the declarations that were in force there.
    pub fn look_at(&mut self, offset: u64, event: &Event<'_>, declarations: &Arc<Declarations>, hasher: CellHasher) {
        let Some(counters) = self.by.get(&offset) else { return };
        let mut known = Vec::new();
        let mut keep = |_: u16, rejection: tally_core::counter::Rejection<'_>| {
            known.push((Box::from(rejection.counter()), rejection.to_string()));
        };
        Stager::new(declarations.clone(), hasher).stage(event, 0, &mut Submission::default(), &mut keep);
        for counter in counters {
            let name = String::from_utf8_lossy(counter);
            if known.iter().all(|(known, _): &(Box<str>, String)| **known != *name) {
                known.push((name.into(), NO_ROOM.to_owned()));
            }
        }
        known.retain(|(name, _)| counters.iter().any(|counter| **counter == *name.as_bytes()));
        self.reasons.insert(offset, known);
    }
}
