//! What the server says about itself: `INFO` and `COMMAND`.

use super::super::encode::Encoder;
use super::super::fault::Fault;
use super::super::glob;
use super::super::parse::Args;
use super::super::pass::{Flow, Outcome, Pass, is};
use super::super::server::Server;
use super::config::appendfsync;
use super::table::COMMANDS;
use super::{Command, Keys, REDIS_VERSION, by_name};
use crate::clock;
use crate::engine::Durability;
use std::fmt::Write;
use tally_core::database::DATABASES;
use tally_core::op::Answer;

/// A section of `INFO` and what it says.
type Section = (&'static str, fn(&Server, &mut String));

const KEYSPACE: &str = "Keyspace";

const SECTIONS: [Section; 7] = [
    ("Server", server_section),
    ("Clients", clients_section),
    ("Memory", memory_section),
    ("Persistence", persistence_section),
    ("Stats", stats_section),
    ("Replication", replication_section),
    (KEYSPACE, |_, _| {}),
];

macro_rules! lines {
    ($out:expr, $($name:literal: $value:expr),+ $(,)?) => {{ $( let _ = write!($out, "{}:{}\r\n", $name, $value); )+ }};
}

pub fn info(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    let all =
        args.len() == 1 || args.from(1).any(|word| ["ALL", "DEFAULT", "EVERYTHING"].iter().any(|name| is(word, name)));
    let mut text = String::new();
    let mut with_keyspace = false;
    for (name, write) in SECTIONS {
        if all || args.from(1).any(|word| is(word, name)) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string cannot fail, here and below.
            let _ = write!(text, "{gap}# {name}\r\n");
            write(pass.server, &mut text);
            with_keyspace |= name == KEYSPACE;
        }
    }
    // Its section is the last, and true of the place where the command stands among others.
    let databases = if with_keyspace { DATABASES } else { 0 };
    (0..databases).for_each(|database| pass.pending.size(database as u8));
    pass.replies.expect_made(databases, move |reply, sizes| {
        for (database, size) in sizes.iter().enumerate() {
            if let Answer::Value(keys @ 1..) = size {
                let _ = write!(text, "db{database}:keys={keys},avg_ttl=0\r\n");
            }
        }
        reply.verbatim(&text);
    });
    Ok(Flow::Next)
}

fn server_section(server: &Server, out: &mut String) {
    let uptime_s = clock::wall_ms().saturating_sub(server.started_ms) / 1000;
    lines!(out,
        "redis_version": REDIS_VERSION,
        "redis_mode": "standalone",
        "tally_version": env!("CARGO_PKG_VERSION"),
        "os": std::env::consts::OS,
        "arch_bits": usize::BITS,
        "process_id": std::process::id(),
        "tcp_port": server.address.port(),
        "server_time_usec": u128::from(clock::wall_ms()) * 1000,
        "uptime_in_seconds": uptime_s,
        "uptime_in_days": uptime_s / 86_400,
    );
}

fn clients_section(server: &Server, out: &mut String) {
    lines!(out,
        "connected_clients": server.clients.len(),
        "maxclients": server.options.clients_max,
        "blocked_clients": 0,
    );
}

fn memory_section(server: &Server, out: &mut String) {
    // Where the system does not tell, the line is left out rather than guessed.
    if let Some(bytes) = resident_bytes() {
        lines!(out, "used_memory_rss": bytes);
    }
    lines!(out,
        "mem_clients_normal": server.held_bytes(),
        "maxmemory": 0,
        "maxmemory_policy": "noeviction",
    );
}

fn persistence_section(server: &Server, out: &mut String) {
    lines!(out,
        "loading": 0,
        "aof_enabled": u8::from(server.options.durability != Durability::None),
        "appendfsync": appendfsync(server.options.durability),
    );
}

fn stats_section(server: &Server, out: &mut String) {
    lines!(out,
        "total_connections_received": server.stats.connections.get(),
        "total_commands_processed": server.stats.commands.get(),
        "rejected_connections": server.stats.connections_refused.get(),
    );
}

fn replication_section(_: &Server, out: &mut String) {
    lines!(out, "role": "master", "connected_slaves": 0);
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// `COMMAND` without more, and `COMMAND INFO` without names.
pub fn command(pass: &mut Pass<'_>, _: Args<'_>) -> Outcome {
    pass.replies.say(|reply| {
        reply.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| describe(reply, command));
    });
    Ok(Flow::Next)
}

pub fn command_count(pass: &mut Pass<'_>, _: Args<'_>) -> Outcome {
    pass.replies.say(|reply| reply.integer(COMMANDS.len() as i64));
    Ok(Flow::Next)
}

pub fn command_info(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
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

pub fn command_docs(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
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

pub fn command_list(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    let names: Vec<&str> = match args.from(2).collect::<Vec<_>>()[..] {
        [] => COMMANDS.iter().map(|command| command.name).collect(),
        [filter, kind, pattern] if is(filter, "FILTERBY") => COMMANDS
            .iter()
            .filter(|command| match kind {
                _ if is(kind, "PATTERN") => glob::matches(&pattern.to_ascii_lowercase(), command.name.as_bytes()),
                _ if is(kind, "ACLCAT") => words(command.categories).any(|word| is(pattern, &word[1..])),
                _ => false,
            })
            .map(|command| command.name)
            .collect(),
        _ => return Err(super::super::fault::SYNTAX),
    };
    pass.replies.say(|reply| {
        reply.array(names.len());
        names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    });
    Ok(Flow::Next)
}

pub fn command_getkeys(pass: &mut Pass<'_>, args: Args<'_>) -> Outcome {
    let command = by_name(args.get(2)).ok_or(Fault::of("ERR Invalid command specified"))?;
    if !command.takes(args.len() - 2) {
        return Err(Fault::of("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<&[u8]> = match command.keys {
        Keys::None => return Err(Fault::of("ERR The command has no key arguments")),
        Keys::First { .. } => vec![args.get(3)],
        Keys::All { .. } => args.from(3).collect(),
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
        Keys::All { .. } => (1, -1, 1),
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
    let (flags, note, last) = match keys {
        Keys::None => return reply.set(0),
        Keys::First { flags, note } => (flags, note, 0),
        Keys::All { flags } => (flags, "", -1),
    };
    reply.set(1);
    reply.map(if note.is_empty() { 3 } else { 4 });
    if !note.is_empty() {
        reply.bulk(b"notes");
        reply.bulk(note.as_bytes());
    }
    reply.bulk(b"flags");
    set_of_words(reply, flags);
    reply.bulk(b"begin_search");
    describe_spec(reply, "index", &[("index", 1)]);
    reply.bulk(b"find_keys");
    describe_spec(reply, "range", &[("lastkey", last), ("keystep", 1), ("limit", 0)]);
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
    reply.map(2 + usize::from(with_subcommands));
    reply.bulk(b"summary");
    reply.bulk(command.summary.as_bytes());
    reply.bulk(b"group");
    reply.bulk(command.group.as_bytes());
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
