//! The rows about roll-ups: what keeping parts costs, how fast series and tops are read, and what a part takes on disk and in memory.

use super::Row;
use super::beside::latencies;
use super::load::{Figure, Generator, Report, median};
use super::machine;
use super::peer::{Peer, Peers};
use super::requirement::Requirement;
use super::rows::{Line, Results};
use crate::server::Server;
use crate::shell::step;
use anyhow::{Result, bail, ensure};
use std::path::Path;
use std::thread;
use std::time::Duration;

const PLAIN: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules: [{on: video.viewed, op: increment}]
";
const ROLLED: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rollups: [[country], [country, hour]]
    rules: [{on: video.viewed, op: increment}]
";
const HOURLY: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    dedup: none
    rollups: [[country, hour]]
    rules: [{on: video.viewed, op: increment}]
";
const WITHOUT_HOURS: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    dedup: none
    rules: [{on: video.viewed, op: increment}]
";
/// Counted by name, so that ten million keys are made in little time.
const HITS: &str = "\
counters:
  - {counterName: hits, mode: simple, dimensions: [page]}
";

const VIEWS: [&str; 4] = ["--op", "events", "--connections", "8"];
/// The keys beside the one of which a series is read.
const OTHERS: [&str; 6] = ["--op", "events", "--connections", "8", "--keys", "100000"];
const SERIES_COUNTRIES: u64 = 200;
const HOURS: u64 = 24;
/// Each request has a line of every country, in one hour.
const EVENTS_PER_REQUEST: u64 = 1000;
const SERIES_RATE: &str = "500";
const BESIDE_RATE: &str = "300000";
const TOP_RATE: &str = "500";
const TOP_KEYS: &str = "10000000";

const PARTS_EVENTS: u64 = 60_000_000;
const PARTS_KEYS: u64 = 1_000_000;
const PARTS_COUNTRIES: u64 = 8;
/// One more than the store keeps before it merges them.
const CUTS_BEFORE_MERGE: usize = 17;
const PARTS_MEMORY_MIB: f64 = 512.0;
const MIB: f64 = (1 << 20) as f64;

/// The same views, without roll-ups and with two, in turn: a machine that slows down meanwhile does so for both.
pub fn measure_rollups(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let (row, mut with, mut without) = (Row::Rollups, Vec::new(), Vec::new());
    for repetition in 1..=generator.repetitions {
        step(&format!("{}: repetition {repetition} of {}", row.title(), generator.repetitions));
        for (config, reports) in [(PLAIN, &mut without), (ROLLED, &mut with)] {
            let server = peers.start_declared(config, &[])?;
            reports.push(generator.timed(&server, &VIEWS, repetition)?.shown());
            drop(server);
            peers.forget_data()?;
        }
    }
    let (with, without) = (Figure::medians(&with, "events")?, Figure::medians(&without, "events")?);
    let what = format!("{}: throughput against none", row.title());
    results.requirements.push(Requirement::at_least_times(what, 0.6, with.per_second / without.per_second));
    results.lines.push(Line { row, peer: Peer::Tally, figure: with });
    results.lines.push(Line { row, peer: Peer::TallyWithoutRollups, figure: without });
    Ok(())
}

