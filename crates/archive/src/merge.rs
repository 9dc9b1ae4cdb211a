//! Which small files are put together, and their rows. A commit every few minutes leaves a dozen files an hour for each stream: of a
//! quarter of a year that would be a hundred thousand of them to open for every question, and most of them short.
//!
//! Only hours that are over are looked at: nothing is added to those any more.

use crate::ArchiveError;
use crate::archive::{hour_of_file, least};
use crate::disk::Disk;
use crate::read::readable;
use crate::schema;
use crate::table::{FILE_BYTES, Files, key};
use crate::walk::{FileFault, FileRows};
use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::SchemaRef;
use iceberg::spec::{DataFile, Schema, Struct, TableMetadata};
use iceberg::writer::partitioning::PartitioningWriter;
use std::collections::HashMap;

/// Files from this size on stay as they are.
const SMALL_BYTES: u64 = 32 << 20;

/// Files of one partition, in the order of the log.
pub struct Group {
    pub files: Vec<DataFile>,
    /// Of its first row.
    pub offset: i64,
}

/// What is put together of the files of a table, the oldest hours first.
pub fn groups(files: Vec<DataFile>, schema: &Schema, before_hour: i32) -> Vec<Group> {
    let offset = schema.field_by_name("offset").expect("every table has a place").id;
    let mut partitions = HashMap::<Struct, Vec<(i64, DataFile)>>::new();
    for file in files {
        let is_over = hour_of_file(&file).is_some_and(|hour| hour < before_hour);
        let Ok(first) = least(&file, offset) else { continue };
        if is_over && file.file_size_in_bytes() < SMALL_BYTES {
            partitions.entry(file.partition().clone()).or_default().push((first, file));
        }
    }
    let mut groups: Vec<Group> = partitions.into_values().filter_map(Group::of).collect();
    groups.sort_by_key(|group| group.offset);
    groups
}

impl Group {
    /// `None` if there is nothing to put together.
    fn of(mut files: Vec<(i64, DataFile)>) -> Option<Group> {
        files.sort_by_key(|(offset, _)| *offset);
        let offset = files.first()?.0;
        let mut bytes = 0;
        let fits = files.into_iter().map(|(_, file)| file).take_while(|file| {
            bytes += file.file_size_in_bytes();
            bytes <= FILE_BYTES as u64
        });
        let files: Vec<DataFile> = fits.collect();
        (files.len() > 1).then_some(Group { files, offset })
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(DataFile::file_size_in_bytes).sum()
    }

    pub fn rows(&self) -> u64 {
        self.files.iter().map(DataFile::record_count).sum()
    }

    /// Puts its rows into a file of their partition. A file that is not what its table says is damage.
    pub async fn write(&self, metadata: &TableMetadata, disk: &Disk, to: &mut Files) -> Result<(), ArchiveError> {
        let schema = schema::arrow(metadata.current_schema())?;
        for file in &self.files {
            let mut rows = FileRows::open(&readable(disk, metadata.current_schema(), file)).map_err(damaged)?;
            while let Some(batch) = rows.next().map_err(damaged)? {
                to.write(key(metadata, file.partition().clone()), conformed(&batch, &schema)?).await?;
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
