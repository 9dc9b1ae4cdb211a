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

/// Whether a window can be answered, which has no step and no beginning to choose.
pub(in crate::frontend::http::endpoints) fn check_window(
    counter: &str,
    kept: &KeptRollup,
    window: &Series,
    log_time_ms: u64,
) -> Result<(), Problem> {
    let Some(available) = kept.available(log_time_ms) else { return Ok(()) };
    let ask = "ask for a shorter window or for all, or keep it for longer";
    available.check(None, &window.minutes()).map_err(|unavailable| refusal(counter, kept, &unavailable, ask))
}

fn not_kept(counter: &str, kept: &KeptRollup, unavailable: &Unavailable) -> Problem {
    let from = rfc3339(bucket_ms(unavailable.from));
    let step = unavailable.step.map(|step| step.to_string());
    let ask = step.as_ref().map_or(String::new(), |step| format!("step={step}, or "));
    let problem = refusal(counter, kept, unavailable, &format!("ask for {ask}from={from}")).with("from", from);
    match step {
        Some(step) => problem.with("step", step),
        None => problem,
    }
}

/// What there is, and what to do about it.
fn refusal(counter: &str, kept: &KeptRollup, unavailable: &Unavailable, fix: &str) -> Problem {
    let (rollup, before) = (kept.rollup.to_string(), rfc3339(bucket_ms(unavailable.before)));
    let there = unavailable.kept.map_or("nothing is".to_owned(), |unit| format!("only {} are", plural(unit)));
    let detail = format!("of {rollup} of {counter} {there} kept before {before}; {fix}");
    let problem = Problem::new(ProblemKind::NotKept, detail).with("counter", counter);
    problem.with("rollup", rollup).with("keptBefore", before)
}

fn plural(unit: Unit) -> String {
    format!("{}s", unit.name())
}
