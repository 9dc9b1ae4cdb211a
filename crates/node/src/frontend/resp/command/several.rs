//! Values for several counters, as one: `MSET MSETNX`.

use super::super::fault::ErrorReply;
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass};
use super::counter;
use tally_core::counter::{Intent, Target};
use tally_core::limits::RECORD_BYTES_MAX;
use tally_core::op::Answer;
use tally_core::record::{Expiry, SetCondition};

/// What a pair takes in its record beside its id, at most.
const PAIR_BYTES_MAX: usize = 20;

const TOO_MANY_NEW: ErrorReply =
    ErrorReply::of("ERR MSETNX is one record of the log, and takes at most 512 KiB of keys and values");

pub fn mset(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let counters = counters(pass, args, "mset")?;
    for (target, value) in &counters {
        pass.pending.set(target.cell, &target.id, *value, SetCondition::Always, Expiry::Clear);
    }
    pass.pending.needs.whole = true;
    pass.replies.expect_made(counters.len(), |reply, _| reply.simple("OK"));
    Ok(Flow::Next)
}

pub fn msetnx(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let counters = counters(pass, args, "msetnx")?;
    let bytes: usize = counters.iter().map(|(target, _)| target.id.len() + PAIR_BYTES_MAX).sum();
    if bytes > RECORD_BYTES_MAX - PAIR_BYTES_MAX {
        return Err(TOO_MANY_NEW);
    }
    pass.pending.set_new(counters.iter().map(|(target, value)| (target.cell, &*target.id, *value)));
    pass.replies.expect_made(counters.len() + 1, |reply, answers| {
        reply.integer(i64::from(answers.last() == Some(&Answer::Yes)));
    });
    Ok(Flow::Next)
}

/// The pairs of ids and values: all of them make sense, or nothing is done.
fn counters<'a>(pass: &Pass<'_>, args: Args<'a>, command: &str) -> Result<Vec<(Target<'a>, i64)>, ErrorReply> {
    if args.len().is_multiple_of(2) {
        return Err(ErrorReply::arity(command));
    }
    let pairs = args.from(1).step_by(2).zip(args.from(2).step_by(2));
    pairs.map(|(id, value)| Ok((pass.locate(id, Intent::Overwrite)?, counter::value(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_msetnx_is_that_of_a_record() {
        let said = format!("at most {} KiB", RECORD_BYTES_MAX >> 10);
        assert!(std::str::from_utf8(TOO_MANY_NEW.bytes()).unwrap().contains(&said));
    }
}
