//! The binary: what a person types, one file per command.

mod access;
mod add;
mod bench;
mod check;
mod client;
mod demo;
mod failure;
mod get;
mod inspect;
mod serve;
mod signals;

use clap::{Parser, Subcommand};
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tally counts events and answers how many.
#[derive(Parser)]
#[command(version, max_term_width = 110, disable_help_subcommand = true)]
#[command(after_help = "\
Try it:
  tally demo                a server with sample traffic, and what to ask it
  tally serve               a server on 127.0.0.1, its data in ./data
  tally add visits          count one
  tally get visits          how many?

TALLY_LOG=debug shows more of what a command does.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Demo(demo::DemoArgs),
    Check(check::CheckArgs),
    Add(add::AddArgs),
    Get(get::GetArgs),
    Bench(bench::BenchArgs),
    Inspect(inspect::InspectArgs),
}

fn main() -> ExitCode {
    start_logging();
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> failure::Result<()> {
    match command {
        Command::Serve(args) => serve::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Check(args) => check::run(args),
        Command::Add(args) => add::run(args),
        Command::Get(args) => get::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Inspect(args) => inspect::run(args),
    }
}

/// Logs go to stderr: stdout belongs to the command's answer.
fn start_logging() {
    let filter = EnvFilter::try_from_env("TALLY_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let stderr = std::io::stderr;
    let colours = stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(colours).with_target(false).init();
}
