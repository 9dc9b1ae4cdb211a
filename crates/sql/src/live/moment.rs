//! The moment at which a question sees counters, on the node's side.

use datafusion::common::{DataFusionError, Result};
use std::sync::{Arc, Mutex, PoisonError};
use tally_core::position::Position;
use tally_node::counters::Snapshot;
use tally_node::engine::{Engine, Refusal};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

pub struct Moment {
    engine: Engine,
    snapshot: OnceCell<Arc<Snapshot>>,
    /// Why rows could not be told, if they could not.
    failed: Mutex<Option<Refusal>>,
    runtime: Handle,
}

impl Moment {
    /// That of a snapshot, or of one that is taken when it is needed.
    pub fn new(engine: Engine, snapshot: Option<Arc<Snapshot>>, runtime: Handle) -> Moment {
        Moment { engine, snapshot: OnceCell::new_with(snapshot), failed: Mutex::default(), runtime }
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
