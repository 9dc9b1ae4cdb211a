//! What is held of rows at a time, on their way into a file and out of it: by how many there are, and by what they take.

use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::errors::Result;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use std::fs::File;

/// Rows that are handed on to a file at once, or read from it.
pub const BATCH_ROWS: usize = 8192;
/// What they may take, but for the last of them.
pub const BATCH_BYTES: usize = 4 << 20;
/// Rows that are put into one group of a file, and so the most that is held of it.
pub const GROUP_ROWS: usize = 1 << 18;
/// What they may take.
pub const GROUP_BYTES: usize = 32 << 20;

/// How many small files of a table are put together at a time, and what they may come to: nothing else is archived meanwhile. More than an hour
/// brings of them, unless somebody has the archive flushed every few seconds.
pub const MERGED_FILES: usize = 2048;
pub const MERGED_BYTES: u64 = 512 << 20;

/// Manifests that name fewer files are put together once there are so many: every commit lists all of them again.
pub const MANIFEST_FILES: usize = 1000;
pub const SMALL_MANIFESTS: usize = 100;

/// Reads the rows of a file, few at a time where they are large.
pub fn rows_of(file: File) -> Result<ParquetRecordBatchReader> {
    let options = ArrowReaderOptions::new().with_offset_index_policy(PageIndexPolicy::Optional);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)?;
    let rows = batch_rows(builder.metadata());
    builder.with_batch_size(rows).build()
}

/// By what a row takes on average where that is the most.
fn batch_rows(file: &ParquetMetaData) -> usize {
    let row_bytes = |(index, group): (usize, &RowGroupMetaData)| {
        let pages = file.offset_index().and_then(|groups| groups.get(index));
        let texts = pages.into_iter().flatten().map(|column| text_bytes(column, group.num_rows()));
        let encoded = group.total_byte_size() / group.num_rows().max(1);
        encoded.max(texts.fold(0, i64::saturating_add))
    };
    let row_bytes = file.row_groups().iter().enumerate().map(row_bytes).max().unwrap_or(0);
    (BATCH_BYTES / usize::try_from(row_bytes).unwrap_or(0).max(1)).clamp(1, BATCH_ROWS)
}

/// What the text of a row takes once it is read, in that page of its column where it is the most. A file has a text once that is in a
/// dictionary, and whoever reads it in every row.
fn text_bytes(column: &OffsetIndexMetaData, rows: i64) -> i64 {
    let begins = column.page_locations().iter().map(|page| page.first_row_index);
    let ends = begins.clone().skip(1).chain([rows]);
    let pages = column.unencoded_byte_array_data_bytes().into_iter().flatten().zip(begins.zip(ends));
    pages.map(|(bytes, (begin, end))| bytes / end.saturating_sub(begin).max(1)).max().unwrap_or(0)
}
