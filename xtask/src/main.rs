//! What a contributor runs. Nothing here shares code with the server: it is tested from outside.

#![allow(clippy::disallowed_methods, reason = "these commands measure time and choose moments; they count nothing")]

mod archive;
mod attack;
mod bench;
mod check;
mod client;
mod clients;
mod crash;
mod differential;
mod exact;
mod install;
mod mutants;
mod openapi;
mod random;
mod redis_suite;
mod server;
mod shell;
mod sim;
mod test;
mod web;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Check, test, crash and measure Tally", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Formatting, clippy and, where it is installed, cargo deny
    Check,
    /// Installs what the tests need, then runs everything: check, all tests, the crash test, a small exact test, instructions
    Test,
    /// Kills a loaded server again and again, and checks what it remembers
    Crash(crash::CrashArgs),
    /// Does to a server, at full size, what has ever made one take gigabytes, and checks what it takes
    Attack(attack::AttackArgs),
    /// Sends millions of events, many of them twice, through restarts, and checks every number against a naive model
    Exact(exact::ExactArgs),
    /// Checks the description of the HTTP interface with the tools that people use on it
    Openapi(openapi::OpenapiArgs),
    /// Builds the page at / (needs npm); the next build of the server has it
    Web(web::WebArgs),
    /// Kills a server that keeps an archive, and lets pyiceberg and DuckDB read and recount it
    Archive(archive::ArchiveArgs),
    /// Lets redis-py and others do what they do by default
    Clients,
    /// Sends random commands of the Redis protocol to Tally and to a real Redis, and compares every reply
    Differential(differential::DifferentialArgs),
    /// Runs Redis's own tests against Tally; those that concern what Tally has not are named in xtask/redis-suite.txt
    RedisSuite(redis_suite::RedisSuiteArgs),
    /// Plants small bugs one at a time, and looks whether a test notices each
    Mutants(mutants::MutantsArgs),
    /// Runs whole clusters and nodes in one thread, from seeds, with faults, against an oracle
    Sim(sim::SimArgs),
    /// Measures Tally beside Redis, PostgreSQL and programs without logic under the same load, and writes docs/benchmarks.md
    Bench(bench::BenchArgs),
    /// Counts the instructions that one operation takes, and compares them with docs/instructions.md: stable where rates are not
    Instructions(bench::InstructionsArgs),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Check => check::run(),
        Command::Test => test::run(),
        Command::Crash(args) => crash::run(args),
        Command::Attack(args) => attack::run(args),
        Command::Exact(args) => exact::run(args),
        Command::Openapi(args) => openapi::run(args),
        Command::Web(args) => web::run(&args),
        Command::Archive(args) => archive::run(args),
        Command::Clients => clients::run(),
        Command::Differential(args) => differential::run(args),
        Command::RedisSuite(args) => redis_suite::run(args),
        Command::Mutants(args) => mutants::run(args),
        Command::Sim(args) => sim::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Instructions(args) => bench::count_instructions(args),
    }
}
