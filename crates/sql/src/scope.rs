//! What one question sees: each table as of one moment, however often the statement names it.

use crate::archive::ArchiveTable;
use crate::live;
use crate::wire::{Files, TableRequest, Teller};
use arrow_ipc::reader::StreamReader;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use std::any::Any;
use std::io::{self, BufReader};
use std::sync::Arc;
use tally_archive::Table;
use tally_node::worker::Spawner;

/// The database of one question.
#[derive(Debug)]
pub struct Scope {
    /// Who asks the node for tables.
    teller: Arc<Teller>,
    /// There is an archive.
    has_archive: bool,
}

impl Scope {
    pub fn new(teller: Arc<Teller>, has_archive: bool) -> Scope {
        Scope { teller, has_archive }
    }

    async fn archive_table(&self, kind: Table) -> Result<Arc<dyn TableProvider>> {
        let (teller, request) = (self.teller.clone(), TableRequest { table: kind.name().to_owned(), prefix: vec![] });
        let read = move || -> io::Result<Option<Files>> {
            let from = teller.table(&request)?;
            Ok(serde_json::from_reader(BufReader::new(from))?)
        };
        let files = Spawner::Threads.blocking(read).await.ok_or_else(|| no_archive(kind))??;
        let Files { schema, files } = files.ok_or_else(|| no_archive(kind))?;
        let schema = StreamReader::try_new(&*schema, None)?.schema();
        Ok(Arc::new(ArchiveTable::new(&schema, files)))
    }
}

fn no_archive(kind: Table) -> DataFusionError {
    let name = kind.name();
    DataFusionError::Plan(format!("there is no table {name}: this server keeps no archive, or has not begun one yet"))
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
        let archived = Table::ALL.map(Table::name).into_iter().filter(|_| self.0.has_archive);
        live::NAMES.into_iter().chain(archived).map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(kind) = Table::ALL.into_iter().find(|kind| kind.name() == name) {
            return self.0.archive_table(kind).await.map(Some);
        }
        Ok(live::table(&self.0.teller, name))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.table_names().iter().any(|known| known == name)
    }
}
