//! Counters as a set of names: `DEL UNLINK EXISTS TYPE SCAN KEYS DBSIZE FLUSHALL FLUSHDB`.

use super::super::fault::{self, Fault};
use super::super::parse::Args;
use super::super::pass::{Flow, Outcome, Pass, integer, is};
use super::super::reply::Shape;
use super::super::target::Intent;
use super::super::walk::Walk;
use tally_core::limits;

pub fn del(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    let places = pass.locate_all(args, Intent::Overwrite)?;
    places.iter().for_each(|(cell, located)| pass.pending.delete(*cell, &located.id));
    pass.replies.expect_present(places.len());
    Ok(Flow::Next)
}

pub fn exists(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    let places = pass.locate_all(args, Intent::Read)?;
    places.iter().for_each(|(cell, _)| pass.pending.get(*cell));
    pass.replies.expect_present(places.len());
    Ok(Flow::Next)
}

pub fn type_of(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    pass.read(args.get(1), Shape::Type)
}

pub fn dbsize(pass: &mut Pass<'_>, _: Args<'_>) -> Outcome {
    if !pass.is_settled() {
        return Ok(Flow::Settle);
    }
    let len = pass.server.local.engine().len();
    pass.replies.say(|reply| reply.integer(i64::try_from(len).unwrap_or(i64::MAX)));
    Ok(Flow::Next)
}

pub fn flush(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    match args.from(1).collect::<Vec<_>>()[..] {
        [] => {}
        [word] if is(word, "ASYNC") || is(word, "SYNC") => {}
        _ => return Err(fault::SYNTAX),
    }
    if !pass.declarations.is_empty() {
        return Err(Fault::of(
            "ERR this would clear declared counters, and that takes a correction each: delete ad-hoc counters with DEL",
        ));
    }
    pass.tell_flush();
    pass.pending.flush();
    pass.replies.expect(Shape::Ok);
    Ok(Flow::Next)
}

pub fn keys(_: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    Ok(Flow::Walk(Box::new(Walk::keys(args.get(1))?)))
}

pub fn scan(_: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    let cursor = cursor(args.get(1))?;
    let (mut pattern, mut count, mut of_our_type) = (&b"*"[..], limits::RESP_SCAN_COUNT, true);
    let mut words = args.from(2);
    while let Some(word) = words.next() {
        match words.next() {
            Some(value) if is(word, "COUNT") => {
                let wanted = usize::try_from(integer(value)?).unwrap_or(0);
                count = if wanted < 1 { return Err(fault::SYNTAX) } else { wanted.min(limits::RESP_SCAN_COUNT_MAX) };
            }
            Some(value) if is(word, "MATCH") => pattern = value,
            Some(value) if is(word, "TYPE") => of_our_type = is(value, "string"),
            _ => return Err(fault::SYNTAX),
        }
    }
    Ok(Flow::Walk(Box::new(Walk::scan(cursor, pattern, count, of_our_type)?)))
}

/// Reads a cursor as C's `strtoul` does, which Redis uses: no digits at all are a zero.
fn cursor(argument: &[u8]) -> Result<u64, Fault> {
    if argument.is_empty() {
        return Ok(0);
    }
    let digits = std::str::from_utf8(argument).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or(Fault::of("ERR invalid cursor"))
}
