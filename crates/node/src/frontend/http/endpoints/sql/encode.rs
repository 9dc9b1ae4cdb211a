//! Rows of an answer as bytes.

use arrow_array::RecordBatch;
use arrow_json::writer::JsonArray;
use arrow_schema::{ArrowError, DataType, Field};
use serde_json::value::RawValue;

use super::SqlColumn;
use crate::sql::Answer;

/// A list of objects.
pub fn json(answer: &Answer) -> Result<Box<RawValue>, ArrowError> {
    let mut writer = arrow_json::WriterBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(Vec::new());
    writer.write_batches(&answer.rows.iter().collect::<Vec<&RecordBatch>>())?;
    writer.finish()?;
    let text = String::from_utf8(writer.into_inner()).expect("JSON is UTF-8");
    let text = if text.is_empty() { "[]".to_owned() } else { text };
    Ok(RawValue::from_string(text).expect("it was written as JSON"))
}

pub fn csv(answer: &Answer) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    let mut writer = arrow_csv::WriterBuilder::new().with_header(true).build(&mut bytes);
    // Without rows there is a header nevertheless.
    writer.write(&RecordBatch::new_empty(answer.schema.clone()))?;
    answer.rows.iter().try_for_each(|batch| writer.write(batch))?;
    drop(writer);
    Ok(bytes)
}

/// A stream as Arrow's IPC has it.
pub fn arrow(answer: &Answer) -> Result<Vec<u8>, ArrowError> {
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &answer.schema)?;
    answer.rows.iter().try_for_each(|batch| writer.write(batch))?;
    writer.into_inner()
}

pub fn column(field: &Field) -> SqlColumn {
    let kind = field.data_type();
    let word = match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Boolean => "boolean",
        DataType::Timestamp(..) => "time",
        _ if kind.is_integer() => "integer",
        _ if kind.is_numeric() => "number",
        _ => return SqlColumn { name: field.name().clone(), r#type: kind.to_string() },
    };
    SqlColumn { name: field.name().clone(), r#type: word.to_owned() }
}
