//! Rows of several files as one list in the order of the log. Each file is in that order by itself.

use super::Columns;
use crate::ArchiveError;
use crate::bounds::rows_of;
use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use tally_core::proof::Hash;

/// A row as it is in a tree.
#[derive(Clone, Debug)]
pub struct Row<T> {
    /// Where it stands in the log.
    pub offset: u64,
    pub leaf: Hash,
    /// What is held of it, if anything is.
    pub kept: Option<T>,
}

pub struct Merged<T, F> {
    files: Vec<Reading<T>>,
    /// Who is next: an offset and whose it is.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    read: F,
}

struct Reading<T> {
    path: PathBuf,
    batches: Batches,
    rows: VecDeque<Row<T>>,
}

impl<T, F: FnMut(&Columns<'_>) -> Result<Vec<Row<T>>, ArchiveError>> Merged<T, F> {
    pub fn new(files: Vec<&Path>, read: F) -> Result<Merged<T, F>, ArchiveError> {
        let mut merged = Merged { files: Vec::new(), next: BinaryHeap::new(), read };
        for (index, path) in files.into_iter().enumerate() {
            merged.files.push(Reading { path: path.to_owned(), batches: batches(path)?, rows: VecDeque::new() });
            merged.line_up(index)?;
        }
        Ok(merged)
    }

    /// Puts a file in line by its next row.
    fn line_up(&mut self, index: usize) -> Result<(), ArchiveError> {
        let file = &mut self.files[index];
        while file.rows.is_empty() {
            let Some(batch) = file.batches.next() else { return Ok(()) };
            let batch = batch?;
            file.rows = (self.read)(&Columns { batch: &batch, file: &file.path })?.into();
        }
        self.next.push(Reverse((file.rows[0].offset, index)));
        Ok(())
    }

    /// The next row, if it is no further than an offset.
    pub fn next(&mut self, to: u64) -> Result<Option<Row<T>>, ArchiveError> {
        let Some(Reverse((offset, index))) = self.next.peek().copied().filter(|Reverse((offset, _))| *offset <= to)
        else {
            return Ok(None);
        };
        self.next.pop();
        let row = self.files[index].rows.pop_front().expect("a file in line has a row");
        debug_assert_eq!(row.offset, offset);
        self.line_up(index)?;
        Ok(Some(row))
    }

    /// The rows from one offset to before another; those before them are passed over.
    pub fn between(&mut self, from: u64, to: u64) -> Result<Vec<Row<T>>, ArchiveError> {
        let mut rows = Vec::new();
        if to == 0 {
            return Ok(rows);
        }
        while let Some(row) = self.next(to - 1)? {
            if row.offset >= from {
                rows.push(row);
            }
        }
        Ok(rows)
    }
}

/// What a file has, a part at a time. Errors name it.
pub struct Batches {
    reader: ParquetRecordBatchReader,
    path: PathBuf,
}

pub fn batches(path: &Path) -> Result<Batches, ArchiveError> {
    let file = File::open(path).map_err(|error| damaged(path, &error))?;
    let reader = rows_of(file).map_err(|error| damaged(path, &error))?;
    Ok(Batches { reader, path: path.to_owned() })
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next()?;
        Some(batch.map_err(|error| damaged(&self.path, &error)))
    }
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> ArchiveError {
    ArchiveError::Damaged(format!("the file {} cannot be read: {error}", path.display()))
}
