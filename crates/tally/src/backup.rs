//! `tally backup`: has a running server take a backup, and waits for it.

use crate::failure::{Failure, Result};
use crate::http::HttpArgs;
use crate::output::Output;
use crate::progress;
use bytesize::ByteSize;
use clap::Args;
use serde_json::Value;
use std::time::Duration;

/// How often the server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Have a server take a backup, and wait for it
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally serve --backup /srv/backups     a server that keeps its backups there
  tally backup                          have it take one now
  tally backup --list                   which there are

What has not changed since the last one is not written again.")]
pub struct BackupArgs {
    /// Print the backups that are there, and take none
    #[arg(long)]
    list: bool,
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

pub fn run(args: BackupArgs, out: &mut Output) -> Result<()> {
    if args.list {
        return list(&args, out);
    }
    let answer = args.server.post("/v1/backups", "application/json", "")?.json()?;
    let run = answer["run"].as_u64().unwrap_or_default();
    let bar = progress::bar(0);
    let ended = loop {
        let state = args.server.get("/v1/backups", &[])?.json()?;
        if state["last"]["run"].as_u64() >= Some(run) {
            break state["last"].clone();
        }
        show(&bar, &state["running"]);
        std::thread::park_timeout(ASK_EVERY);
    };
    bar.finish_and_clear();
    if let Some(error) = ended["error"].as_str() {
        return Err(Failure::new("the backup was not taken").why(error));
    }
    if args.json {
        return out.json(&ended);
    }
    let (size, number) = (&ended["size"], |value: &Value| value.as_u64().unwrap_or_default());
    let bytes = |name: &str| ByteSize::b(number(&size[name])).display().iec().to_string();
    out.line(ended["backup"]["name"].as_str().unwrap_or_default())?;
    out.line(format!("position   {}", ended["backup"]["position"].as_str().unwrap_or_default()))?;
    out.line(format!("has        {} counters in {} objects, {}", size["counters"], size["objects"], bytes("bytes")))?;
    out.line(format!("written    {} objects, {}", size["writtenObjects"], bytes("writtenBytes")))?;
    out.line(format!("took       {:.1} s", number(&ended["tookMs"]) as f64 / 1000.0))
}

/// Each counter is two rows: its own and that of its id.
fn show(bar: &indicatif::ProgressBar, running: &Value) {
    let number = |name: &str| running[name].as_u64().unwrap_or_default();
    bar.set_length(2 * number("counters"));
    bar.set_position(number("rows").min(2 * number("counters")));
    bar.set_message(format!(
        "{} rows, {} written",
        number("rows"),
        ByteSize::b(number("writtenBytes")).display().iec()
    ));
}

fn list(args: &BackupArgs, out: &mut Output) -> Result<()> {
    let state = args.server.get("/v1/backups", &[])?.json()?;
    for backup in state["backups"].as_array().into_iter().flatten() {
        match args.json {
            true => out.json(backup)?,
            false => out.line(backup["name"].as_str().unwrap_or_default())?,
        }
    }
    Ok(())
}