/// A series of one key that has everything, among many keys: alone as many as there can be, from memory and from the store, and at a
/// pace beside views.
pub fn measure_series(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let (row, data) = (Row::Series, peers.new_data()?);
    step(&format!("{}: fill", row.title()));
    let server = peers.start_declared_on(&data, ROLLED, &[])?;
    fill_one_key(&server, generator)?;
    generator.once(&server, &[&OTHERS[..], &["--requests", "2000000"]].concat())?.shown();
    let path = series_path()?;
    let reads = ["--op", "http-get", "--connections", "4", "--path", &path];
    let uncut = generator.repeated(&server, "GET", &reads)?;
    server.stop()?; // Which makes a cut: from here on the parts are in the store.
    let server = peers.start_declared_on(&data, ROLLED, &[])?;
    let paced = [&reads[..], &["--rate", SERIES_RATE]].concat();
    let flood = [&OTHERS[..], &["--rate", BESIDE_RATE]].concat();
    let (mut alone, mut beside, mut views) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in 1..=generator.repetitions {
        step(&format!("{}: repetition {repetition} of {}", row.title(), generator.repetitions));
        alone.push(generator.timed(&server, &reads, repetition)?.shown());
        let (report, flood) = beside_load(&server, generator, &flood, &paced, repetition)?;
        beside.push(report);
        views.push(flood.operations_per_second());
    }
    let (alone, beside) = (Figure::medians(&alone, "GET")?, Figure::medians(&beside, "GET")?);
    let (title, rate) = (row.title(), median(views) / 1000.0);
    let paced = format!("{title}, {SERIES_RATE} a second beside {rate:.0} k views a second");
    results.requirements.extend([
        Requirement::at_least(format!("{title}: answers"), 5_000.0, alone.per_cpu_second, "per server CPU-second"),
        Requirement::at_most(format!("{paced}: p99"), 10.0, beside.latency.p99 / 1000.0, "ms"),
    ]);
    results.note(format!("{paced}: {}.", latencies(beside)));
    results.note(format!(
        "{title}, before the first cut, when all of it is in memory: {:.0} answers per server CPU-second, {}.",
        uncut.per_cpu_second,
        latencies(uncut)
    ));
    results.lines.push(Line { row, peer: Peer::Tally, figure: alone });
    drop(server);
    peers.forget_data()
}

/// The key that [`fill_one_key`] fills, by country and hour of the day that it fills.
fn series_path() -> Result<String> {
    let day = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).yesterday()?.date();
    Ok(format!("/v1/counters/views:hot0/series?from={day}T00:00:00Z&to={day}T23:59:59Z&step=1h&by=country"))
}

/// Every country in every hour of a day.
fn fill_one_key(server: &Server, generator: &Generator) -> Result<()> {
    let (countries, hours) = (SERIES_COUNTRIES.to_string(), HOURS.to_string());
    let requests = (HOURS * EVENTS_PER_REQUEST).to_string();
    let hot = ["--keys", "1", "--key-pattern", "hot%01d", "--countries", &countries, "--hours", &hours];
    generator.once(server, &[&VIEWS[..], &hot, &["--ids", "--seed", "1", "--requests", &requests]].concat())?;
    Ok(())
}

/// The greatest of ten million keys, and what all of them come to, while they change.
pub fn measure_top(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let row = Row::Top;
    let keys = ["--keys", TOP_KEYS, "--key-pattern", "hits:%08d"];
    step(&format!("{}: fill", row.title()));
    let server = peers.start_declared(HITS, &[])?;
    generator.once(&server, &[&keys[..], &["--preload", "--requests", "0"]].concat())?;
    let flood = [&keys[..], &["--dist", "zipf:1.0", "--rate", BESIDE_RATE]].concat();
    for (what, path) in [("top 10", "/v1/top/hits?k=10"), ("total", "/v1/counters/hits")] {
        let reads = ["--op", "http-get", "--connections", "4", "--rate", TOP_RATE, "--path", path];
        let mut reports = Vec::new();
        for repetition in 1..=generator.repetitions {
            step(&format!("{}: {what}, {repetition} of {}", row.title(), generator.repetitions));
            let (report, increments) = beside_load(&server, generator, &flood, &reads, repetition)?;
            reports.push(report);
            increments.shown();
        }
        let figure = Figure::medians(&reports, "GET")?;
        let name = format!("{}: {what}", row.title());
        results.requirements.push(Requirement::at_most(format!("{name}: p99"), 5.0, figure.latency.p99 / 1000.0, "ms"));
        results.note(format!("{name}, {TOP_RATE} a second beside 300 k increments a second: {}.", latencies(figure)));
    }
    drop(server);
    peers.forget_data()
}

/// A measurement beside a load at its own pace; answers what became of both.
fn beside_load(
    server: &Server,
    generator: &Generator,
    load: &[&str],
    measured: &[&str],
    seed: usize,
) -> Result<(Report, Report)> {
    let load = generator.flood(server, generator.seconds, load)?;
    thread::sleep(Duration::from_secs(1)); // It shall be at its rate first.
    let report = generator.timed(server, measured, seed)?;
    Ok((report, load.finish()?))
}

