//! Times to live: `EXPIRE PEXPIRE EXPIREAT PEXPIREAT TTL PTTL EXPIRETIME PEXPIRETIME PERSIST`, and values with them: `SETEX
//! PSETEX GETEX`.
//!
//! The log holds the moment at which a counter ends, by log time, never a duration, so that a replay agrees.

use super::super::fault::{self, ErrorReply};
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass, integer, is};
use super::super::reply::Shape;
use super::counter;
use crate::clock::Clock;
use tally_core::counter::{Intent, Target};
use tally_core::op::Answer;
use tally_core::record::{ExpireCondition, Expiry, SetCondition};

pub fn expire(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    expire_in(pass, args, "expire", 1000)
}

pub fn pexpire(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    expire_in(pass, args, "pexpire", 1)
}

pub fn expireat(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    expire_at(pass, args, "expireat", 1000)
}

pub fn pexpireat(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    expire_at(pass, args, "pexpireat", 1)
}

fn expire_in(pass: &mut Pass<'_>, args: Args<'_>, name: &str, unit_ms: i64) -> CommandOutcome {
    let condition = condition(args)?;
    let ttl_ms = integer(args.get(2))?.checked_mul(unit_ms);
    let at_ms = ttl_ms.and_then(|ttl_ms| pass.server.host.clock.deadline_ms(ttl_ms));
    until(pass, args, condition, at_ms.ok_or_else(|| ErrorReply::expire_time(name))?)
}

fn expire_at(pass: &mut Pass<'_>, args: Args<'_>, name: &str, unit_ms: i64) -> CommandOutcome {
    let condition = condition(args)?;
    let at_ms = integer(args.get(2))?.checked_mul(unit_ms);
    until(pass, args, condition, at_ms.ok_or_else(|| ErrorReply::expire_time(name))?)
}

fn until(pass: &mut Pass<'_>, args: Args<'_>, condition: ExpireCondition, at_ms: i64) -> CommandOutcome {
    let Target { cell, id, .. } = pass.locate(args.get(1), Intent::Overwrite)?;
    // A moment before 1970 has passed like any other.
    pass.pending.expire(cell, &id, u64::try_from(at_ms).unwrap_or(0), condition);
    pass.replies.expect(Shape::Done);
    Ok(Flow::Next)
}

/// Reads `NX`, `XX`, `GT` and `LT`.
fn condition(args: Args<'_>) -> Result<ExpireCondition, ErrorReply> {
    let [mut none, mut some, mut greater, mut less] = [false; 4];
    for word in args.from(3) {
        let option = [("NX", &mut none), ("XX", &mut some), ("GT", &mut greater), ("LT", &mut less)]
            .into_iter()
            .find_map(|(name, option)| is(word, name).then_some(option));
        *option.ok_or_else(|| ErrorReply::unsupported_option(word))? = true;
    }
    match (none, some, greater, less) {
        (true, some, greater, less) if some || greater || less => {
            Err(ErrorReply::of("ERR NX and XX, GT or LT options at the same time are not compatible"))
        }
        (_, _, true, true) => Err(ErrorReply::of("ERR GT and LT options at the same time are not compatible")),
        (true, ..) => Ok(ExpireCondition::IfNone),
        (_, true, true, _) => Ok(ExpireCondition::IfSomeAndGreater),
        (_, true, _, true) => Ok(ExpireCondition::IfSomeAndLess),
        (_, true, ..) => Ok(ExpireCondition::IfSome),
        (_, _, true, _) => Ok(ExpireCondition::IfGreater),
        (_, _, _, true) => Ok(ExpireCondition::IfLess),
        _ => Ok(ExpireCondition::Always),
    }
}

pub fn ttl(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    time_to_live(pass, args, Shape::TtlSeconds)
}

pub fn pttl(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    time_to_live(pass, args, Shape::TtlMilliseconds)
}

fn time_to_live(pass: &mut Pass<'_>, args: Args<'_>, shape: Shape) -> CommandOutcome {
    let target = pass.locate(args.get(1), Intent::Read)?;
    pass.pending.ttl(target.cell);
    pass.replies.expect(shape);
    Ok(Flow::Next)
}

