//! What one question sees: each table as of one moment, however often the statement names it.

use crate::archive::ArchiveTable;
use crate::live;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tally_archive::{Reader, Table};
use tally_core::position::Position;
use tally_node::counters::Snapshot;
use tally_node::engine::Engine;
use tokio::sync::OnceCell;

/// Where tables come from.
pub struct Source {
    pub engine: Engine,
    pub archive: Option<Reader>,
}

impl Source {
    pub fn new(engine: Engine, archive: Option<PathBuf>) -> Source {
        let archive = archive.map(|root| Reader::of_log(root, engine.log_id()));
        Source { engine, archive }
    }
}

/// The database of one question.
pub struct Scope {
    source: Arc<Source>,
    snapshot: OnceCell<Arc<Snapshot>>,
    archived: Mutex<Option<Position>>,
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

impl Scope {
    /// One that sees counters at a snapshot, or takes one when it is needed.
    pub fn new(source: Arc<Source>, snapshot: Option<Arc<Snapshot>>) -> Scope {
        Scope { source, snapshot: OnceCell::new_with(snapshot), archived: Mutex::default() }
    }

    pub fn engine(&self) -> &Engine {
        &self.source.engine
    }

    /// Every counter at one position.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>> {
        let take = async || self.engine().base().await.map(Arc::new).map_err(external);
        self.snapshot.get_or_try_init(take).await.cloned()
    }

    /// The position of that, if it was needed.
    pub fn live(&self) -> Option<Position> {
        self.snapshot.get().map(|snapshot| snapshot.position())
    }

    /// How far the archive was, if it was needed.
    pub fn archived(&self) -> Option<Position> {
        *self.archived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn archive_table(&self, kind: Table) -> Result<Option<Arc<dyn TableProvider>>> {
        let reader = self.source.archive.as_ref().ok_or_else(|| no_archive(kind))?;
        let Some(readable) = reader.table(kind).await.map_err(external)? else { return Err(no_archive(kind)) };
        let mut archived = self.archived.lock().unwrap_or_else(PoisonError::into_inner);
        // Tables are committed one after the other: all of them are there up to the one that is least far.
        let reached = readable.reached.map(|reached| reached.to).unwrap_or_default();
        *archived = Some(archived.filter(|archived| archived.offset <= reached.offset).unwrap_or(reached));
        Ok(Some(Arc::new(ArchiveTable::new(readable))))
    }
}

fn no_archive(kind: Table) -> DataFusionError {
    let name = kind.name();
    DataFusionError::Plan(format!("there is no table {name}: this server keeps no archive, or has not begun one yet"))
}

pub fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The tables of a question, made when they are named.
#[derive(Debug)]
pub struct Tables(pub Arc<Scope>);

#[async_trait::async_trait]
impl SchemaProvider for Tables {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn table_names(&self) -> Vec<String> {
        let archived = Table::ALL.map(Table::name).into_iter().filter(|_| self.0.source.archive.is_some());
        live::NAMES.into_iter().chain(archived).map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(kind) = Table::ALL.into_iter().find(|kind| kind.name() == name) {
            return self.0.archive_table(kind).await;
        }
        Ok(live::table(&self.0, name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}
