//! Rows of an archive for who looks whether they are what they should be: each file to its end, and events in the order of the log.
//!
//! Files are read a batch of rows at a time, and only those whose offsets overlap are open together: memory does not grow with the archive.

mod fates;

pub use fates::{ArchivedFate, FatesInOrder};

use crate::ArchiveError;
use crate::bounds::rows_of;
use crate::read::{Bounds, ReadableFile};
use crate::rows::{ArchivedEvent, EventBatch};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use std::borrow::Cow;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// A file that is not what its table says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    pub path: PathBuf,
    pub what: String,
    /// The records whose rows cannot be read for it.
    pub unread: Option<RangeInclusive<u64>>,
}

/// The rows of a file, and what they came to so far.
pub struct FileRows {
    file: ReadableFile,
    reader: ParquetRecordBatchReader,
    rows: u64,
    bounds: Vec<Bounds>,
}

impl FileRows {
    pub fn open(file: &ReadableFile) -> Result<FileRows, FileFault> {
        let fault = |what: String| FileFault { path: file.path.clone(), what, unread: file.records() };
        let opened = File::open(&file.path).map_err(|error| fault(format!("it cannot be opened: {error}")))?;
        let bytes = opened.metadata().map_or(0, |metadata| metadata.len());
        if bytes != file.bytes {
            return Err(fault(format!("it has {bytes} bytes, and its table says {}", file.bytes)));
        }
        let reader = rows_of(opened).map_err(|error| fault(format!("it is no file of Parquet any more: {error}")))?;
        Ok(FileRows { file: file.clone(), reader, rows: 0, bounds: Vec::new() })
    }

    /// The next rows; at the end it is looked whether all of them are what the table says.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, FileFault> {
        match self.reader.next() {
            Some(Ok(batch)) => {
                self.rows += batch.num_rows() as u64;
                for bounds in &self.file.bounds {
                    widen(&mut self.bounds, &bounds.column, &batch);
                }
                Ok(Some(batch))
            }
            Some(Err(error)) => {
                Err(self.fault(format!("row {} and those behind it cannot be read: {error}", self.rows)))
            }
            None => self.compare().map(|()| None),
        }
    }

    fn compare(&self) -> Result<(), FileFault> {
        let fault = |what| FileFault { unread: None, ..self.fault(what) };
        if self.rows != self.file.rows {
            return Err(fault(format!("it has {} rows, and its table says {}", self.rows, self.file.rows)));
        }
        for told in &self.file.bounds {
            let found = self.bounds.iter().find(|found| found.column == told.column);
            if found != Some(told) {
                let found = found.map_or("none".to_owned(), |found| format!("{} to {}", found.least, found.greatest));
                let (column, least, greatest) = (&told.column, told.least, told.greatest);
                return Err(fault(format!(
                    "its rows have a {column} of {found}, and its table says {least} to {greatest}"
                )));
            }
        }
        Ok(())
    }

    fn fault(&self, what: String) -> FileFault {
        FileFault { path: self.file.path.clone(), what, unread: self.file.records() }
    }
}

impl ReadableFile {
    /// The records that its rows are from, as its table says.
    fn records(&self) -> Option<RangeInclusive<u64>> {
        let bounds = self.bounds.iter().find(|bounds| bounds.column == "offset")?;
        Some(bounds.least as u64..=bounds.greatest as u64)
    }
}

fn widen(bounds: &mut Vec<Bounds>, column: &str, batch: &RecordBatch) {
    let Some(values) = batch.column_by_name(column) else { return };
    let range = |values: &mut dyn Iterator<Item = i64>| {
        values.fold(None, |range: Option<(i64, i64)>, value| {
            Some(range.map_or((value, value), |(least, greatest)| (least.min(value), greatest.max(value))))
        })
    };
    let range = match values.as_primitive_opt::<Int64Type>() {
        Some(values) => range(&mut values.iter().flatten()),
        None => {
            values.as_primitive_opt::<TimestampMicrosecondType>().and_then(|values| range(&mut values.iter().flatten()))
        }
    };
    let Some((least, greatest)) = range else { return };
    match bounds.iter_mut().find(|bounds| bounds.column == column) {
        Some(known) => (known.least, known.greatest) = (known.least.min(least), known.greatest.max(greatest)),
        None => bounds.push(Bounds { column: Cow::Owned(column.to_owned()), least, greatest }),
    }
}

/// Reads a file to its end; answers how many rows it has.
pub fn look_through(file: &ReadableFile) -> Result<u64, FileFault> {
    let mut rows = FileRows::open(file)?;
    while rows.next()?.is_some() {}
    Ok(rows.rows)
}

