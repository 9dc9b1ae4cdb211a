//! The rows: which load, on which servers, and what is required.

use super::Row;
use super::contracts;
use super::instructions;
use super::load::{Figure, Generator, Report};
use super::machine;
use super::peer::{Peer, Peers};
use super::requirement::Requirement;
use crate::client::{Reply, RespClient, encode};
use crate::server::Server;
use crate::shell::step;
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

/// Everything that was measured.
#[derive(Default)]
pub struct Results {
    pub lines: Vec<Line>,
    pub requirements: Vec<Requirement>,
    /// Findings without a requirement of their own.
    pub notes: Vec<String>,
}

pub struct Line {
    pub row: Row,
    pub peer: Peer,
    pub figure: Figure,
}

const MILLION: f64 = 1e6;
const MEMORY_COUNTERS: u64 = 10_000_000;
const REPLAY_INCREMENTS: u64 = 20_000_000;
const HUGE_COUNTERS: u64 = 100_000_000;

impl Row {
    /// The generator's arguments and the group whose latency is shown, for the rows that all servers run.
    fn resp_load(self) -> Option<(&'static str, &'static [&'static str])> {
        Some(match self {
            Row::P64 => ("INCR", &["--pipeline", "64"]),
            Row::P16 => ("INCR", &["--pipeline", "16"]),
            Row::P1 => ("INCR", &["--pipeline", "1"]),
            Row::Hot => ("INCR", &["--pipeline", "64", "--dist", "one"]),
            Row::Mix => ("GET", &["--op", "mix", "--pipeline", "64", "--readers", "10"]),
            _ => return None,
        })
    }

    pub fn title(self) -> &'static str {
        match self {
            Row::P64 => "`INCR`, 1 M random keys, pipeline 64",
            Row::P16 => "`INCR`, 1 M random keys, pipeline 16",
            Row::P1 => "`INCR`, 1 M random keys, pipeline 1",
            Row::Hot => "`INCR`, one hot key, pipeline 64",
            Row::Mix => "`GET` beside `INCR`s at full rate (both counted; latency of the `GET`s)",
            Row::Events => "`POST /v1/events`, NDJSON, 1,000 × 250 bytes",
            Row::Memory => "10 M counters in memory",
            Row::Restart => "restart",
            Row::Huge => "100 M counters in 1 GiB",
            Row::Dedup => "`POST /v1/events`, views of 1 M sessions with consecutive seqs",
            Row::Persistent => "persistent counters, 1,000 events at a time, 100 k keys, 5 % duplicates",
            Row::Streams => "10 impressions (`persistent`) at a time",
            Row::Instructions => "instructions of one operation",
            Row::Registry => "100 M event ids in 1 GiB",
        }
    }
}

pub fn measure(rows: &[Row], peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    measure_resp(rows, peers, generator, results)?;
    for row in rows {
        match row {
            Row::Events => measure_events(peers, generator, results)?,
            Row::Memory => measure_memory(peers, generator, results)?,
            Row::Restart => measure_restart(peers, generator, results)?,
            Row::Huge => measure_huge(peers, generator, results)?,
            Row::Dedup => contracts::measure_dedup(peers, generator, results)?,
            Row::Persistent => contracts::measure_persistent(peers, generator, results)?,
            Row::Streams => contracts::measure_streams(peers, generator, results)?,
            Row::Instructions => instructions::measure(peers.tally(), results)?,
            Row::Registry => contracts::measure_registry(peers, generator, results)?,
            Row::P64 | Row::P16 | Row::P1 | Row::Hot | Row::Mix => {}
        }
    }
    Ok(())
}

/// One server after the other, each alone and with a million counters, runs all rows; and all of that several times, so that
/// a machine that slows down or speeds up meanwhile does so for everybody.
fn measure_resp(rows: &[Row], peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let loads: Vec<_> = rows.iter().filter_map(|row| Some((*row, row.resp_load()?))).collect();
    let mut reports: HashMap<(Row, Peer), Vec<Report>> = HashMap::new();
    for (repetition, peer) in (1..=generator.repetitions).flat_map(|n| Peer::RESP.map(|peer| (n, peer))) {
        if loads.is_empty() {
            break;
        }
        step(&format!("{peer}: {} loads, repetition {repetition} of {}", loads.len(), generator.repetitions));
        let server = peers.start(peer)?;
        generator.resp_once(&server, &["--preload", "--requests", "0"])?;
        for (row, (_, args)) in &loads {
            let report = generator.resp_timed(&server, args, repetition)?;
            println!("  {:<60} {:>10.0} /s", row.title(), report.operations_per_second());
            reports.entry((*row, peer)).or_default().push(report);
        }
        drop(server);
        peers.forget_data()?;
    }
    for (row, (group, _)) in loads {
        for peer in Peer::RESP {
            let figure = Figure::medians(&reports[&(row, peer)], group)?;
            results.lines.push(Line { row, peer, figure });
        }
    }
    rows.iter().for_each(|row| judge_resp(*row, results));
    Ok(())
}

