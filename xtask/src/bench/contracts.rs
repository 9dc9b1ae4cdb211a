//! The rows about contracts: what dedup costs, persistent counters beside PostgreSQL, a registry of 100 million ids, and
//! whether a flood of views delays a bill.

use super::Row;
use super::load::{Figure, Generator, Report};
use super::machine;
use super::peer::{Peer, Peers};
use super::postgres::Postgres;
use super::requirement::Requirement;
use super::rows::{Line, Results};
use crate::client::HttpClient;
use crate::shell::step;
use anyhow::{Context, Result};
use std::thread;
use std::time::Duration;

const WITHOUT_DEDUP: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    dedup: none
    rules: [{on: video.viewed, op: increment}]
";

const VIEWS_AND_IMPRESSIONS: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules: [{on: video.viewed, op: increment}]
  - counterName: impressions
    mode: persistent
    dimensions: [ad]
    rules: [{on: ad.shown, op: increment}]
";

const VIEWS: [&str; 6] = ["--op", "events", "--connections", "8", "--sessions", "1000000"];
const FLOOD: [&str; 6] = ["--op", "events", "--connections", "64", "--sessions", "1000000"];
const IMPRESSIONS: [&str; 9] =
    ["--op", "events", "--type", "ad.shown", "--dimension", "ad", "--keys", "100000", "--ids"];
const REGISTRY_IDS: u64 = 100_000_000;

/// The same views, without dedup and with it, in turn: a machine that slows down meanwhile does so for both.
pub fn measure_dedup(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let (row, mut with, mut without) = (Row::Dedup, Vec::new(), Vec::new());
    let mut bytes_per_session: f64 = 0.0;
    for repetition in 1..=generator.repetitions {
        step(&format!("{}: repetition {repetition} of {}", row.title(), generator.repetitions));
        let server = peers.start_declared(WITHOUT_DEDUP, &[])?;
        without.push(shown(generator.http_timed(&server, &VIEWS, repetition)?));
        drop(server);
        let server = peers.start(Peer::Tally)?;
        with.push(shown(generator.http_timed(&server, &VIEWS, repetition)?));
        let metrics = HttpClient::connect(server.http()?)?.get("/metrics")?;
        let each = metric(&metrics, "tally_dedup_bytes")? / metric(&metrics, "tally_dedup_sessions")?;
        bytes_per_session = bytes_per_session.max(each);
        drop(server);
        peers.forget_data()?;
    }
    let (with, without) = (Figure::medians(&with, "events")?, Figure::medians(&without, "events")?);
    let title = row.title();
    results.requirements.extend([
        Requirement::at_least_times(
            format!("{title}: throughput against `dedup: none`"),
            0.7,
            with.per_second / without.per_second,
        ),
        Requirement::at_most(format!("{title}: memory per active session"), 100.0, bytes_per_session, "bytes"),
    ]);
    results.lines.push(Line { row, peer: Peer::Tally, figure: with });
    results.lines.push(Line { row, peer: Peer::TallyWithoutDedup, figure: without });
    Ok(())
}

/// Tally and PostgreSQL in turn, both from empty.
pub fn measure_persistent(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let (row, mut reports, mut figures) = (Row::Persistent, Vec::new(), Vec::new());
    let load = [&IMPRESSIONS, &["--connections", "8", "--duplicates", "5"][..]].concat();
    let postgres = Postgres::start()?;
    for repetition in 1..=generator.repetitions {
        step(&format!("{}: repetition {repetition} of {}", row.title(), generator.repetitions));
        let server = peers.start_declared(VIEWS_AND_IMPRESSIONS, &[])?;
        reports.push(shown(generator.http_timed(&server, &load, repetition)?));
        drop(server);
        peers.forget_data()?;
        let figure = postgres.measure(generator.seconds, repetition as u64)?;
        println!("  PostgreSQL {:>10.0} /s", figure.per_second);
        figures.push(figure);
    }
    let (tally, postgres) = (Figure::medians(&reports, "events")?, Figure::median(&figures));
    let title = row.title();
    results.requirements.extend([
        Requirement::at_least(format!("{title}: durable events"), 350_000.0, tally.per_second, "per second"),
        Requirement::at_least_times(
            format!("{title}: throughput against PostgreSQL"),
            5.0,
            tally.per_second / postgres.per_second,
        ),
    ]);
    results.lines.push(Line { row, peer: Peer::Tally, figure: tally });
    results.lines.push(Line { row, peer: Peer::Postgres, figure: postgres });
    Ok(())
}

