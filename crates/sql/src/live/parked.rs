//! `parked`: late entries that wait for their run, as sums by key and hour.

use super::moment::Moment;
use super::{Emit, Produce, UTC, arrow, micros, number, text, time};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use tally_core::counter::Declarations;
use tally_core::fates::ParkedEntry;
use tally_core::machine::Machine;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let counter = text("counter").with_nullable(true);
    let columns = [text("id"), counter, time("bucket"), number("delta"), number("entries"), time("due")];
    Arc::new(Schema::new(columns.to_vec()))
});

pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

pub async fn rows(moment: &Arc<Moment>) -> Result<Produce> {
    let state = moment.state().await?;
    let rows = batch(&state, &moment.engine().declarations())?;
    Ok(Arc::new(move |emit: &mut Emit<'_>| {
        let _ = emit(Ok(rows.clone()));
        Ok(())
    }))
}

fn batch(state: &Machine, declarations: &Declarations) -> Result<RecordBatch> {
    let parked: Vec<(u64, &ParkedEntry)> = state.parked().iter().map(|(_, bucket, entry)| (bucket, entry)).collect();
    let id = |(_, entry): &(u64, &ParkedEntry)| String::from_utf8_lossy(&entry.id).into_owned();
    let counter =
        |(_, entry): &(u64, &ParkedEntry)| declarations.counter_of(&entry.id).map(|it| Cow::Borrowed(&*it.name));
    let times = |of: fn(&(u64, &ParkedEntry)) -> u64| {
        let times = TimestampMicrosecondArray::from_iter_values(parked.iter().map(|row| micros(of(row))));
        Arc::new(times.with_timezone(UTC)) as ArrayRef
    };
    let numbers =
        |of: fn(&(u64, &ParkedEntry)) -> i64| Arc::new(Int64Array::from_iter_values(parked.iter().map(of))) as ArrayRef;
    let columns = vec![
        Arc::new(StringArray::from_iter_values(parked.iter().map(id))) as ArrayRef,
        Arc::new(StringArray::from_iter(parked.iter().map(counter))),
        times(|(bucket_ms, _)| *bucket_ms),
        numbers(|(_, entry)| entry.delta),
        numbers(|(_, entry)| entry.entries as i64),
        times(|(_, entry)| entry.due_ms),
    ];
    RecordBatch::try_new(schema(), columns).map_err(arrow)
}