/// Tens of millions of hourly parts in little memory, and what the store takes for them: the same events without a roll-up are
/// taken off.
pub fn measure_parts(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let row = Row::Parts;
    let (mut bytes, mut peak_bytes, mut rate, mut retries) = (Vec::new(), 0, 0.0, 0);
    for (name, config) in [("without parts", WITHOUT_HOURS), ("with parts", HOURLY)] {
        step(&format!("{}: {name}", row.title()));
        let (data, memory) = (peers.new_data()?, format!("{PARTS_MEMORY_MIB}MiB"));
        let start = || peers.start_declared_on(&data, config, &["--memory", &memory]);
        let server = start()?;
        let report = fill_parts(&server, generator, PARTS_EVENTS)?.shown();
        (peak_bytes, rate, retries) = (report.peak_bytes, report.operations_per_second(), report.retries);
        server.stop()?;
        // What is rewritten is freed when tables are merged, which they are when so many cuts have left one each.
        for _ in 0..CUTS_BEFORE_MERGE {
            let server = start()?;
            fill_parts(&server, generator, EVENTS_PER_REQUEST)?;
            server.stop()?;
        }
        let server = start()?;
        bytes.push(bytes_at_rest(&data.join("store"))?);
        drop(server);
        peers.forget_data()?;
    }
    let parts = expected_parts();
    ensure!(bytes[1] > bytes[0], "a store with parts has {} bytes, and one without {}", bytes[1], bytes[0]);
    let each = (bytes[1] - bytes[0]) as f64 / parts;
    let title = row.title();
    let most = 1.1 * PARTS_MEMORY_MIB + 64.0;
    results.requirements.extend([
        Requirement::at_most(format!("{title}: on disk for each"), 12.0, each, "bytes"),
        Requirement::at_most(
            format!("{title}: resident memory, `--memory {PARTS_MEMORY_MIB}MiB`"),
            most,
            peak_bytes as f64 / MIB,
            "MiB",
        ),
    ]);
    results.note(format!(
        "{title}: {:.0} M parts of {} M events, {:.0} k events a second, {retries} requests of 1,000 sent again after a 503; the store has {:.0} MiB with them and {:.0} MiB without.",
        parts / 1e6,
        PARTS_EVENTS / 1_000_000,
        rate / 1000.0,
        bytes[1] as f64 / MIB,
        bytes[0] as f64 / MIB
    ));
    Ok(())
}

fn fill_parts(server: &Server, generator: &Generator, events: u64) -> Result<Report> {
    let numbers = [PARTS_KEYS, PARTS_COUNTRIES, HOURS, events].map(|number| number.to_string());
    let load = ["--keys", &numbers[0], "--countries", &numbers[1], "--hours", &numbers[2], "--requests", &numbers[3]];
    generator.once(server, &[&VIEWS[..], &load].concat())
}

/// How many different parts the events make: keys are chosen by chance, countries and hours in turn.
fn expected_parts() -> f64 {
    let possible = (PARTS_KEYS * PARTS_COUNTRIES * HOURS) as f64;
    possible * (1.0 - (-(PARTS_EVENTS as f64) / possible).exp())
}

/// What a directory has on disk once that has stopped changing.
fn bytes_at_rest(directory: &Path) -> Result<u64> {
    const SAMPLES_MAX: usize = 240;
    const CALM_SAMPLES: usize = 10;
    let (mut last, mut calm) = (machine::directory_bytes(directory)?, 0);
    for _ in 0..SAMPLES_MAX {
        thread::sleep(Duration::from_millis(500));
        let now = machine::directory_bytes(directory)?;
        calm = if now == last { calm + 1 } else { 0 };
        last = now;
        if calm == CALM_SAMPLES {
            return Ok(last);
        }
    }
    bail!("{} has not stopped changing", directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_million_parts_are_expected() {
        assert!((50e6..60e6).contains(&expected_parts()), "{}", expected_parts());
    }
}
