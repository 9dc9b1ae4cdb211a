//! `commits`: what stretches of the log came to, the oldest that is kept first.

use super::moment::{Moment, external};
use super::{BATCH_ROWS, Emit, Number, Produce, UTC, arrow, micros, number, text, time};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use std::sync::{Arc, LazyLock};
use tally_core::commit::Commit;
use tally_node::counters::Commits;

const NUMBERS: [Number<Commit>; 6] = [
    ("from_offset", |commit| commit.from.offset as i64),
    ("to_offset", |commit| commit.to.offset as i64),
    ("generation", |commit| commit.generation as i64),
    ("exceptions", |commit| commit.exceptions.len() as i64),
    ("corrections", |commit| commit.corrections.len() as i64),
    ("voids", |commit| commit.voids.len() as i64),
];

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let columns = [time("log_time")].into_iter().chain(NUMBERS.map(|(name, _)| number(name))).chain([text("digest")]);
    Arc::new(Schema::new(columns.collect::<Vec<_>>()))
});

pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

pub fn rows(moment: &Arc<Moment>) -> Produce {
    let engine = moment.engine().clone();
    Arc::new(move |emit: &mut Emit<'_>| tell(engine.commits(), emit))
}

fn tell(commits: &Commits, emit: &mut Emit<'_>) -> Result<()> {
    let end = commits.end().offset;
    let Some(oldest) = commits.oldest().map_err(external)? else { return Ok(()) };
    let Some((_, mut reader)) = commits.find(oldest.from.offset).map_err(external)? else { return Ok(()) };
    let mut rows = Vec::new();
    while let Some(commit) = reader.read().map_err(external)? {
        let is_last = commit.to.offset >= end;
        rows.push(Row::of(&commit));
        if is_last {
            break;
        }
        if rows.len() == BATCH_ROWS && emit(batch(&std::mem::take(&mut rows))).is_break() {
            return Ok(());
        }
    }
    let _ = emit(batch(&rows));
    Ok(())
}

/// What is told of a commit, which may be large.
struct Row {
    log_time: i64,
    numbers: [i64; NUMBERS.len()],
    digest: String,
}

impl Row {
    fn of(commit: &Commit) -> Row {
        let numbers = NUMBERS.map(|(_, of)| of(commit));
        Row { log_time: micros(commit.log_time_ms), numbers, digest: commit.digest.to_string() }
    }
}

fn batch(rows: &[Row]) -> Result<RecordBatch> {
    let numbers = |index: usize| Int64Array::from_iter_values(rows.iter().map(|row| row.numbers[index]));
    let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.log_time));
    let digests = StringArray::from_iter_values(rows.iter().map(|row| &row.digest));
    let columns = [Arc::new(times.with_timezone(UTC)) as ArrayRef].into_iter();
    let columns = columns.chain((0..NUMBERS.len()).map(|index| Arc::new(numbers(index)) as ArrayRef));
    RecordBatch::try_new(schema(), columns.chain([Arc::new(digests) as ArrayRef]).collect()).map_err(arrow)
}
