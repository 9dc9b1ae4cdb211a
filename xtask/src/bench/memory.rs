//! The rows about memory: what a counter takes, what a server takes under load, how long it takes to load it again, and what
//! becomes of a hundred million counters that do not fit.

use super::Row;
use super::contracts::{IMPRESSIONS, VIEWS_AND_IMPRESSIONS};
use super::load::Generator;
use super::machine;
use super::peer::{Peer, Peers, Size};
use super::requirement::Requirement;
use super::rows::Results;
use crate::client::{Reply, RespClient, encode};
use crate::server::Server;
use crate::shell::step;
use anyhow::{Context, Result, ensure};
use std::thread;
use std::time::Duration;

const MANY_COUNTERS: u64 = 10_000_000;
const REPLAY_INCREMENTS: u64 = 20_000_000;
const HUGE_COUNTERS: u64 = 100_000_000;
const MIB: f64 = (1 << 20) as f64;

/// What a server is given under the loads below, in MiB.
const RESIDENT_MEMORY_MIB: f64 = 512.0;
/// Memory fills up for a while.
const RESIDENT_SECONDS_TIMES: u32 = 5;

/// Loads that have taken much memory. The bodies of 4,000 events have 1 MB.
const RESIDENT_LOADS: [(&str, &[&str]); 8] = [
    ("1 MB bodies from 64 connections, 1 M keys", &["--connections", "64", "--events-per-request", "4000"]),
    (
        "1 MB bodies from 200 connections, 10 M keys",
        &["--connections", "200", "--events-per-request", "4000", "--keys", "10000000"],
    ),
    (
        "1 MB bodies from 200 connections, 30 M keys",
        &["--connections", "200", "--events-per-request", "4000", "--keys", "30000000"],
    ),
    ("compact batches from 64 connections, 10 M keys", &["--connections", "64", "--compact", "--keys", "10000000"]),
    ("one event at a time from 64 connections", &["--connections", "64", "--events-per-request", "1"]),
    ("persistent events from 64 connections", &[]),
    ("`INCR` over 10 M keys", &["--op", "incr", "--keys", "10000000"]),
    ("`INCR` over 50 M keys", &["--op", "incr", "--keys", "50000000"]),
];

/// Right after they were made, and once memory had stopped changing.
pub fn measure_counters(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let counters = MANY_COUNTERS.to_string();
    for peer in [Peer::Tally, Peer::RedisNone] {
        step(&format!("{}: {peer}", Row::Memory.title()));
        let server = peers.start(peer, Size::USUAL)?;
        let empty = resident_at_rest(&server)?;
        generator.once(&server, &["--keys", &counters, "--preload", "--requests", "0"])?;
        let each = |resident: u64| resident.saturating_sub(empty) as f64 / MANY_COUNTERS as f64;
        let at_once = each(machine::resident_bytes(server.pid())?);
        let at_rest = each(resident_at_rest(&server)?);
        results.note(format!(
            "10 M counters `v:00000042` in {peer}: {at_once:.1} bytes each right after they were made, {at_rest:.1} once that had stopped changing."
        ));
        if peer == Peer::Tally {
            let what = "10 M counters: resident memory each, above the empty server, right after they were made";
            results.requirements.push(Requirement::at_most(what, 36.0, at_once, "bytes"));
        }
    }
    Ok(())
}

/// The peak under each load, each on a server of its own. What it has no room for, a server may refuse.
pub fn measure_resident(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let seconds = generator.seconds * RESIDENT_SECONDS_TIMES;
    for (name, load) in RESIDENT_LOADS {
        step(&format!("{}: {name}", Row::Resident.title()));
        let load = match load {
            [] => [&IMPRESSIONS[..], &["--connections", "64"]].concat(),
            ["--op", ..] => load.to_vec(),
            _ => [&["--op", "events"], load].concat(),
        };
        let memory = format!("{RESIDENT_MEMORY_MIB}MiB");
        let server = peers.start_declared(VIEWS_AND_IMPRESSIONS, &["--memory", &memory])?;
        let report = generator.refusable(&server, seconds, &load)?.shown();
        let what = format!("{}, `--memory {memory}`, {name}", Row::Resident.title());
        let most = 1.1 * RESIDENT_MEMORY_MIB + 64.0;
        results.requirements.push(Requirement::at_most(what, most, report.peak_bytes as f64 / MIB, "MiB"));
        results.note(format!(
            "{name}, `--memory {memory}`: {:.0} k/s, {} requests refused, the longest wait {:.2} s.",
            report.operations_per_second() / 1000.0,
            report.retries + report.errors,
            report.groups.iter().map(|group| group.latency_us.max).fold(0.0, f64::max) / 1e6
        ));
        drop(server);
        peers.forget_data()?;
    }
    Ok(())
}

