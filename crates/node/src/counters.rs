//! The seam between frontends and whatever keeps counters: a frontend holds [`Counters`], and [`local::LocalCounters`] where it
//! lives on the writer's thread, and nothing else of the engine.
//!
//! On one node the engine is behind it. What is asked for is named by ids, cells and positions, never by where it is kept, so that
//! a router that knows the owners of a cluster's keys can answer as well.

mod host;
pub mod local;

pub use crate::engine::{
    AuditPage, AuditQuestion, AuditedRepeat, ClearRequest, Cleared, CommitReader, Commits, CommitsError, Committed,
    Corrected, CorrectionEffects, CorrectionError, CorrectionList, CorrectionRequest, CounterEffect, CounterFacts,
    CounterTotal, Explained, FoundCorrection, HistoryPage, ListedCorrection, MatchedSum, Matching, NodeDurability,
    Page, PartsOf, Place, PreviewPart, Proposed, RETRY_AFTER, Ranking, Reading, Refusal, Said, Seen, SeriesFound,
    SeriesWanted, Snapshot, Terms, TooMuch, TopFound, TopWanted, Total, Transacted, ValuesStanding, Watch, Watched,
    Why,
};
pub use host::Host;

use futures_util::future::BoxFuture;
use std::sync::Arc;
use tally_core::counter::{Declarations, Durability, Target};
use tally_core::database::Space;
use tally_core::fact::Request;
use tally_core::fates::Balance;
use tally_core::id::{CellHasher, CellKey};
use tally_core::ledger::Proposal;
use tally_core::op::Submission;
use tally_core::position::Position;
use tally_core::values::ChangedKey;

/// An answer that takes a while.
pub type Answering<'a, T, E = Refusal> = BoxFuture<'a, Result<T, E>>;

/// Counters, for any thread.
///
/// **What a read sees.** Everything that was acknowledged before it was made, and nothing that may still be lost, unless the owner
/// has chosen less with the durability. All that one call answers sees each correction as a whole or not at all, but for
/// [`Counters::scan`].
///
/// **Errors** are by what to do. [`Refusal::Busy`]: the same again, after a while. [`Refusal::DiskFull`]: the same again, once somebody
/// has made room. [`Refusal::TooLarge`] and [`Refusal::NotAll`]: another request. [`Refusal::ShuttingDown`]: somewhere else, or here after the
/// restart. [`Refusal::LogFailed`], [`Refusal::WorkerFailed`], [`Refusal::StoreFailed`], [`Refusal::ArchiveFailed`]: call
/// the operator. Whether a write happened that met one of these is said at [`Refusal`].
///
/// Futures may be dropped at any time. What was handed over goes on without them.
pub trait Counters: Send + Sync {
    // What is known at once.

    /// The declarations in force: what ids mean and what events feed.
    fn declarations(&self) -> Arc<Declarations>;

    /// How ids become cells. It never changes.
    fn hasher(&self) -> CellHasher;

    /// How durable a write is whose counter does not say.
    fn durability(&self) -> Durability;

    /// Whether writes are taken at all.
    fn health(&self) -> Result<(), Refusal>;

    /// How many counters there are.
    fn count(&self) -> u64;

    /// Everything before this position is in what a read sees. It never goes back.
    fn applied(&self) -> Position;

    /// How a position that somebody holds stands to what is here.
    fn place_of(&self, position: Position) -> Answering<'_, Place>;

    /// Waits until everything before an offset is applied, however long that takes.
    fn wait_for(&self, offset: u64) -> BoxFuture<'_, ()>;

    // Writing and reading by cell.

    /// Commits a submission: all of it or nothing. Answers when it is as durable as it has to be, and applied.
    fn submit(&self, submission: Submission) -> Answering<'_, Committed>;

    /// What readers are told about some counters, one for each cell in their order.
    fn see<'a>(&'a self, cells: &'a [CellKey]) -> Answering<'a, Vec<Seen>>;

    /// Up to `limit` keys of a space behind `after` that begin with `prefix`, in their order and with what they are worth. A walk of
    /// several pages sees every counter that was there all the time, once. Values of one page may be of different generations.
    fn scan(&self, space: Space, prefix: Vec<u8>, after: Option<Vec<u8>>, limit: usize) -> Answering<'_, Page>;

    /// Adds up what reads show of some counters; `None` if there are too many ids to look through.
    fn sum<'a>(&'a self, of: &'a Matching) -> Answering<'a, Option<MatchedSum>>;

    // Lists that are kept up to date, of one counter that is declared or was once; `None` if there never was such a counter.

