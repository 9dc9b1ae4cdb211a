//! `HELP` of the commands that have subcommands, written from the table.

use super::super::fault::ErrorReply;
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass};
use super::by_name;

pub fn client(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    help(pass, "client")
}

pub fn command(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    help(pass, "command")
}

pub fn config(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    help(pass, "config")
}

pub fn function(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    help(pass, "function")
}

/// A container without a subcommand does nothing.
pub fn none(_: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    Err(ErrorReply::unknown_command(args.get(0), args.from(1)))
}

fn help(pass: &mut Pass<'_>, container: &str) -> CommandOutcome {
    let subcommands = by_name(container.as_bytes()).map_or(&[][..], |command| command.subcommands);
    let heading = container.to_ascii_uppercase();
    pass.replies.say(|reply| {
        reply.array(1 + 2 * subcommands.len());
        reply.simple(&format!("{heading} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
        for subcommand in subcommands {
            reply.simple(&subcommand.short_name().to_ascii_uppercase());
            reply.simple(&format!("    {}.", subcommand.summary));
        }
    });
    Ok(Flow::Next)
}
