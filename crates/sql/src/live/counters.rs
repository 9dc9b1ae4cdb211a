//! `counters`: a row for each counter of database 0.

use super::moment::{Moment, external};
use super::{BATCH_ROWS, Emit, Prefix, Produce, arrow, number, text};
use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use std::sync::{Arc, LazyLock};
use tally_core::counter::Declarations;
use tally_node::counters::{Page, Reading, Snapshot};

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let optional = |name: &str| text(name).with_nullable(true);
    let columns =
        [text("id"), optional("counter"), optional("key"), number("value"), number("sum"), number("generation")];
    Arc::new(Schema::new(columns.to_vec()))
});

pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

pub async fn rows(moment: &Arc<Moment>, prefix: Prefix) -> Result<Produce> {
    let (snapshot, declarations) = (moment.snapshot().await?, moment.engine().declarations());
    Ok(Arc::new(move |emit: &mut Emit<'_>| {
        walk(&snapshot, &prefix, |page| {
            let mut rows = Rows::default();
            page.iter().for_each(|(id, reading)| rows.push(&declarations, id, *reading));
            emit(rows.finish())
        })
    }))
}

/// Goes through all counters of a snapshot, page by page, for as long as somebody wants them.
pub fn walk(
    snapshot: &Snapshot,
    prefix: &Prefix,
    mut each: impl FnMut(&[(Vec<u8>, Reading)]) -> std::ops::ControlFlow<()>,
) -> Result<()> {
    let mut after = None;
    loop {
        let Page { counters, next } = snapshot.page_of(&prefix.0, after.as_deref(), BATCH_ROWS).map_err(external)?;
        if each(&counters).is_break() || next.is_none() {
            return Ok(());
        }
        after = next;
    }
}

#[derive(Default)]
struct Rows {
    ids: StringBuilder,
    counters: StringBuilder,
    keys: StringBuilder,
    values: Int64Builder,
    sums: Int64Builder,
    generations: Int64Builder,
}

impl Rows {
    fn push(&mut self, declarations: &Declarations, id: &[u8], reading: Reading) {
        let text = String::from_utf8_lossy(id);
        let counter = declarations.counter_of(id).map(|counter| &*counter.name);
        self.keys.append_option(counter.and_then(|_| text.split_once(':')).map(|(_, key)| key));
        self.counters.append_option(counter);
        self.values.append_value(declarations.shown(id, reading.value));
        self.sums.append_value(reading.value);
        self.generations.append_value(reading.generation as i64);
        self.ids.append_value(text);
    }

    fn finish(mut self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.ids.finish()),
            Arc::new(self.counters.finish()),
            Arc::new(self.keys.finish()),
            Arc::new(self.values.finish()),
            Arc::new(self.sums.finish()),
            Arc::new(self.generations.finish()),
        ];
        RecordBatch::try_new(schema(), columns).map_err(arrow)
    }
}
