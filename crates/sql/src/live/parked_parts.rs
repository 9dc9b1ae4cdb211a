//! `parked_parts`: what late entries that wait for their run will add to the parts of their keys, as sums by key, bucket and dimensions.

use super::moment::Moment;
use super::{Emit, Produce, UTC, arrow, micros, number, parts, text, time};
use arrow_array::RecordBatch;
use arrow_array::builder::{Int64Builder, MapBuilder, StringBuilder, TimestampMicrosecondBuilder};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use std::sync::{Arc, LazyLock};
use tally_core::counter::Declarations;
use tally_core::fates::ParkedEntry;
use tally_core::ledger::CountedAs;
use tally_core::machine::Machine;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let counter = text("counter").with_nullable(true);
    let columns = [text("id"), counter, time("bucket"), parts::dimensions(), number("delta")];
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
    let mut rows = Rows::new();
    for (_, hour_ms, entry) in state.parked().iter() {
        for (part, sum) in &entry.parts {
            rows.push(declarations, entry, part.time_ms().map_or(hour_ms, |time_ms| time_ms.max(0) as u64), *sum);
            rows.push_dimensions(Some(part));
        }
        // Of a counter that had no parts when they came only the hour is known.
        let unsaid = entry.delta - entry.parts.values().sum::<i64>();
        if unsaid != 0 {
            rows.push(declarations, entry, hour_ms, unsaid);
            rows.push_dimensions(None);
        }
    }
    rows.finish()
}

struct Rows {
    ids: StringBuilder,
    counters: StringBuilder,
    buckets: TimestampMicrosecondBuilder,
    dimensions: MapBuilder<StringBuilder, StringBuilder>,
    deltas: Int64Builder,
}

impl Rows {
    fn new() -> Rows {
        Rows {
            ids: StringBuilder::new(),
            counters: StringBuilder::new(),
            buckets: TimestampMicrosecondBuilder::new().with_timezone(UTC),
            dimensions: MapBuilder::new(None, StringBuilder::new(), StringBuilder::new()),
            deltas: Int64Builder::new(),
        }
    }

    fn push(&mut self, declarations: &Declarations, entry: &ParkedEntry, bucket_ms: u64, delta: i64) {
        self.ids.append_value(String::from_utf8_lossy(&entry.id));
        self.counters.append_option(declarations.counter_of(&entry.id).map(|counter| &*counter.name));
        self.buckets.append_value(micros(bucket_ms));
        self.deltas.append_value(delta);
    }

    fn push_dimensions(&mut self, part: Option<&CountedAs>) {
        for (name, value) in part.into_iter().flat_map(CountedAs::dimensions) {
            self.dimensions.keys().append_value(String::from_utf8_lossy(name));
            self.dimensions.values().append_value(String::from_utf8_lossy(value));
        }
        self.dimensions.append(true).expect("there is a value for each name");
    }

    fn finish(mut self) -> Result<RecordBatch> {
        let columns: Vec<arrow_array::ArrayRef> = vec![
            Arc::new(self.ids.finish()),
            Arc::new(self.counters.finish()),
            Arc::new(self.buckets.finish()),
            Arc::new(self.dimensions.finish()),
            Arc::new(self.deltas.finish()),
        ];
        RecordBatch::try_new(schema(), columns).map_err(arrow)
    }
}
