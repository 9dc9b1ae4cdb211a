//! `row_number()` and `lag(x)` over rows that are sorted for it, a batch at a time.
//!
//! DataFusion's operator keeps books of each partition. Of a hundred million event ids most are a partition of one row, and a recount
//! would spend most of its time on those books. A row that is alike or not alike the one before it is all that these two ask for.

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, UInt64Array, make_comparator, new_null_array,
};
use datafusion::arrow::compute::{SortOptions, concat, nullif, partition};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{Distribution, OrderingRequirements, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowUDFExpr};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties, Statistics,
};
use futures_util::StreamExt;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Puts [`NeighboursExec`] where it does.
#[derive(Debug)]
pub struct Neighbours;

impl PhysicalOptimizerRule for Neighbours {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let instead = |plan: Arc<dyn ExecutionPlan>| match NeighboursExec::instead_of(&plan) {
            Some(neighbours) => Ok(Transformed::yes(Arc::new(neighbours) as Arc<dyn ExecutionPlan>)),
            None => Ok(Transformed::no(plan)),
        };
        plan.transform_up(instead).data()
    }

    fn name(&self) -> &str {
        "neighbours"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What is asked of a row and the one before it.
#[derive(Clone, Debug)]
enum Asked {
    Number,
    Before(Arc<dyn PhysicalExpr>),
}

impl Asked {
    fn of(window: &dyn WindowExpr, input: &SchemaRef) -> Option<Asked> {
        let function = window.as_any().downcast_ref::<StandardWindowExpr>()?.get_standard_func_expr();
        let function = function.as_any().downcast_ref::<WindowUDFExpr>()?;
        match (function.fun().name(), function.args()) {
            ("row_number", []) => Some(Asked::Number),
            // Where nothing is null, nulls are not passed over either.
            ("lag", [value]) if !value.nullable(input).ok()? => Some(Asked::Before(value.clone())),
            _ => None,
        }
    }
}

/// Does what another operator would do, which still says what is asked of the input and promised of the output.
#[derive(Debug)]
struct NeighboursExec {
    instead_of: Arc<dyn ExecutionPlan>,
    alike: Vec<Arc<dyn PhysicalExpr>>,
    asked: Vec<Asked>,
}

impl NeighboursExec {
    fn instead_of(plan: &Arc<dyn ExecutionPlan>) -> Option<NeighboursExec> {
        let window = plan.as_any().downcast_ref::<BoundedWindowAggExec>()?;
        let alike = window.window_expr().first()?.partition_by().to_vec();
        if alike.is_empty() || window.input_order_mode != InputOrderMode::Sorted {
            return None;
        }
        let input = window.input().schema();
        let asked = window.window_expr().iter().map(|expr| Asked::of(&**expr, &input)).collect::<Option<_>>()?;
        Some(NeighboursExec { instead_of: plan.clone(), alike, asked })
    }
}

impl DisplayAs for NeighboursExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alike: Vec<String> = self.alike.iter().map(ToString::to_string).collect();
        write!(f, "NeighboursExec: alike=[{}], asked={}", alike.join(", "), self.asked.len())
    }
}

