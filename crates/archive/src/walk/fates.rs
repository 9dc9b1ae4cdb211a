//! What became of entries, in the order of the log: files of fates do not overlap, so one is read behind the other.

use super::{FileFault, FileRows, first_record};
use crate::read::ReadableFile;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use std::collections::VecDeque;

/// A row of `fates`, as far as it says what became of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchivedFate {
    pub offset: u64,
    pub counter: String,
    pub fate: String,
}

pub struct FatesInOrder {
    /// The one that begins first is the last.
    waiting: Vec<ReadableFile>,
    open: Option<FileRows>,
    rows: VecDeque<ArchivedFate>,
    faults: Vec<FileFault>,
}

impl FatesInOrder {
    pub fn new(mut files: Vec<ReadableFile>) -> FatesInOrder {
        files.sort_by_key(|file| std::cmp::Reverse(first_record(file)));
        FatesInOrder { waiting: files, open: None, rows: VecDeque::new(), faults: Vec::new() }
    }

    /// The next row, if it is of a record before this one.
    pub fn next_before(&mut self, offset: u64) -> Option<ArchivedFate> {
        while self.rows.is_empty() && self.refill() {}
        self.rows.pop_front_if(|row| row.offset < offset)
    }

    /// What was found to be wrong with files since the last time.
    pub fn take_faults(&mut self) -> Vec<FileFault> {
        std::mem::take(&mut self.faults)
    }

    fn refill(&mut self) -> bool {
        let read = match (self.open.take(), self.waiting.pop()) {
            (Some(open), waiting) => {
                self.waiting.extend(waiting);
                Ok(open)
            }
            (None, Some(file)) => FileRows::open(&file),
            (None, None) => return false,
        };
        let read = read.and_then(|mut rows| Ok((rows.next()?, rows)));
        match read {
            Ok((Some(batch), rows)) => {
                self.rows.extend(fates(&batch));
                self.open = Some(rows);
            }
            Ok((None, _)) => {}
            Err(fault) => self.faults.push(fault),
        }
        true
    }
}

fn fates(batch: &RecordBatch) -> Vec<ArchivedFate> {
    let text = |name| batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    let offsets = batch.column_by_name("offset").and_then(|column| column.as_primitive_opt::<Int64Type>());
    let (Some(offsets), Some(counters), Some(fates)) = (offsets, text("counter"), text("fate")) else {
        return Vec::new();
    };
    let fate = |row| ArchivedFate {
        offset: offsets.value(row) as u64,
        counter: counters.value(row).to_owned(),
        fate: fates.value(row).to_owned(),
    };
    (0..batch.num_rows()).map(fate).collect()
}
