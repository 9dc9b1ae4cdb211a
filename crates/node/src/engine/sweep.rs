//! Counters of databases that were flushed: they are nobody's, and deleted bit by bit.

use super::shared::Shared;
use super::thread::Desk;
use super::{Engine, Refusal, Wanted};
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
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

const RETRY: Retry = Retry { first: SWEEP_EVERY, most: Duration::from_secs(60) };

pub(super) struct Sweeper<L: Log> {
    desk: Rc<Desk<L>>,
    engine: Engine,
    /// What is being swept, and the last counter that was deleted there.
    under_way: Option<(Space, Option<Vec<u8>>)>,
    deleted: usize,
}

impl<L: Log> Sweeper<L> {
    pub fn spec() -> Spec {
        Spec::new("sweep", "deletes the counters of databases that were flushed", RETRY).vital()
    }

    pub fn new(desk: Rc<Desk<L>>, engine: Engine) -> Sweeper<L> {
        Sweeper { desk, engine, under_way: None, deleted: 0 }
    }
}

impl<L: Log + 'static> Work for Sweeper<L> {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let Some((space, after)) = self.under_way.take() else {
            return self.begin().await;
        };
        let ids = names(&self.desk.shared, space, after.clone()).await;
        let deleted = match ids {
            Ok(ids) => self.delete(&ids).await.map(|()| ids),
            Err(error) => Err(error),
        };
        // What could not be done is done again from where it stood.
        let ids = deleted.inspect_err(|_| self.under_way = Some((space, after)))?;
        match ids.last() {
            Some(last) => self.under_way = Some((space, Some(last.clone()))),
            // Whatever was written there since has an entry of its own again.
            None => self.desk.writer.borrow_mut().state_mut().values.databases.swept(space),
        }
        self.deleted += ids.len();
        context.progress(format!("{} counters deleted", self.deleted));
        Ok(Next::Again)
    }
}

impl<L: Log + 'static> Sweeper<L> {
    /// Looks whether there is anything to sweep.
    async fn begin(&mut self) -> Result<Next, WorkFailure> {
        let flushed = self.desk.writer.borrow().state().values.databases.flushed();
        let Some(space) = flushed else { return Ok(Next::After(SWEEP_EVERY)) };
        self.engine.checkpoint(Wanted::NewNames).await?;
        (self.under_way, self.deleted) = (Some((space, None)), 0);
        Ok(Next::Again)
    }

    async fn delete(&self, ids: &[Vec<u8>]) -> Result<(), Refusal> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut submission = Submission::default();
        for id in ids {
            submission.delete(self.desk.shared.hasher.key(id), id);
        }
        let (reply, answer) = oneshot::channel();
        self.desk.shared.health()?;
        self.desk.stage(&submission, reply).await;
        answer.await.unwrap_or(Err(Refusal::ShuttingDown)).map(|_| ())
    }
}

async fn names(shared: &Arc<Shared>, space: Space, after: Option<Vec<u8>>) -> Result<Vec<Vec<u8>>, Refusal> {
    let store = shared.store.clone();
    let read = move || store.names(&space.ids_from(b""), after.as_deref(), PAGE_NAMES);
    shared.blocking(read).await?.map_err(|error| Refusal::store(&error))
}
