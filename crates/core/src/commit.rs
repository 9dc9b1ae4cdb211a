//! What a stretch of the log came to: a *commit*, which others can follow, keep and check.
//!
//! A commit is all batches of one slot of log time, under one epoch and one configuration ([`slot`]). It says the fate of every
//! entry that was not simply counted ([`exception`]), the event ids that came again ([`audit`]), the corrections that became visible, the batches that were void, and, if
//! somebody follows, what happened to every counter ([`delta`]). All of it is a function of the log: whoever makes a commit again makes the same
//! bytes ([`codec`], in records [`part`]). Each carries a digest of itself and of the one before it.

mod audit;
mod codec;
mod delta;
mod exception;
mod part;
mod slot;
#[cfg(test)]
mod tests;

pub use audit::{Audit, AuditRow};
pub use codec::{Commit, CounterDeltas, Deltas, Digest, NamedException, ToldCorrection, VoidBatch};
pub use delta::{CounterDelta, Gathering};
pub use exception::{Exception, Subject, exceptions, told_correction};
pub use part::{FOLLOWED_RECORD, Parts, Taken, parts};
pub use slot::{Slot, Slots};
