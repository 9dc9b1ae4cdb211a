//! The rows about what one load does to another: a flood of views to bills and to reads, and cuts to whoever writes meanwhile.

use super::Row;
use super::contracts::{IMPRESSIONS, VIEWS_AND_IMPRESSIONS, metric};
use super::load::{Figure, Generator, Report, median};
use super::peer::Peers;
use super::requirement::Requirement;
use super::rows::Results;
use crate::client::HttpClient;
use crate::server::Server;
use crate::shell::step;
use anyhow::{Result, ensure};
use std::thread;
use std::time::Duration;

const FLOOD: [&str; 6] = ["--op", "events", "--connections", "64", "--sessions", "1000000"];
/// One at a time, in the hands of whoever asks next: they are due whatever became of those before.
const READS: [&str; 6] = ["--connections", "10", "--rate", "2000", "--key-pattern", "views:v%08d"];
/// A cut comes every few seconds.
const PAUSES_SECONDS_TIMES: u32 = 5;
/// So that several cuts are made in that time.
const PAUSES_CHECKPOINT_LOG: &str = "64MiB";

/// Small requests, one at a time: impressions alone, impressions beside a flood of views, and views in that flood.
pub fn measure_streams(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    step(Row::Streams.title());
    let small = ["--connections", "1", "--events-per-request", "10"];
    let impressions = [&IMPRESSIONS, &small[..]].concat();
    let views = [&["--op", "events"], &small[..]].concat();
    let server = peers.start_declared(VIEWS_AND_IMPRESSIONS, &[])?;
    let alone = generator.repeated(&server, "events", &impressions)?;
    // The first flood makes the counters.
    generator.flood(&server, generator.seconds, &FLOOD)?.finish()?;
    let (mut beside, mut within, mut floods, mut floods_alone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for repetition in 1..=generator.repetitions {
        let flood = generator.flood(&server, generator.seconds, &FLOOD)?.finish()?.shown();
        floods_alone.push(flood.operations_per_second());
        for (load, reports) in [(&impressions, &mut beside), (&views, &mut within)] {
            // The ids of another seed than any before.
            let (report, flood) = beside_flood(&server, generator, load, 10 + repetition)?;
            reports.push(report);
            floods.push(flood.operations_per_second());
        }
    }
    let (flood, flood_alone) = (median(floods), median(floods_alone));
    let (beside, within) = (Figure::medians(&beside, "events")?, Figure::medians(&within, "events")?);
    let what = "10 impressions beside a flood of views from 64 connections";
    results.requirements.extend([
        Requirement::at_most(format!("{what}: p99"), 10.0, beside.latency.p99 / 1000.0, "ms"),
        Requirement::at_least_times(format!("{what}: the flood against the flood alone"), 0.8, flood / flood_alone),
    ]);
    results.note(format!(
        "{}: alone {}; beside a flood of {:.0} k views a second {} ({:.1}× and {:.1}× of alone); views that go into the flood itself {}.",
        Row::Streams.title(),
        latencies(alone),
        flood / 1000.0,
        latencies(beside),
        beside.latency.p50 / alone.latency.p50,
        beside.latency.p99 / alone.latency.p99,
        latencies(within)
    ));
    drop(server);
    peers.forget_data()
}

/// Reads at a pace over either protocol.
pub fn measure_reads(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let server = peers.start_declared(VIEWS_AND_IMPRESSIONS, &[])?;
    let over = [("HTTP", &["--op", "http-get"][..]), ("RESP", &["--op", "get", "--pipeline", "1"])];
    for (protocol, op) in over {
        let load = [op, &READS].concat();
        let (mut reports, mut floods) = (Vec::new(), Vec::new());
        for repetition in 1..=generator.repetitions {
            step(&format!("{}: {protocol}, {repetition} of {}", Row::Reads.title(), generator.repetitions));
            let (report, flood) = beside_flood(&server, generator, &load, repetition)?;
            reports.push(report);
            floods.push(flood.operations_per_second());
        }
        let figure = Figure::medians(&reports, "GET")?;
        let what = format!("`GET` over {protocol}, 2,000 a second, beside a flood of views from 64 connections: p99");
        results.requirements.push(Requirement::at_most(what, 4.0, figure.latency.p99 / 1000.0, "ms"));
        let rate = median(floods) / 1000.0;
        results.note(format!("`GET` over {protocol} beside {rate:.0} k views a second: {}.", latencies(figure)));
    }
    drop(server);
    peers.forget_data()
}

/// Single increments at a pace, beside a million a second of others, over few and over many counters.
pub fn measure_pauses(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    for (counters, name) in [("1000000", "1 M"), ("10000000", "10 M")] {
        let server = peers.start_declared(VIEWS_AND_IMPRESSIONS, &["--checkpoint-log", PAUSES_CHECKPOINT_LOG])?;
        generator.once(&server, &["--keys", counters, "--preload", "--requests", "0"])?;
        let (mut reports, mut cuts) = (Vec::new(), 0.0);
        let seconds = generator.seconds * PAUSES_SECONDS_TIMES;
        for repetition in 1..=generator.repetitions {
            step(&format!("{}: {name} keys, {repetition} of {}", Row::Pauses.title(), generator.repetitions));
            let crowd = generator.flood(&server, seconds, &["--keys", counters, "--rate", "1000000"])?;
            thread::sleep(Duration::from_secs(1)); // It shall be at its rate first.
            let cuts_before = cuts_of(&server)?;
            let paced = ["--keys", counters, "--pipeline", "1", "--rate", "2000"];
            reports.push(generator.timed_for(&server, seconds, &paced, repetition)?);
            cuts += cuts_of(&server)? - cuts_before;
            crowd.finish()?.shown();
        }
        ensure!(cuts > 0.0, "no cut was made meanwhile, so nothing was measured: give it more --seconds");
        let figure = Figure::medians(&reports, "INCR")?;
        let what = format!("{}, {name} keys", Row::Pauses.title());
        let most =
            |name, most, measured: f64| Requirement::at_most(format!("{what}: {name}"), most, measured / 1000.0, "ms");
        results.requirements.extend([most("p999", 4.0, figure.latency.p999), most("max", 10.0, figure.latency.max)]);
        results.note(format!("{what}: {}, in {cuts:.0} cuts.", latencies(figure)));
        drop(server);
        peers.forget_data()?;
    }
    Ok(())
}

/// A measurement while views come in as fast as they can; answers what became of both.
fn beside_flood(server: &Server, generator: &Generator, load: &[&str], seed: usize) -> Result<(Report, Report)> {
    let flood = generator.flood(server, generator.seconds, &FLOOD)?;
    thread::sleep(Duration::from_secs(1)); // It shall be at its full rate first.
    let report = generator.timed(server, load, seed)?;
    Ok((report, flood.finish()?.shown()))
}

pub fn latencies(figure: Figure) -> String {
    let [p50, p99, p999, max] =
        [figure.latency.p50, figure.latency.p99, figure.latency.p999, figure.latency.max].map(|us| us / 1000.0);
    format!("p50 {p50:.2}, p99 {p99:.2}, p999 {p999:.2}, max {max:.1} ms")
}

/// How many cuts a server has made.
fn cuts_of(server: &Server) -> Result<f64> {
    metric(&HttpClient::connect(server.http()?)?.get("/metrics")?, "tally_checkpoints_total")
}