pub fn persist(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let Target { cell, id, .. } = pass.locate(args.get(1), Intent::Overwrite)?;
    pass.pending.persist(cell, &id);
    pass.replies.expect(Shape::Done);
    Ok(Flow::Next)
}

pub fn expiretime(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    end(pass, args, Shape::TtlSeconds)
}

pub fn pexpiretime(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    end(pass, args, Shape::TtlMilliseconds)
}

fn end(pass: &mut Pass<'_>, args: Args<'_>, shape: Shape) -> CommandOutcome {
    let target = pass.locate(args.get(1), Intent::Read)?;
    pass.pending.deadline(target.cell);
    pass.replies.expect(shape);
    Ok(Flow::Next)
}

pub fn setex(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    set_until(pass, args, TimeUnit::Seconds, "setex")
}

pub fn psetex(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    set_until(pass, args, TimeUnit::Milliseconds, "psetex")
}

fn set_until(pass: &mut Pass<'_>, args: Args<'_>, unit: TimeUnit, command: &str) -> CommandOutcome {
    let at_ms = unit.at_ms(args.get(2), &pass.server.host.clock, command)?;
    let Target { cell, id, .. } = pass.locate(args.get(1), Intent::Overwrite)?;
    pass.pending.set(cell, &id, counter::value(args.get(3))?, SetCondition::Always, Expiry::At(at_ms));
    pass.replies.expect(Shape::Stored);
    Ok(Flow::Next)
}

pub fn getex(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let (persists, time) = match args.from(2).collect::<Vec<_>>()[..] {
        [] => return pass.read(args.get(1), Shape::Bulk),
        [word] if is(word, "PERSIST") => (true, None),
        [word, time] => (false, Some((TimeUnit::parse(word).ok_or(fault::SYNTAX)?, time))),
        _ => return Err(fault::SYNTAX),
    };
    let Target { cell, id, .. } = pass.locate(args.get(1), Intent::Overwrite)?;
    let at_ms = time.map(|(unit, time)| unit.at_ms(time, &pass.server.host.clock, "getex"));
    pass.pending.get(cell);
    match at_ms {
        Some(Ok(at_ms)) => pass.pending.expire(cell, &id, at_ms, ExpireCondition::Always),
        None if persists => pass.pending.persist(cell, &id),
        _ => {}
    }
    // As in Redis, a time that makes no sense is an error only where there is a counter.
    let refused = at_ms.and_then(Result::err);
    pass.replies.expect_made(1 + usize::from(refused.is_none()), move |reply, answers| match (answers[0], &refused) {
        (Answer::Value(_), Some(fault)) => reply.fail("getex", fault.bytes()),
        (answer, _) => Shape::Bulk.write(reply, answer),
    });
    Ok(Flow::Next)
}

/// How an expiry was given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    AtSeconds,
    AtMilliseconds,
}

impl TimeUnit {
    pub fn parse(word: &[u8]) -> Option<TimeUnit> {
        [
            ("EX", TimeUnit::Seconds),
            ("PX", TimeUnit::Milliseconds),
            ("EXAT", TimeUnit::AtSeconds),
            ("PXAT", TimeUnit::AtMilliseconds),
        ]
        .into_iter()
        .find_map(|(name, unit)| is(word, name).then_some(unit))
    }

    /// Milliseconds since 1970, unless the time is not positive or beyond what 63 bits hold.
    pub fn at_ms(self, time: &[u8], clock: &Clock, command: &str) -> Result<u64, ErrorReply> {
        self.checked_at_ms(integer(time)?, clock).ok_or_else(|| ErrorReply::expire_time(command))
    }

    fn checked_at_ms(self, time: i64, clock: &Clock) -> Option<u64> {
        if time <= 0 {
            return None;
        }
        let ms = match self {
            TimeUnit::Seconds | TimeUnit::AtSeconds => time.checked_mul(1000)?,
            TimeUnit::Milliseconds | TimeUnit::AtMilliseconds => time,
        };
        let at_ms = match self {
            TimeUnit::Seconds | TimeUnit::Milliseconds => clock.deadline_ms(ms)?,
            TimeUnit::AtSeconds | TimeUnit::AtMilliseconds => ms,
        };
        u64::try_from(at_ms).ok()
    }
}
