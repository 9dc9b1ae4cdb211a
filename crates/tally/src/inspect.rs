//! `tally inspect`: shows a log segment or a store to a person. It only reads.

mod segment;
mod store;

use crate::failure::{Failure, Result};
use clap::Args;
use std::path::{Path, PathBuf};

/// Show what is in a log segment or a data directory
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally inspect data                          the counters of a data directory, as of its last checkpoint
  tally inspect data/log                      the segments of its log
  tally inspect data/log/000000000001.seg     the batches and records of one segment
A data directory can only be read while no server uses it; segments can be read at any time.")]
pub struct InspectArgs {
    /// A segment file, the directory of a log, or a data directory
    path: PathBuf,
    /// Show at most this many records or counters
    #[arg(long, default_value_t = 1000, value_name = "N")]
    limit: usize,
}

pub fn run(args: InspectArgs) -> Result<()> {
    let path = &args.path;
    if path.is_file() {
        return segment::show(path, args.limit);
    }
    if path.join(store::DIRECTORY).is_dir() {
        return store::show(path, args.limit);
    }
    match segment::list(path) {
        segments if segments.is_empty() => Err(unknown(path)),
        segments => segments.iter().try_for_each(|path| segment::summarise(path)),
    }
}

fn unknown(path: &Path) -> Failure {
    let why = if path.exists() { "there is neither a log nor a store in it" } else { "it does not exist" };
    Failure::new(format!("{} cannot be shown", path.display()))
        .why(why)
        .remedy("Name a data directory, the directory of a log, or a file that ends in .seg.")
}

/// An id as it is read best: as text, with what cannot be seen escaped.
fn readable(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => id.escape_ascii().to_string(),
    }
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
