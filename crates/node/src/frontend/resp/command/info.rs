//! What the server says about itself: `INFO`.

use super::super::parse::Args;
use super::super::pass::{Flow, Outcome, Pass, is};
use super::super::server::Server;
use super::REDIS_VERSION;
use super::config::appendfsync;
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
