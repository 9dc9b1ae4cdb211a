//! `boxes`: where the entries of each counter ended.

use super::moment::Moment;
use super::{Emit, Number, Produce, UTC, arrow, number, text, time};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use std::sync::{Arc, LazyLock};
use tally_core::fates::Balance;

const NUMBERS: [Number<Balance>; 7] = [
    ("received", |balance| balance.received as i64),
    ("counted", |balance| balance.boxes.counted),
    ("duplicate", |balance| balance.boxes.duplicate),
    ("conflict", |balance| balance.boxes.conflict),
    ("rejected", |balance| balance.boxes.rejected),
    ("ignored", |balance| balance.boxes.ignored),
    ("late", |balance| balance.boxes.late),
];

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let names = [text("counter"), text("stream")];
    let watermark = time("watermark").with_nullable(true);
    let columns = names.into_iter().chain(NUMBERS.map(|(name, _)| number(name))).chain([watermark]);
    Arc::new(Schema::new(columns.collect::<Vec<_>>()))
});

pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

pub async fn rows(moment: &Arc<Moment>) -> Result<Produce> {
    let rows = batch(&moment.state().await?.balances())?;
    Ok(Arc::new(move |emit: &mut Emit<'_>| {
        let _ = emit(Ok(rows.clone()));
        Ok(())
    }))
}

fn batch(balances: &[Balance]) -> Result<RecordBatch> {
    let texts = |of: fn(&Balance) -> &str| Arc::new(StringArray::from_iter_values(balances.iter().map(of))) as ArrayRef;
    let numbers = |of: fn(&Balance) -> i64| Arc::new(Int64Array::from_iter_values(balances.iter().map(of))) as ArrayRef;
    let watermarks = balances.iter().map(|balance| balance.watermark_ms.map(|ms| ms.saturating_mul(1000)));
    let watermarks = TimestampMicrosecondArray::from_iter(watermarks).with_timezone(UTC);
    let names = [texts(|balance| &balance.name), texts(|balance| balance.stream.name())];
    let columns = names.into_iter().chain(NUMBERS.map(|(_, of)| numbers(of))).chain([Arc::new(watermarks) as ArrayRef]);
    RecordBatch::try_new(schema(), columns.collect()).map_err(arrow)
}
