//! Counters as a set of names: `DEL UNLINK EXISTS TOUCH TYPE SCAN KEYS RANDOMKEY DBSIZE FLUSHALL FLUSHDB`.

use super::super::fault::{self, ErrorReply};
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass, integer, is};
use super::super::reply::Shape;
use super::super::unit::Touched;
use super::super::walk::Walk;
use std::collections::BTreeSet;
use tally_core::counter::Intent;
use tally_core::database::Space;
use tally_core::limits;

pub fn del(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let targets = pass.locate_all(args, Intent::Overwrite)?;
    targets.iter().for_each(|target| pass.pending.delete(target.cell, &target.id));
    pass.replies.expect_present(targets.len());
    Ok(Flow::Next)
}

pub fn exists(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let targets = pass.locate_all(args, Intent::Read)?;
    targets.iter().for_each(|target| pass.pending.get(target.cell));
    pass.replies.expect_present(targets.len());
    Ok(Flow::Next)
}

pub fn type_of(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    pass.read(args.get(1), Shape::Type)
}

pub fn dbsize(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    pass.pending.size(pass.client.database.get());
    pass.replies.expect(Shape::Integer);
    Ok(Flow::Next)
}

pub fn flush(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    check_flush(args)?;
    refuse_if_declared(pass)?;
    pass.tell_flush("all counters");
    pass.pending.flush();
    pass.replies.expect(Shape::Ok);
    Ok(Flow::Next)
}

pub fn flush_database(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    check_flush(args)?;
    match pass.client.database.get() {
        0 => return flush_main(pass),
        database => {
            pass.tell_flush("a database");
            let space = pass.server.keyspace.draw_space();
            pass.spaces[usize::from(database)] = space;
            if let Some(unit) = &mut pass.unit {
                unit.fresh.push(space);
            }
            pass.pending.flush_database(database, space);
        }
    }
    pass.replies.expect(Shape::Ok);
    Ok(Flow::Next)
}

/// Database 0 is all there is, as a rule, and then everything is flushed. Otherwise its counters are deleted one by one.
fn flush_main(pass: &mut Pass<'_>) -> CommandOutcome {
    refuse_if_declared(pass)?;
    let Some(unit) = &mut pass.unit else { return Ok(Flow::Alone) };
    let touched = Touched::by(pass.pending, Space::MAIN, pass.server.hasher);
    if !touched.elsewhere && pass.server.keyspace.only_main() {
        unit.only_main = true;
        pass.tell_flush("a database");
        pass.pending.flush();
        pass.replies.expect(Shape::Ok);
        return Ok(Flow::Next);
    }
    let fetched = match unit.next_fetched() {
        None => return Ok(Flow::Fetch(Box::new(Walk::all(Space::MAIN)))),
        Some(fetched) => fetched.as_ref().map_err(ErrorReply::clone)?,
    };
    pass.tell_flush("a database");
    let mut ids: BTreeSet<Vec<u8>> = touched.keys.into_keys().collect();
    ids.extend(fetched.keys.iter().cloned());
    for key in &ids {
        let id = Space::MAIN.id(key);
        pass.pending.delete(pass.server.hasher.key(&id), &id);
    }
    pass.replies.expect_made(ids.len(), |reply, _| reply.simple("OK"));
    Ok(Flow::Next)
}

fn check_flush(args: Args<'_>) -> Result<(), ErrorReply> {
    match args.from(1).collect::<Vec<_>>()[..] {
        [] => Ok(()),
        [word] if is(word, "ASYNC") || is(word, "SYNC") => Ok(()),
        _ => Err(fault::SYNTAX),
    }
}

fn refuse_if_declared(pass: &Pass<'_>) -> Result<(), ErrorReply> {
    match pass.declarations.is_empty() {
        true => Ok(()),
        false => Err(ErrorReply::of(
            "ERR this would clear declared counters, and that takes a correction each: delete ad-hoc counters with DEL",
        )),
    }
}

pub fn keys(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    pass.walk(Walk::keys(pass.space(), args.get(1))?)
}

pub fn randomkey(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    pass.walk(Walk::some(pass.space(), pass.server.draw()))
}

pub fn scan(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
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
    pass.walk(Walk::scan(pass.space(), cursor, pattern, count, of_our_type)?)
}

/// Reads a cursor as C's `strtoul` does, which Redis uses: no digits at all are a zero.
fn cursor(argument: &[u8]) -> Result<u64, ErrorReply> {
    if argument.is_empty() {
        return Ok(0);
    }
    let digits = std::str::from_utf8(argument).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or(ErrorReply::of("ERR invalid cursor"))
}
