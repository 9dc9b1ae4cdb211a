//! Counters under other names and in other databases: `RENAME RENAMENX COPY MOVE`. Only ad-hoc counters: what is declared
//! keeps its name.

use super::super::fault::{self, ErrorReply};
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass, database, is};
use tally_core::counter::Intent;
use tally_core::op::Answer;
use tally_core::record::CopyManner;

const NO_SUCH_KEY: &[u8] = b"ERR no such key";
const SAME: ErrorReply = ErrorReply::of("ERR source and destination objects are the same");

/// What a reply makes of each answer.
type CopyReply = fn(&mut super::super::encode::Encoder<'_>, Answer);

pub fn rename(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let own = pass.client.database.get();
    transfer(pass, args.get(1), (own, args.get(2)), CopyManner::MoveReplace, |reply, answer| match answer {
        Answer::Absent => reply.fail("rename", NO_SUCH_KEY),
        _ => reply.simple("OK"),
    })
}

pub fn renamenx(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let own = pass.client.database.get();
    transfer(pass, args.get(1), (own, args.get(2)), CopyManner::MoveIfAbsent, |reply, answer| match answer {
        Answer::Absent => reply.fail("renamenx", NO_SUCH_KEY),
        _ => reply.integer(i64::from(answer == Answer::Yes)),
    })
}

pub fn copy(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let own = pass.client.database.get();
    let (mut other, mut manner) = (own, CopyManner::IfAbsent);
    let mut words = args.from(3);
    while let Some(word) = words.next() {
        if is(word, "REPLACE") {
            manner = CopyManner::Replace;
        } else if is(word, "DB")
            && let Some(number) = words.next()
        {
            other = database(number)?;
        } else {
            return Err(fault::SYNTAX);
        }
    }
    if other == own && args.get(1) == args.get(2) {
        return Err(SAME);
    }
    transfer(pass, args.get(1), (other, args.get(2)), manner, done)
}

pub fn move_to(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let other = database(args.get(2))?;
    if other == pass.client.database.get() {
        return Err(SAME);
    }
    transfer(pass, args.get(1), (other, args.get(1)), CopyManner::MoveIfAbsent, done)
}

fn done(reply: &mut super::super::encode::Encoder<'_>, answer: Answer) {
    reply.integer(i64::from(answer == Answer::Yes));
}

fn transfer(pass: &mut Pass<'_>, from: &[u8], to: (u8, &[u8]), manner: CopyManner, reply: CopyReply) -> CommandOutcome {
    let from = pass.locate(from, Intent::Overwrite)?;
    let to = pass.locate_in(to.0, to.1, Intent::Overwrite)?;
    pass.pending.copy((from.cell, &from.id), (to.cell, &to.id), manner);
    // The first answer is only what was read.
    pass.replies.expect_made(2, move |encoder, answers| reply(encoder, answers[1]));
    Ok(Flow::Next)
}
