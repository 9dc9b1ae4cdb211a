//! Counting and reading: `INCR INCRBY DECR DECRBY GET MGET STRLEN SET SETNX GETSET GETDEL`, and `TALLY.INCRBY`.

use super::super::fault::{self, ErrorReply};
use super::super::integer::parse_i64;
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass, integer, is};
use super::super::reply::Shape;
use super::expiry::TimeUnit;
use crate::clock::Clock;
use tally_core::counter::{Intent, Target};
use tally_core::fact;
use tally_core::limits::IDEMPOTENCY_KEY_BYTES_MAX;
use tally_core::record::{Expiry, SetCondition};

pub fn incr(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    pass.add(args.get(1), 1, Shape::Incr)
}

pub fn decr(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    pass.add(args.get(1), -1, Shape::Decr)
}

pub fn incr_by(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    pass.add(args.get(1), integer(args.get(2))?, Shape::IncrBy)
}

pub fn decr_by(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let delta = integer(args.get(2))?.checked_neg().ok_or(ErrorReply::of("ERR decrement would overflow"))?;
    pass.add(args.get(1), delta, Shape::DecrBy)
}

/// Adds, once per id if it has one.
pub fn tally_incr_by(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let delta = integer(args.get(2))?;
    match args.from(3).collect::<Vec<_>>()[..] {
        [] => pass.push_add(args.get(1), delta)?,
        [word, once] if is(word, "ID") => push_add_once(pass, args.get(1), delta, once)?,
        _ => return Err(fault::SYNTAX),
    }
    pass.replies.expect(Shape::Counted);
    Ok(Flow::Next)
}

fn push_add_once(pass: &mut Pass<'_>, id: &[u8], delta: i64, once: &[u8]) -> Result<(), ErrorReply> {
    if once.is_empty() || once.len() > IDEMPOTENCY_KEY_BYTES_MAX {
        let bytes = once.len();
        return Err(ErrorReply::from(format!("ERR ID has {bytes} bytes: use 1 to {IDEMPOTENCY_KEY_BYTES_MAX}")));
    }
    let target = pass.locate(id, Intent::Count)?;
    let key = fact::answer_key(&pass.server.hasher, &target.id, once);
    pass.note_floor(&target);
    pass.pending.add_once(&target, delta, key, once);
    Ok(())
}

pub fn get(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    pass.read(args.get(1), Shape::Bulk)
}

pub fn strlen(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    pass.read(args.get(1), Shape::Length)
}

pub fn mget(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let targets = pass.locate_all(args, Intent::Read)?;
    targets.iter().for_each(|target| pass.push_get(target));
    pass.replies.expect_values(targets.len());
    Ok(Flow::Next)
}

pub fn set(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let options = SetOptions::parse(args, &pass.server.host.clock)?;
    let shape = if options.previous { Shape::Previous } else { Shape::Stored };
    put(pass, args, options.condition, options.expiry, shape)
}

pub fn getset(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    put(pass, args, SetCondition::Always, Expiry::Clear, Shape::Previous)
}

pub fn setnx(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    put(pass, args, SetCondition::IfAbsent, Expiry::Clear, Shape::Done)
}

fn put(pass: &mut Pass<'_>, args: Args<'_>, condition: SetCondition, expiry: Expiry, shape: Shape) -> CommandOutcome {
    let Target { cell, id, .. } = pass.locate(args.get(1), Intent::Overwrite)?;
    pass.pending.set(cell, &id, value(args.get(2))?, condition, expiry);
    pass.replies.expect(shape);
    Ok(Flow::Next)
}

/// An argument that is to become the value of a counter.
pub fn value(argument: &[u8]) -> Result<i64, ErrorReply> {
    parse_i64(argument).ok_or_else(|| ErrorReply::not_a_counter_value(argument))
}

pub fn getdel(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let Target { cell, id, .. } = pass.locate(args.get(1), Intent::Overwrite)?;
    pass.pending.delete(cell, &id);
    pass.replies.expect(Shape::Bulk);
    Ok(Flow::Next)
}

/// What stands behind the value of a `SET`.
struct SetOptions {
    condition: SetCondition,
    expiry: Expiry,
    /// The reply is the value before.
    previous: bool,
}

impl SetOptions {
    fn parse(args: Args<'_>, clock: &Clock) -> Result<SetOptions, ErrorReply> {
        let mut options = SetOptions { condition: SetCondition::Always, expiry: Expiry::Clear, previous: false };
        let mut time: Option<(TimeUnit, &[u8])> = None;
        let mut words = args.from(3);
        while let Some(word) = words.next() {
            if is(word, "NX") && options.condition != SetCondition::IfPresent {
                options.condition = SetCondition::IfAbsent;
            } else if is(word, "XX") && options.condition != SetCondition::IfAbsent {
                options.condition = SetCondition::IfPresent;
            } else if is(word, "GET") {
                options.previous = true;
            } else if is(word, "KEEPTTL") && time.is_none() {
                options.expiry = Expiry::Keep;
            } else if let Some(unit) = TimeUnit::parse(word)
                && options.expiry != Expiry::Keep
                && time.is_none_or(|(other, _)| other == unit)
                && let Some(value) = words.next()
            {
                time = Some((unit, value));
            } else {
                return Err(fault::SYNTAX);
            }
        }
        if let Some((unit, value)) = time {
            options.expiry = Expiry::At(unit.at_ms(value, clock, "set")?);
        }
        Ok(options)
    }
}
