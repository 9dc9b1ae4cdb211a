//! What the server says about its commands: `COMMAND` and its subcommands, all from the table.

use super::super::encode::Encoder;
use super::super::fault::{self, ErrorReply};
use super::super::glob;
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass, is};
use super::table::COMMANDS;
use super::{Command, Keys, all, arguments, by_name};

/// `COMMAND` without more, and `COMMAND INFO` without names.
pub fn command(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    pass.replies.say(|reply| {
        reply.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| describe(reply, command));
    });
    Ok(Flow::Next)
}

pub fn command_count(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    pass.replies.say(|reply| reply.integer(COMMANDS.len() as i64));
    Ok(Flow::Next)
}

pub fn command_info(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    if args.len() == 2 {
        return command(pass, args);
    }
    let names = args.from(2);
    pass.replies.say(|reply| {
        reply.array(names.len());
        for name in names {
            match by_full_name(name) {
                Some(command) => describe(reply, command),
                None => reply.null(),
            }
        }
    });
    Ok(Flow::Next)
}

pub fn command_docs(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let commands: Vec<&Command> = match args.len() {
        2 => COMMANDS.iter().collect(),
        _ => args.from(2).filter_map(by_full_name).collect(),
    };
    pass.replies.say(|reply| {
        reply.map(commands.len());
        commands.iter().for_each(|command| document(reply, command));
    });
    Ok(Flow::Next)
}

pub fn command_list(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let (kind, pattern) = match args.from(2).collect::<Vec<_>>()[..] {
        [] => (DocsFilter::None, &b""[..]),
        [filter, kind, pattern] if is(filter, "FILTERBY") => (DocsFilter::parse(kind)?, pattern),
        _ => return Err(fault::SYNTAX),
    };
    let names: Vec<&str> = all().filter(|command| kind.takes(command, pattern)).map(|command| command.name).collect();
    pass.replies.say(|reply| {
        reply.array(names.len());
        names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    });
    Ok(Flow::Next)
}

/// What `COMMAND LIST` looks at.
enum DocsFilter {
    None,
    Pattern,
    Category,
    /// Tally has no modules.
    Module,
}

impl DocsFilter {
    fn parse(word: &[u8]) -> Result<DocsFilter, ErrorReply> {
        match word {
            _ if is(word, "PATTERN") => Ok(DocsFilter::Pattern),
            _ if is(word, "ACLCAT") => Ok(DocsFilter::Category),
            _ if is(word, "MODULE") => Ok(DocsFilter::Module),
            _ => Err(fault::SYNTAX),
        }
    }

    fn takes(&self, command: &Command, pattern: &[u8]) -> bool {
        match self {
            DocsFilter::None => true,
            DocsFilter::Pattern => glob::matches(&pattern.to_ascii_lowercase(), command.name.as_bytes()),
            DocsFilter::Category => words(command.categories).any(|word| is(pattern, &word[1..])),
            DocsFilter::Module => false,
        }
    }
}

pub fn command_getkeys(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let command = by_name(args.get(2)).ok_or(ErrorReply::of("ERR Invalid command specified"))?;
    if !command.takes(args.len() - 2) {
        return Err(ErrorReply::of("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<&[u8]> = match command.keys {
        Keys::None => return Err(ErrorReply::of("ERR The command has no key arguments")),
        Keys::First { .. } => vec![args.get(3)],
        Keys::Two { .. } => vec![args.get(3), args.get(4)],
        Keys::All { .. } => args.from(3).collect(),
        Keys::EverySecond { .. } => args.from(3).step_by(2).collect(),
    };
    pass.replies.say(|reply| {
        reply.array(keys.len());
        keys.iter().for_each(|key| reply.bulk(key));
    });
    Ok(Flow::Next)
}

fn by_full_name(name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|&byte| byte == b'|') {
        None => by_name(name),
        Some(bar) => by_name(&name[..bar])?.subcommand(&name[bar + 1..]),
    }
}

/// One entry of `COMMAND INFO`.
fn describe(reply: &mut Encoder<'_>, command: &Command) {
    let (first, last, step) = match command.keys {
        Keys::None => (0, 0, 0),
        Keys::First { .. } => (1, 1, 1),
        Keys::Two { .. } => (1, 2, 1),
        Keys::All { .. } => (1, -1, 1),
        Keys::EverySecond { .. } => (1, -1, 2),
    };
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity.into());
    set_of_words(reply, command.flags);
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    set_of_words(reply, command.categories);
    reply.set(words(command.tips).count());
    words(command.tips).for_each(|tip| reply.bulk(tip.as_bytes()));
    describe_keys(reply, command.keys);
    reply.set(command.subcommands.len());
    command.subcommands.iter().for_each(|subcommand| describe(reply, subcommand));
}

fn describe_keys(reply: &mut Encoder<'_>, keys: Keys) {
    match keys {
        Keys::None => reply.set(0),
        Keys::First { flags, note } => {
            reply.set(1);
            describe_range(reply, flags, note, 1, (0, 1));
        }
        Keys::Two { first, second } => {
            reply.set(2);
            describe_range(reply, first, "", 1, (0, 1));
            describe_range(reply, second, "", 2, (0, 1));
        }
        Keys::All { flags } => {
            reply.set(1);
            describe_range(reply, flags, "", 1, (-1, 1));
        }
        Keys::EverySecond { flags } => {
            reply.set(1);
            describe_range(reply, flags, "", 1, (-1, 2));
        }
    }
}

/// Ids from one argument to another one, counted from the first or, if negative, from the end.
fn describe_range(reply: &mut Encoder<'_>, flags: &str, note: &str, first: i64, (last, step): (i64, i64)) {
    reply.map(if note.is_empty() { 3 } else { 4 });
    if !note.is_empty() {
        reply.bulk(b"notes");
        reply.bulk(note.as_bytes());
    }
    reply.bulk(b"flags");
    set_of_words(reply, flags);
    reply.bulk(b"begin_search");
    describe_spec(reply, "index", &[("index", first)]);
    reply.bulk(b"find_keys");
    describe_spec(reply, "range", &[("lastkey", last), ("keystep", step), ("limit", 0)]);
}

fn describe_spec(reply: &mut Encoder<'_>, kind: &str, fields: &[(&str, i64)]) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.integer(*value);
    }
}

/// One entry of `COMMAND DOCS`.
fn document(reply: &mut Encoder<'_>, command: &Command) {
    reply.bulk(command.name.as_bytes());
    let with_subcommands = !command.subcommands.is_empty();
    let has_arguments = !command.syntax.is_empty();
    let texts = [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity),
    ];
    let texts = texts.iter().filter(|(_, text)| !text.is_empty());
    reply.map(texts.clone().count() + usize::from(has_arguments) + usize::from(with_subcommands));
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if has_arguments {
        reply.bulk(b"arguments");
        arguments::write(reply, command.syntax);
    }
    if with_subcommands {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        command.subcommands.iter().for_each(|subcommand| document(reply, subcommand));
    }
}

fn set_of_words(reply: &mut Encoder<'_>, text: &str) {
    reply.set(words(text).count());
    words(text).for_each(|word| reply.simple(word));
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace()
}
