//! Takes whole files out of a table, or puts others with the same rows in their place, as Iceberg's other libraries do it; the one for
//! Rust has nothing of the kind.
//!
//! A snapshot of the kind `delete` or `replace` lists the manifests of the one before. Those that name a file that goes are written again,
//! several as one: what stays in them as existing, what goes as deleted, so that whoever follows the table's snapshots is told of it. The
//! files themselves stay where they are until no snapshot that is kept names them ([`crate::sweep`]).

use crate::bounds::{MANIFEST_FILES, SMALL_MANIFESTS};
use iceberg::spec::{
    DataFile, ManifestEntryRef, ManifestFile, ManifestListWriter, ManifestWriter, ManifestWriterBuilder, Operation,
    Snapshot, SnapshotSummaryCollector, Summary,
};
use iceberg::table::Table;
use iceberg::{Error, ErrorKind, Result};
use std::collections::HashMap;

/// What a snapshot without some files, or with others instead, consists of.
struct Replacement<'a> {
    table: &'a Table,
    snapshot_id: i64,
    /// What its files are called by, which no others are.
    name: String,
    manifests: Vec<ManifestFile>,
    /// What the next manifest is to name.
    stay: Vec<ManifestEntryRef>,
    go: Vec<ManifestEntryRef>,
    written: usize,
    changes: SnapshotSummaryCollector,
    totals: Totals,
}

/// What the summary of a snapshot says of all there is.
#[derive(Default)]
struct Totals {
    files: u64,
    rows: u64,
    bytes: u64,
}

/// Whether so many manifests name few files that they should be put together.
pub async fn has_many_small_manifests(table: &Table) -> Result<bool> {
    let Some(current) = table.metadata().current_snapshot() else { return Ok(false) };
    let list = table.manifest_list_reader(current).load().await?;
    Ok(list.entries().iter().filter(|manifest| is_small(manifest)).count() >= SMALL_MANIFESTS)
}

fn is_small(manifest: &ManifestFile) -> bool {
    let files = [manifest.added_files_count, manifest.existing_files_count].map(Option::unwrap_or_default);
    (files.into_iter().sum::<u32>() as usize) < MANIFEST_FILES
}

/// A snapshot of the table as it is without the files that go, and with those that come instead; `None` if nothing changes.
/// `together` is whether small manifests are put together as well.
pub async fn snapshot_of(
    table: &Table,
    nonce: u64,
    goes: impl Fn(&DataFile) -> bool,
    instead: Vec<DataFile>,
    together: bool,
) -> Result<Option<Snapshot>> {
    let Some(current) = table.metadata().current_snapshot() else { return Ok(None) };
    let snapshot_id = new_id(table, nonce);
    let mut replacement = Replacement {
        table,
        snapshot_id,
        name: format!("{}/metadata/replacement-{snapshot_id}-{nonce:016x}", table.metadata().location()),
        manifests: Vec::new(),
        stay: Vec::new(),
        go: Vec::new(),
        written: 0,
        changes: SnapshotSummaryCollector::default(),
        totals: Totals::default(),
    };
    for manifest in table.manifest_list_reader(current).load().await?.entries() {
        replacement.take(manifest, &goes, together && is_small(manifest)).await?;
    }
    replacement.rewrite().await?;
    if replacement.written == 0 {
        return Ok(None);
    }
    let operation = if instead.is_empty() && !together { Operation::Delete } else { Operation::Replace };
    if !instead.is_empty() {
        replacement.add(instead).await?;
    }
    replacement.finish(current, operation).await.map(Some)
}

