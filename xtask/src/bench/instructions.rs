//! `cargo xtask instructions`: how many instructions of the processor one operation takes, user code only, and whether that is
//! what `docs/instructions.md` says; `cargo xtask test` looks, too.
//!
//! The server runs under callgrind and takes a short load; another one, from the start, a longer one. What the two differ by,
//! over the operations they differ by, is what one costs: start, warming up and end drop out. One connection has one question
//! under way, so that a commit is a question whatever the speed of the machine, and what the server would choose by the size of the machine
//! (threads, memory) is given. Valgrind shows every program the same processor (AVX2, wherever the real one has it), so those that
//! choose their code by what they run on (libc, memchr, hashes, checksums) choose alike. Such a count hardly depends on the machine
//! and on what else it does, so a change can be held against the state before it, which a rate does not allow.
//!
//! gungraun counts functions of a harness in the same way and needs a runner of its own version; this counts the program that is
//! released, sockets and threads included, and needs nothing but valgrind.

mod table;

use super::load::Generator;
use super::rows::Results;
use crate::install;
use crate::server;
use crate::shell::{self, step};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args, Default)]
pub struct InstructionsArgs {
    /// Another `tally` to hold it against, such as one of the commit before, instead of the table
    #[arg(long, value_name = "PATH", conflicts_with = "write")]
    against: Option<PathBuf>,
    /// Write docs/instructions.md instead of comparing with it
    #[arg(long)]
    write: bool,
}

/// What looks at events behind the hot path, as far as it is on by itself, is not counted.
const CONFIG: &str = "\
anomalies: none
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

/// What would otherwise follow from the machine.
const OPTIONS: [&str; 6] = ["--memory", "512MiB", "--http-threads", "1", "--archive", "none"];

/// What is sent, and how it is called.
struct Load {
    title: &'static str,
    args: &'static [&'static str],
    /// Of the short run and of the longer one.
    operations: [u64; 2],
}

const LOADS: [Load; 5] = [
    Load { title: "`INCR`, pipeline 64", args: &["--pipeline", "64"], operations: [64_000, 576_000] },
    Load { title: "NDJSON event of a `simple` counter", args: &lines("page.read", "page"), operations: EVENTS },
    Load { title: "NDJSON event of a `display` counter", args: &lines("video.viewed", "video"), operations: EVENTS },
    Load { title: "NDJSON event of a `persistent` counter", args: &lines("ad.shown", "ad"), operations: EVENTS },
    Load {
        title: "event of a `display` counter in a compact batch",
        args: &["--op", "events", "--compact"],
        operations: [50_000, 300_000],
    },
];

const EVENTS: [u64; 2] = [20_000, 120_000];

/// Small enough to be read at once, so that the count does not depend on how a body is cut into pieces.
const fn lines(event_type: &'static str, dimension: &'static str) -> [&'static str; 9] {
    ["--op", "events", "--ids", "--events-per-request", "200", "--type", event_type, "--dimension", dimension]
}

/// Counts for the binary of this tree, and compares.
pub fn run(args: InstructionsArgs) -> Result<()> {
    let tally = shell::build_tally(true)?;
    let counter = Counter::new(tally.clone())?;
    step("instructions of one operation");
    let mut counts = Vec::new();
    for load in &LOADS {
        let here = counter.count(load, &tally)?;
        let told = match &args.against {
            None => String::new(),
            Some(other) => {
                let there = counter.count(load, other)?;
                format!(" {there:>8.0} {:>+7.1} %", (here / there - 1.0) * 100.0)
            }
        };
        println!("  {:<50} {here:>8.0}{told}", load.title);
        counts.push((load.title, here));
    }
    match args {
        InstructionsArgs { write: true, .. } => table::write(&counts),
        InstructionsArgs { against: Some(_), .. } => Ok(()),
        _ => table::compare(&counts),
    }
}

/// Counts for the page.
pub fn measure(tally: &Path, results: &mut Results) -> Result<()> {
    step("instructions of one operation");
    let counter = Counter::new(tally.to_owned())?;
    for load in &LOADS {
        let instructions = counter.count(load, tally)?;
        results.note(format!("Instructions of user code, {}: {instructions:.0}.", load.title));
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
        std::fs::write(&config, CONFIG)?;
        let declared = ["--config", config.to_str().context("the scratch directory is UTF-8")?];
        let mut command = Command::new("valgrind");
        command.env_remove("GLIBC_TUNABLES"); // It could choose other code.
        command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts.display())).arg(binary);
        let options = [&declared[..], &OPTIONS].concat();
        let server = server::start_tally_as(command, &data, &log, &options)?.wait_for_tally()?;
        let operations = operations.to_string();
        // All of the keys are there after the short run.
        let bounds = ["--keys", "1000", "--connections", "1", "--requests", &operations];
        self.generator.once(&server, &[load.args, &bounds].concat())?;
        server.stop()?;
        let counted = total_in(&std::fs::read_to_string(&counts)?).context("callgrind has written no total")?;
        std::fs::remove_dir_all(&data)?;
        Ok(counted)
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
