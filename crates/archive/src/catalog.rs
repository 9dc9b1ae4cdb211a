//! Which metadata file of each table is in force: a row in SQLite, in the form that the SQL catalogs of Iceberg's libraries share, so
//! that pyiceberg opens the archive by the catalog's address.
//!
//! There is one writer. It knows the file that it left in force; a row that says anything else was changed by somebody else, and
//! nothing is written any more (ADR 28). Of the catalog's interface there is what a transaction needs.

use crate::ArchiveError;
use crate::disk::Disk;
use crate::times::{made_at, with_times, without_times};
use async_trait::async_trait;
use iceberg::io::{FileIO, FileIOBuilder};
use iceberg::spec::{MAIN_BRANCH, Snapshot, TableMetadata, TableMetadataBuilder};
use iceberg::table::Table;
use iceberg::{
    Catalog, Error, ErrorKind, MetadataLocation, Namespace, NamespaceIdent, Result, Runtime, TableCommit,
    TableCreation, TableIdent,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The catalog's file in the directory of the archive.
pub const FILE: &str = "catalog.sqlite";
/// What the catalog and its namespace are called.
pub const NAME: &str = "tally";
/// Somebody else may be reading the catalog.
const BUSY: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL,
    table_namespace VARCHAR(255) NOT NULL,
    table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000),
    previous_metadata_location VARCHAR(1000),
    iceberg_type VARCHAR(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL,
    namespace VARCHAR(255) NOT NULL,
    property_key VARCHAR(255) NOT NULL,
    property_value VARCHAR(1000) NOT NULL,
    PRIMARY KEY (catalog_name, namespace, property_key));
INSERT OR IGNORE INTO iceberg_namespace_properties VALUES ('tally', 'tally', 'exists', 'true');
";

pub struct SqliteCatalog {
    connection: Mutex<Connection>,
    disk: Disk,
    file_io: FileIO,
    runtime: Runtime,
    /// The metadata file of each table that this writer has left in force.
    left: Mutex<HashMap<String, String>>,
}

