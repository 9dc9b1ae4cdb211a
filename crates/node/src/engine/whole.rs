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

/// Nothing of the log is freed that a backup has still to read.
pub struct LogHold(Arc<Shared>);

impl LogHold {
    /// Until it is known what is needed, that is everything.
    fn all(shared: &Arc<Shared>) -> LogHold {
        shared.backing_up.store(0, Ordering::Release);
        LogHold(shared.clone())
    }

    fn only_from(&self, offset: u64) {
        self.0.backing_up.store(offset, Ordering::Release);
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.0.backing_up.store(u64::MAX, Ordering::Release);
    }
}

impl Engine {
    /// Takes a checkpoint of everything that is acknowledged now. One caller at a time: there is one place for what it holds.
    pub async fn whole(&self) -> Result<Whole, Refusal> {
        let hold = LogHold::all(&self.shared);
        let acknowledged = self.applied().offset;
        let failed = |error: store::Error| Refusal::store(&error);
        for _ in 0..ATTEMPTS_MAX {
            self.checkpoint(Wanted::Everything).await?;
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