    /// What all keys of a counter come to.
    fn total<'a>(&'a self, counter: &'a str) -> Answering<'a, Option<CounterTotal>>;

    /// Up to `limit` keys of a counter that are worth most, behind one with its value. If it cannot be said for certain which those
    /// are, the answer says so, and somebody finds out.
    fn greatest<'a>(
        &'a self,
        counter: &'a str,
        behind: Option<(i64, Vec<u8>)>,
        limit: usize,
    ) -> Answering<'a, Option<Ranking>>;

    /// Up to `limit` keys of a counter that changed last, behind one that changed with the record at an offset. There may be
    /// fewer than have changed, and none that changed before one that is missing.
    fn changed_last<'a>(
        &'a self,
        counter: &'a str,
        behind: Option<(u64, Vec<u8>)>,
        limit: usize,
    ) -> Answering<'a, Option<Vec<ChangedKey>>>;

    /// The log time at which each of some counters changed last, where that is remembered.
    fn changed_at_ms(&self, ids: Vec<Vec<u8>>) -> Answering<'_, Vec<Option<u64>>>;

    // Where a number comes from.

    /// Everything about one counter at one moment. With `all_values` the keys of the counter that it belongs to are added up, however
    /// many they are, as of a moment not before the call.
    fn explain<'a>(&'a self, target: &'a Target<'a>, all_values: bool) -> Answering<'a, Explained>;

    /// Adds up the parts of counters, one series or several, also over all keys that match, all as of one moment; or says what there
    /// is too much of.
    fn series(&self, wanted: Vec<SeriesWanted>) -> Answering<'_, Result<Vec<SeriesFound>, TooMuch>>;

    /// The keys of a counter that may have come to most in a stretch of time or for values of a dimension, with what each came to, and a
    /// bound for all others, all as of one moment.
    fn top(&self, wanted: TopWanted) -> Answering<'_, TopFound>;

    /// What corrections have done to a counter: up to `limit` generations below `before`, the newest first.
    fn history<'a>(&'a self, target: &'a Target<'a>, before: u64, limit: usize) -> Answering<'a, HistoryPage>;

    /// The newest generation, and what the one asked for last said about a counter.
    fn said(&self, cell: CellKey, generation: u64) -> Answering<'_, (u64, Said)>;

    /// The boxes of every counter there ever was, as of one position.
    fn balances(&self) -> Answering<'_, (Vec<Balance>, Position)>;

    /// Event ids that came again, the newest first.
    fn duplicates<'a>(&'a self, wanted: &'a AuditQuestion) -> Answering<'a, AuditPage>;

    // Putting the past right. Whatever is asked for under an idempotency key is done once, and answered again as it was then.

    /// Up to `limit` corrections and open proposals with numbers below `before`, the newest first.
    fn corrections(&self, before: u64, limit: usize) -> Answering<'_, CorrectionList>;

    /// The correction or open proposal of a number.
    fn correction(&self, number: u64) -> Answering<'_, Option<FoundCorrection>>;

    /// What a proposal would do now, all values as of one moment; or what a correction did.
    fn preview<'a>(&'a self, found: &'a FoundCorrection, part: &'a PreviewPart) -> Answering<'a, CorrectionEffects>;

    /// Writes a proposal down. Nothing changes until it is applied.
    fn propose(&self, proposal: Proposal, once: Option<Request>) -> Answering<'_, Proposed, CorrectionError>;

    /// Takes a proposal back; `false` if it is not open.
    fn withdraw(&self, number: u64) -> Answering<'_, bool>;

    /// Applies a proposal or reverts a correction. Answers when every reader sees it.
    fn correct(&self, request: CorrectionRequest) -> Answering<'_, Corrected, CorrectionError>;

    /// Brings a declared counter to 0, one key of it or all, by a correction.
    fn clear(&self, request: ClearRequest) -> Answering<'_, Cleared, CorrectionError>;

    // Following.

    /// What the log came to, as commits, each with the position it begins at.
    fn commits(&self) -> &Commits;

    /// Sees to it that commits say what they did to each counter, for as long as commits are kept. Answers from where on they do.
    fn follow(&self) -> Answering<'_, Position>;

    /// Every counter at one position from which commits can be followed. It is held until nobody has asked for it for a while.
    fn snapshot(&self) -> Answering<'_, Arc<Snapshot>>;

    /// A snapshot that is held, by its position; it is in use.
    fn held_snapshot(&self, position: Position) -> Option<Arc<Snapshot>>;

    /// All of a snapshot was told: it may go before others.
    fn told_snapshot(&self, snapshot: &Arc<Snapshot>);
}
