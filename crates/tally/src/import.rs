//! `tally import`: brings the counters of a running Redis to a running server; or makes a data directory of what `tally export` or a
//! backup has written, which is what `tally restore` does.
//!
//! Of Redis one thread reads from Redis, another writes to Tally; a few batches wait between them.

mod redis_url;
mod source;
mod write;

use crate::client::{RespClient, ServerArgs};
use crate::failure::{Failure, Result};
use crate::output::{Output, readable};
use crate::progress;
use crate::restore::{self, RestoreArgs};
use clap::Args;
use serde_json::json;
use source::{Found, Source};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tally_node::backup::Place;
use tally_node::worker::Spawner;
use write::Written;

/// Batches that wait to be written.
const BATCHES_MAX: usize = 8;
/// Keys of each reason that are named, and how much of each.
const EXAMPLES_MAX: usize = 5;
const EXAMPLE_BYTES_MAX: usize = 64;

/// Bring what another server has: the integer keys of a running Redis, or all of an exported Tally
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally import redis://localhost:6379         all integers of its database 0
  tally import redis://10.0.0.7:6379/3 --only-new
  tally import moved --data new               what tally export wrote, or a backup

Keys of Redis that are no integers are counted and left out. Run it again if it was
interrupted: what is there already is set once more, or left alone with --only-new.")]
pub struct ImportArgs {
    /// redis://HOST[:PORT][/DATABASE], or the place that was exported to: a directory or s3://bucket/prefix
    source: String,
    /// The data directory that is made of an exported one
    #[arg(long, value_name = "DIR", conflicts_with_all = ["only_new", "redis_password_file", "cluster_node"])]
    data: Option<PathBuf>,
    /// Leave counters that are there already as they are
    #[arg(long)]
    only_new: bool,
    /// The first line of this file is the password of that Redis
    #[arg(long, value_name = "FILE")]
    redis_password_file: Option<PathBuf>,
    /// That Redis is one master of a cluster, and has a part of its keys: run it for each of them
    #[arg(long)]
    cluster_node: bool,
    /// Print what became of it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// A key that was not brought over, and why.
struct LeftOut {
    /// As it is shown: one that is long is cut.
    key: String,
    why: String,
}

impl LeftOut {
    fn new(key: &[u8], why: String) -> LeftOut {
        if key.len() <= EXAMPLE_BYTES_MAX {
            return LeftOut { key: readable(key), why };
        }
        // Not in the middle of a character.
        let end = (0..=EXAMPLE_BYTES_MAX).rev().find(|end| key[*end] & 0xc0 != 0x80).unwrap_or(EXAMPLE_BYTES_MAX);
        LeftOut { key: format!("{}…", readable(&key[..end])), why }
    }
}

/// What keys were left out, and the first few of them.
#[derive(Default)]
struct LeftOuts {
    count: u64,
    examples: Vec<LeftOut>,
}

impl LeftOuts {
    fn add(&mut self, left_out: LeftOut) {
        self.count += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(left_out);
        }
    }

    fn tell(&self, what: &str, out: &mut Output) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        out.line(format!("{what:<10} {}", self.count))?;
        self.examples.iter().try_for_each(|LeftOut { key, why }| out.line(format!("           {key}: {why}")))
    }

    fn json(&self) -> serde_json::Value {
        let examples = self.examples.iter().map(|left| json!({"key": left.key, "why": left.why}));
        json!({"count": self.count, "examples": examples.collect::<Vec<_>>()})
    }
}

pub fn run(args: ImportArgs, out: &mut Output) -> Result<()> {
    match (args.data.clone(), args.source.parse::<Place>()) {
        (Some(data), Ok(place)) => restore::run(RestoreArgs::newest(place, data, args.json), out),
        (None, Ok(_)) => {
            let what = format!("nobody says where to import {} to", args.source);
            Err(Failure::new(what).remedy("Name the data directory to make with --data, or a Redis as redis://HOST."))
        }
        (Some(_), Err(_)) => {
            let what = "the counters of a Redis go to a server that runs, and not to a data directory";
            Err(Failure::new(what).remedy("Start tally serve, and leave out --data."))
        }
        (None, Err(_)) => from_redis(&args, out),
    }
}

fn from_redis(args: &ImportArgs, out: &mut Output) -> Result<()> {
    let mut source = Source::connect(&args.source, args.redis_password_file.as_deref())?;
    if !args.cluster_node {
        source.refuse_part_of_cluster()?;
    }
    let mut target = RespClient::connect(&args.server)?;
    let keys = source.keys()?;
    let (batches, waiting): (SyncSender<Vec<Found>>, Receiver<_>) = sync_channel(BATCHES_MAX);
    let reading = Spawner::thread("import", move || source.read_all(&batches))
        .map_err(|error| Failure::new("a thread cannot be started").why(error))?;
    let bar = progress::bar(keys);
    let mut written = Written::default();
    for batch in &waiting {
        write::write(&mut target, batch, args.only_new, &mut written)?;
        bar.set_position(written.read().min(keys));
        bar.set_message(format!("{} counters", written.set));
    }
    reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    bar.finish_and_clear();
    report(args, &written, out)
}

fn report(args: &ImportArgs, written: &Written, out: &mut Output) -> Result<()> {
    let Written { set, expiring, kept, skipped, refused } = written;
    if args.json {
        return out.json(&json!({"set": set, "expiring": expiring, "kept": kept, "skipped": skipped.json(),
            "refused": refused.json()}));
    }
    out.line(format!("set        {set} counters, {expiring} of them with a time to live"))?;
    if args.only_new {
        out.line(format!("kept       {kept} that were there"))?;
    }
    skipped.tell("skipped", out)?;
    refused.tell("refused", out)
}
