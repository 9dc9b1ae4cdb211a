//! What is held of rows at a time, on their way into a file and out of it: by how many there are, and by what they take.

use parquet::file::metadata::ParquetMetaData;

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

/// Rows of a file that are read at a time, by what one of them takes on average.
pub fn batch_rows(file: &ParquetMetaData) -> usize {
    let bytes: i64 = file.row_groups().iter().map(|group| group.total_byte_size()).sum();
    let rows = file.file_metadata().num_rows().max(1);
    let row_bytes = usize::try_from(bytes / rows).unwrap_or(0).max(1);
    (BATCH_BYTES / row_bytes).clamp(1, BATCH_ROWS)
}
