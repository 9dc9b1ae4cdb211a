//! Why entries were rejected. A commit says only that they were; but what an event says, and what its counters ask for, are both
//! known, and to hold the one against the other is a function of the two ([`Stager`]), as it was when the event came.
//!
//! A flood can have every one of its events rejected, so what is held is a word for each of them.

use std::sync::Arc;
use tally_core::commit::{Commit, NamedException};
use tally_core::counter::{Declarations, Rejection, Stager};
use tally_core::event::Event;
use tally_core::id::CellHasher;
use tally_core::ledger::BoxKind;
use tally_core::op::Submission;

/// What its counter had no objection to.
const NO_ROOM: &str = "the memory of repeats was full";

/// The entries that a commit says were rejected.
pub struct Rejected<'a> {
    commit: &'a Commit,
    /// Why, for each entry that the commit tells of; `None` for those that were not rejected.
    pub reasons: Vec<Option<Arc<str>>>,
    /// What was found last, which many have in common.
    last: Arc<str>,
    /// Of the declarations that are in force.
    stager: Option<Stager>,
    staged: Submission,
}

impl<'a> Rejected<'a> {
    pub fn of(commit: &'a Commit) -> Rejected<'a> {
        let reasons = vec![None; commit.exceptions.len()];
        Rejected { commit, reasons, last: NO_ROOM.into(), stager: None, staged: Submission::default() }
    }

    /// Finds out why an event was rejected, if it was, under the declarations that were in force there.
    pub fn look_at(&mut self, offset: u64, event: &Event<'_>, declarations: &Arc<Declarations>, hasher: CellHasher) {
        let (from, its) = self.commit.exceptions_of(offset);
        let reasons = &mut self.reasons[from..from + its.len()];
        let is_open = |(entry, reason): &(&NamedException, &mut Option<Arc<str>>)| {
            entry.fate == BoxKind::Rejected && reason.is_none()
        };
        if !its.iter().zip(&mut *reasons).any(|entry| is_open(&entry)) {
            return;
        }
        let last = &mut self.last;
        let mut rejected = |_: u16, rejection: Rejection<'_>| {
            let of_counter = |entry: &&NamedException| *entry.counter == *rejection.counter().as_bytes();
            let mut open = its.iter().zip(&mut *reasons).filter(is_open);
            if let Some((_, reason)) = open.find(|(entry, _)| of_counter(entry)) {
                *reason = Some(shared(last, &rejection.to_string()));
            }
        };
        let stager = self.stager.take().filter(|stager| Arc::ptr_eq(stager.declarations(), declarations));
        let mut stager = stager.unwrap_or_else(|| Stager::new(declarations.clone(), hasher));
        stager.stage(event, 0, &mut self.staged, &mut rejected);
        self.staged.clear();
        self.stager = Some(stager);
        for (_, reason) in its.iter().zip(reasons).filter(is_open) {
            *reason = Some(shared(last, NO_ROOM));
        }
    }
}

/// A text, which is there once if it is the same as the last one.
fn shared(last: &mut Arc<str>, text: &str) -> Arc<str> {
    if **last != *text {
        *last = text.into();
    }
    last.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::commit::Digest;
    use tally_core::position::Position;

    const CONFIG: &str = "counters:
  - {counterName: views, mode: display, dimensions: [video], rules: [{on: seen, op: increment}]}
  - {counterName: likes, mode: display, dimensions: [person], rules: [{on: seen, op: increment}]}
  - {counterName: all, mode: display, dimensions: [], rules: [{on: seen, op: increment}]}
";

    fn at(offset: u64) -> Position {
        Position { epoch: 1, log: 0, offset }
    }

    fn told(offset: u64, counter: &str, fate: BoxKind) -> NamedException {
        NamedException { offset, counter: counter.as_bytes().into(), fate }
    }

    fn commit(exceptions: Vec<NamedException>) -> Commit {
        Commit {
            from: at(0),
            to: at(9),
            log_time_ms: 0,
            generation: 1,
            exceptions,
            corrections: vec![],
            rules: 1,
            voids: vec![],
            audit: Default::default(),
            digest: Digest(0),
            deltas: None,
        }
    }

    #[test]
    fn each_entry_that_was_rejected_has_the_reason_of_its_own_counter() {
        let commit = commit(vec![
            told(2, "views", BoxKind::Duplicate),
            told(2, "all", BoxKind::Rejected),
            told(5, "views", BoxKind::Rejected),
            told(5, "likes", BoxKind::Rejected),
            told(7, "likes", BoxKind::Rejected),
        ]);
        let declarations = Arc::new(Declarations::parse(CONFIG).unwrap());
        let mut rejected = Rejected::of(&commit);
        let mut look_at = |offset, dimension: &'static str| {
            let mut event = Event::new("seen", 0);
            event.dimensions.push((dimension.into(), "x".into()));
            rejected.look_at(offset, &event, &declarations, CellHasher::new(1));
        };
        for (offset, dimension) in [(1, "neither"), (2, "video"), (5, "neither"), (7, "video"), (8, "neither")] {
            look_at(offset, dimension);
        }
        let reasons: Vec<&str> = rejected.reasons.iter().map(|reason| reason.as_deref().unwrap_or("-")).collect();
        assert_eq!(reasons[..2], ["-", NO_ROOM], "a repeat has no reason, and the last one has nothing against it");
        assert!(reasons[2].contains("\"video\"") && reasons[3].contains("\"person\""), "{reasons:?}");
        assert_eq!(reasons[3], reasons[4]);
        assert!(Arc::ptr_eq(rejected.reasons[3].as_ref().unwrap(), rejected.reasons[4].as_ref().unwrap()), "held once");
    }
}
