//! `cargo xtask instructions`: how many instructions of the processor one operation takes, user code only.
//!
//! The server runs under callgrind and takes a short load; another one, from the start, a longer one. What the two differ by,
//! over the operations they differ by, is what one costs: start, warming up and end drop out. Such a count hardly depends on
//! the machine and on what else it does, so a change can be held against the state before it, which a rate does not allow.

use super::load::Generator;
use super::rows::Results;
use crate::install;
use crate::server::{self, Server};
use crate::shell::{self, step};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub struct InstructionsArgs {
    /// Another `tally` to hold it against, such as one of the commit before
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
}

const CONFIG: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules:
      - {on: video.viewed, op: increment}
  - counterName: reads
    mode: simple
    dimensions: [page]
    rules:
      - {on: page.read, op: increment}
  - counterName: impressions
    mode: persistent
    dimensions: [ad]
    rules:
      - {on: ad.shown, op: increment}
";

/// What is sent, and how it is called.
struct Load {
    title: &'static str,
    /// `None`: nothing is declared.
    config: Option<&'static str>,
    args: &'static [&'static str],
    is_http: bool,
    /// Of the short run and of the longer one.
    operations: [u64; 2],
}

const INCR: &[&str] = &["--pipeline", "64"];
const INCR_OPERATIONS: [u64; 2] = [100_000, 600_000];
const EVENTS_OPERATIONS: [u64; 2] = [40_000, 240_000];

const LOADS: [Load; 5] = [
    Load { title: "`INCR`", config: None, args: INCR, is_http: false, operations: INCR_OPERATIONS },
    Load {
        title: "`INCR` beside declared counters",
        config: Some(CONFIG),
        args: INCR,
        is_http: false,
        operations: INCR_OPERATIONS,
    },
    Load {
        title: "an event of a `simple` counter",
        config: Some(CONFIG),
        args: &["--op", "events", "--ids", "--type", "page.read", "--dimension", "page"],
        is_http: true,
        operations: EVENTS_OPERATIONS,
    },
    Load {
        title: "an event of a `display` counter",
        config: Some(CONFIG),
        args: &["--op", "events", "--ids", "--type", "video.viewed", "--dimension", "video"],
        is_http: true,
        operations: EVENTS_OPERATIONS,
    },
    Load {
        title: "an event of a `persistent` counter",
        config: Some(CONFIG),
        args: &["--op", "events", "--ids", "--type", "ad.shown", "--dimension", "ad"],
        is_http: true,
        operations: EVENTS_OPERATIONS,
    },
];

/// Counts for the binary of this tree and, if wanted, for another one.
pub fn run(args: InstructionsArgs) -> Result<()> {
    let tally = shell::build_tally(true)?;
    let counter = Counter::new(tally.clone())?;
    step("instructions of one operation");
    for load in &LOADS {
        let here = counter.count(load, &tally)?;
        let told = match &args.against {
            None => String::new(),
            Some(other) => {
                let there = counter.count(load, other)?;
                format!(" {there:>8.0} {:>+7.1} %", (here / there - 1.0) * 100.0)
            }
        };
        println!("  {:<40} {here:>8.0}{told}", load.title);
    }
    Ok(())
}

/// Counts for the page.
pub fn measure(tally: &Path, results: &mut Results) -> Result<()> {
    step("instructions of one operation");
    let counter = Counter::new(tally.to_owned())?;
    for load in &LOADS {
        let instructions = counter.count(load, tally)?;
        println!("  {:<40} {instructions:>8.0}", load.title);
        results.notes.push(format!("Instructions of user code for {}: {instructions:.0}.", load.title));
    }
    Ok(())
}

struct Counter {
    /// The same load for every server.
    generator: Generator,
    directory: tempfile::TempDir,
}

impl Counter {
    fn new(tally: PathBuf) -> Result<Counter> {
        install::valgrind()?;
        Ok(Counter { generator: Generator::new(tally, 1, 1), directory: shell::scratch_dir("instructions-")? })
    }

    /// What one operation costs.
    fn count(&self, load: &Load, binary: &Path) -> Result<f64> {
        let [few, many] = load.operations;
        let difference = self.total(load, binary, many)?.saturating_sub(self.total(load, binary, few)?);
        Ok(difference as f64 / (many - few) as f64)
    }

    /// What a whole life with so many operations costs.
    fn total(&self, load: &Load, binary: &Path, operations: u64) -> Result<u64> {
        let [data, config, counts, log] = ["data", "counters.yaml", "counts", "stderr"].map(|name| self.path(name));
        let mut more = Vec::new();
        if let Some(declared) = load.config {
            std::fs::write(&config, declared)?;
            more = vec!["--config", config.to_str().context("the scratch directory is UTF-8")?];
        }
        let mut command = Command::new("valgrind");
        command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts.display())).arg(binary);
        let server = server::start_tally_as(command, &data, &log, &more)?.wait_for_tally()?;
        self.send(load, &server, operations)?;
        server.stop()?;
        let counted = total_in(&std::fs::read_to_string(&counts)?).context("callgrind has written no total")?;
        std::fs::remove_dir_all(&data)?;
        Ok(counted)
    }

    fn send(&self, load: &Load, server: &Server, operations: u64) -> Result<()> {
        let operations = operations.to_string();
        let bounds = ["--keys", "10000", "--connections", "4", "--requests", &operations];
        let args = [load.args, &bounds].concat();
        match load.is_http {
            true => self.generator.http_once(server, &args)?,
            false => self.generator.resp_once(server, &args)?,
        };
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// The sum in a file of callgrind's.
fn total_in(counts: &str) -> Option<u64> {
    counts.lines().rev().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_behind_the_functions() {
        let counts = "# callgrind format\nevents: Ir\nsummary: 7\n\nfn=(1) main\n12 5\n\ntotals: 698279626\n";
        assert_eq!(total_in(counts), Some(698_279_626));
        assert_eq!(total_in("events: Ir\n"), None);
    }
}
