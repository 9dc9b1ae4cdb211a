//! What counters say now, as tables. All of a question's are as of one position: the node takes rows from one snapshot, and writes them to
//! whoever asks.

mod boxes;
mod commits;
mod counters;
pub mod moment;
mod parked;
mod parked_parts;
mod parts;

use crate::wire::{TableRequest, Teller};
use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::TableType;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use moment::Moment;
use std::any::Any;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::sync::Arc;
use tally_node::worker::Spawner;
use tokio::sync::mpsc::Sender;

/// Rows that are handed on at once; ids may be long, and it is the node that holds them.
const BATCH_ROWS: usize = 2048;
/// Batches that wait for who reads them.
const BATCHES_AHEAD: usize = 2;

pub const NAMES: [&str; 7] = ["counters", "parts", "filling", "parked", "parked_parts", "boxes", "commits"];

/// A column of whole numbers, and what it says of a row.
type Number<T> = (&'static str, fn(&T) -> i64);
/// Takes rows for as long as somebody wants them.
type Emit<'a> = dyn FnMut(Result<RecordBatch>) -> ControlFlow<()> + 'a;
/// Blocks on the store.
type Produce = Arc<dyn Fn(&mut Emit<'_>) -> Result<()> + Send + Sync>;

/// The columns of a table.
pub fn schema(name: &str) -> Option<SchemaRef> {
    Some(match name {
        "counters" => counters::schema(),
        "parts" | "filling" => parts::schema(),
        "parked" => parked::schema(),
        "parked_parts" => parked_parts::schema(),
        "boxes" => boxes::schema(),
        "commits" => commits::schema(),
        _ => return None,
    })
}

/// The rows of a table, of ids that begin so.
pub async fn rows(moment: &Arc<Moment>, request: &TableRequest) -> Result<Produce> {
    let prefix = Prefix(request.prefix.clone());
    match &*request.table {
        "counters" => counters::rows(moment, prefix).await,
        "parts" => parts::rows(moment, prefix).await,
        "filling" => parts::filling(moment, prefix).await,
        "parked" => parked::rows(moment).await,
        "parked_parts" => parked_parts::rows(moment).await,
        "boxes" => boxes::rows(moment).await,
        "commits" => Ok(commits::rows(moment)),
        other => Err(DataFusionError::Plan(format!("there is no table {other}"))),
    }
}

/// The table of a name, as a statement sees it.
pub fn table(teller: &Arc<Teller>, name: &str) -> Option<Arc<dyn TableProvider>> {
    Some(Arc::new(LiveTable { name: name.to_owned(), schema: schema(name)?, teller: teller.clone() }))
}

#[derive(Debug)]
struct LiveTable {
    name: String,
    schema: SchemaRef,
    teller: Arc<Teller>,
}

#[async_trait::async_trait]
impl TableProvider for LiveTable {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    /// What is left out by a prefix is looked at again.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let request = TableRequest { table: self.name.clone(), prefix: Prefix::of(filters).0 };
        let rows = LiveRows { request, schema: self.schema.clone(), teller: self.teller.clone() };
        let stream: Arc<dyn PartitionStream> = Arc::new(rows);
        let plan = StreamingTableExec::try_new(self.schema.clone(), vec![stream], projection, [], false, limit)?;
        Ok(Arc::new(plan))
    }
}

#[derive(Debug)]
struct LiveRows {
    request: TableRequest,
    schema: SchemaRef,
    teller: Arc<Teller>,
}

impl LiveRows {
    /// Hands rows on as the node writes them, for as long as somebody takes them.
    fn pass_on(stream: std::os::unix::net::UnixStream, to: &Sender<Result<RecordBatch>>) -> Result<()> {
        for batch in StreamReader::try_new(BufReader::new(stream), None)? {
            if to.blocking_send(Ok(batch?)).is_err() {
                break;
            }
        }
        Ok(())
    }
}

impl PartitionStream for LiveRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = RecordBatchReceiverStreamBuilder::new(self.schema.clone(), BATCHES_AHEAD);
        let (rows, refused) = (stream.tx(), stream.tx());
        let begun = self.teller.table(&self.request).and_then(|from| {
            // Not one of the few that read files: it stands still for as long as others do whose turn it is.
            Spawner::thread("tally-sql-live", move || {
                if let Err(error) = LiveRows::pass_on(from, &rows) {
                    // Nobody listens any more, or everybody is told.
                    let _ = rows.blocking_send(Err(error));
                }
            })
        });
        if let Err(error) = begun {
            let _ = refused.try_send(Err(error.into()));
        }
        stream.build()
    }
}

/// What the ids begin with that a statement asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Prefix(Vec<u8>);

impl Prefix {
    /// Of a statement that names one counter or one id; empty if it names neither.
    fn of(filters: &[Expr]) -> Prefix {
        let named = filters.iter().filter_map(equals).find(|(column, _)| ["id", "counter"].contains(column));
        Prefix(named.map(|(_, text)| text.as_bytes().to_vec()).unwrap_or_default())
    }
}

/// The column and the text of `column = 'text'`.
fn equals(filter: &Expr) -> Option<(&str, &str)> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = filter else { return None };
    match (&**left, &**right) {
        (Expr::Column(column), Expr::Literal(text, _)) | (Expr::Literal(text, _), Expr::Column(column)) => {
            Some((column.name(), text.try_as_str()??))
        }
        _ => None,
    }
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

fn number(name: &str) -> Field {
    Field::new(name, DataType::Int64, false)
}

/// As the tables of the archive have it.
fn time(name: &str) -> Field {
    Field::new(name, time_type(), false)
}

fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

const UTC: &str = "+00:00";

fn micros(time_ms: u64) -> i64 {
    i64::try_from(time_ms).unwrap_or(i64::MAX).saturating_mul(1000)
}

fn arrow(error: datafusion::arrow::error::ArrowError) -> DataFusionError {
    error.into()
}
