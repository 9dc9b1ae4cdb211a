//! `parts`: what each key is split into, by the roll-ups that are kept of its counter; and `filling`: what roll-ups that are being filled have
//! so far, also of counters as a whole.

use super::moment::{Moment, external};
use super::{BATCH_ROWS, Emit, Prefix, Produce, UTC, arrow, counters, micros, number, text, time};
use arrow_array::builder::{Int64Builder, MapBuilder, StringBuilder, TimestampMicrosecondBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use tally_core::counter::Counter;
use tally_core::counter::rollup::{Minutes, Unit, bucket_ms};
use tally_core::id::name_of;
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

/// The roll-ups of each counter.
type RollupsOf = BTreeMap<Box<str>, Vec<KeptRollup>>;

/// Of the roll-ups that there were at that moment: one that was filled since had not everything.
pub async fn rows(moment: &Arc<Moment>, prefix: Prefix) -> Result<Produce> {
    let (snapshot, state) = (moment.snapshot().await?, moment.state().await?);
    let rollups = |counter: &Counter| state.declarations().rollups_of(&counter.name).to_vec();
    let all = state.declarations().counters().iter().map(|counter| (counter.name.clone(), rollups(counter)));
    Ok(produce(snapshot, all.collect(), prefix, Vec::new()))
}

pub async fn filling(moment: &Arc<Moment>, prefix: Prefix) -> Result<Produce> {
    let (snapshot, state) = (moment.snapshot().await?, moment.state().await?);
    let (mut all, mut wholes) = (RollupsOf::new(), Vec::new());
    for counter in state.declarations().counters() {
        let Some(stand_in) = state.values.stand_in(&counter.name) else { continue };
        all.insert(counter.name.clone(), vec![stand_in.clone()]);
        if counter.has_keys() && counter.name.as_bytes().starts_with(&prefix.0) {
            wholes.push(counter.name.as_bytes().to_vec());
        }
    }
    if all.is_empty() {
        return Ok(Arc::new(|_: &mut Emit<'_>| Ok(())));
    }
    Ok(produce(snapshot, all, prefix, wholes))
}

/// The parts of some ids, and of those that begin so.
fn produce(snapshot: Arc<Snapshot>, rollups: RollupsOf, prefix: Prefix, first: Vec<Vec<u8>>) -> Produce {
    Arc::new(move |emit: &mut Emit<'_>| {
        let mut rows = Rows::new();
        let mut pushed = Ok(ControlFlow::Continue(()));
        let mut push = |id: &[u8], rows: &mut Rows| {
            pushed = rows.push_all(&snapshot, &rollups, id, emit);
            if matches!(pushed, Ok(ControlFlow::Continue(()))) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        if first.iter().try_for_each(|id| push(id, &mut rows)).is_continue() {
            counters::walk(&snapshot, &prefix, |page| {
                // Somebody may have counted by a bare name before it was declared.
                let mut others = page.iter().filter(|(id, _)| !first.contains(id));
                others.try_for_each(|(id, _)| push(id, &mut rows))
            })?;
        }
        if pushed?.is_continue() && rows.len() > 0 {
            let _ = emit(rows.take());
        }
        Ok(())
    })
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
        rollups: &RollupsOf,
        id: &[u8],
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut wanted = ControlFlow::Continue(());
        let name = String::from_utf8_lossy(name_of(id));
        for kept in rollups.get(&*name).into_iter().flatten() {
            let tell = &mut |unit: Option<Unit>, bucket: Minutes, values: &[u8], sum: i64| {
                if wanted.is_break() {
                    return;
                }
                self.ids.append_value(String::from_utf8_lossy(id));
                self.counters.append_value(&name);
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
