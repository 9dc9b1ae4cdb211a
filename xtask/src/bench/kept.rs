//! The rows about what is kept beside the counters: what archiving costs and what it costs others, and backups under load.

use super::Row;
use super::contracts::{IMPRESSIONS, VIEWS_AND_IMPRESSIONS};
use super::load::{Generator, median};
use super::machine;
use super::peer::{Peer, Peers, Size};
use super::requirement::Requirement;
use super::rows::Results;
use crate::archive::ask;
use crate::client::HttpClient;
use crate::server::Server;
use crate::shell::step;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Impressions with random ids, as fast as they come.
const LOAD: [&str; 5] = ["--connections", "8", "--events-per-request", "1000", "--keep"];
/// How the thread of the archive is called by the system, which keeps 15 letters of a name.
const ARCHIVE_THREAD: &str = "tally-archive";
const COUNTERS: u64 = 10_000_000;
/// So long that checkpoints come with and without a backup, and not as long as one takes.
const BESIDE_SECONDS: u32 = 30;

/// The same impressions to a node without an archive and to one with it, in turn.
pub fn measure_archiving(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let title = Row::Archiving.title();
    let load = [&IMPRESSIONS, &LOAD[..]].concat();
    let (mut without, mut with, mut per_cpu_second) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in 1..=generator.repetitions {
        step(&format!("{title}: {repetition} of {}", generator.repetitions));
        let server = peers.start_declared(VIEWS_AND_IMPRESSIONS, &[])?;
        without.push(generator.timed(&server, &load, repetition)?.shown().operations_per_second());
        drop(server);
        let (server, _) = peers.start_archived(VIEWS_AND_IMPRESSIONS, &[])?;
        let report = generator.timed(&server, &load, repetition)?.shown();
        with.push(report.operations_per_second());
        ask(server.http()?, "/v1/archive/flush", "")?;
        let cpu_seconds = machine::thread_cpu_seconds(server.pid(), ARCHIVE_THREAD)?;
        per_cpu_second.push(report.operations() as f64 / cpu_seconds);
        drop(server);
        peers.forget_data()?;
    }
    let (without, with) = (median(without), median(with));
    results.note(format!("{title}: {:.0} k a second with the archive, {:.0} k without", with / 1e3, without / 1e3));
    results.requirements.extend([
        Requirement::at_least(format!("{title}: archived"), 500_000.0, median(per_cpu_second), "per CPU-second"),
        // It has one of two cores while it is behind; whoever acknowledges has the other.
        Requirement::at_least_times(format!("{title}: acknowledged, against no archive"), 0.5, with / without),
    ]);
    Ok(())
}

/// Increments as fast as they come, alone and while a backup of ten million counters is taken; then that backup is restored. As many counters
/// are brought from a real Redis.
pub fn measure_backup(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let title = Row::Backup.title();
    step(title);
    let (data, backups) = (peers.new_data()?, peers.new_data()?);
    let place = backups.to_str().context("the scratch directory is UTF-8")?;
    let server = peers.start_tally(&data, &["--backup", place])?;
    let counters = COUNTERS.to_string();
    let load = ["--keys", &counters];
    generator.once(&server, &[&load[..], &["--preload", "--requests", "0"]].concat())?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for repetition in 1..=generator.repetitions {
        // What the store merges of the load before belongs to neither.
        machine::wait_for_rest(server.pid())?;
        alone.push(generator.timed_for(&server, BESIDE_SECONDS, &load, repetition)?.shown().operations_per_second());
        machine::wait_for_rest(server.pid())?;
        let run = begin_backup(&server)?;
        beside.push(generator.timed_for(&server, BESIDE_SECONDS, &load, repetition)?.shown().operations_per_second());
        ensure!(last_run(&server)? < run, "the backup ended before the load did, so its share is not known");
        wait_for(&server, run)?;
    }
    let share = median(beside) / median(alone);
    let restored = peers.new_data()?;
    std::fs::remove_dir(&restored)?;
    let watch = Instant::now();
    let status = Command::new(peers.tally()).args(["restore", place, "--data"]).arg(&restored).status()?;
    ensure!(status.success(), "the backup was not restored");
    let seconds = watch.elapsed().as_secs_f64();
    drop(server);
    let imported = import(peers, generator, &load)?;
    results.requirements.extend([
        Requirement::at_least_times(format!("{title}: increments, against no backup"), 0.9, share),
        Requirement::at_most(format!("{title}: restored"), 60.0, seconds, "s"),
        Requirement::at_most(format!("{title}: 10 M counters imported from a Redis"), 60.0, imported, "s"),
    ]);
    peers.forget_data()
}

/// Seconds for which ten million counters of a Redis are imported to a server that is empty.
fn import(peers: &Peers, generator: &Generator, load: &[&str]) -> Result<f64> {
    let source = peers.start(Peer::RedisNone, Size::USUAL)?;
    generator.once(&source, &[load, &["--preload", "--requests", "0"]].concat())?;
    let target = peers.start(Peer::Tally, Size::USUAL)?;
    let (source_url, server) = (format!("redis://{}", source.resp), target.resp.to_string());
    let watch = Instant::now();
    let output = Command::new(peers.tally()).args(["import", &source_url, "--server", &server, "--json"]).output()?;
    ensure!(output.status.success(), "nothing was imported: {}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(answer["set"] == COUNTERS, "{answer}");
    Ok(watch.elapsed().as_secs_f64())
}

/// Answers the number of the run.
fn begin_backup(server: &Server) -> Result<u64> {
    let (status, answer) = HttpClient::connect(server.http()?)?.post("/v1/backups", "application/json", "")?;
    ensure!(status == 202, "a backup was answered {status}: {answer}");
    serde_json::from_str::<Value>(&answer)?["run"].as_u64().context("a run has a number")
}

/// The number of the last run that has ended.
fn last_run(server: &Server) -> Result<u64> {
    let answer: Value = serde_json::from_str(&HttpClient::connect(server.http()?)?.get("/v1/backups")?)?;
    ensure!(answer["last"]["error"].is_null(), "a backup has failed: {answer}");
    Ok(answer["last"]["run"].as_u64().unwrap_or(0))
}

fn wait_for(server: &Server, run: u64) -> Result<()> {
    while last_run(server)? < run {
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
