//! Which small files are put together, and their rows. A commit every few minutes leaves a dozen files an hour for each stream: of a
//! quarter of a year that would be a hundred thousand of them to open for every question, and most of them short.
//!
//! Only hours that are over are looked at: nothing is added to those any more. And only neighbours are put together, so that files of one
//! partition never overlap. A table without hours, which is that of the roots, has its small files put together again with each two dozen.

use crate::ArchiveError;
use crate::archive::{hour_of_file, least};
use crate::bounds::{MERGED_BYTES, MERGED_FILES};
use crate::disk::Disk;
use crate::read::{ReadableFile, readable};
use crate::schema;
use crate::table::{Files, key};
use crate::walk::{FileFault, FileRows};
use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::SchemaRef;
use iceberg::spec::{DataFile, Struct, TableMetadata};
use iceberg::writer::partitioning::PartitioningWriter;
use std::collections::{BTreeMap, HashMap};

/// Files from this size on stay as they are.
const SMALL_BYTES: u64 = 8 << 20;
/// Fewer files of a table without hours stay as they are: what was put together is written again each time.
const WITHOUT_HOURS_MIN: usize = 24;

/// The files of a table that may be put together, and what stands between them; by partition and their first rows.
pub struct Candidates<'a> {
    metadata: &'a TableMetadata,
    disk: &'a Disk,
    offset: i32,
    before_hour: i32,
    partitions: HashMap<Struct, BTreeMap<i64, Option<Small>>>,
}

struct Small {
    location: String,
    file: ReadableFile,
}

/// Files of one partition that follow each other.
pub struct Group {
    partition: Struct,
    offset: i64,
    files: Vec<Small>,
}

impl<'a> Candidates<'a> {
    /// Of hours that end before another one begins.
    pub fn new(metadata: &'a TableMetadata, disk: &'a Disk, before_hour: i32) -> Candidates<'a> {
        let offset = metadata.current_schema().field_by_name("offset").expect("every table has a place").id;
        Candidates { metadata, disk, offset, before_hour, partitions: HashMap::new() }
    }

    pub fn take(&mut self, file: &DataFile) {
        let is_over = hour_of_file(file).is_none_or(|hour| hour < self.before_hour);
        let Some(offset) = least(file, self.offset).ok().filter(|_| is_over) else { return };
        let small = (file.file_size_in_bytes() < SMALL_BYTES).then(|| Small {
            location: file.file_path().to_owned(),
            file: readable(self.disk, self.metadata.current_schema(), file),
        });
        self.partitions.entry(file.partition().clone()).or_default().insert(offset, small);
    }

    /// What is put together, the oldest first.
    pub fn groups(self) -> Vec<Group> {
        let mut groups = Vec::new();
        for (partition, files) in self.partitions {
            let begin = |offset| Group { partition: partition.clone(), offset, files: Vec::new() };
            let mut group = begin(0);
            for (offset, small) in files {
                if group.is_full() || small.is_none() {
                    groups.push(std::mem::replace(&mut group, begin(0)));
                }
                if group.files.is_empty() {
                    group.offset = offset;
                }
                group.files.extend(small);
            }
            groups.push(group);
        }
        groups.retain(|group| group.files.len() >= group.least());
        groups.sort_by_key(|group| group.offset);
        groups
    }
}

impl Group {
    /// How many files are worth being put together.
    fn least(&self) -> usize {
        if self.partition.fields().is_empty() { WITHOUT_HOURS_MIN } else { 2 }
    }

    fn is_full(&self) -> bool {
        self.files.len() >= MERGED_FILES || self.bytes() >= MERGED_BYTES
    }

    /// No other group that was ever put together has the same: one that begins where another did has more rows.
    pub fn name(&self) -> String {
        format!("merged-{}-{}", self.offset, self.rows())
    }

    /// Where its files are, as the table says.
    pub fn locations(&self) -> impl ExactSizeIterator<Item = &str> {
        self.files.iter().map(|small| &*small.location)
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|small| small.file.bytes).sum()
    }

    pub fn rows(&self) -> u64 {
        self.files.iter().map(|small| small.file.rows).sum()
    }

    /// Puts its rows into a file of their partition. A file that is not what its table says is damage.
    pub async fn write(&self, metadata: &TableMetadata, to: &mut Files) -> Result<(), ArchiveError> {
        let schema = schema::arrow(metadata.current_schema())?;
        for small in &self.files {
            let mut rows = FileRows::open(&small.file).map_err(damaged)?;
            while let Some(batch) = rows.next().map_err(damaged)? {
                to.write(key(metadata, self.partition.clone()), conformed(&batch, &schema)?).await?;
            }
        }
        Ok(())
    }
}

fn damaged(fault: FileFault) -> ArchiveError {
    ArchiveError::Damaged(format!("{}: {}", fault.path.display(), fault.what))
}

/// With the columns that the table has by now: those that were added since are empty.
fn conformed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArchiveError> {
    let column = |field: &arrow_schema::FieldRef| {
        let of_file = batch.column_by_name(field.name()).cloned();
        of_file.unwrap_or_else(|| new_null_array(field.data_type(), batch.num_rows()))
    };
    let columns = schema.fields().iter().map(column).collect();
    RecordBatch::try_new(schema.clone(), columns).map_err(|error| ArchiveError::Damaged(error.to_string()))
}