impl ExecutionPlan for NeighboursExec {
    fn name(&self) -> &str {
        "NeighboursExec"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.instead_of.properties()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.instead_of.required_input_distribution()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.instead_of.required_input_ordering()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.instead_of.maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.instead_of.children()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let instead_of = self.instead_of.clone().with_new_children(children)?;
        Ok(Arc::new(NeighboursExec { instead_of, alike: self.alike.clone(), asked: self.asked.clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.children()[0].execute(partition, context)?;
        let schema = self.schema();
        let mut walk =
            Walk { schema: schema.clone(), alike: self.alike.clone(), asked: self.asked.clone(), last: None };
        let told = input.map(move |batch| batch.and_then(|batch| walk.tell(batch)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, told)))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Statistics> {
        self.instead_of.partition_statistics(partition)
    }
}

/// On the way through sorted rows.
struct Walk {
    schema: SchemaRef,
    alike: Vec<Arc<dyn PhysicalExpr>>,
    asked: Vec<Asked>,
    last: Option<Last>,
}

/// What is known of the row before a batch.
struct Last {
    /// What rows are alike in, a row of it.
    alike: Vec<ArrayRef>,
    number: u64,
    /// What is asked for of it, a row each.
    values: Vec<Option<ArrayRef>>,
}

impl Walk {
    /// The batch, with what was asked for.
    fn tell(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(RecordBatch::new_empty(self.schema.clone()));
        }
        let alike: Vec<ArrayRef> = self.alike.iter().map(|expr| evaluated(expr, &batch)).collect::<Result<_>>()?;
        let goes_on = match &self.last {
            Some(last) => is_alike(&last.alike, &alike)?,
            None => false,
        };
        let numbers = numbers(&alike, self.last.as_ref().filter(|_| goes_on).map_or(0, |last| last.number))?;
        let mut values = Vec::with_capacity(self.asked.len());
        let mut columns = batch.columns().to_vec();
        for (index, asked) in self.asked.iter().enumerate() {
            let (column, value) = match asked {
                Asked::Number => (numbers.clone() as ArrayRef, None),
                Asked::Before(expr) => {
                    let value = evaluated(expr, &batch)?;
                    let before = self.last.as_ref().and_then(|last| last.values[index].as_ref());
                    (before_each(&value, before, &numbers)?, Some(value.slice(rows - 1, 1)))
                }
            };
            columns.push(column);
            values.push(value);
        }
        let alike = alike.iter().map(|column| column.slice(rows - 1, 1)).collect();
        self.last = Some(Last { alike, number: numbers.value(rows - 1), values });
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}

fn evaluated(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(batch)?.into_array(batch.num_rows())
}

/// Whether the first rows of both are alike.
fn is_alike(last: &[ArrayRef], next: &[ArrayRef]) -> Result<bool> {
    for (last, next) in last.iter().zip(next) {
        if make_comparator(last, next, SortOptions::default())?(0, 0).is_ne() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number of each row among those that are alike; the first ones go on from another number.
fn numbers(alike: &[ArrayRef], from: u64) -> Result<Arc<UInt64Array>> {
    let mut numbers = Vec::with_capacity(alike[0].len());
    let mut before = from;
    for range in partition(alike)?.ranges() {
        numbers.extend((1..=range.len() as u64).map(|nth| before + nth));
        before = 0;
    }
    Ok(Arc::new(UInt64Array::from(numbers)))
}

/// The value of the row before each, if that is alike.
fn before_each(values: &ArrayRef, last: Option<&ArrayRef>, numbers: &UInt64Array) -> Result<ArrayRef> {
    let none = || new_null_array(values.data_type(), 1);
    let first = last.cloned().unwrap_or_else(none);
    let moved = concat(&[&first, &values.slice(0, values.len() - 1)])?;
    let is_first: BooleanArray = numbers.values().iter().map(|number| Some(*number == 1)).collect();
    Ok(nullif(&moved, &is_first)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, StringArray};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::datasource::MemTable;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{SessionConfig, SessionContext};

    const NUMBERED: &str = "SELECT id, at, row_number() OVER (PARTITION BY id, part ORDER BY at) AS nth,
        lag(at) OVER (PARTITION BY id, part ORDER BY at) AS before FROM rows ORDER BY at";

    /// Rows of a few ids, some without one, in batches so small that those that are alike are in several.
    fn session(rule: Option<Arc<dyn PhysicalOptimizerRule + Send + Sync>>) -> SessionContext {
        let at: Vec<i64> = (0..500).map(|row| row * 7919 % 500).collect();
        let id = at.iter().map(|at| (at % 11 > 0).then(|| format!("id-{}", at * at % 23)));
        let fields = [
            Field::new("id", DataType::Utf8, true),
            Field::new("part", DataType::Int64, false),
            Field::new("at", DataType::Int64, false),
        ];
        let columns: Vec<ArrayRef> = vec![
            Arc::new(id.collect::<StringArray>()),
            Arc::new(at.iter().map(|at| Some(at % 2)).collect::<Int64Array>()),
            Arc::new(Int64Array::from(at)),
        ];
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let rows = RecordBatch::try_new(schema.clone(), columns).unwrap();
        let config = SessionConfig::new().with_batch_size(3).with_target_partitions(2);
        let mut state = SessionStateBuilder::new().with_config(config).with_default_features();
        if let Some(rule) = rule {
            state = state.with_physical_optimizer_rule(rule);
        }
        let session = SessionContext::new_with_state(state.build());
        session.register_table("rows", Arc::new(MemTable::try_new(schema, vec![vec![rows]]).unwrap())).unwrap();
        session
    }

    async fn answer(session: &SessionContext, statement: &str) -> String {
        let batches = session.sql(statement).await.unwrap().collect().await.unwrap();
        pretty_format_batches(&batches).unwrap().to_string()
    }

    async fn plan(session: &SessionContext, statement: &str) -> String {
        let plan = session.sql(statement).await.unwrap().create_physical_plan().await.unwrap();
        displayable(&*plan).indent(false).to_string()
    }

    #[tokio::test]
    async fn rows_are_told_what_datafusion_tells_them() {
        let (own, theirs) = (session(Some(Arc::new(Neighbours))), session(None));
        let plan = plan(&own, NUMBERED).await;
        assert!(plan.contains("NeighboursExec") && !plan.contains("WindowAggExec"), "{plan}");
        assert_eq!(answer(&own, NUMBERED).await, answer(&theirs, NUMBERED).await);
    }

    #[tokio::test]
    async fn what_asks_for_more_than_the_row_before_is_left_alone() {
        let own = session(Some(Arc::new(Neighbours)));
        for asked in [
            "lag(at, 2) OVER (PARTITION BY id ORDER BY at)",
            "lag(id) IGNORE NULLS OVER (PARTITION BY part ORDER BY at)",
            "row_number() OVER (ORDER BY at)",
            "sum(at) OVER (PARTITION BY id ORDER BY at)",
        ] {
            let plan = plan(&own, &format!("SELECT {asked} FROM rows")).await;
            assert!(!plan.contains("NeighboursExec"), "{asked}: {plan}");
        }
    }
}
