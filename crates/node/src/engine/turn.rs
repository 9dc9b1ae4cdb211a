//! One turn of the loop: *source → what is missing → look it up → apply → effects*.
//!
//! Two feed it: the writer, with what it has just appended, and a start, with what stands behind the cut. Both have looked up what
//! a batch needs ([`super::lookup::find`]), both turn here, and both hand the effects on to whoever makes commits; so what a
//! replay makes of a log is what was made of it when it was new.

use super::commits::{Applied, CommitStep, Recorder};
use tally_core::counter::Declarations;
use tally_core::fates::Void;
use tally_core::machine::Machine;
use tally_core::memory::cell::ValueChanges;
use tally_core::op::{Answer, Batch, Op};
use tally_core::position::Position;

/// A batch of the log.
pub(super) struct Turn<'a> {
    pub batch: Batch<'a>,
    /// Its records; 0 if it is no batch of the log, but questions between two.
    pub count: u32,
    /// The position behind it.
    pub to: Position,
    /// The declarations that it brings, if it is a configuration.
    pub declarations: Option<Declarations>,
}

/// What a batch came to, beside its answers and what readers see.
pub(super) struct Effects {
    pub void: Option<Void>,
    pub outcomes: Outcomes,
    /// The commit that ended before it.
    pub closed: Option<CommitStep>,
    /// What it has changed, if somebody follows.
    pub changes: Option<ValueChanges>,
}

/// What its operations came to, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    pub updates: u64,
    pub duplicate_events: u64,
    /// Some entry was not simply counted.
    pub exceptional: bool,
}

/// Applies a batch of which everything that it needs is known; `answers` gets one per operation.
pub(super) fn turn(state: &mut Machine, recorder: &mut Recorder, turn: Turn<'_>, answers: &mut Vec<Answer>) -> Effects {
    let Turn { batch, count, to, declarations } = turn;
    assert_eq!(state.endings_missing(batch.log_time_ms), None, "memory has what ends up to here");
    let void = match declarations {
        Some(declarations) => configure(state, &batch, declarations, to, answers),
        None => state.apply(&batch, answers),
    };
    let mut outcomes = Outcomes::of(batch.ops, answers);
    if let Some(probe) = state.declarations().probe_counter() {
        outcomes.leave_out(probe, batch.ops, answers);
    }
    if count == 0 {
        return Effects { void, outcomes, closed: None, changes: None };
    }
    let applied = Applied { batch: &batch, count, to, answers, exceptional: outcomes.exceptional, void };
    let (closed, changes) = recorder.applied(state, &applied);
    Effects { void, outcomes, closed, changes }
}

fn configure(
    state: &mut Machine,
    batch: &Batch<'_>,
    declarations: Declarations,
    to: Position,
    answers: &mut Vec<Answer>,
) -> Option<Void> {
    answers.clear();
    let void = state.enter(batch);
    if void.is_none() {
        state.configure(declarations, to.offset);
    }
    void
}

impl Outcomes {
    /// A look at each operation, and two additions.
    fn of(ops: &[Op], answers: &[Answer]) -> Outcomes {
        let (mut outcomes, mut last_record) = (Outcomes::default(), None);
        for (op, answer) in ops.iter().zip(answers) {
            match answer {
                Answer::Counted => outcomes.updates += 1,
                Answer::Value(_) => outcomes.updates += u64::from(op.kind.is_update()),
                Answer::Many { counted, .. } => outcomes.updates += u64::from(*counted),
                Answer::Set { applied, .. } => outcomes.updates += u64::from(*applied),
                // The entries of an event stand side by side.
                Answer::Duplicate => {
                    outcomes.exceptional = true;
                    if last_record != Some(op.record) {
                        outcomes.duplicate_events += 1;
                        last_record = Some(op.record);
                    }
                }
                Answer::Conflict
                | Answer::Overflow
                | Answer::Ignored
                | Answer::Late
                | Answer::Rejected
                | Answer::NoRoom
                | Answer::Repeated(_)
                | Answer::OtherDelta(_)
                | Answer::Full => outcomes.exceptional = true,
                _ => {}
            }
        }
        outcomes
    }

    /// What counts probes is no update of anybody's counter.
    fn leave_out(&mut self, probe: u16, ops: &[Op], answers: &[Answer]) {
        for (_, answer) in ops.iter().zip(answers).filter(|(op, _)| op.counter == probe && op.is_entry()) {
            self.updates -= u64::from(*answer == Answer::Counted);
            self.duplicate_events -= u64::from(*answer == Answer::Duplicate);
        }
    }
}
