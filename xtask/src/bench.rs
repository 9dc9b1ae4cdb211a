//! `cargo xtask bench`: Tally, a real Redis, a real PostgreSQL, a real ClickHouse and programs without any logic under the same load, one after the other.
//!
//! The flow: rows are measured (`load` runs the generator, `peer` and `postgres` the servers), judged against what is required of them
//! (`requirement`), and written as one page (`page`) with the machine they were measured on.

mod beside;
mod contracts;
mod hourly;
mod http;
mod instructions;
mod kept;
mod load;
mod machine;
mod memory;
mod page;
mod peer;
mod postgres;
mod requirement;
mod resp;
mod rollups;
mod rows;
mod sql;

use crate::install;
use crate::shell::{self, step};
use anyhow::Result;
use clap::{Args, ValueEnum};
pub use instructions::{InstructionsArgs, run as count_instructions};
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
    /// INCR over 10 million keys beside one million
    Grown,
    /// Single INCRs at a pace while cuts run
    Pauses,
    /// POST /v1/events, 1,000 at a time
    Events,
    /// POST /v1/events, 10 at a time
    Ten,
    /// POST /v1/events, one at a time
    One,
    /// Compact batches over a million keys
    Compact,
    /// Compact batches over 10 million keys
    CompactGrown,
    /// Resident memory of 10 million counters
    Memory,
    /// The most memory that is resident under heavy loads
    Resident,
    /// Time until a server is ready again
    Restart,
    /// Views with and without dedup
    Dedup,
    /// Persistent counters beside PostgreSQL
    Persistent,
    /// Latency of persistent counters beside a flood of views
    Streams,
    /// Latency of reads beside a flood of views
    Reads,
    /// Views with and without roll-ups
    Rollups,
    /// Series of a key by country and hour, alone and beside views
    Series,
    /// Views by country and hour beside PostgreSQL and ClickHouse
    Hourly,
    /// Instructions of the processor for one operation
    Instructions,
    /// INCR over 50 million keys beside one million; takes minutes
    Grown50,
    /// 100 million counters in 1 GiB; takes many minutes
    Huge,
    /// 100 million event ids in 1 GiB; takes many minutes
    Registry,
    /// The greatest of 10 million keys, and their sum, while they change; takes minutes
    Top,
    /// 50 million hourly parts in 512 MiB; takes many minutes
    Parts,
    /// Impressions with and without the archive
    Archiving,
    /// Increments of 10 million counters beside a backup of them, which is restored; takes minutes
    Backup,
    /// 100 million archived events in SQL beside DuckDB, and counted again; takes many minutes
    Sql,
}

impl Row {
    /// Measured only on demand.
    const LONG: [Row; 7] = [Row::Grown50, Row::Huge, Row::Registry, Row::Top, Row::Parts, Row::Backup, Row::Sql];
}

#[derive(Args)]
pub struct BenchArgs {
    /// Only these rows, and only print them; without any, all but the long ones are measured and docs/benchmarks.md is written
    rows: Vec<Row>,
    /// Measure `grown50`, `huge`, `registry`, `top`, `parts`, `backup` and `sql` as well
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
            rows = Row::value_variants().iter().copied().filter(|row| !Row::LONG.contains(row)).collect();
        }
        if self.long {
            rows.extend(Row::LONG);
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
    step("what is compared with");
    install::redis()?;
    install::nginx()?;
    let machine = machine::describe();
    let (tally, floor) = (shell::build_tally(true)?, shell::build_floor()?);
    let directory = shell::scratch_dir("bench-")?;
    let peers = Peers::new(tally.clone(), floor, directory.path().to_owned());
    let generator = Generator::new(tally, args.seconds, args.repetitions);
    let mut results = Results::default();
    rows::measure(&args.chosen_rows(), &peers, &generator, &mut results)?;
    let page = page::render(&machine, &generator, &results);
    println!("\n{page}");
    if args.rows.is_empty() {
        std::fs::write(shell::workspace().join("docs/benchmarks.md"), page)?;
        println!("written to docs/benchmarks.md");
    }
    Ok(())
}
