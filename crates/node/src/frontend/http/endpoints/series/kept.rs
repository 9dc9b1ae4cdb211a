//! Whether what a series asks for is still there: old buckets are rolled into coarser ones, and what cannot be answered is refused.

use tally_core::available::Unavailable;
use tally_core::counter::rollup::{Unit, bucket_ms};
use tally_core::series::{Series, Step};
use tally_core::values::KeptRollup;

use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// Whether a series can be answered at a log time.
pub(in crate::frontend::http::endpoints) fn check(
    counter: &str,
    kept: &KeptRollup,
    step: Option<Step>,
    series: &Series,
    log_time_ms: u64,
) -> Result<(), Problem> {
    let Some(available) = kept.available(log_time_ms) else { return Ok(()) };
    available.check(step, &series.minutes()).map_err(|unavailable| not_kept(counter, kept, &unavailable))
}

fn not_kept(counter: &str, kept: &KeptRollup, unavailable: &Unavailable) -> Problem {
    let Unavailable { kept: unit, before, from, step } = *unavailable;
    let (before, from) = (rfc3339(bucket_ms(before)), rfc3339(bucket_ms(from)));
    let rollup = kept.rollup.to_string();
    let there = unit.map_or("nothing is".to_owned(), |unit| format!("only {} are", plural(unit)));
    let ask = step.map_or(String::new(), |step| format!("step={step}, or "));
    let detail = format!("of {rollup} of {counter} {there} kept before {before}; ask for {ask}from={from}");
    let problem = Problem::new(ProblemKind::NotKept, detail).with("counter", counter).with("rollup", rollup);
    let problem = problem.with("keptBefore", before).with("from", from);
    match step {
        Some(step) => problem.with("step", step.to_string()),
        None => problem,
    }
}

fn plural(unit: Unit) -> String {
    format!("{}s", unit.name())
}
