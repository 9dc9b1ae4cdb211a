//! `CONFIG GET`: the settings that Redis and Tally share, with the values that are true of Tally. And `CONFIG RESETSTAT`.

use super::super::fault::ErrorReply;
use super::super::glob;
use super::super::parse::Args;
use super::super::pass::{CommandOutcome, Flow, Pass, is};
use super::super::server::{KEEPALIVE, Server};
use crate::counters::NodeDurability;
use std::collections::BTreeMap;
use tally_core::database::DATABASES;
use tally_core::limits;

pub fn get(pass: &mut Pass<'_>, args: Args<'_>) -> CommandOutcome {
    let mut found: BTreeMap<Vec<u8>, String> = BTreeMap::new();
    for pattern in args.from(2) {
        for (name, value) in settings(pass.server) {
            if is(pattern, name) {
                // As in Redis, a name is repeated as it was written.
                found.insert(pattern.to_vec(), value);
            } else if glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()) {
                found.insert(name.into(), value);
            }
        }
    }
    pass.replies.say(|reply| {
        reply.map(found.len());
        for (name, value) in &found {
            reply.bulk(name);
            reply.bulk(value.as_bytes());
        }
    });
    Ok(Flow::Next)
}

/// Begins anew with what `INFO` counts. `/metrics` goes on: who reads those wants to know what came since.
pub fn reset_stat(pass: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    pass.server.stats.reset();
    pass.ok()
}

pub fn set(_: &mut Pass<'_>, _: Args<'_>) -> CommandOutcome {
    Err(ErrorReply::of("ERR Tally takes its settings at start: change them there and restart it"))
}

fn settings(server: &Server) -> Vec<(&'static str, String)> {
    let options = &server.options;
    let appendonly = if options.durability == NodeDurability::None { "no" } else { "yes" };
    vec![
        ("appendfsync", appendfsync(options.durability).to_owned()),
        ("appendonly", appendonly.to_owned()),
        ("bind", server.address.ip().to_string()),
        ("databases", DATABASES.to_string()),
        ("maxclients", options.clients_max.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", server.address.port().to_string()),
        ("proto-max-bulk-len", limits::RESP_BULK_BYTES_MAX.to_string()),
        ("save", String::new()),
        ("tcp-keepalive", KEEPALIVE.as_secs().to_string()),
        ("timeout", "0".to_owned()),
    ]
}

/// Redis' word for what Tally promises.
pub fn appendfsync(durability: NodeDurability) -> &'static str {
    match durability {
        NodeDurability::Sync => "always",
        NodeDurability::Interval(_) => "everysec",
        NodeDurability::None => "no",
    }
}