fn judge_resp(row: Row, results: &mut Results) {
    let figure = |row: Row, peer: Peer| {
        results.lines.iter().find(|line| line.row == row && line.peer == peer).map(|line| line.figure)
    };
    let [Some(tally), Some(always), Some(none)] = Peer::RESP.map(|peer| figure(row, peer)) else { return };
    let title = row.title();
    let throughput = |least| {
        let what = format!("{title}: throughput against Redis `always`");
        Requirement::at_least_times(what, least, tally.per_second / always.per_second)
    };
    let latency = |name: &str, most: f64, measured: f64| {
        Requirement::at_most(format!("{title}: {name}, against Redis `always`"), most / 1000.0, measured / 1000.0, "ms")
    };
    let judged = match row {
        Row::P64 => vec![
            throughput(4.0),
            Requirement::at_least_times(
                format!("{title}: operations per server CPU-second against Redis without persistence"),
                2.5,
                tally.per_cpu_second / none.per_cpu_second,
            ),
        ],
        Row::P16 => vec![throughput(2.5)],
        Row::P1 => vec![throughput(1.0), latency("p99", always.latency.p99, tally.latency.p99)],
        Row::Hot => figure(Row::P64, Peer::Tally)
            .map(|random| {
                let what = format!("{title}: throughput against random keys");
                Requirement::at_least_times(what, 1.0, tally.per_second / random.per_second)
            })
            .into_iter()
            .collect(),
        Row::Mix => vec![
            latency("p99", always.latency.p99, tally.latency.p99),
            latency("p999", always.latency.p999, tally.latency.p999),
        ],
        _ => Vec::new(),
    };
    results.requirements.extend(judged);
}

fn measure_events(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let (row, peer) = (Row::Events, Peer::Tally);
    step(row.title());
    let server = peers.start(peer)?;
    let figure = generator.http(&server, "events", &["--op", "events", "--connections", "8"])?;
    let title = row.title();
    results.requirements.extend([
        Requirement::at_least(format!("{title}: events"), 2.0 * MILLION, figure.per_second, "per second"),
        Requirement::at_least(
            format!("{title}: events"),
            1.5 * MILLION,
            figure.per_cpu_second,
            "per server CPU-second",
        ),
    ]);
    results.lines.push(Line { row, peer, figure });
    Ok(())
}

fn measure_memory(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let counters = MEMORY_COUNTERS.to_string();
    for peer in [Peer::Tally, Peer::RedisNone] {
        step(&format!("{}: {peer}", Row::Memory.title()));
        let server = peers.start(peer)?;
        let empty = resident_at_rest(&server)?;
        generator.resp_once(&server, &["--keys", &counters, "--preload", "--requests", "0"])?;
        let each = (resident_at_rest(&server)? - empty) as f64 / MEMORY_COUNTERS as f64;
        println!("  {each:.1} bytes each");
        match peer {
            Peer::Tally => {
                let what = "10 M counters `v:00000042`: resident memory each, above the empty server";
                results.requirements.push(Requirement::at_most(what, 40.0, each, "bytes"));
            }
            _ => results.notes.push(format!("The same 10 M counters take {each:.1} bytes each in {peer}.")),
        }
    }
    Ok(())
}

fn measure_restart(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    step("restart after a crash: replay of the log");
    let data = peers.new_data()?;
    let no_checkpoint = ["--checkpoint-log", "1TiB"];
    let server = peers.start_tally(&data, &no_checkpoint)?;
    generator.resp_once(&server, &["--requests", &REPLAY_INCREMENTS.to_string()])?;
    server.kill();
    let server = peers.start_tally(&data, &no_checkpoint)?;
    let rate = REPLAY_INCREMENTS as f64 / server.ready_after.as_secs_f64();
    let what = "restart after kill -9: increments replayed, start of the process included";
    results.requirements.push(Requirement::at_least(what, 3.0 * MILLION, rate, "per second"));
    drop(server);

    step("restart with 10 M counters");
    let data = peers.new_data()?;
    let server = peers.start_tally(&data, &[])?;
    let counters = MEMORY_COUNTERS.to_string();
    generator.resp_once(&server, &["--keys", &counters, "--preload", "--requests", "0"])?;
    server.stop()?;
    let server = peers.start_tally(&data, &[])?;
    ensure!(counters_of(&server)? == MEMORY_COUNTERS, "a restart has lost counters");
    let seconds = server.ready_after.as_secs_f64();
    results.requirements.push(Requirement::at_most("restart with 10 M counters: ready to serve", 5.0, seconds, "s"));
    Ok(())
}

/// The same Zipf increments over 100 million counters, with memory for all of them and with 1 GiB.
fn measure_huge(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let counters = HUGE_COUNTERS.to_string();
    let zipf = ["--keys", &counters, "--dist", "zipf:1.0"];
    let mut rates = Vec::new();
    for memory in ["12GiB", "1GiB"] {
        step(&format!("100 M counters, --memory {memory}"));
        let data = peers.new_data()?;
        let server = peers.start_tally(&data, &["--memory", memory])?;
        let preload = generator.resp_once(&server, &["--keys", &counters, "--preload", "--requests", "0"])?;
        let figure = generator.resp(&server, "INCR", &zipf)?;
        let uniform = generator.resp(&server, "INCR", &["--keys", &counters])?;
        let resident = machine::resident_bytes(server.pid())?;
        results.notes.push(format!(
            "100 M counters, `--memory {memory}`: created in {:.0} s; Zipf(1.0) {:.0} k/s, uniform {:.0} k/s; {:.2} GiB resident afterwards.",
            preload.seconds,
            figure.per_second / 1000.0,
            uniform.per_second / 1000.0,
            resident as f64 / f64::from(1 << 30)
        ));
        println!("  {}", results.notes.last().expect("it was just pushed"));
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