/// The configurations in the files of their table: version and text.
pub fn configurations(files: &[ReadableFile]) -> Result<Vec<(u64, String)>, FileFault> {
    let mut found = Vec::new();
    for file in files {
        let mut rows = FileRows::open(file)?;
        while let Some(batch) = rows.next()? {
            let (Some(versions), Some(texts)) = (batch.column_by_name("version"), batch.column_by_name("yaml")) else {
                continue;
            };
            let versions = versions.as_primitive_opt::<Int64Type>().into_iter().flatten();
            let texts = texts.as_string_opt::<i32>().into_iter().flatten();
            found.extend(versions.zip(texts).filter_map(|(v, text)| Some((v? as u64, text?.to_owned()))));
        }
    }
    found.sort();
    Ok(found)
}

/// All events of an archive in the order of the log, as far as its files have them in that order.
pub struct EventsInOrder {
    /// The one that begins first is the last.
    waiting: Vec<ReadableFile>,
    open: Vec<OpenFile>,
    /// Which of those has the next row.
    next: Option<usize>,
    faults: Vec<FileFault>,
}

struct OpenFile {
    rows: FileRows,
    batch: EventBatch,
    row: usize,
}

impl EventsInOrder {
    pub fn new(mut files: Vec<ReadableFile>) -> EventsInOrder {
        files.sort_by_key(|file| std::cmp::Reverse(first_record(file)));
        EventsInOrder { waiting: files, open: Vec::new(), next: None, faults: Vec::new() }
    }

    /// The record that the next row is from; `None` behind the last one.
    pub fn peek(&mut self) -> Option<u64> {
        if self.next.is_none() {
            self.choose();
        }
        self.next.map(|next| self.open[next].offset())
    }

    /// The next row; [`Self::pass`] goes on behind it.
    pub fn get(&mut self) -> Option<ArchivedEvent<'_>> {
        self.peek()?;
        let open = &self.open[self.next?];
        Some(open.batch.get(open.row))
    }

    /// The file that the next row is in.
    pub fn file(&self) -> Option<&PathBuf> {
        Some(&self.open[self.next?].rows.file.path)
    }

    pub fn pass(&mut self) {
        let Some(next) = self.next.take() else { return };
        self.open[next].row += 1;
        if self.open[next].row == self.open[next].batch.len() && !self.refill(next) {
            self.open.swap_remove(next);
        }
    }

    /// What was found to be wrong with files since the last time.
    pub fn take_faults(&mut self) -> Vec<FileFault> {
        std::mem::take(&mut self.faults)
    }

    fn choose(&mut self) {
        loop {
            let least = (0..self.open.len()).min_by_key(|at| self.open[*at].offset());
            let until = least.map_or(u64::MAX, |at| self.open[at].offset());
            match self.waiting.pop_if(|file| first_record(file) <= until) {
                Some(file) => self.begin(&file),
                None => {
                    self.next = least;
                    return;
                }
            }
        }
    }

    fn begin(&mut self, file: &ReadableFile) {
        let opened = FileRows::open(file).and_then(|mut rows| Ok((next_batch(&mut rows)?, rows)));
        match opened {
            Ok((Some(batch), rows)) => self.open.push(OpenFile { rows, batch, row: 0 }),
            Ok((None, _)) => {}
            Err(fault) => self.faults.push(fault),
        }
    }

    fn refill(&mut self, at: usize) -> bool {
        let open = &mut self.open[at];
        match next_batch(&mut open.rows) {
            Ok(Some(batch)) => {
                (open.batch, open.row) = (batch, 0);
                true
            }
            Ok(None) => false,
            Err(fault) => {
                let reached = open.offset_of(open.row - 1);
                let unread = fault.unread.map(|unread| reached + 1..=*unread.end());
                self.faults.push(FileFault { unread, ..fault });
                false
            }
        }
    }
}

impl OpenFile {
    fn offset(&self) -> u64 {
        self.offset_of(self.row)
    }

    fn offset_of(&self, row: usize) -> u64 {
        self.batch.offset(row)
    }
}

fn next_batch(rows: &mut FileRows) -> Result<Option<EventBatch>, FileFault> {
    while let Some(batch) = rows.next()? {
        if batch.num_rows() > 0 {
            let batch = EventBatch::new(&batch).map_err(|error: ArchiveError| rows.fault(error.to_string()))?;
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

/// A file that does not say where it begins comes first.
fn first_record(file: &ReadableFile) -> u64 {
    file.records().map_or(0, |records| *records.start())
}
