//! `tally inspect`: shows a log segment, commits or a store to a person. It only reads.

mod commits;
mod segment;
mod store;

use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::Args;
use std::path::{Path, PathBuf};

/// Show what is in a log segment, the commits or a data directory
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally inspect data                         its counters, as of a checkpoint
  tally inspect data/log                     the segments of its log
  tally inspect data/log/000000000001.seg    the records of one segment
  tally inspect data/commits                 what the log came to

A data directory can only be read while no server uses it; segments can be read
at any time.")]
pub struct InspectArgs {
    /// A segment file, the directory of a log or of commits, or a data directory
    path: PathBuf,
    /// Show at most this many records, commits or counters
    #[arg(long, default_value_t = 1000, value_name = "N")]
    limit: usize,
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
}

pub fn run(args: InspectArgs, out: &mut Output) -> Result<()> {
    let path = &args.path;
    if commits::are_in(path) {
        return commits::show(path, args.limit, args.json, out);
    }
    if path.is_file() {
        return segment::show(path, args.limit, args.json, out);
    }
    if path.join(store::DIRECTORY).is_dir() {
        return store::show(path, args.limit, args.json, out);
    }
    match segment::list(path) {
        segments if segments.is_empty() => Err(unknown(path)),
        segments => segments.iter().try_for_each(|path| segment::summarise(path, args.json, out)),
    }
}

fn unknown(path: &Path) -> Failure {
    let why = if path.exists() { "there is neither a log nor a store in it" } else { "it does not exist" };
    Failure::new(format!("{} cannot be shown", path.display()))
        .why(why)
        .remedy("Name a data directory, the directory of a log, or a file that ends in .seg.")
}

/// A moment in UTC.
fn moment(ms: u64) -> String {
    let since = std::time::Duration::from_millis(ms);
    match std::time::UNIX_EPOCH.checked_add(since) {
        // The year 9999 is the last that can be written.
        Some(moment) if ms < 253_402_300_800_000 => humantime::format_rfc3339_millis(moment).to_string(),
        _ => format!("{ms} ms after 1970"),
    }
}
