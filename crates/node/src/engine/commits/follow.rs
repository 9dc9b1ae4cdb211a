//! What others see of the commits: how far they are, and reading them.

use super::log::{CommitReading, CommitsError, find, reading};
use super::make::CommitsOptions;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tally_core::commit::Commit;
use tally_core::position::Position;
use tally_storage::log::{LogHandle, LogReader};
use tokio::sync::watch;

/// The commits of a node, for any thread.
pub struct Commits {
    source: Box<dyn CommitSource>,
    options: CommitsOptions,
    /// Behind the last commit that can be read.
    end: watch::Sender<Position>,
    /// Deltas are recorded.
    followed: AtomicBool,
    /// When somebody last followed, by the node's clock.
    followed_ms: AtomicU64,
    /// Somebody waits for those that are made to be published.
    hurried: AtomicBool,
}

/// Reads commits one after the other.
pub struct CommitReader(Box<dyn NextCommit>);

impl CommitReader {
    /// The next commit, or `None` at the end of those that are published; ask again when it has moved.
    pub fn read(&mut self) -> Result<Option<Commit>, CommitsError> {
        self.0.next()
    }

    /// Gives back the memory of what was read, and keeps its place.
    pub fn rest(&mut self) {
        self.0.rest();
    }
}

impl Commits {
    pub(in crate::engine) fn new<H: LogHandle<Reader: 'static>>(
        handle: H,
        options: CommitsOptions,
        end: Position,
        followed: bool,
        now_ms: u64,
    ) -> Commits {
        Commits {
            source: Box::new(handle),
            options,
            end: watch::Sender::new(end),
            followed: AtomicBool::new(followed),
            followed_ms: AtomicU64::new(now_ms),
            hurried: AtomicBool::new(false),
        }
    }

    pub(in crate::engine) fn options(&self) -> CommitsOptions {
        self.options
    }

    /// Whether deltas are recorded.
    pub fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Acquire)
    }

    pub(in crate::engine) fn set_followed(&self, followed: bool) {
        self.followed.store(followed, Ordering::Release);
    }

    /// Somebody follows at this time: deltas go on being recorded for as long as commits are kept.
    pub fn hold(&self, now_ms: u64) {
        self.followed_ms.fetch_max(now_ms, Ordering::AcqRel);
    }

    /// Has those that are made published soon, and not when it is convenient.
    pub fn hurry(&self) {
        self.hurried.store(true, Ordering::Release);
    }

    pub(in crate::engine) fn take_hurry(&self) -> bool {
        self.hurried.swap(false, Ordering::AcqRel)
    }

    /// Whether nobody has followed for so long that nobody could go on where he was.
    pub(in crate::engine) fn is_lapsed(&self, now_ms: u64) -> bool {
        let since_ms = now_ms.saturating_sub(self.followed_ms.load(Ordering::Acquire));
        self.is_followed() && since_ms > self.options.keep.as_millis() as u64
    }

    pub(in crate::engine) fn published(&self, end: Position) {
        self.end.send_if_modified(|known| std::mem::replace(known, end) != end);
    }

    /// Behind the last commit that can be read.
    pub fn end(&self) -> Position {
        *self.end.borrow()
    }

    /// Waits until a commit behind an offset can be read.
    pub async fn wait_behind(&self, offset: u64) {
        // Whoever makes commits is as old as we are.
        let _ = self.end.subscribe().wait_for(|end| end.offset > offset).await;
    }

    /// The oldest commit.
    pub fn oldest(&self) -> Result<Option<Commit>, CommitsError> {
        Ok(self.source.find(0)?.map(|(_, commit)| commit))
    }

    /// The commit that ends behind an offset, and a reader that begins with it; `None` if there is none yet.
    pub fn find(&self, offset: u64) -> Result<Option<(Commit, CommitReader)>, CommitsError> {
        let Some((ordinal, commit)) = self.source.find(offset)? else { return Ok(None) };
        Ok(Some((commit, CommitReader(self.source.reading(ordinal)?))))
    }

    /// The commit that an offset lies in, or that ends there.
    pub fn holding(&self, offset: u64) -> Result<Option<Commit>, CommitsError> {
        let found = self.source.find(offset.saturating_sub(1))?;
        Ok(found.map(|(_, commit)| commit).filter(|commit| commit.from.offset < offset))
    }
}

/// A second log of any kind.
trait CommitSource: Send + Sync {
    fn find(&self, offset: u64) -> Result<Option<(u64, Commit)>, CommitsError>;
    fn reading(&self, ordinal: u64) -> Result<Box<dyn NextCommit>, CommitsError>;
}

impl<H: LogHandle<Reader: 'static>> CommitSource for H {
    fn find(&self, offset: u64) -> Result<Option<(u64, Commit)>, CommitsError> {
        find(self, offset)
    }

    fn reading(&self, ordinal: u64) -> Result<Box<dyn NextCommit>, CommitsError> {
        Ok(Box::new(reading(self, ordinal)?))
    }
}

trait NextCommit: Send {
    fn next(&mut self) -> Result<Option<Commit>, CommitsError>;
    fn rest(&mut self);
}

impl<R: LogReader> NextCommit for CommitReading<R> {
    fn next(&mut self) -> Result<Option<Commit>, CommitsError> {
        CommitReading::next(self)
    }

    fn rest(&mut self) {
        CommitReading::rest(self);
    }
}
