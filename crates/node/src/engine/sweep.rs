//! Counters of databases that were flushed: they are nobody's, and deleted bit by bit.

use super::shared::Shared;
use super::thread::Desk;
use super::{Engine, Refusal, Wanted};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tally_core::database::Space;
use tally_core::op::Submission;
use tally_storage::log::Log;
use tokio::sync::oneshot;

/// How often somebody looks whether there is anything to sweep.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Counters deleted at a time.
const PAGE_NAMES: usize = 1000;

impl<L: Log + 'static> Desk<L> {
    pub(super) async fn sweep_loop(self: Rc<Self>, engine: Engine) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let flushed = self.writer.borrow().state().databases.flushed();
            if let Some(space) = flushed
                && let Err(error) = self.sweep(&engine, space).await
            {
                tracing::debug!(%error, "counters of a flushed database stay for now");
            }
        }
    }

    /// Deletes what is left in a space.
    async fn sweep(&self, engine: &Engine, space: Space) -> Result<(), Refusal> {
        engine.checkpoint(Wanted::NewNames).await?;
        let mut after = None;
        loop {
            let ids = names(self.shared.clone(), space, after).await?;
            let Some(last) = ids.last() else { break };
            after = Some(last.clone());
            let mut submission = Submission::default();
            for id in &ids {
                submission.delete(self.shared.hasher.key(id), id);
            }
            let (reply, answer) = oneshot::channel();
            self.shared.health()?;
            self.stage(&submission, reply).await;
            answer.await.unwrap_or(Err(Refusal::ShuttingDown))?;
        }
        // Whatever was written there since has an entry of its own again.
        self.writer.borrow_mut().state_mut().databases.swept(space);
        Ok(())
    }
}

async fn names(shared: Arc<Shared>, space: Space, after: Option<Vec<u8>>) -> Result<Vec<Vec<u8>>, Refusal> {
    let read = move || shared.store.names(&space.ids_from(b""), after.as_deref(), PAGE_NAMES);
    let names = tokio::task::spawn_blocking(read).await;
    names.map_err(|_| Refusal::ShuttingDown)?.map_err(|error| Refusal::store(&error))
}
