//! `tally encode`: events from JSON into compact batches.

use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::Args;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use tally_batch::{Encoder, PushError};
use tally_core::event::batch;
use tally_core::event::json;
use tally_core::limits::{EVENT_BYTES_MAX, EVENTS_PER_REQUEST_MAX};

/// Turn events in JSON, one per line, into compact batches
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally encode events.ndjson > events.batch
  curl http://127.0.0.1:7070/v1/events --data-binary @events.batch \\
       -H 'content-type: application/vnd.tally.batch'

A request takes one batch. With more events than --events-per-batch there are
several, one behind the other. A line that is no event ends it: the error names
the line, and the batches before it are written.")]
pub struct EncodeArgs {
    /// One event per line (NDJSON); standard input if it is left out or -
    file: Option<PathBuf>,
    /// Events in one batch
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=EVENTS_PER_REQUEST_MAX as u64))]
    events_per_batch: u64,
}

pub fn run(args: EncodeArgs, out: &mut Output) -> Result<()> {
    if io::stdout().is_terminal() {
        return Err(
            Failure::new("a batch is not for a terminal").remedy("Write it to a file: tally encode … > events.batch")
        );
    }
    match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => {
            let opened = File::open(file).map_err(|error| unreadable(file).why(error))?;
            encode(BufReader::new(opened), &args, out)
        }
        None => encode(io::stdin().lock(), &args, out),
    }
}

fn encode(mut input: impl BufRead, args: &EncodeArgs, out: &mut Output) -> Result<()> {
    let mut encoder = Encoder::new();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        // One byte more than there may be, and the end of the line.
        let mut bounded = (&mut input).take(EVENT_BYTES_MAX as u64 + 2);
        let read = bounded.read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::new("the events cannot be read").why(error))? == 0 {
            break;
        }
        let text = std::str::from_utf8(line.trim_ascii()).map_err(|error| bad_line(number, error))?;
        if !text.is_empty() {
            push(text, number, &mut encoder, out)?;
        }
        if encoder.events() as u64 == args.events_per_batch {
            finish(&mut encoder, out)?;
        }
    }
    finish(&mut encoder, out)
}

fn push(text: &str, number: u64, encoder: &mut Encoder, out: &mut Output) -> Result<()> {
    let event = json::parse(text, 0).map_err(|error| bad_line(number, error))?;
    let mut pushed = batch::push(&event, encoder);
    if pushed == Err(PushError::Full) {
        finish(encoder, out)?;
        pushed = batch::push(&event, encoder);
    }
    pushed.map_err(|error| bad_line(number, error))
}

fn finish(encoder: &mut Encoder, out: &mut Output) -> Result<()> {
    match encoder.finish() {
        Some(batch) => out.text(batch),
        None => Ok(()),
    }
}

fn unreadable(file: &Path) -> Failure {
    Failure::new(format!("{} cannot be read", file.display()))
}

fn bad_line(number: u64, why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("line {number} is not an event"))
        .why(why)
        .remedy("Mend the line, or leave it out; the batches before it were written.")
}
