//! The archive for those who only read it: which files a table has as of its last commit.

use crate::catalog::SqliteCatalog;
use crate::disk::Disk;
use crate::schema::{self, Table};
use crate::table::check_owner;
use crate::{ArchiveError, Reached};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::SchemaRef;
use futures_util::TryStreamExt;
use hashbrown::HashMap;
use iceberg::expr::Reference;
use iceberg::spec::{DataFile, Datum, ManifestFile, PrimitiveLiteral, Schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reads the tables of an archive, whoever writes to it meanwhile.
pub struct Reader {
    root: PathBuf,
    /// Whose archive it must be, if somebody knows.
    log_id: Option<u64>,
    /// What manifests name: they never change, and there are many.
    manifests: Mutex<HashMap<String, Arc<[ReadableFile]>>>,
}

/// A table as of its last commit.
pub struct Readable {
    pub schema: SchemaRef,
    pub files: Vec<ReadableFile>,
    /// Every row from before it is in one of these files; `None` if the archive has not begun.
    pub reached: Option<Reached>,
}

/// A file of Parquet. A table may have columns that it has not; they are empty in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadableFile {
    pub path: PathBuf,
    pub bytes: u64,
    pub rows: u64,
    /// The least and the greatest of some columns, as it says.
    pub bounds: Vec<Bounds>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    pub column: Cow<'static, str>,
    pub least: i64,
    pub greatest: i64,
}

/// Columns by which questions leave files out.
const BOUNDED: [&str; 2] = ["offset", "log_time"];

impl Reader {
    /// Reads whatever archive is there.
    pub fn new(root: PathBuf) -> Reader {
        Reader { root, log_id: None, manifests: Mutex::default() }
    }

    /// Reads the archive of a log, and refuses that of another one.
    pub fn of_log(root: PathBuf, log_id: u64) -> Reader {
        Reader { log_id: Some(log_id), ..Reader::new(root) }
    }

    /// A table and the catalog that it is in; `None` if there is none yet.
    async fn open(&self, kind: Table) -> Result<Option<(SqliteCatalog, iceberg::table::Table)>, ArchiveError> {
        let Some(catalog) = SqliteCatalog::view(&self.root)? else { return Ok(None) };
        let Some(table) = catalog.open_table(kind.name()).await? else { return Ok(None) };
        if let Some(log_id) = self.log_id {
            check_owner(&table, log_id)?;
        }
        Ok(Some((catalog, table)))
    }

    /// What a table has now; `None` if there is no archive yet. Called inside a runtime.
    pub async fn table(&self, kind: Table) -> Result<Option<Readable>, ArchiveError> {
        let Some((catalog, table)) = self.open(kind).await? else { return Ok(None) };
        let metadata = table.metadata();
        let reached = Reached::read(metadata.properties()).map_err(ArchiveError::Damaged)?;
        let schema = schema::arrow(metadata.current_schema())?;
        let mut files = Vec::new();
        if let Some(snapshot) = metadata.current_snapshot() {
            let list = table.manifest_list_reader(snapshot).load().await;
            let list = list.map_err(|error| damaged(&catalog.disk().path(snapshot.manifest_list()), &error))?;
            for manifest in list.entries() {
                let named = self.named_by(&table, catalog.disk(), manifest).await?;
                files.extend_from_slice(&named);
            }
        }
        Ok(Some(Readable { schema, files, reached }))
    }

    /// How far a table is; `None` if it has not begun. Called inside a runtime.
    pub async fn reached(&self, kind: Table) -> Result<Option<Reached>, ArchiveError> {
        let Some((_, table)) = self.open(kind).await? else { return Ok(None) };
        Reached::read(table.metadata().properties()).map_err(ArchiveError::Damaged)
    }

    /// The event ids of probes from an offset on, as somebody finds them who opens the directory. Called inside a runtime.
    pub async fn probes(&self, from_offset: u64) -> Result<HashSet<String>, ArchiveError> {
        let Some((_, table)) = self.open(Table::Probes).await? else { return Ok(HashSet::new()) };
        let behind = Reference::new("offset").greater_than_or_equal_to(Datum::long(from_offset as i64));
        let rows = table.scan().select(["event_id"]).with_filter(behind).build()?.to_arrow().await?;
        let rows: Vec<RecordBatch> = rows.try_collect().await?;
        let ids = rows.iter().flat_map(|rows| rows.column(0).as_string::<i32>().iter().flatten().map(str::to_owned));
        Ok(ids.collect())
    }

    async fn named_by(
        &self,
        table: &iceberg::table::Table,
        disk: &Disk,
        manifest: &ManifestFile,
    ) -> Result<Arc<[ReadableFile]>, ArchiveError> {
        if let Some(known) = self.manifests().get(&manifest.manifest_path) {
            return Ok(known.clone());
        }
        let loaded = manifest.load_manifest(table.file_io()).await;
        let loaded = loaded.map_err(|error| damaged(&disk.path(&manifest.manifest_path), &error))?;
        let alive = loaded.entries().iter().filter(|entry| entry.is_alive());
        let columns = table.metadata().current_schema();
        let named: Arc<[_]> = alive.map(|entry| readable(disk, columns, entry.data_file())).collect();
        let mut manifests = self.manifests();
        // A bound, not a policy: whoever is forgotten is read again.
        if manifests.len() >= MANIFESTS_MAX {
            manifests.clear();
        }
        manifests.insert(manifest.manifest_path.clone(), named.clone());
        Ok(named)
    }

    fn manifests(&self) -> MutexGuard<'_, HashMap<String, Arc<[ReadableFile]>>> {
        self.manifests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn damaged(file: &Path, error: &iceberg::Error) -> ArchiveError {
    ArchiveError::Damaged(format!("{} cannot be read: {error}", file.display()))
}

/// Manifests whose files are remembered: those of some months.
const MANIFESTS_MAX: usize = 50_000;

/// As those find it who read it.
pub fn readable(disk: &Disk, columns: &Schema, file: &DataFile) -> ReadableFile {
    let bounds = BOUNDED.into_iter().filter_map(|column| {
        let id = columns.field_by_name(column)?.id;
        let of = |bounds: &std::collections::HashMap<i32, iceberg::spec::Datum>| match bounds.get(&id)?.literal() {
            PrimitiveLiteral::Long(value) => Some(*value),
            _ => None,
        };
        Some(Bounds { column: column.into(), least: of(file.lower_bounds())?, greatest: of(file.upper_bounds())? })
    });
    ReadableFile {
        path: disk.path(file.file_path()),
        bytes: file.file_size_in_bytes(),
        rows: file.record_count(),
        bounds: bounds.collect(),
    }
}
