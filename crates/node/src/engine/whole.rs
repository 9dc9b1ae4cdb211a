//! All that a node is at one position: the store as of a checkpoint, and the part of the log that a start from it reads.

use super::shared::Shared;
use super::snapshot::ATTEMPTS_MAX;
use super::{Engine, Refusal, Wanted};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tally_core::machine::read_from_of;
use tally_storage::store::{self, Checkpoint, Reads};

/// What another node would go on from.
pub struct Whole {
    pub rows: Box<dyn Reads>,
    pub checkpoint: Checkpoint,
    /// The first record of the log that a start from there reads. Up to the checkpoint they are only remembered.
    pub read_from: u64,
    /// To be dropped when the log was read.
    pub hold: LogHold,
}

/// Nothing of the log is freed that a backup has still to read, unless the disk is full: counting goes first.
pub struct LogHold(Arc<Shared>);

/// What [`Shared::backing_up`] says while nothing is held.
const NOTHING: u64 = u64::MAX;

impl LogHold {
    /// Until it is known what is needed, that is everything.
    fn all(shared: &Arc<Shared>) -> LogHold {
        shared.backing_up.store(0, Ordering::Release);
        LogHold(shared.clone())
    }

    /// What is before has been read.
    pub fn only_from(&self, offset: u64) {
        let still = |held: u64| (held != NOTHING).then_some(offset);
        let _ = self.0.backing_up.fetch_update(Ordering::AcqRel, Ordering::Acquire, still);
    }

    /// Nothing is held any more. It may still be there.
    #[cfg(test)]
    pub fn has_lapsed(&self) -> bool {
        self.0.backing_up.load(Ordering::Acquire) == NOTHING
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.0.backing_up.store(NOTHING, Ordering::Release);
    }
}

impl Engine {
    /// There is no room: what only a backup needs of the log may go. Answers whether anything was held for one.
    pub fn let_backup_lapse(&self) -> bool {
        self.shared.backing_up.swap(NOTHING, Ordering::AcqRel) != NOTHING
    }

    /// Takes a checkpoint of everything that is acknowledged now. One caller at a time: there is one place for what it holds.
    pub async fn whole(&self) -> Result<Whole, Refusal> {
        let acknowledged = self.applied().offset;
        let failed = |error: store::Error| Refusal::store(&error);
        for _ in 0..ATTEMPTS_MAX {
            self.checkpoint(Wanted::Everything).await?;
            // From here on: whatever was freed before, a start from what the store has now does not read.
            let hold = LogHold::all(&self.shared);
            let rows = self.shared.store.snapshot().map_err(failed)?;
            let found = rows.checkpoint().map_err(failed)?;
            // A flush in the middle of a checkpoint leaves none.
            let Some(checkpoint) = found.filter(|found| found.position.offset >= acknowledged) else { continue };
            let damaged = |error| failed(store::Error::Damaged(format!("the checkpoint: {error}")));
            let read_from = read_from_of(&checkpoint.state).map_err(damaged)?;
            hold.only_from(read_from);
            return Ok(Whole { rows, checkpoint, read_from, hold });
        }
        Err(Refusal::busy())
    }
}
