//! The moment at which a question sees counters and the archive, on the node's side.

use datafusion::common::{DataFusionError, Result};
use std::sync::{Arc, Mutex, PoisonError};
use tally_archive::{Readable, Reader, Table};
use tally_core::machine::Machine;
use tally_core::position::Position;
use tally_node::counters::Snapshot;
use tally_node::engine::{Engine, Refusal};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, OwnedSemaphorePermit};

/// Tables that go along with the log. The others say how far it was when something was last put into them, and have all there is.
const GO_ALONG: [Table; 4] = [Table::Events, Table::Fates, Table::Corrections, Table::Chain];

pub struct Moment {
    engine: Engine,
    snapshot: OnceCell<Arc<Snapshot>>,
    state: OnceCell<Arc<Machine>>,
    archive: Option<Arc<Reader>>,
    archived: Mutex<Option<Position>>,
    /// Why a table could not be told, if it could not.
    failed: Mutex<Option<Refusal>>,
    runtime: Handle,
    /// A question has it for as long as anybody works for it.
    _place: OwnedSemaphorePermit,
}

impl Moment {
    /// That of a snapshot, or of one that is taken when it is needed.
    pub fn new(
        engine: Engine,
        snapshot: Option<Arc<Snapshot>>,
        archive: Option<Arc<Reader>>,
        place: OwnedSemaphorePermit,
        runtime: Handle,
    ) -> Moment {
        let (snapshot, archived, failed) = (OnceCell::new_with(snapshot), Mutex::default(), Mutex::default());
        Moment { engine, snapshot, state: OnceCell::new(), archive, archived, failed, runtime, _place: place }
    }

    /// On a thread that may wait.
    pub fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Every counter at one position.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>> {
        let take = async || self.engine.base().await.map(Arc::new).map_err(external);
        self.snapshot.get_or_try_init(take).await.cloned()
    }

    /// The position of that, if it was needed.
    pub fn position(&self) -> Option<Position> {
        self.snapshot.get().map(|snapshot| snapshot.position())
    }

    /// What is known at that position beside counters: read once, however many tables are made of it.
    pub async fn state(&self) -> Result<Arc<Machine>> {
        let read = async || self.snapshot().await?.state().map(Arc::new).map_err(external);
        self.state.get_or_try_init(read).await.cloned()
    }

    /// The files of a table of the archive; `None` if there is no archive yet.
    pub async fn files(&self, kind: Table) -> Result<Option<Readable>> {
        let Some(reader) = &self.archive else { return Ok(None) };
        let Some(readable) = reader.table(kind).await.map_err(external)? else { return Ok(None) };
        if GO_ALONG.contains(&kind) {
            let mut archived = self.archived.lock().unwrap_or_else(PoisonError::into_inner);
            // They are committed one after the other: all of them are there up to the one that is least far.
            let reached = readable.reached.map(|reached| reached.to).unwrap_or_default();
            *archived = Some(archived.filter(|archived| archived.offset <= reached.offset).unwrap_or(reached));
        }
        Ok(Some(readable))
    }

    /// How far the archive was, if it was needed.
    pub fn archived(&self) -> Option<Position> {
        *self.archived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rows are missing: whatever the question comes to is no answer.
    pub fn fail(&self, error: &DataFusionError) {
        let refusal = match error.find_root() {
            DataFusionError::External(inner) => inner.downcast_ref::<Refusal>().cloned(),
            _ => None,
        };
        let refusal = refusal.unwrap_or_else(|| Refusal::StoreFailed(error.strip_backtrace().into()));
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(refusal);
    }

    pub fn failure(&self) -> Option<Refusal> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
