//! Looks after the log's files: keeps zero-filled segments ahead of the log, so that no commit has to wait for one, and frees
//! those behind it.

use crate::engine::{Engine, Trouble};
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use std::time::Duration;
use tally_core::position::Position;
use tally_storage::log::{LogError, LogHandle};

/// How often the files are looked at.
const EVERY: Duration = Duration::from_millis(50);
const RETRY: Retry = Retry::every(Duration::from_secs(1));

pub struct House<H> {
    log: H,
    engine: Engine,
}

impl<H: LogHandle> House<H> {
    pub fn spec() -> Spec {
        Spec::new("house", "keeps empty segments ahead of the log and frees those that no start would read", RETRY)
    }

    pub fn new(log: H, engine: Engine) -> House<H> {
        House { log, engine }
    }

    /// One round; answers whether another should follow at once.
    pub(crate) fn look_after(&self) -> Result<bool, LogError> {
        let needed_from = Position { offset: self.engine.log_needed_from(), ..self.log.synced_end() };
        self.log.retain_from(needed_from)?;
        if self.engine.is_checkpoint_failing() {
            // Only a checkpoint frees the log, so what room there is belongs to it.
            self.log.give_up_prepared()?;
            return Ok(self.engine.let_backup_lapse());
        }
        let prepared = match self.log.prepare() {
            // Whoever counts goes before whoever copies.
            Err(LogError::Full(_)) if self.engine.let_backup_lapse() => return Ok(true),
            prepared => prepared?,
        };
        // There is a segment to go on with, whether anybody writes at the moment or not.
        self.engine.troubles().clear(Trouble::DiskFull);
        Ok(prepared)
    }
}

impl<H: LogHandle> Work for House<H> {
    async fn work(&mut self, _: &Context) -> Result<Next, WorkFailure> {
        Ok(if self.look_after()? { Next::Again } else { Next::After(EVERY) })
    }
}
