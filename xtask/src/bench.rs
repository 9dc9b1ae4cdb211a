//! `cargo xtask bench`: Tally and a real Redis under the same load from the same generator, one after the other.
//!
//! The flow: rows are measured (`load` runs the generator, `peer` the servers), judged against what is required of them
//! (`requirement`), and written as one page (`page`) with the machine they were measured on.

mod load;
mod machine;
mod page;
mod peer;
mod requirement;
mod rows;

use crate::shell;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use load::Generator;
use peer::Peers;
use rows::Results;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Row {
    /// INCR over a million random keys, 50 connections, pipeline 64
    P64,
    /// The same at pipeline 16
    P16,
    /// The same at pipeline 1
    P1,
    /// The same at pipeline 64 on one key
    Hot,
    /// GETs while INCRs run at full rate
    Mix,
    /// POST /v1/events
    Events,
    /// Resident memory of 10 million counters
    Memory,
    /// Time until a server is ready again
    Restart,
    /// 100 million counters in 1 GiB; takes many minutes
    Huge,
}

#[derive(Args)]
pub struct BenchArgs {
    /// Only these rows, and only print them; without any, all but `huge` are measured and docs/benchmarks.md is written
    rows: Vec<Row>,
    /// Measure `huge` as well
    #[arg(long)]
    long: bool,
    /// Seconds of one measurement
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Measurements of which the median counts
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
}

impl BenchArgs {
    fn chosen_rows(&self) -> Vec<Row> {
        let mut rows = self.rows.clone();
        if rows.is_empty() {
            rows = Row::value_variants().iter().copied().filter(|row| *row != Row::Huge).collect();
        }
        if self.long {
            rows.push(Row::Huge);
        }
        if rows.contains(&Row::Hot) {
            rows.push(Row::P64); // It is judged against the random keys.
        }
        rows.sort();
        rows.dedup();
        rows
    }
}

pub fn run(args: BenchArgs) -> Result<()> {
    if !shell::succeeds("redis-server", &["--version"]) {
        bail!("redis-server is not installed, and there is nothing to compare with; cargo xtask test installs it");
    }
    let machine = machine::describe();
    let tally = shell::build_tally(true)?;
    let directory = shell::scratch_dir("bench-")?;
    let peers = Peers::new(tally.clone(), directory.path().to_owned());
    let generator = Generator::new(tally, args.seconds, args.repetitions);
    let mut results = Results::default();
    rows::measure(&args.chosen_rows(), &peers, &generator, &mut results)?;
    let page = page::render(&machine, &args.seconds, &args.repetitions, &results);
    println!("\n{page}");
    if args.rows.is_empty() {
        std::fs::write(shell::workspace().join("docs/benchmarks.md"), page)?;
        println!("written to docs/benchmarks.md");
    }
    Ok(())
}
