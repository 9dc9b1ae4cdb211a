//! Lets go of the processor now and then, so that a question that is over or whose time is over really ends.
//!
//! DataFusion's sources do so by themselves after some batches. What makes many rows of few would go on with one of those for hours.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use std::sync::Arc;

/// What makes many rows of few.
const MULTIPLIES: [&str; 6] = [
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoinExec",
    "SortMergeJoinExec",
    "UnnestExec",
];

#[derive(Debug)]
pub struct Yielding;

impl PhysicalOptimizerRule for Yielding {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let wrap = |plan: Arc<dyn ExecutionPlan>| match MULTIPLIES.contains(&plan.name()) {
            true => Ok(Transformed::yes(Arc::new(CooperativeExec::new(plan)) as Arc<dyn ExecutionPlan>)),
            false => Ok(Transformed::no(plan)),
        };
        plan.transform_up(wrap).data()
    }

    fn name(&self) -> &str {
        "yielding"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
