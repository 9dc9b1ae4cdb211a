//! The second log: commits one behind the other, each in one record or in several parts (`docs/formats/commits.md`, "On disk").

use tally_core::commit::{Commit, FOLLOWED_RECORD, Parts, Taken, parts};
use tally_core::position::Position;
use tally_core::record::DecodeError;
use tally_storage::log::{Log, LogError, LogHandle, LogReader};

/// Why commits cannot be read, made or kept.
#[derive(Debug, thiserror::Error)]
pub enum CommitsError {
    #[error("the log of commits: {0}")]
    Log(#[from] LogError),
    #[error("the log of commits: record {ordinal} cannot be read: {error}")]
    Unreadable { ordinal: u64, error: DecodeError },
    #[error(
        "the commits in commits/ end at {end}, but the last checkpoint stands at {checkpoint}: some are missing. Restore the data \
         directory from a copy; or remove its directory commits/, and whoever follows begins anew from a snapshot"
    )]
    Missing { end: Position, checkpoint: Position },
    #[error(
        "the commit {from} to {to} comes out otherwise than it was published ({published}, now {now}): the log was changed, or this \
         version of Tally counts differently. Start the version that wrote it; or remove the directory commits/, and whoever \
         follows begins anew from a snapshot"
    )]
    Differs { from: Position, to: Position, published: String, now: String },
    #[error("whoever makes commits has stopped")]
    Stopped,
}

/// The writing end.
pub(in crate::engine) struct CommitLog<L: Log> {
    log: L,
    part: Vec<u8>,
}

impl<L: Log> CommitLog<L> {
    pub fn new(log: L) -> CommitLog<L> {
        CommitLog { log, part: Vec::new() }
    }

    pub fn handle(&self) -> L::Handle {
        self.log.handle()
    }

    /// Appends a commit. On [`LogError::Full`] nothing that a reader takes for a commit was appended.
    pub fn append(&mut self, log_time_ms: u64, commit: &[u8]) -> Result<(), LogError> {
        for (flags, part) in parts(commit, self.log.batch_bytes_max()) {
            self.part.clear();
            self.part.push(flags);
            self.part.extend_from_slice(part);
            self.log.append(log_time_ms, 1, &self.part)?;
        }
        Ok(())
    }

    /// Notes that deltas are recorded from here on.
    pub fn note_followed(&mut self, log_time_ms: u64) -> Result<(), LogError> {
        self.log.append(log_time_ms, 1, FOLLOWED_RECORD).map(drop)
    }

    pub fn sync(&mut self) -> Result<(), LogError> {
        self.log.sync().map(drop)
    }
}

/// Reads commits from some record on.
pub(in crate::engine) struct CommitReading<R> {
    reader: R,
    parts: Parts,
    /// Behind the commit that was read last it says that deltas are recorded.
    followed: bool,
}

impl<R: LogReader> CommitReading<R> {
    pub fn new(reader: R) -> CommitReading<R> {
        CommitReading { reader, parts: Parts::default(), followed: false }
    }

    /// The next commit that begins where this one stands or later; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Commit>, CommitsError> {
        while let Some(batch) = self.reader.next()? {
            match self.parts.take(batch.position.offset, batch.records) {
                Taken::Part => {}
                Taken::Followed => self.followed = true,
                Taken::Commit(commit) => {
                    self.followed = false;
                    let ordinal = self.ordinal();
                    let commit = commit.map_err(|error| CommitsError::Unreadable { ordinal, error })?;
                    return Ok(Some(*commit));
                }
            }
        }
        Ok(None)
    }

    /// Whether it says behind the commit that was read last that deltas are recorded.
    pub fn is_followed(&self) -> bool {
        self.followed
    }

    /// Where the commit that was read last begins.
    pub fn ordinal(&self) -> u64 {
        self.parts.ordinal()
    }

    pub fn rest(&mut self) {
        self.reader.rest();
        self.parts.rest();
    }
}

fn at(ordinal: u64) -> Position {
    Position { offset: ordinal, ..Position::default() }
}

pub(in crate::engine) fn reading<H: LogHandle>(handle: &H, ordinal: u64) -> Result<CommitReading<H::Reader>, LogError> {
    Ok(CommitReading::new(handle.reader(at(ordinal))?))
}

/// The first commit that ends behind an offset of the log, and where it begins in the log of commits; `None` if there is none
/// yet.
pub(in crate::engine) fn find<H: LogHandle>(handle: &H, offset: u64) -> Result<Option<(u64, Commit)>, CommitsError> {
    search(handle, |commit| commit.to.offset > offset)
}

/// The first commit for which something holds, where it holds for all behind it.
pub(in crate::engine) fn search<H: LogHandle>(
    handle: &H,
    holds: impl Fn(&Commit) -> bool,
) -> Result<Option<(u64, Commit)>, CommitsError> {
    let (mut low, mut high) = (handle.start().offset, handle.synced_end().offset);
    let mut found = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let mut reading = reading(handle, middle)?;
        match reading.next()?.filter(|_| reading.ordinal() < high) {
            Some(commit) if holds(&commit) => {
                // It may be the one; look among those before it, down to the record that was asked for.
                high = middle;
                found = Some((reading.ordinal(), commit));
            }
            Some(_) => low = reading.ordinal() + 1,
            // No commit begins from the middle on.
            None => high = middle,
        }
    }
    Ok(found)
}
