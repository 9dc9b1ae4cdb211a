//! `FUNCTION FLUSH` and `FUNCTION LIST`, as a Redis without functions answers them: tools call them to begin with nothing.

use super::super::fault::ErrorReply;
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass, is};

pub fn flush(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    match args.from(2).collect::<Vec<_>>()[..] {
        [] => pass.ok(),
        [word] if is(word, "ASYNC") || is(word, "SYNC") => pass.ok(),
        _ => Err(ErrorReply::of("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
    }
}

pub fn list(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let mut words = args.from(2);
    while let Some(word) = words.next() {
        if is(word, "LIBRARYNAME") && words.len() == 0 {
            return Err(ErrorReply::of("ERR library name argument was not given"));
        } else if is(word, "LIBRARYNAME") {
            words.next();
        } else if !is(word, "WITHCODE") {
            return Err(ErrorReply::join(&[b"ERR Unknown argument ", word]));
        }
    }
    pass.replies.say(|reply| reply.array(0));
    Ok(Flow::Next)
}
