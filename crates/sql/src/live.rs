//! What counters say now, as tables. All of a question's are as of one position.

mod boxes;
mod commits;
mod counters;
mod parked;
mod parked_parts;
mod parts;

use crate::scope::Scope;
use arrow_array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::TableType;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;
use tally_node::worker::Spawner;

/// Rows that are handed on at once.
const BATCH_ROWS: usize = 8192;
/// Batches that wait for who reads them.
const BATCHES_AHEAD: usize = 2;

pub const NAMES: [&str; 6] = ["counters", "parts", "parked", "parked_parts", "boxes", "commits"];

/// The table of a name.
pub fn table(scope: &Arc<Scope>, name: &str) -> Option<Arc<dyn TableProvider>> {
    let (schema, kind) = match name {
        "counters" => (counters::schema(), Kind::Counters),
        "parts" => (parts::schema(), Kind::Parts),
        "parked" => (parked::schema(), Kind::Parked),
        "parked_parts" => (parked_parts::schema(), Kind::ParkedParts),
        "boxes" => (boxes::schema(), Kind::Boxes),
        "commits" => (commits::schema(), Kind::Commits),
        _ => return None,
    };
    Some(Arc::new(LiveTable { kind, schema, scope: scope.clone() }))
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Counters,
    Parts,
    Parked,
    ParkedParts,
    Boxes,
    Commits,
}

#[derive(Debug)]
struct LiveTable {
    kind: Kind,
    schema: SchemaRef,
    scope: Arc<Scope>,
}

/// A column of whole numbers, and what it says of a row.
type Number<T> = (&'static str, fn(&T) -> i64);
/// Takes rows for as long as somebody wants them.
type Emit<'a> = dyn FnMut(Result<RecordBatch>) -> ControlFlow<()> + 'a;
/// Blocks on the store.
type Produce = Arc<dyn Fn(&mut Emit<'_>) -> Result<()> + Send + Sync>;

impl LiveTable {
    async fn rows(&self, filters: &[Expr]) -> Result<Produce> {
        let prefix = Prefix::of(filters);
        match self.kind {
            Kind::Counters => counters::rows(&self.scope, prefix).await,
            Kind::Parts => parts::rows(&self.scope, prefix).await,
            Kind::Parked => parked::rows(&self.scope).await,
            Kind::ParkedParts => parked_parts::rows(&self.scope).await,
            Kind::Boxes => boxes::rows(&self.scope).await,
            Kind::Commits => Ok(commits::rows(&self.scope)),
        }
    }
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
        let rows = LiveRows { schema: self.schema.clone(), produce: self.rows(filters).await? };
        let stream: Arc<dyn PartitionStream> = Arc::new(rows);
        let plan = StreamingTableExec::try_new(self.schema.clone(), vec![stream], projection, [], false, limit)?;
        Ok(Arc::new(plan))
    }
}

struct LiveRows {
    schema: SchemaRef,
    produce: Produce,
}

impl std::fmt::Debug for LiveRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveRows").finish_non_exhaustive()
    }
}

impl PartitionStream for LiveRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = RecordBatchReceiverStreamBuilder::new(self.schema.clone(), BATCHES_AHEAD);
        let (rows, refused, produce) = (stream.tx(), stream.tx(), self.produce.clone());
        // Not one of the few that read files: it stands still for as long as others do whose turn it is.
        let begun = Spawner::thread("tally-sql-live", move || {
            let told = produce(&mut |batch| match rows.blocking_send(batch) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            });
            if let Err(error) = told {
                // Nobody listens any more, or everybody is told.
                let _ = rows.blocking_send(Err(error));
            }
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
