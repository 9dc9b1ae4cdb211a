//! Rows of an answer as bytes, piece by piece as they are found.

use crate::wire::Teller;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_json::writer::JsonArray;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use futures_util::StreamExt;
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tally_core::limits::SQL_ANSWER_BYTES_MAX;
use tally_node::sql::{Column, Form};

/// About what is written at once: it is looked in between how long the answer is.
const PIECE_BYTES: usize = 1 << 20;
/// What is told to the node at once.
const TOLD_BYTES: usize = 128 << 10;

/// Writes up to so many rows. Answers how many there were, and whether there are more.
pub async fn write(
    mut rows: SendableRecordBatchStream,
    form: Form,
    rows_max: usize,
    teller: &Arc<Teller>,
) -> Result<(u64, bool)> {
    let schema = rows.schema();
    if matches!(form, Form::Json) {
        each_name_once(&schema)?;
    }
    let written = Arc::new(AtomicUsize::new(0));
    let out = Out { teller: teller.clone(), waiting: Vec::new(), written: written.clone() };
    let mut pen = Pen::new(form, &schema, out)?;
    let mut row_count = 0;
    while let Some(batch) = rows.next().await.transpose()? {
        for piece in pieces(&named(batch, &schema)?) {
            let room = match written.load(Ordering::Relaxed) {
                bytes if bytes >= SQL_ANSWER_BYTES_MAX => 0,
                _ => piece.num_rows().min(rows_max - row_count),
            };
            pen.write(&piece.slice(0, room))?;
            row_count += room;
            if room < piece.num_rows() {
                pen.end()?;
                return Ok((row_count as u64, true));
            }
            if written.load(Ordering::Relaxed) > 2 * SQL_ANSWER_BYTES_MAX {
                let most = SQL_ANSWER_BYTES_MAX >> 20;
                return Err(DataFusionError::ResourcesExhausted(format!("an answer has {most} MiB at most")));
            }
        }
    }
    pen.end()?;
    Ok((row_count as u64, false))
}

/// Not every operator calls the columns of its rows as its schema does.
fn named(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let names = |schema: &Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    match names(&batch.schema()) == names(schema) {
        true => Ok(batch),
        false => Ok(RecordBatch::try_new(schema.clone(), batch.columns().to_vec())?),
    }
}

/// Rows of a batch, some at a time.
fn pieces(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    let rows = batch.num_rows();
    let at_once = (rows * PIECE_BYTES / batch.get_array_memory_size().max(1)).clamp(1, rows.max(1));
    (0..rows).step_by(at_once).map(move |from| batch.slice(from, at_once.min(rows - from)))
}

/// A text that is a view is written with all that it was cut from, once more with each piece: pieces have only what is theirs.
fn of_its_own(rows: &RecordBatch) -> Result<RecordBatch> {
    let columns = rows.columns().iter().map(|column| match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column.clone(),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(rows.schema(), columns.collect(), &options)?)
}

/// An object cannot have two fields of one name.
fn each_name_once(schema: &Schema) -> Result<()> {
    let mut seen = HashSet::new();
    match schema.fields().iter().find(|field| !seen.insert(field.name())) {
        None => Ok(()),
        Some(twice) => Err(DataFusionError::Plan(format!(
            "two columns are called {}; give one of them another name with AS",
            twice.name()
        ))),
    }
}

enum Pen {
    Json(Box<arrow_json::Writer<Out, JsonArray>>),
    Csv(Box<arrow_csv::Writer<Out>>),
    Arrow(Box<arrow_ipc::writer::StreamWriter<Out>>),
}

impl Pen {
    fn new(form: Form, schema: &SchemaRef, out: Out) -> Result<Pen> {
        Ok(match form {
            Form::Json => Pen::Json(Box::new(arrow_json::WriterBuilder::new().with_explicit_nulls(true).build(out))),
            Form::Csv => {
                let mut writer = arrow_csv::WriterBuilder::new().with_header(true).build(out);
                // Without rows there is a header nevertheless.
                writer.write(&RecordBatch::new_empty(schema.clone())).map_err(|error| unwritable("csv", error))?;
                Pen::Csv(Box::new(writer))
            }
            Form::Arrow => Pen::Arrow(Box::new(arrow_ipc::writer::StreamWriter::try_new(out, schema)?)),
        })
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match self {
            Pen::Json(writer) => {
                has_words(rows).map_err(|error| unwritable("json", error))?;
                writer.write(rows).map_err(|error| unwritable("json", error))
            }
            Pen::Csv(writer) => writer.write(rows).map_err(|error| unwritable("csv", error)),
            Pen::Arrow(writer) => Ok(writer.write(&of_its_own(rows)?)?),
        }
    }

