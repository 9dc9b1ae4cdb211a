//! `tally export`: all that a stopped server is, as a backup that `tally import` makes a data directory of.
//!
//! What is written is what `tally backup` writes, so one that was interrupted goes on where it was.

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::restore::parse_place;
use crate::{progress, serve};
use bytesize::ByteSize;
use clap::Args;
use rustix::fs::Mode;
use serde_json::json;
use std::path::{Path, PathBuf};
use tally_node::assemble::{ExportError, StartError, export};
use tally_node::backup::Place;
use tally_node::data_dir::DataDirError;

/// Write all that a stopped server has to a directory or an object store: counters, parts, what was seen, corrections, its position
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally export moved --data data      of a server that is stopped
  tally import moved --data new       make a data directory of it, on another machine
  tally serve --data new              go on counting exactly

Of a server that runs, tally backup has one taken.")]
pub struct ExportArgs {
    /// Where it is written to, a directory or s3://bucket/prefix; what is there already is not written again
    #[arg(value_name = "PLACE", value_parser = parse_place)]
    place: Place,
    /// The data directory of the stopped server
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: ExportArgs, out: &mut Output) -> Result<()> {
    // What is counted is nobody else's business, whoever makes the file.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let (bar, place) = (progress::bar(0), &args.place);
    let exported = export(&args.data, place, |progress| {
        bar.set_length(2 * progress.counters);
        bar.set_position(progress.rows.min(2 * progress.counters));
        bar.set_message(format!("{} rows", progress.rows));
    });
    bar.finish_and_clear();
    let (name, size) = exported.map_err(|error| failure(error, &args))?;
    let (position, bytes) = (name.position.to_string(), ByteSize::b(size.bytes).display().iec());
    if args.json {
        return out.json(&json!({"name": name.name, "position": position, "counters": size.counters,
            "objects": size.objects, "bytes": size.bytes}));
    }
    out.line(&name.name)?;
    out.line(format!("position   {position}"))?;
    out.line(format!("has        {} counters in {} objects, {bytes}", size.counters, size.objects))?;
    out.line(format!("exported   go on with: tally import {place} --data DIR"))
}

fn failure(error: ExportError, args: &ExportArgs) -> Failure {
    let ExportArgs { place, data, .. } = args;
    match error {
        ExportError::Start(StartError::DataDir(DataDirError::Missing { .. })) => {
            Failure::new(format!("{} is no data directory", data.display()))
                .remedy("Name the one that tally serve was given, with --data.")
        }
        ExportError::Start(StartError::BackupPlace(error)) => Failure::new(format!("nothing was exported to {place}"))
            .why(error)
            .remedy("Name a directory apart from the data."),
        ExportError::Start(error) => serve::explain(error, &data.display().to_string(), Path::new("the configuration")),
        ExportError::Backup(error) => Failure::new(format!("nothing was exported to {place}")).why(error),
        ExportError::Stop(refusal) => Failure::new("the last checkpoint could not be taken").why(refusal),
    }
}
