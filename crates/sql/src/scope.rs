//! What one question sees: each table as of one moment, however often the statement names it.

use crate::archive::ArchiveTable;
use crate::live;
use crate::wire::Teller;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tally_archive::{Reader, Table};
use tally_core::position::Position;

/// The database of one question.
pub struct Scope {
    /// Who asks the node for rows of what counters say.
    teller: Arc<Teller>,
    archive: Option<Reader>,
    archived: Mutex<Option<Position>>,
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

impl Scope {
    pub fn new(teller: Arc<Teller>, archive: Option<PathBuf>) -> Scope {
        Scope { teller, archive: archive.map(Reader::new), archived: Mutex::default() }
    }

    /// How far the archive was, if it was needed.
    pub fn archived(&self) -> Option<Position> {
        *self.archived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn archive_table(&self, kind: Table) -> Result<Option<Arc<dyn TableProvider>>> {
        let reader = self.archive.as_ref().ok_or_else(|| no_archive(kind))?;
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
        let archived = Table::ALL.map(Table::name).into_iter().filter(|_| self.0.archive.is_some());
        live::NAMES.into_iter().chain(archived).map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(kind) = Table::ALL.into_iter().find(|kind| kind.name() == name) {
            return self.0.archive_table(kind).await;
        }
        Ok(live::table(&self.0.teller, name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}