impl std::fmt::Debug for SqliteCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteCatalog").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl SqliteCatalog {
    /// Opens the catalog in the directory of an archive, or makes one. Called inside a runtime.
    pub fn open(root: &Path) -> std::result::Result<SqliteCatalog, ArchiveError> {
        let connection = Connection::open(root.join(FILE))?;
        connection.busy_timeout(BUSY)?;
        // With the directory: what is committed here lets the log go, and a journal that comes back would take it back.
        connection.pragma_update(None, "synchronous", "EXTRA")?;
        connection.execute_batch(SCHEMA)?;
        SqliteCatalog::of(connection, root)
    }

    /// The catalog of an archive for who reads it; `None` if none has been made. It writes nothing and waits for no writer, but for one
    /// that is about to commit. Called inside a runtime.
    pub fn view(root: &Path) -> std::result::Result<Option<SqliteCatalog>, ArchiveError> {
        if !root.join(FILE).exists() {
            return Ok(None);
        }
        // What a writer that was killed left half done is taken back by whoever comes first, so it is not opened to read only.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(root.join(FILE), flags)?;
        connection.busy_timeout(BUSY)?;
        let is_made = "SELECT count(*) = 1 FROM sqlite_master WHERE name = 'iceberg_tables'";
        if !connection.query_row(is_made, [], |row| row.get::<_, bool>(0))? {
            return Ok(None);
        }
        SqliteCatalog::of(connection, root).map(Some)
    }

    fn of(connection: Connection, root: &Path) -> std::result::Result<SqliteCatalog, ArchiveError> {
        let disk = Disk::new(root, recorded_root(&connection)?);
        let file_io = FileIOBuilder::new(Arc::new(disk.clone())).build();
        let (connection, left) = (Mutex::new(connection), Mutex::default());
        Ok(SqliteCatalog { connection, disk, file_io, runtime: Runtime::try_current()?, left })
    }

    /// Where a table is, or is to be.
    pub fn directory_of(&self, name: &str) -> PathBuf {
        self.disk.path(&self.location_of(name))
    }

    fn location_of(&self, name: &str) -> String {
        format!("{}/{name}", self.disk.location())
    }

    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// A table as it is: what is written from here on goes on from that.
    pub async fn open_table(&self, name: &str) -> Result<Option<Table>> {
        let Some(in_force) = self.in_force(name)? else { return Ok(None) };
        let metadata = self.read_metadata(&in_force).await?;
        self.left().insert(name.to_owned(), in_force.clone());
        self.table(&ident(name), metadata, in_force).map(Some)
    }

    fn table(&self, ident: &TableIdent, metadata: TableMetadata, at: String) -> Result<Table> {
        Table::builder()
            .identifier(ident.clone())
            .metadata(metadata)
            .metadata_location(at)
            .file_io(self.file_io.clone())
            .runtime(self.runtime.clone())
            .build()
    }

    async fn read_metadata(&self, at: &str) -> Result<TableMetadata> {
        let unread = |error: Error| {
            Error::new(error.kind(), format!("{} cannot be read: {error}", self.disk.path(at).display()))
        };
        TableMetadata::read_from(&self.file_io, at).await.map_err(unread)
    }

    fn timeless(&self, table: &Table) -> Result<Table> {
        self.table(table.identifier(), without_times(table.metadata())?, table.metadata_location_result()?.to_owned())
    }

    fn in_force(&self, name: &str) -> Result<Option<String>> {
        let select = "SELECT metadata_location FROM iceberg_tables
            WHERE catalog_name = ?1 AND table_namespace = ?1 AND table_name = ?2";
        self.connection().query_row(select, params![NAME, name], |row| row.get(0)).optional().map_err(sqlite)
    }

    /// A table with another snapshot of its own, which is what its readers see from here on.
    pub async fn put_snapshot(&self, table: &Table, snapshot: Snapshot) -> Result<Table> {
        let builder = without_times(table.metadata())?.into_builder(None);
        let made = builder.set_branch_snapshot(snapshot, MAIN_BRANCH)?.build()?.metadata;
        self.put_in_force(table, &made).await
    }

    /// The next version of a table, as the library made it of the one before without its times.
    async fn put_in_force(&self, before: &Table, made: &TableMetadata) -> Result<Table> {
        let (ident, left) = (before.identifier(), before.metadata_location_result()?);
        let metadata = with_times(made, before.metadata(), left)?;
        let at = left.parse::<MetadataLocation>()?.with_next_version().with_new_metadata(&metadata);
        metadata.write_to(&self.file_io, &at).await?;
        self.swap(ident.name(), left, &at.to_string())?;
        self.left().insert(ident.name().to_owned(), at.to_string());
        self.table(ident, metadata, at.to_string())
    }

    /// Makes a table, at a time of its writer's.
    pub async fn make_table(&self, mut creation: TableCreation, at_ms: u64) -> Result<Table> {
        let name = creation.name.clone();
        let location = self.location_of(&name);
        creation.location = Some(location.clone());
        let metadata = made_at(&TableMetadataBuilder::from_table_creation(creation)?.build()?.metadata, at_ms)?;
        let at = MetadataLocation::new_with_metadata(location, &metadata);
        metadata.write_to(&self.file_io, &at).await?;
        let insert = "INSERT INTO iceberg_tables VALUES (?1, ?1, ?2, ?3, NULL, 'TABLE')";
        self.connection().execute(insert, params![NAME, name, at.to_string()]).map_err(sqlite)?;
        self.left().insert(name.clone(), at.to_string());
        self.table(&ident(&name), metadata, at.to_string())
    }

    /// A table as this writer left it.
    async fn as_left(&self, name: &str) -> Result<Table> {
        let left = self.left().get(name).cloned();
        let in_force = self.in_force(name)?;
        let (Some(left), Some(in_force)) = (left, in_force) else {
            return Err(Error::new(ErrorKind::TableNotFound, format!("there is no table {name}")));
        };
        if in_force != left {
            return Err(self.fenced(name, &left));
        }
        let metadata = self.read_metadata(&in_force).await?;
        self.table(&ident(name), metadata, in_force)
    }

    /// Puts another metadata file in force, in place of the one that this writer left there.
    fn swap(&self, name: &str, left: &str, next: &str) -> Result<()> {
        let update = "UPDATE iceberg_tables SET metadata_location = ?1, previous_metadata_location = ?2
            WHERE catalog_name = ?3 AND table_namespace = ?3 AND table_name = ?4 AND metadata_location = ?2";
        let changed = self.connection().execute(update, params![next, left, NAME, name]).map_err(sqlite)?;
        if changed == 1 { Ok(()) } else { Err(self.fenced(name, left)) }
    }

    fn fenced(&self, name: &str, left: &str) -> Error {
        let found = self.in_force(name).ok().flatten().unwrap_or_else(|| "nothing".to_owned());
        let fenced = ArchiveError::Fenced { table: name.to_owned(), expected: left.to_owned(), found };
        Error::new(ErrorKind::CatalogCommitConflicts, "the table is another one by now").with_source(fenced)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the file of a catalog is whole, as far as SQLite can tell; in words what is not.
pub fn check(root: &Path) -> std::result::Result<(), ArchiveError> {
    if !root.join(FILE).exists() {
        return Ok(());
    }
    let connection = Connection::open(root.join(FILE))?;
    let found: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(ArchiveError::Damaged(format!("{FILE}: {}", found.replace('\n', " ")))) }
}

