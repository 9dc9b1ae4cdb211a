//! `parts`: what each key is split into, by the roll-ups that are kept of its counter.

use super::moment::{Moment, external};
use super::{BATCH_ROWS, Emit, Prefix, Produce, UTC, arrow, counters, micros, number, text, time};
use arrow_array::builder::{Int64Builder, MapBuilder, StringBuilder, TimestampMicrosecondBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use tally_core::counter::Declarations;
use tally_core::counter::rollup::{Minutes, Unit, bucket_ms};
use tally_core::ledger::parts::block::values_of;
use tally_core::values::KeptRollup;
use tally_node::counters::Snapshot;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let columns = [
        text("id"),
        text("counter"),
        text("rollup"),
        text("unit").with_nullable(true),
        time("bucket").with_nullable(true),
        dimensions(),
        number("value"),
    ];
    Arc::new(Schema::new(columns.to_vec()))
});

/// As the column of the archive's events is.
pub fn dimensions() -> Field {
    let pair = [Field::new("keys", DataType::Utf8, false), Field::new("values", DataType::Utf8, true)];
    let entries = Field::new("entries", DataType::Struct(pair.to_vec().into()), false);
    Field::new("dimensions", DataType::Map(Arc::new(entries), false), false)
}

pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

pub async fn rows(moment: &Arc<Moment>, prefix: Prefix) -> Result<Produce> {
    let (snapshot, declarations) = (moment.snapshot().await?, moment.engine().declarations());
    Ok(Arc::new(move |emit: &mut Emit<'_>| {
        let mut rows = Rows::new();
        let mut pushed = Ok(ControlFlow::Continue(()));
        counters::walk(&snapshot, &prefix, |page| {
            for (id, _) in page {
                pushed = rows.push_all(&snapshot, &declarations, id, emit);
                if !matches!(pushed, Ok(ControlFlow::Continue(()))) {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if pushed?.is_continue() && rows.len() > 0 {
            let _ = emit(rows.take());
        }
        Ok(())
    }))
}

struct Rows {
    ids: StringBuilder,
    counters: StringBuilder,
    rollups: StringBuilder,
    units: StringBuilder,
    buckets: TimestampMicrosecondBuilder,
    dimensions: MapBuilder<StringBuilder, StringBuilder>,
    values: Int64Builder,
}

impl Rows {
    fn new() -> Rows {
        Rows {
            ids: StringBuilder::new(),
            counters: StringBuilder::new(),
            rollups: StringBuilder::new(),
            units: StringBuilder::new(),
            buckets: TimestampMicrosecondBuilder::new().with_timezone(UTC),
            dimensions: MapBuilder::new(None, StringBuilder::new(), StringBuilder::new()),
            values: Int64Builder::new(),
        }
    }

    fn len(&self) -> usize {
        arrow_array::builder::ArrayBuilder::len(&self.values)
    }

    /// All parts of a key. One without dimensions may have millions, so they are handed on in between.
    fn push_all(
        &mut self,
        snapshot: &Snapshot,
        declarations: &Declarations,
        id: &[u8],
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut wanted = ControlFlow::Continue(());
        let Some(counter) = declarations.counter_of(id) else { return Ok(wanted) };
        for kept in declarations.rollups_of(&counter.name) {
            let tell = &mut |unit: Option<Unit>, bucket: Minutes, values: &[u8], sum: i64| {
                if wanted.is_break() {
                    return;
                }
                self.ids.append_value(String::from_utf8_lossy(id));
                self.counters.append_value(&*counter.name);
                self.push_part(kept, unit, bucket, values, sum);
                if self.len() == BATCH_ROWS {
                    wanted = emit(self.take());
                }
            };
            snapshot.parts(id, kept, tell).map_err(external)?;
        }
        Ok(wanted)
    }

    fn push_part(&mut self, kept: &KeptRollup, unit: Option<Unit>, bucket: Minutes, values: &[u8], sum: i64) {
        self.rollups.append_value(kept.rollup.words().collect::<Vec<_>>().join(", "));
        self.units.append_option(unit.map(Unit::name));
        self.buckets.append_option(unit.map(|_| micros(bucket_ms(bucket))));
        for (name, value) in kept.rollup.dimensions.iter().zip(values_of(values)) {
            self.dimensions.keys().append_value(name);
            self.dimensions.values().append_value(String::from_utf8_lossy(value));
        }
        self.dimensions.append(true).expect("there is a value for each name");
        self.values.append_value(sum);
    }

    fn take(&mut self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.ids.finish()),
            Arc::new(self.counters.finish()),
            Arc::new(self.rollups.finish()),
            Arc::new(self.units.finish()),
            Arc::new(self.buckets.finish()),
            Arc::new(self.dimensions.finish()),
            Arc::new(self.values.finish()),
        ];
        RecordBatch::try_new(schema(), columns).map_err(arrow)
    }
}
