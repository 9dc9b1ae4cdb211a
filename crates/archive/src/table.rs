//! One table that is written to: rows go into files of their partition, and a commit makes all of them visible together with how
//! far the table has come.
//!
//! A table's position is a property of it, changed by the commit that brings the rows before it. So whatever happens, a table has
//! exactly the rows before its position: files of a commit that was not made are no part of it.

use crate::bounds::{MERGED_BYTES, MERGED_FILES};
use crate::catalog::SqliteCatalog;
use crate::merge::{Candidates, Group};
use crate::replace;
use crate::schema;
use crate::sweep;
use crate::times::VERSIONS_KEPT;
use crate::{ArchiveError, Reached, Writer};
use arrow_array::RecordBatch;
use iceberg::TableCreation;
use iceberg::spec::{
    DataFile, DataFileFormat, Literal, Operation, PartitionKey, PrimitiveType, Schema, SnapshotRef, Struct,
    TableMetadata, Type,
};
use iceberg::transaction::{AddColumn, ApplyTransactionAction, Transaction};
use iceberg::writer::base_writer::data_file_writer::DataFileWriterBuilder;
use iceberg::writer::file_writer::ParquetWriterBuilder;
use iceberg::writer::file_writer::location_generator::{DefaultFileNameGenerator, DefaultLocationGenerator};
use iceberg::writer::file_writer::rolling_writer::RollingFileWriterBuilder;
use iceberg::writer::partitioning::PartitioningWriter;
use iceberg::writer::partitioning::fanout_writer::FanoutWriter;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Larger files are ended and the next one begun.
const FILE_BYTES: usize = 512 << 20;
/// Snapshots that stay for whoever is reading one.
const SNAPSHOTS_KEPT: usize = 20;

pub type Files =
    FanoutWriter<DataFileWriterBuilder<ParquetWriterBuilder, DefaultLocationGenerator, DefaultFileNameGenerator>>;

pub struct TableWriter {
    kind: schema::Table,
    table: iceberg::table::Table,
    /// Tells its files from those of other writers.
    nonce: u64,
    files: Option<Files>,
    /// Rows in files that no commit has made visible.
    rows: u64,
}

impl TableWriter {
    /// Opens a table, or makes it.
    pub async fn open(
        catalog: &SqliteCatalog,
        kind: schema::Table,
        writer: Writer,
    ) -> Result<TableWriter, ArchiveError> {
        let table = match catalog.open_table(kind.name()).await? {
            Some(table) => table,
            None => create(catalog, kind, writer).await?,
        };
        check_owner(&table, writer.log_id)?;
        let mut opened = TableWriter { kind, table, nonce: writer.nonce, files: None, rows: 0 };
        let missing = kind.missing_texts(opened.schema());
        if !missing.is_empty() {
            opened.add_columns(catalog, &missing).await?;
        }
        Ok(opened)
    }

    /// How far it has come; `None` if it is new.
    pub fn reached(&self) -> Result<Option<Reached>, ArchiveError> {
        Reached::read(self.table.metadata().properties())
            .map_err(|what| ArchiveError::Damaged(format!("the table {}: {what}", self.kind.name())))
    }