    fn end(self) -> Result<()> {
        let mut out = match self {
            Pen::Json(mut writer) => {
                writer.finish()?;
                let mut out = writer.into_inner();
                if out.written.load(Ordering::Relaxed) == 0 {
                    out.write_all(b"[]")?;
                }
                out
            }
            Pen::Csv(writer) => writer.into_inner(),
            Pen::Arrow(mut writer) => {
                writer.finish()?;
                writer.into_inner()?
            }
        };
        Ok(out.flush()?)
    }
}

/// The writer of JSON puts an error into a text where a time or a number has no words.
fn has_words(rows: &RecordBatch) -> std::result::Result<(), arrow_schema::ArrowError> {
    let options = FormatOptions::new().with_display_error(false);
    for column in rows.columns().iter().filter(|column| !is_plain(column.data_type())) {
        let words = ArrayFormatter::try_new(column, &options)?;
        (0..column.len()).try_for_each(|row| words.value(row).try_to_string().map(drop))?;
    }
    Ok(())
}

fn is_plain(kind: &DataType) -> bool {
    let is_text = matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    is_text || kind.is_integer() || kind.is_floating() || matches!(kind, DataType::Boolean | DataType::Null)
}

fn unwritable(form: &str, error: impl std::fmt::Display) -> DataFusionError {
    let fix = "select other columns, or cast them to text";
    DataFusionError::Plan(format!("the answer cannot be written as {form}: {error}; {fix}"))
}

/// Where bytes go.
struct Out {
    teller: Arc<Teller>,
    waiting: Vec<u8>,
    /// All that went here; there is a look at it while somebody else holds this.
    written: Arc<AtomicUsize>,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend(bytes);
        self.written.fetch_add(bytes.len(), Ordering::Relaxed);
        if self.waiting.len() >= TOLD_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.teller.rows(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }
}

/// Names of columns, and words for what they have.
pub fn columns(schema: &Schema) -> Vec<Column> {
    schema.fields().iter().map(|field| Column { name: field.name().clone(), kind: word(field) }).collect()
}

fn word(field: &Field) -> String {
    let kind = field.data_type();
    let word = match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Boolean => "boolean",
        DataType::Timestamp(..) => "time",
        _ if kind.is_integer() => "integer",
        _ if kind.is_numeric() => "number",
        _ => return kind.to_string(),
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Heard, Listener};
    use arrow_array::StringViewArray;
    use arrow_ipc::reader::StreamReader;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use std::os::unix::net::UnixStream;
    use tally_node::worker::Spawner;

    #[test]
    fn long_texts_are_written_once_however_many_pieces_they_come_in() {
        let texts = StringViewArray::from_iter_values((0..24).map(|n| n.to_string().repeat(1 << 19)));
        let batch = RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)]).unwrap();
        let (node, process) = UnixStream::pair().unwrap();
        let heard = Spawner::thread("listening", move || {
            let (mut listener, mut bytes) = (Listener::new(node), Vec::new());
            while let Heard::Rows(more) = listener.hear().unwrap() {
                bytes.extend(more);
            }
            bytes
        });
        let rows = futures_util::stream::iter([Ok(batch.clone())]);
        let rows = Box::pin(RecordBatchStreamAdapter::new(batch.schema(), rows));
        let teller = Arc::new(Teller::new(process));
        let written = pollster::block_on(write(rows, Form::Arrow, 100, &teller)).unwrap();
        drop(teller);
        assert_eq!(written, (24, false));
        let bytes = heard.unwrap().join().unwrap();
        let read: Vec<RecordBatch> = StreamReader::try_new(&*bytes, None).unwrap().map(Result::unwrap).collect();
        assert!(read.len() > 1, "in pieces");
        assert_eq!(datafusion::arrow::compute::concat_batches(&batch.schema(), &read).unwrap(), batch);
        assert!(bytes.len() < 20 << 20, "{} bytes for 19 MiB", bytes.len());
    }
}