/// 100 million ids with little memory: new ids, and ids of which a fifth are anywhere among those 100 million.
pub fn measure_registry(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    step(Row::Registry.title());
    let load = [&IMPRESSIONS, &["--connections", "8"][..]].concat();
    let server = peers.start_declared(VIEWS_AND_IMPRESSIONS, &["--memory", "1GiB"])?;
    let ids = REGISTRY_IDS.to_string();
    let filled = shown(generator.http_once(&server, &[&load[..], &["--requests", &ids]].concat())?);
    let seconds = generator.seconds.to_string();
    let timed = |sent_before: u64, more: &[&str]| {
        let sent_before = sent_before.to_string();
        let behind = ["--sent-before", &sent_before, "--seconds", &seconds];
        generator.http_once(&server, &[&load[..], &behind, more].concat()).map(shown)
    };
    let fresh = timed(REGISTRY_IDS, &[])?;
    let repeated = timed(REGISTRY_IDS + fresh.operations(), &["--duplicates", "20"])?;
    let resident = machine::resident_bytes(server.pid())? as f64 / f64::from(1 << 30);
    results.notes.push(format!(
        "100 M event ids, `--memory 1GiB`: registered in {:.0} s; then new ids {:.0} k/s, with 20 % duplicates of any of them {:.0} k/s; {resident:.2} GiB resident afterwards.",
        filled.seconds,
        fresh.operations_per_second() / 1000.0,
        repeated.operations_per_second() / 1000.0,
    ));
    drop(server);
    peers.forget_data()
}

/// Small requests, one at a time: impressions alone, impressions beside a flood of views, and views in that flood.
pub fn measure_streams(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    step(Row::Streams.title());
    let small = ["--connections", "1", "--events-per-request", "10"];
    let impressions = [&IMPRESSIONS, &small[..]].concat();
    let views = [&["--op", "events"], &small[..]].concat();
    let server = peers.start_declared(VIEWS_AND_IMPRESSIONS, &[])?;
    let alone = generator.http(&server, "events", &impressions)?;
    let (mut beside, mut within, mut floods) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in 1..=generator.repetitions {
        for (load, reports) in [(&impressions, &mut beside), (&views, &mut within)] {
            let flood = generator.flood(&server, &FLOOD)?;
            // The flood shall be at its full rate first.
            thread::sleep(Duration::from_secs(1));
            // The ids of another seed than any before.
            reports.push(generator.http_timed(&server, load, 10 + repetition)?);
            floods.push(shown(flood.finish()?).operations_per_second());
        }
    }
    let (beside, within) = (Figure::medians(&beside, "events")?, Figure::medians(&within, "events")?);
    let text = |figure: Figure| {
        format!("p50 {:.2} ms, p99 {:.2} ms", figure.latency.p50 / 1000.0, figure.latency.p99 / 1000.0)
    };
    let what = "p99 of 10 impressions beside a flood of views from 64 connections";
    results.requirements.push(Requirement::at_most(what, 10.0, beside.latency.p99 / 1000.0, "ms"));
    results.notes.push(format!(
        "{}: alone {}; beside a flood of {:.0} k views a second {} ({:.1}× and {:.1}× of alone); views that go into the flood itself {}.",
        Row::Streams.title(),
        text(alone),
        super::load::median(floods) / 1000.0,
        text(beside),
        beside.latency.p50 / alone.latency.p50,
        beside.latency.p99 / alone.latency.p99,
        text(within)
    ));
    drop(server);
    peers.forget_data()
}

fn shown(report: Report) -> Report {
    println!("  {:>10.0} /s", report.operations_per_second());
    report
}

/// The sum of a metric over its labels.
fn metric(metrics: &str, name: &str) -> Result<f64> {
    let values: Vec<f64> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix([' ', '{'])?.rsplit(' ').next()?.parse().ok())
        .collect();
    (!values.is_empty()).then(|| values.iter().sum()).with_context(|| format!("/metrics does not tell {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels_and_not_taken_for_another() {
        let metrics = "# TYPE a gauge\na{counter=\"x y\"} 3\na{counter=\"z\"} 4.5\na_b 100\nc 7\n";
        assert_eq!((metric(metrics, "a").unwrap(), metric(metrics, "c").unwrap()), (7.5, 7.0));
        assert!(metric(metrics, "d").is_err());
    }
}
