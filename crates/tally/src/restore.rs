//! `tally restore`: makes a data directory of a backup. No server takes part.

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress;
use clap::Args;
use rustix::fs::Mode;
use serde_json::json;
use std::path::PathBuf;
use tally_node::assemble::random;
use tally_node::backup::manifest;
use tally_node::backup::restore::{RestoredBackup, Restoring, restore};
use tally_node::backup::{BackupError, ManifestName, Place, PlaceError};
use tally_node::data_dir::DataDirError;

/// Make a data directory of a backup
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally restore /srv/backups --data new       the newest backup, to a directory that is made
  tally restore /srv/backups --list           which there are
  tally restore /srv/backups --at NAME --data new
  tally restore /srv/backups --of ID --data new    where several servers keep theirs
  tally restore /srv/backups --check          look whether all of the newest can be read
  tally restore s3://bucket/prefix --data new
  tally serve --data new                      go on from there

One that was interrupted goes on where it was when it is run again.")]
pub struct RestoreArgs {
    /// Where the backups are: a directory, or s3://bucket/prefix
    #[arg(value_name = "PLACE", value_parser = parse_place)]
    backups: Place,
    /// The data directory that is made; it must be empty, or half restored from the same backup
    #[arg(long, value_name = "DIR", required_unless_present_any = ["check", "list"])]
    data: Option<PathBuf>,
    /// The name of a backup, instead of the newest
    #[arg(long, value_name = "NAME")]
    at: Option<String>,
    /// The newest of this server, where there are backups of several: the 16 digits behind the time in its names
    #[arg(long, value_name = "ID", value_parser = parse_id, conflicts_with = "at")]
    of: Option<u64>,
    /// Only read all of it and compare every digest
    #[arg(long, conflicts_with = "data")]
    check: bool,
    /// Only print which backups there are
    #[arg(long, conflicts_with_all = ["data", "check", "at", "of"])]
    list: bool,
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
}

impl RestoreArgs {
    /// The newest backup of a place.
    pub fn newest(backups: Place, data: PathBuf, json: bool) -> RestoreArgs {
        RestoreArgs { backups, data: Some(data), at: None, of: None, check: false, list: false, json }
    }
}

pub fn run(args: RestoreArgs, out: &mut Output) -> Result<()> {
    if args.list {
        return list(&args, out);
    }
    // What is counted is nobody else's business, whoever makes the file.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let bar = progress::bar(0);
    let what = Restoring { backups: args.backups.clone(), at: args.at.clone(), of: args.of, data: args.data.clone() };
    let done = restore(&what, random, &mut |read, of| {
        bar.set_length(of as u64);
        bar.set_position(read as u64);
        bar.set_message(format!("{read} of {of} objects"));
    });
    bar.finish_and_clear();
    let RestoredBackup { name, counters, objects } = done.map_err(|error| failure(error, &args))?;
    let (position, data) = (name.position, args.data.as_deref().map(|data| data.display().to_string()));
    if args.json {
        return out.json(&json!({"backup": name.name, "position": position.to_string(), "counters": counters,
            "objects": objects, "data": data}));
    }
    out.line(&name.name)?;
    out.line(format!("position   {position}"))?;
    out.line(format!("has        {counters} counters in {objects} objects, all as they were written"))?;
    data.map_or(Ok(()), |data| out.line(format!("restored   go on with: tally serve --data {data}")))
}

fn list(args: &RestoreArgs, out: &mut Output) -> Result<()> {
    let listed = args.backups.view().and_then(|target| {
        manifest::list(&*target).map_err(|error| BackupError::Io { place: args.backups.to_string(), error })
    });
    for ManifestName { name, position, .. } in listed.map_err(|error| failure(error, args))? {
        match args.json {
            true => out.json(&json!({"name": name, "position": position.to_string()}))?,
            false => out.line(name)?,
        }
    }
    Ok(())
}

fn failure(error: BackupError, args: &RestoreArgs) -> Failure {
    let failure = Failure::new(format!("{} cannot be restored", args.backups));
    match error {
        BackupError::InUse(_) => failure.why(error).remedy("Try again when the backup under way is taken."),
        BackupError::NotThere(_) => failure.why(error).remedy("Name the place that tally serve --backup was given."),
        BackupError::Several { .. } => failure
            .why(error)
            .remedy(format!("Choose with tally restore {} --of ID, or a backup with --at NAME.", args.backups)),
        BackupError::DataDir(DataDirError::InUse(_)) => {
            failure.why("a server runs on the data directory").remedy("Name another one with --data.")
        }
        error => failure.why(error),
    }
}

fn parse_id(text: &str) -> std::result::Result<u64, String> {
    let id = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    id.ok_or_else(|| "an id has 16 hexadecimal digits, such as 0123456789abcdef".to_owned())
}

/// A directory, or `s3://bucket/prefix`.
pub fn parse_place(text: &str) -> std::result::Result<Place, String> {
    text.parse().map_err(|error: PlaceError| error.to_string())
}