/// Where the tables were made: a metadata file is `<root>/<table>/metadata/<file>`.
fn recorded_root(connection: &Connection) -> std::result::Result<Option<String>, ArchiveError> {
    let any = "SELECT metadata_location FROM iceberg_tables LIMIT 1";
    let any: Option<String> = connection.query_row(any, [], |row| row.get(0)).optional()?;
    Ok(any.and_then(|at| at.rsplitn(4, '/').nth(3).map(str::to_owned)))
}

pub fn ident(name: &str) -> TableIdent {
    TableIdent::new(NamespaceIdent::new(NAME.to_owned()), name.to_owned())
}

fn sqlite(error: rusqlite::Error) -> Error {
    Error::new(ErrorKind::Unexpected, format!("the catalog: {error}"))
}

fn not_ours<T>(what: &str) -> Result<T> {
    Err(Error::new(ErrorKind::FeatureUnsupported, format!("the archive's tables are made once: no {what}")))
}

#[async_trait]
impl Catalog for SqliteCatalog {
    /// What a transaction changes: without times, since it takes the wall clock.
    async fn load_table(&self, table: &TableIdent) -> Result<Table> {
        self.timeless(&self.as_left(table.name()).await?)
    }

    async fn create_table(&self, _: &NamespaceIdent, _: TableCreation) -> Result<Table> {
        not_ours("table by a clock that is not the node's")
    }

    async fn update_table(&self, commit: TableCommit) -> Result<Table> {
        let before = self.as_left(commit.identifier().name()).await?;
        let made = commit.apply(self.timeless(&before)?)?;
        self.put_in_force(&before, made.metadata()).await
    }

    async fn table_exists(&self, table: &TableIdent) -> Result<bool> {
        Ok(self.in_force(table.name())?.is_some())
    }

    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> Result<bool> {
        Ok(namespace.as_ref() == &[NAME])
    }

    async fn list_namespaces(&self, _: Option<&NamespaceIdent>) -> Result<Vec<NamespaceIdent>> {
        Ok(vec![NamespaceIdent::new(NAME.to_owned())])
    }

    async fn get_namespace(&self, namespace: &NamespaceIdent) -> Result<Namespace> {
        Ok(Namespace::new(namespace.clone()))
    }

    async fn list_tables(&self, _: &NamespaceIdent) -> Result<Vec<TableIdent>> {
        not_ours("list")
    }

    async fn create_namespace(&self, _: &NamespaceIdent, _: HashMap<String, String>) -> Result<Namespace> {
        not_ours("other namespace")
    }

    async fn update_namespace(&self, _: &NamespaceIdent, _: HashMap<String, String>) -> Result<()> {
        not_ours("other namespace")
    }

    async fn drop_namespace(&self, _: &NamespaceIdent) -> Result<()> {
        not_ours("other namespace")
    }

    async fn drop_table(&self, _: &TableIdent) -> Result<()> {
        not_ours("table is dropped")
    }

    async fn purge_table(&self, _: &TableIdent) -> Result<()> {
        not_ours("table is dropped")
    }

    async fn rename_table(&self, _: &TableIdent, _: &TableIdent) -> Result<()> {
        not_ours("table is renamed")
    }

    async fn register_table(&self, _: &TableIdent, _: String) -> Result<Table> {
        not_ours("table from elsewhere")
    }
}
