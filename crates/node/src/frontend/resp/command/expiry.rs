//! Times to live: `EXPIRE PEXPIRE EXPIREAT PEXPIREAT TTL PTTL PERSIST`.
//!
//! The log holds the moment at which a counter ends, by log time, never a duration, so that a replay agrees.

use super::super::fault::Fault;
use super::super::parse::Args;
use super::super::pass::{Flow, Outcome, Pass, integer, is};
use super::super::reply::Shape;
use super::super::target::{Intent, Located};
use tally_core::record::ExpireCondition;

pub fn expire(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    expire_in(pass, args, "expire", 1000)
}

pub fn pexpire(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    expire_in(pass, args, "pexpire", 1)
}

pub fn expireat(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    expire_at(pass, args, "expireat", 1000)
}

pub fn pexpireat(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    expire_at(pass, args, "pexpireat", 1)
}

fn expire_in(pass: &mut Pass<'_>, args: Args<'_>, name: &str, unit_ms: i64) -> Outcome {
    let condition = condition(args)?;
    let ttl_ms = integer(args.get(2))?.checked_mul(unit_ms);
    let at_ms = ttl_ms.and_then(|ttl_ms| pass.server.local.engine().clock().deadline_ms(ttl_ms));
    until(pass, args, condition, at_ms.ok_or_else(|| Fault::expire_time(name))?)
}

fn expire_at(pass: &mut Pass<'_>, args: Args<'_>, name: &str, unit_ms: i64) -> Outcome {
    let condition = condition(args)?;
    let at_ms = integer(args.get(2))?.checked_mul(unit_ms);
    until(pass, args, condition, at_ms.ok_or_else(|| Fault::expire_time(name))?)
}

fn until(pass: &mut Pass<'_>, args: Args<'_>, condition: ExpireCondition, at_ms: i64) -> Outcome {
    let (cell, Located { id, .. }) = pass.locate(args.get(1), Intent::Overwrite)?;
    // A moment before 1970 has passed like any other.
    pass.pending.expire(cell, &id, u64::try_from(at_ms).unwrap_or(0), condition);
    pass.replies.expect(Shape::Done);
    Ok(Flow::Next)
}

/// Reads `NX`, `XX`, `GT` and `LT`.
fn condition(args: Args<'_>) -> Result<ExpireCondition, Fault> {
    let [mut none, mut some, mut greater, mut less] = [false; 4];
    for word in args.from(3) {
        let option = [("NX", &mut none), ("XX", &mut some), ("GT", &mut greater), ("LT", &mut less)]
            .into_iter()
            .find_map(|(name, option)| is(word, name).then_some(option));
        *option.ok_or_else(|| Fault::unsupported_option(word))? = true;
    }
    match (none, some, greater, less) {
        (true, some, greater, less) if some || greater || less => {
            Err(Fault::of("ERR NX and XX, GT or LT options at the same time are not compatible"))
        }
        (_, _, true, true) => Err(Fault::of("ERR GT and LT options at the same time are not compatible")),
        (true, ..) => Ok(ExpireCondition::IfNone),
        (_, true, true, _) => Ok(ExpireCondition::IfSomeAndGreater),
        (_, true, _, true) => Ok(ExpireCondition::IfSomeAndLess),
        (_, true, ..) => Ok(ExpireCondition::IfSome),
        (_, _, true, _) => Ok(ExpireCondition::IfGreater),
        (_, _, _, true) => Ok(ExpireCondition::IfLess),
        _ => Ok(ExpireCondition::Always),
    }
}

pub fn ttl(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    time_to_live(pass, args, Shape::TtlSeconds)
}

pub fn pttl(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    time_to_live(pass, args, Shape::TtlMilliseconds)
}

fn time_to_live(pass: &mut Pass<'_>, args: Args<'_>, shape: Shape) -> Outcome {
    let (cell, _) = pass.locate(args.get(1), Intent::Read)?;
    pass.pending.ttl(cell);
    pass.replies.expect(shape);
    Ok(Flow::Next)
}

pub fn persist(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    let (cell, Located { id, .. }) = pass.locate(args.get(1), Intent::Overwrite)?;
    pass.pending.persist(cell, &id);
    pass.replies.expect(Shape::Done);
    Ok(Flow::Next)
}
