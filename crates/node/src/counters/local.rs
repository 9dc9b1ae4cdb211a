//! The same seam on the writer's thread, where connections stage and commit without a queue between.
//!
//! Here a call may stand for one command, so whoever makes them is generic over the trait. What is asked for seldom is apart, in
//! [`Keyspace`], which can be held as an object.

use super::{Counters, Host, Refusal, Terms, Transacted, Watch, Watched};
use std::rc::Rc;
use std::sync::Arc;
use tally_core::database::{DATABASES, Space};
use tally_core::id::CellKey;
use tally_core::op::{Answer, Op, Submission};
use tally_core::position::Position;

/// Counters, on the thread that they are committed on. Clones are the same.
pub trait LocalCounters: Clone + 'static {
    /// The same for any thread.
    fn counters(&self) -> Arc<dyn Counters>;

    fn host(&self) -> Host;

    fn keyspace(&self) -> Rc<dyn Keyspace>;

    /// Answers reads from memory, one answer per operation; `false` if memory does not know all of it, and then they have to be
    /// submitted. The caller must have no uncommitted write of its own.
    fn read(&self, ops: &[Op], answers: &mut Vec<Answer>) -> bool;

    /// Commits `submission`, which is empty afterwards, and replaces `answers` with one answer per operation. Reads in it see all
    /// that stands before them.
    fn submit(
        &self,
        submission: &mut Submission,
        answers: &mut Vec<Answer>,
    ) -> impl Future<Output = Result<Position, Refusal>>;

    /// The same for a transaction: nobody sees a part of it, and nothing of it happens unless its terms hold where it stands
    /// in the log.
    fn transact(
        &self,
        submission: &mut Submission,
        answers: &mut Vec<Answer>,
        terms: &Terms<'_>,
    ) -> impl Future<Output = Result<Transacted, Refusal>>;

    /// Notes from now on whether a counter changes.
    fn watch(&self, watched: Watched<'_>) -> impl Future<Output = Result<Watch, Refusal>>;
}

/// The databases of the Redis protocol, and what is watched in them. All of it is answered at once.
pub trait Keyspace {
    /// Which space each database stands on.
    fn spaces(&self) -> [Space; DATABASES];

    /// A space for the next flush, which nobody else gets.
    fn draw_space(&self) -> Space;

    /// How many counters a database has.
    fn size(&self, database: usize) -> u64;

    /// Whether all counters there are are in database 0.
    fn only_main(&self) -> bool;

    /// A number that changes whenever a counter comes or goes.
    fn changes(&self) -> u64;

    /// The cells that are watched, which are those of other counters after a flush.
    fn watched(&self, watches: &[Watch]) -> Vec<CellKey>;

    /// It does not matter any more what becomes of them.
    fn unwatch(&self, watches: &[Watch]);
}
