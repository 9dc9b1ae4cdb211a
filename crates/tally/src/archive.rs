//! `tally archive`: how far the archive of a server is.

use crate::failure::Result;
use crate::http::HttpArgs;
use crate::output::Output;
use bytesize::ByteSize;
use clap::{Args, Subcommand};

/// Ask a server how far its archive is, or have it brought up to now
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally archive status     how far it is, and what it takes on disk
  tally archive flush      wait until everything so far can be read in it")]
pub struct ArchiveArgs {
    #[command(subcommand)]
    what: ArchiveCommand,
}

#[derive(Subcommand)]
enum ArchiveCommand {
    /// Print how far it is
    Status(AskArgs),
    /// Bring it up to now, and wait for it
    Flush(AskArgs),
}

#[derive(Args)]
struct AskArgs {
    /// Print what the server answers, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

pub fn run(args: ArchiveArgs, out: &mut Output) -> Result<()> {
    let (answer, as_json) = match args.what {
        ArchiveCommand::Status(ask) => (ask.server.get("/v1/archive", &[])?.json()?, ask.json),
        ArchiveCommand::Flush(ask) => (ask.server.post("/v1/archive/flush", "application/json", "")?.json()?, ask.json),
    };
    if as_json {
        return out.json(&answer);
    }
    let text = |name: &str| answer[name].as_str().unwrap_or("nothing yet").to_owned();
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    out.line(format!("directory  {}", text("directory")))?;
    out.line(format!("position   {} of {}", text("position"), text("logTime")))?;
    out.line(format!("behind     {} records", number("lagRecords")))?;
    let bytes = ByteSize(number("bytes"));
    out.line(format!("has        {} events in {} files, {bytes}", number("events"), number("files")))?;
    match answer["trouble"].as_str() {
        Some(trouble) => out.line(format!("trouble    {trouble}")),
        None => Ok(()),
    }
}