impl Replacement<'_> {
    async fn take(
        &mut self,
        manifest: &ManifestFile,
        goes: impl Fn(&DataFile) -> bool,
        is_rewritten: bool,
    ) -> Result<()> {
        let loaded = manifest.load_manifest(self.table.file_io()).await?;
        let alive = loaded.entries().iter().filter(|entry| entry.is_alive());
        let (go, stay): (Vec<_>, Vec<_>) = alive.cloned().partition(|entry| goes(&entry.data_file));
        stay.iter().for_each(|entry| self.totals.add(&entry.data_file));
        if is_rewritten || !go.is_empty() {
            self.stay.extend(stay);
            self.go.extend(go);
            if self.stay.len() + self.go.len() >= MANIFEST_FILES {
                self.rewrite().await?;
            }
        } else if !stay.is_empty() {
            self.manifests.push(manifest.clone());
        }
        // One that has nothing but what went before has been in a snapshot that said so.
        Ok(())
    }

    /// Writes the next manifest, if it would name anything.
    async fn rewrite(&mut self) -> Result<()> {
        let (stay, go) = (std::mem::take(&mut self.stay), std::mem::take(&mut self.go));
        if stay.is_empty() && go.is_empty() {
            return Ok(());
        }
        let metadata = self.table.metadata();
        let (schema, spec) = (metadata.current_schema(), metadata.default_partition_spec());
        let mut manifest = self.new_manifest()?;
        for entry in stay {
            let (from, at) = (known(entry.snapshot_id())?, known(entry.sequence_number())?);
            manifest.add_existing_file(entry.data_file.clone(), from, at, entry.file_sequence_number)?;
        }
        for entry in go {
            let at = known(entry.sequence_number())?;
            manifest.add_delete_file(entry.data_file.clone(), at, entry.file_sequence_number)?;
            self.changes.remove_file(&entry.data_file, schema.clone(), spec.clone());
        }
        self.manifests.push(manifest.write_manifest_file().await?);
        Ok(())
    }

    async fn add(&mut self, files: Vec<DataFile>) -> Result<()> {
        let metadata = self.table.metadata();
        let (schema, spec) = (metadata.current_schema(), metadata.default_partition_spec());
        let mut manifest = self.new_manifest()?;
        for file in files {
            self.totals.add(&file);
            self.changes.add_file(&file, schema.clone(), spec.clone());
            manifest.add_file(file, metadata.next_sequence_number())?;
        }
        self.manifests.push(manifest.write_manifest_file().await?);
        Ok(())
    }

    fn new_manifest(&mut self) -> Result<ManifestWriter> {
        let metadata = self.table.metadata();
        let (schema, spec) = (metadata.current_schema().clone(), metadata.default_partition_spec().as_ref().clone());
        let output = self.table.file_io().new_output(format!("{}-m{}.avro", self.name, self.written))?;
        self.written += 1;
        Ok(ManifestWriterBuilder::new(output, Some(self.snapshot_id), schema, spec).build_v2_data())
    }

    async fn finish(self, current: &Snapshot, operation: Operation) -> Result<Snapshot> {
        let metadata = self.table.metadata();
        let (sequence_number, list_at) = (metadata.next_sequence_number(), format!("{}.avro", self.name));
        let writer = self.table.file_io().new_output(&list_at)?.writer().await?;
        let parent = Some(current.snapshot_id());
        let mut list = ManifestListWriter::v2(writer, self.snapshot_id, parent, sequence_number);
        list.add_manifests(self.manifests.into_iter())?;
        list.close().await?;
        let mut told = self.changes.build();
        told.extend(self.totals.told());
        // As every snapshot of an archive's table: how far it has come.
        let properties = metadata.properties().iter().filter(|(name, _)| name.starts_with("tally."));
        told.extend(properties.map(|(name, value)| (name.clone(), value.clone())));
        Ok(Snapshot::builder()
            .with_snapshot_id(self.snapshot_id)
            .with_parent_snapshot_id(parent)
            .with_sequence_number(sequence_number)
            // Behind what is there, by a clock that is not asked here.
            .with_timestamp_ms(metadata.last_updated_ms() + 1)
            .with_manifest_list(list_at)
            .with_summary(Summary { operation, additional_properties: told })
            .with_schema_id(metadata.current_schema_id())
            .build())
    }
}

impl Totals {
    fn add(&mut self, file: &DataFile) {
        self.files += 1;
        self.rows += file.record_count();
        self.bytes += file.file_size_in_bytes();
    }

    fn told(&self) -> HashMap<String, String> {
        let told = [
            ("total-data-files", self.files),
            ("total-records", self.rows),
            ("total-files-size", self.bytes),
            ("total-delete-files", 0),
            ("total-position-deletes", 0),
            ("total-equality-deletes", 0),
        ];
        told.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
    }
}

/// A number that no snapshot of the table has, and hardly any of another writer will.
fn new_id(table: &Table, nonce: u64) -> i64 {
    let metadata = table.metadata();
    let mixed = nonce ^ (metadata.next_sequence_number() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut id = (mixed >> 1) as i64;
    while metadata.snapshot_by_id(id).is_some() {
        id = (id + 1) & i64::MAX;
    }
    id
}

fn known(number: Option<i64>) -> Result<i64> {
    number.ok_or_else(|| Error::new(ErrorKind::DataInvalid, "a file of a manifest has no snapshot or sequence number"))
}