    /// What it says of itself.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.table.metadata().properties().get(name).map(String::as_str)
    }

    pub fn kind(&self) -> schema::Table {
        self.kind
    }

    pub fn schema(&self) -> &Schema {
        self.table.metadata().current_schema()
    }

    pub fn table(&self) -> &iceberg::table::Table {
        &self.table
    }

    /// How many rows and files its readers find, as its last snapshot says.
    pub fn visible(&self) -> (u64, u64) {
        let said = self.table.metadata().current_snapshot().map(|snapshot| &snapshot.summary().additional_properties);
        let number = |name| said.and_then(|said| said.get(name)?.parse().ok()).unwrap_or(0);
        (number("total-records"), number("total-data-files"))
    }

    /// Rows that no commit has made visible.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Puts rows of one partition into its file.
    pub async fn write(&mut self, partition: Vec<Literal>, rows: RecordBatch) -> Result<(), ArchiveError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        if self.files.is_none() {
            let from = self.reached()?.map_or("0".to_owned(), |reached| reached.to.to_string());
            self.files = Some(self.new_files(from)?);
        }
        let key = key(self.table.metadata(), Struct::from_iter(partition.into_iter().map(Some)));
        self.rows += rows.num_rows() as u64;
        let files = self.files.as_mut().expect("they were just made");
        Ok(files.write(key, rows).await?)
    }

    /// What was written since the last commit is not to be part of the table. The next sweep removes its files, and others can be called so.
    pub fn discard(&mut self) {
        (self.files, self.rows) = (None, 0);
    }

    /// Files are named by what is in them, or where the table stood before, and by who writes them, so no name comes twice.
    fn new_files(&self, from: String) -> Result<Files, ArchiveError> {
        let metadata = self.table.metadata();
        let by = Some(format!("{:016x}", self.nonce));
        let names = DefaultFileNameGenerator::new(from, by, DataFileFormat::Parquet);
        let parquet = ParquetWriterBuilder::new(self.kind.properties(), metadata.current_schema().clone());
        let locations = DefaultLocationGenerator::new(metadata)?;
        let rolling =
            RollingFileWriterBuilder::new(parquet, FILE_BYTES, self.table.file_io().clone(), locations, names);
        Ok(FanoutWriter::new(DataFileWriterBuilder::new(rolling)))
    }

    /// Makes everything visible that was written, and with it how far that reaches and what else the table says of itself.
    ///
    /// A table that is further stays there: after a crash between the commits of two tables one waits for the other, and what it
    /// has would come twice if it went back.
    pub async fn commit(
        &mut self,
        catalog: &SqliteCatalog,
        to: &Reached,
        said: Option<(&str, String)>,
    ) -> Result<(), ArchiveError> {
        if self.reached()?.is_some_and(|reached| reached.to.offset > to.to.offset) {
            // A base is of whatever the counters had come to: that of an archive that begins again may be before the last one.
            assert!(self.rows == 0 || self.kind == schema::Table::Base, "a table has every row before its position");
            if self.rows == 0 {
                return Ok(());
            }
        }
        let files: Vec<DataFile> = match self.files.take() {
            Some(files) => files.close().await?,
            None => Vec::new(),
        };
        let mut transaction = Transaction::new(&self.table);
        let mut properties = transaction.update_table_properties();
        for (name, value) in to.properties() {
            properties = properties.set(name, value);
        }
        if let Some((name, value)) = said {
            properties = properties.set(name.to_owned(), value);
        }
        transaction = properties.apply(transaction)?;
        if !files.is_empty() {
            // No name comes twice: to look for them in all files there are would cost more with every commit.
            let append = transaction.fast_append().with_check_duplicate(false);
            let append = append.set_snapshot_properties(to.properties().collect()).add_data_files(files);
            transaction = append.apply(transaction)?;
        }
        self.table = transaction.commit(catalog).await?;
        self.rows = 0;
        self.forget_old_snapshots(catalog).await
    }

    /// Takes whole files out of the table; answers whether there were any. What is on its way is none of it.
    pub async fn remove(
        &mut self,
        catalog: &SqliteCatalog,
        goes: impl Fn(&DataFile) -> bool,
    ) -> Result<bool, ArchiveError> {
        self.replace(catalog, goes, Vec::new(), false).await
    }

    async fn replace(
        &mut self,
        catalog: &SqliteCatalog,
        goes: impl Fn(&DataFile) -> bool,
        instead: Vec<DataFile>,
        together: bool,
    ) -> Result<bool, ArchiveError> {
        let snapshot = replace::snapshot_of(&self.table, self.nonce, goes, instead, together).await?;
        let Some(snapshot) = snapshot else { return Ok(false) };
        self.table = catalog.put_snapshot(&self.table, snapshot).await?;
        self.forget_old_snapshots(catalog).await?;
        Ok(true)
    }

    /// Puts small files of an hour together that ended before another one began, until so many were, and manifests that name few files.
    /// Nothing is on its way.
    pub async fn merge_before(&mut self, catalog: &SqliteCatalog, hour: i32) -> Result<(), ArchiveError> {
        assert_eq!(self.rows, 0, "files are put together between two commits");
        let mut candidates = Candidates::new(self.table.metadata(), catalog.disk(), hour);
        self.each_file(|file| candidates.take(file)).await?;
        let (mut merged, mut instead, mut bytes) = (HashSet::new(), Vec::new(), 0);
        for group in candidates.groups() {
            if bytes >= MERGED_BYTES || merged.len() >= MERGED_FILES {
                break;
            }
            match self.merged(&group).await {
                Ok(files) => instead.extend(files),
                // It stays as it is, and verification names it.
                Err(ArchiveError::Damaged(what)) => {
                    tracing::warn!(table = self.kind.name(), what, "files of the archive cannot be put together");
                    continue;
                }
                Err(error) => return Err(error),
            }
            bytes += group.bytes();
            merged.extend(group.locations().map(str::to_owned));
        }
        let together = replace::has_many_small_manifests(&self.table).await?;
        if together || !merged.is_empty() {
            self.replace(catalog, |file| merged.contains(file.file_path()), instead, together).await?;
        }
        Ok(())
    }

    /// The files with the rows of a group.
    async fn merged(&self, group: &Group) -> Result<Vec<DataFile>, ArchiveError> {
        let mut files = self.new_files(group.name())?;
        group.write(self.table.metadata(), &mut files).await?;
        let files = files.close().await?;
        let rows: u64 = files.iter().map(DataFile::record_count).sum();
        assert_eq!(rows, group.rows(), "each file has the rows that its table says, or it is damaged");
        Ok(files)
    }

    /// Looks at the files that its readers find.
    pub async fn each_file(&self, mut each: impl FnMut(&DataFile)) -> Result<(), ArchiveError> {
        let Some(current) = self.table.metadata().current_snapshot() else { return Ok(()) };
        for manifest in self.table.manifest_list_reader(current).load().await?.entries() {
            let loaded = manifest.load_manifest(self.table.file_io()).await?;
            loaded.entries().iter().filter(|entry| entry.is_alive()).for_each(|entry| each(&entry.data_file));
        }
        Ok(())
    }

    /// Forgets all snapshots but the last ones, and those that name files which were taken out since the last
    /// [`Self::forget_before_removal`]: whoever reads such a file has an hour, however many commits are made in it.
    async fn forget_old_snapshots(&mut self, catalog: &SqliteCatalog) -> Result<(), ArchiveError> {
        let snapshots = self.newest_first();
        let removes = |snapshot: &SnapshotRef| snapshot.summary().operation != Operation::Append;
        // Behind the newest ones: of each the one that was made next to it.
        let older = snapshots.windows(2).skip(SNAPSHOTS_KEPT - 1);
        let goes = older.filter(|pair| !removes(&pair[0]) && !removes(&pair[1])).map(|pair| pair[1].snapshot_id());
        let goes: Vec<i64> = goes.collect();
        // Many at once: each time is a version of its own.
        if goes.len() < SNAPSHOTS_KEPT {
            return Ok(());
        }
        self.forget(catalog, goes).await
    }

    fn newest_first(&self) -> Vec<SnapshotRef> {
        let mut snapshots: Vec<_> = self.table.metadata().snapshots().cloned().collect();
        snapshots.sort_by_key(|snapshot| Reverse(snapshot.sequence_number()));
        snapshots
    }

    /// Forgets the snapshots from before the last one that took files out, or put others in their place.
    pub async fn forget_before_removal(&mut self, catalog: &SqliteCatalog) -> Result<(), ArchiveError> {
        let is_later = |snapshot: &SnapshotRef| snapshot.summary().operation == Operation::Append;
        let snapshots = self.newest_first();
        let before = snapshots.iter().skip_while(|snapshot| is_later(snapshot)).skip(1);
        self.forget(catalog, before.map(|snapshot| snapshot.snapshot_id()).collect()).await
    }

    async fn forget(&mut self, catalog: &SqliteCatalog, snapshots: Vec<i64>) -> Result<(), ArchiveError> {
        if snapshots.is_empty() {
            return Ok(());
        }
        let transaction = Transaction::new(&self.table);
        // None by its age.
        let expire = transaction.expire_snapshots().expire_older_than_ms(i64::MIN).expire_snapshot_ids(snapshots);
        self.table = expire.apply(transaction)?.commit(catalog).await?;
        Ok(())
    }

    /// Adds columns for texts. Nothing is written that no commit has made visible.
    pub async fn add_columns(&mut self, catalog: &SqliteCatalog, names: &[String]) -> Result<(), ArchiveError> {
        assert!(self.files.is_none(), "files have the columns that the table had when they were begun");
        let transaction = Transaction::new(&self.table);
        let text = || Type::Primitive(PrimitiveType::String);
        let update = names
            .iter()
            .fold(transaction.update_schema(), |update, name| update.add_column(AddColumn::optional(name, text())));
        self.table = update.apply(transaction)?.commit(catalog).await?;
        Ok(())
    }
}

