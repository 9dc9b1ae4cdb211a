//! What a stretch of the log came to: a *commit*, which others can follow, keep and check.
//!
//! A commit is all batches of one slot of log time, under one epoch and one configuration ([`slot`]). It says the fate of every
//! entry that was not simply counted ([`exception`]), the corrections that became visible, the batches that were void, and, if somebody follows, what
//! happened to every counter ([`delta`]). All of it is a function of the log: whoever makes a commit again makes the same
//! bytes ([`codec`]). Each carries a digest of itself and of the one before it.

mod codec;
mod delta;
mod exception;
mod slot;
#[cfg(test)]
mod tests;

pub use codec::{Commit, CounterDeltas, Deltas, Digest, NamedException, ToldCorrection, VoidBatch};
pub use delta::{CounterDelta, Gathering};
pub use exception::{Exception, Subject, exceptions, told_correction};
pub use slot::{Slot, Slots};
