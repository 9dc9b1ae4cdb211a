//! `tally verify`: proves that log, commits, store and archive of a data directory say the same. No server takes part, and nothing is changed.

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress;
use crate::signals::Signals;
use bytesize::ByteSize;
use clap::Args;
use rustix::fs::Mode;
use serde_json::json;
use std::path::{Path, PathBuf};
use tally_core::limits::MEMORY_BYTES_MIN;
use tally_node::data_dir::DataDirError;
use tally_node::verify::{Check, Finding, Fix, Verified, VerifyError, Verifying, remove_clones, verify};

/// Findings of each check that are shown to a person.
const SHOWN: usize = 20;
/// What is enough for most directories.
const MEMORY: ByteSize = ByteSize::gib(1);

/// Prove that log, commits, store and archive of a stopped server say the same
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally verify data                       everything, key by key
  tally verify data --archive /srv/events where the archive is elsewhere
  tally verify data --json                a line for each check and each finding

Nothing of the directory is changed: a server is started on a clone beside it,
which takes as much room as the log. The exit code is 0 if everything agrees and
3 if something differs; what, where, and what to do about it is printed.")]
pub struct VerifyArgs {
    /// The data directory of a server that is stopped
    #[arg(default_value = "data")]
    data: PathBuf,
    /// Where its archive is, or none [default: archive, in the data directory]
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Where the clone is made [default: beside the data directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Memory for it, such as 4GiB
    #[arg(long, value_name = "SIZE", default_value_t = MEMORY)]
    memory: ByteSize,
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
}

pub fn run(args: VerifyArgs, out: &mut Output) -> Result<()> {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let named = args.archive.as_deref().filter(|archive| *archive != Path::new("none"));
    if let Some(missing) = named.filter(|archive| !archive.is_dir()) {
        return Err(Failure::new(format!("{} cannot be verified", args.data.display()))
            .why(format!("there is no directory {}", missing.display()))
            .remedy("Name the directory that tally serve --archive was given; --archive none does without it."));
    }
    let archive = args.archive.clone().unwrap_or_else(|| args.data.join("archive"));
    let what = Verifying {
        data: args.data.clone(),
        archive: (archive != Path::new("none")).then_some(archive),
        scratch: args.scratch.clone(),
        memory_bytes: args.memory.as_u64().max(MEMORY_BYTES_MIN),
        sql: tally_sql::make,
    };
    let within = what.scratch_directory();
    Signals::catch()?.and_then_end(move || remove_clones(&within))?;
    let bar = progress::bar(0);
    let verified = verify(&what, &mut |step, done, of| {
        bar.set_length(of.max(done));
        bar.set_position(done);
        bar.set_message(step.to_owned());
    });
    bar.finish_and_clear();
    let verified = verified.map_err(|error| failure(error, &args.data))?;
    if args.json {
        print_json(&verified, out)?
    } else {
        print(&verified, out)?
    }
    match verified.findings() {
        0 => Ok(()),
        1 => Err(Failure::not_there("one thing is not as it should be")),
        findings => Err(Failure::not_there(format!("{findings} things are not as they should be"))),
    }
}

fn failure(error: VerifyError, data: &Path) -> Failure {
    let failure = Failure::new(format!("{} cannot be verified", data.display()));
    match error {
        VerifyError::DataDir(DataDirError::InUse(_)) => {
            failure.why("a server is running on it").remedy("Stop it first; tally reconcile asks a running one.")
        }
        VerifyError::DataDir(error @ DataDirError::Missing { .. }) => {
            failure.why(error).remedy("Name the directory that tally serve --data was given.")
        }
        error @ VerifyError::Scratch { .. } => {
            failure.why(error).remedy("Name a directory with room for a copy of the log with --scratch.")
        }
        error => failure.why(error),
    }
}

fn print(verified: &Verified, out: &mut Output) -> Result<()> {
    for check in &verified.checks {
        let Check { name, said, skipped, findings, more } = check;
        let found = match findings.len() as u64 + more {
            _ if skipped.is_some() => format!("not looked at: {}", skipped.as_deref().unwrap_or_default()),
            0 => format!("{said}: as it should be"),
            found if said.is_empty() => format!("{found} found"),
            found => format!("{said}: {found} found"),
        };
        out.line(format_args!("{name:<10} {found}"))?;
    }
    for check in verified.checks.iter().filter(|check| !check.findings.is_empty()) {
        out.line("")?;
        print_findings(check, out)?;
    }
    Ok(())
}

/// What is to be done is said once for those that follow each other.
fn print_findings(check: &Check, out: &mut Output) -> Result<()> {
    let shown = &check.findings[..check.findings.len().min(SHOWN)];
    for (index, finding) in shown.iter().enumerate() {
        out.line(format_args!("{}: {}", check.name, finding.what))?;
        let is_last = shown.get(index + 1).is_none_or(|next| next.fix != finding.fix);
        if is_last && finding.fix != Fix::AsSaid {
            out.line(format_args!("  fix: {}", finding.fix.words()))?;
        }
    }
    match (check.findings.len() - shown.len()) as u64 + check.more {
        0 => Ok(()),
        more => out.line(format_args!("{}: and {more} more; --json has the first of them", check.name)),
    }
}

fn print_json(verified: &Verified, out: &mut Output) -> Result<()> {
    for check in &verified.checks {
        let found = check.findings.len() as u64 + check.more;
        out.json(&json!({"check": check.name, "lookedAt": check.said, "skipped": check.skipped, "found": found}))?;
        for finding in &check.findings {
            let Finding { what, file, at, record, counter, key, expected, found, fix } = finding;
            out.json(&json!({
                "check": check.name, "finding": what, "file": file, "byte": at, "record": record, "counter": counter,
                "key": key, "expected": expected, "found": found, "fix": fix.words(),
            }))?;
        }
    }
    Ok(())
}