/// Where rows of a partition are put.
pub fn key(metadata: &TableMetadata, partition: Struct) -> PartitionKey {
    PartitionKey::new(metadata.default_partition_spec().as_ref().clone(), metadata.current_schema().clone(), partition)
}

/// Whose events a table has.
const LOG_ID: &str = "tally.log-id";

/// Refuses a table with the events of another log.
pub fn check_owner(table: &iceberg::table::Table, log_id: u64) -> Result<(), ArchiveError> {
    let (expected, found) = (written(log_id), table.metadata().properties().get(LOG_ID).cloned().unwrap_or_default());
    if found == expected { Ok(()) } else { Err(ArchiveError::Foreign { expected, found }) }
}

fn written(log_id: u64) -> String {
    format!("{log_id:016x}")
}

async fn create(
    catalog: &SqliteCatalog,
    kind: schema::Table,
    writer: Writer,
) -> Result<iceberg::table::Table, ArchiveError> {
    sweep::check_is_free(&catalog.directory_of(kind.name()))?;
    let properties = HashMap::from([
        ("write.metadata.previous-versions-max".to_owned(), VERSIONS_KEPT.to_string()),
        ("write.parquet.compression-codec".to_owned(), "zstd".to_owned()),
        (LOG_ID.to_owned(), written(writer.log_id)),
    ]);
    let creation = TableCreation::builder()
        .name(kind.name().to_owned())
        .schema(kind.schema()?)
        .partition_spec(kind.partitions()?)
        .properties(properties)
        .build();
    Ok(catalog.make_table(creation, writer.now_ms).await?)
}
