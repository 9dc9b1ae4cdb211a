//! What the server says about itself: `INFO`.

use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass, is};
use super::super::server::Server;
use super::super::stats::Told;
use super::REDIS_VERSION;
use super::config::appendfsync;
use crate::clock;
use crate::counters::NodeDurability;
use crate::metrics::CpuSeconds;
use std::fmt::Write;
use tally_core::database::DATABASES;
use tally_core::op::Answer;

macro_rules! lines {
    ($out:expr, $($name:literal: $value:expr),+ $(,)?) => {{ $( let _ = write!($out, "{}:{}\r\n", $name, $value); )+ }};
}

/// A section of `INFO` and what it says.
type Section = (&'static str, fn(&Server, &mut String));

const KEYSPACE: &str = "Keyspace";

/// Only told when it is asked for, as in Redis.
const COMMANDSTATS: &str = "Commandstats";

const SECTIONS: [Section; 11] = [
    ("Server", server_section),
    ("Clients", clients_section),
    ("Memory", memory_section),
    ("Persistence", persistence_section),
    ("Stats", stats_section),
    ("Replication", replication_section),
    ("CPU", cpu_section),
    (COMMANDSTATS, commandstats_section),
    ("Errorstats", errorstats_section),
    ("Cluster", |_, out| lines!(out, "cluster_enabled": 0)),
    (KEYSPACE, |_, _| {}),
];

pub fn info(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let asked = |names: &[&str]| args.from(1).any(|word| names.iter().any(|name| is(word, name)));
    let everything = asked(&["ALL", "EVERYTHING"]);
    let usual = everything || args.len() == 1 || asked(&["DEFAULT"]);
    let mut text = String::new();
    let mut with_keyspace = false;
    for (name, write) in SECTIONS {
        if everything || usual && name != COMMANDSTATS || asked(&[name]) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string cannot fail, here and below.
            let _ = write!(text, "{gap}# {name}\r\n");
            write(pass.server, &mut text);
            with_keyspace |= name == KEYSPACE;
        }
    }
    // Its section is the last, and true of the place where the command stands among others.
    let databases = if with_keyspace { DATABASES } else { 0 };
    for database in 0..databases as u8 {
        pass.pending.size(database);
        pass.pending.expiring(database);
    }
    pass.replies.expect_made(2 * databases, move |reply, answers| {
        for (database, pair) in answers.chunks_exact(2).enumerate() {
            if let [Answer::Value(keys @ 1..), Answer::Value(expires)] = pair {
                let _ = write!(text, "db{database}:keys={keys},expires={expires},avg_ttl=0\r\n");
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
    if let Some(bytes) = status_bytes("VmRSS:") {
        lines!(out, "used_memory": bytes, "used_memory_human": human(bytes), "used_memory_rss": bytes);
    }
    if let Some(bytes) = status_bytes("VmHWM:") {
        lines!(out, "used_memory_peak": bytes, "used_memory_peak_human": human(bytes));
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
        "aof_enabled": u8::from(server.options.durability != NodeDurability::None),
        "appendfsync": appendfsync(server.options.durability),
    );
}

fn stats_section(server: &Server, out: &mut String) {
    lines!(out,
        "total_connections_received": server.stats.connections.get(),
        "total_commands_processed": server.stats.commands.get(),
        "rejected_connections": server.stats.connections_refused.get(),
        "total_error_replies": server.stats.errors().values().sum::<u64>(),
    );
}

fn replication_section(_: &Server, out: &mut String) {
    lines!(out, "role": "master", "connected_slaves": 0, "master_repl_offset": 0);
}

/// Where the system does not tell, the section is empty.
fn cpu_section(_: &Server, out: &mut String) {
    if let Some(CpuSeconds { user, system }) = CpuSeconds::of_process() {
        lines!(out, "used_cpu_sys": format_args!("{system:.6}"), "used_cpu_user": format_args!("{user:.6}"));
    }
}

fn commandstats_section(server: &Server, out: &mut String) {
    for (name, Told { calls, took, rejected, failed }) in server.stats.told() {
        let usec = took.as_micros();
        let each = usec as f64 / calls.max(1) as f64;
        let _ = write!(
            out,
            "cmdstat_{name}:calls={calls},usec={usec},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}\r\n"
        );
    }
}

fn errorstats_section(server: &Server, out: &mut String) {
    for (code, count) in server.stats.errors() {
        let _ = write!(out, "errorstat_{}:count={count}\r\n", String::from_utf8_lossy(&code));
    }
}

/// A figure of the process in bytes, as the system has it.
fn status_bytes(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// As Redis writes it.
fn human(bytes: u64) -> String {
    let (bytes, units) = (bytes as f64, [(1u64 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")]);
    let unit = units.into_iter().find(|(size, _)| bytes >= *size as f64);
    unit.map_or_else(|| format!("{bytes}B"), |(size, name)| format!("{:.2}{name}", bytes / size as f64))
}