/// Ready again after a crash, and after a stop with many counters.
pub fn measure_restart(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    step("restart after a crash: replay of the log");
    let data = peers.new_data()?;
    let no_checkpoint = ["--checkpoint-log", "1TiB"];
    let server = peers.start_tally(&data, &no_checkpoint)?;
    generator.once(&server, &["--requests", &REPLAY_INCREMENTS.to_string()])?;
    server.kill();
    let server = peers.start_tally(&data, &no_checkpoint)?;
    let rate = REPLAY_INCREMENTS as f64 / server.ready_after.as_secs_f64();
    let what = "restart after kill -9: increments replayed, start of the process included";
    results.requirements.push(Requirement::at_least(what, 3e6, rate, "per second"));
    drop(server);

    step("restart with 10 M counters");
    let data = peers.new_data()?;
    let server = peers.start_tally(&data, &[])?;
    let counters = MANY_COUNTERS.to_string();
    generator.once(&server, &["--keys", &counters, "--preload", "--requests", "0"])?;
    server.stop()?;
    let server = peers.start_tally(&data, &[])?;
    ensure!(counters_of(&server)? == MANY_COUNTERS, "a restart has lost counters");
    let seconds = server.ready_after.as_secs_f64();
    results.requirements.push(Requirement::at_most("restart with 10 M counters: ready to serve", 5.0, seconds, "s"));
    Ok(())
}

/// The same Zipf increments over 100 million counters, with memory for all of them and with 1 GiB.
pub fn measure_huge(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let counters = HUGE_COUNTERS.to_string();
    let zipf = ["--keys", &counters, "--dist", "zipf:1.0"];
    let mut rates = Vec::new();
    for memory in ["12GiB", "1GiB"] {
        step(&format!("100 M counters, --memory {memory}"));
        let data = peers.new_data()?;
        let server = peers.start_tally(&data, &["--memory", memory])?;
        let preload = generator.once(&server, &["--keys", &counters, "--preload", "--requests", "0"])?;
        let figure = generator.repeated(&server, "INCR", &zipf)?;
        let uniform = generator.repeated(&server, "INCR", &["--keys", &counters])?;
        let resident = machine::resident_bytes(server.pid())?;
        results.note(format!(
            "100 M counters, `--memory {memory}`: created in {:.0} s; Zipf(1.0) {:.0} k/s, uniform {:.0} k/s; {:.2} GiB resident afterwards.",
            preload.seconds,
            figure.per_second / 1000.0,
            uniform.per_second / 1000.0,
            resident as f64 / f64::from(1 << 30)
        ));
        rates.push(figure.per_second);
        drop(server);
        peers.forget_data()?;
    }
    let what = "100 M counters in 1 GiB, Zipf(1.0) increments: rate against all of them in memory";
    results.requirements.push(Requirement::at_least_times(what, 0.33, rates[1] / rates[0]));
    Ok(())
}

/// Resident memory once it has stopped changing: work in the background is not what a counter costs.
fn resident_at_rest(server: &Server) -> Result<u64> {
    const SAMPLES_MAX: usize = 60;
    let mut last = machine::resident_bytes(server.pid())?;
    let mut calm = 0;
    for _ in 0..SAMPLES_MAX {
        thread::sleep(Duration::from_millis(500));
        let now = machine::resident_bytes(server.pid())?;
        calm = if now.abs_diff(last) * 200 < last { calm + 1 } else { 0 };
        last = now;
        if calm == 4 {
            break;
        }
    }
    Ok(last)
}

fn counters_of(server: &Server) -> Result<u64> {
    let mut client = RespClient::connect(server.resp)?;
    let mut command = Vec::new();
    encode(&mut command, &["DBSIZE"]);
    client.send(&command)?;
    match client.reply()? {
        Reply::Integer(count) => u64::try_from(count).context("a number of counters is not negative"),
        other => anyhow::bail!("DBSIZE answered {other:?}"),
    }
}
