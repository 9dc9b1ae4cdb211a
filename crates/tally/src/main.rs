//! The binary: what a person types, one file per command.

mod access;
mod add;
mod address;
mod allocator;
mod anomalies;
mod archive;
mod backup;
mod bench;
mod check;
mod client;
mod completions;
mod container;
mod demo;
mod encode;
mod export;
mod failure;
mod get;
mod http;
mod import;
mod inspect;
mod list;
mod logging;
mod output;
mod progress;
mod query;
mod reconcile;
mod restate;
mod restore;
mod series;
mod serve;
mod signals;
mod top;
mod total;
mod verify;
mod verify_proof;

use clap::{Parser, Subcommand};
use logging::LogFormat;
use output::Output;
use std::process::ExitCode;

/// Tally counts events and answers how many.
#[derive(Parser)]
#[command(version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "\
Try it:
  tally demo                a server that shows what it does, and what to ask it
  tally serve               a server on 127.0.0.1, its data in ./data
  tally add visits          count one
  tally get visits          how many?

TALLY_LOG=debug shows more of what a command does.")]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    Serve(serve::ServeArgs),
    Demo(demo::DemoArgs),
    Check(check::CheckArgs),
    Add(add::AddArgs),
    Get(get::GetArgs),
    List(list::ListArgs),
    Series(series::SeriesArgs),
    Top(top::TopArgs),
    Total(total::TotalArgs),
    Archive(archive::ArchiveArgs),
    Query(query::QueryArgs),
    Reconcile(reconcile::ReconcileArgs),
    Restate(restate::RestateArgs),
    VerifyProof(verify_proof::VerifyProofArgs),
    Keygen(verify_proof::KeygenArgs),
    Anomalies(anomalies::AnomaliesArgs),
    Backup(backup::BackupArgs),
    Restore(restore::RestoreArgs),
    Export(export::ExportArgs),
    Verify(verify::VerifyArgs),
    Import(import::ImportArgs),
    Encode(encode::EncodeArgs),
    Bench(bench::BenchArgs),
    Inspect(inspect::InspectArgs),
    Completions(completions::CompletionsArgs),
    /// What a server runs to answer a question in SQL
    #[command(name = tally_node::sql::ANSWER, hide = true)]
    AnswerSql,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    logging::start(log_format(&command), log_level(&command));
    let mut out = Output::new();
    // What was printed before a failure is part of the answer.
    let (done, flushed) = (run(command, &mut out), out.flush());
    match done.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            failure.exit_code()
        }
    }
}

fn log_format(command: &CliCommand) -> LogFormat {
    match command {
        CliCommand::Serve(args) => args.log_format,
        CliCommand::Demo(args) => args.log_format,
        _ => LogFormat::Text,
    }
}

/// A demo tells a story: what the server has to say about every step would be in between.
fn log_level(command: &CliCommand) -> &'static str {
    match command {
        CliCommand::Demo(_) => "warn",
        // What is wrong is its answer.
        CliCommand::Verify(_) => "error",
        _ => "info",
    }
}

fn run(command: CliCommand, out: &mut Output) -> failure::Result<()> {
    match command {
        CliCommand::Serve(args) => serve::run(args),
        CliCommand::Demo(args) => demo::run(args),
        CliCommand::Check(args) => check::run(args, out),
        CliCommand::Add(args) => add::run(args, out),
        CliCommand::Get(args) => get::run(args, out),
        CliCommand::List(args) => list::run(args, out),
        CliCommand::Series(args) => series::run(args, out),
        CliCommand::Top(args) => top::run(args, out),
        CliCommand::Total(args) => total::run(args, out),
        CliCommand::Archive(args) => archive::run(args, out),
        CliCommand::Query(args) => query::run(args, out),
        CliCommand::Reconcile(args) => reconcile::run(args, out),
        CliCommand::Restate(args) => restate::run(args, out),
        CliCommand::VerifyProof(args) => verify_proof::run(args, out),
        CliCommand::Keygen(args) => verify_proof::keygen(args, out),
        CliCommand::Anomalies(args) => anomalies::run(args, out),
        CliCommand::Backup(args) => backup::run(args, out),
        CliCommand::Restore(args) => restore::run(args, out),
        CliCommand::Export(args) => export::run(args, out),
        CliCommand::Verify(args) => verify::run(args, out),
        CliCommand::Import(args) => import::run(args, out),
        CliCommand::Encode(args) => encode::run(args, out),
        CliCommand::Bench(args) => bench::run(args, out),
        CliCommand::Inspect(args) => inspect::run(args, out),
        CliCommand::Completions(args) => completions::run(args, out),
        CliCommand::AnswerSql => tally_sql::answer().map_err(|error| failure::Failure::new(error.to_string())),
    }
}
