//! The rows about contracts: what dedup costs, persistent counters beside PostgreSQL, and a registry of 100 million ids.

use super::Row;
use super::load::{Figure, Generator, Report};
use super::machine;
use super::peer::{Peer, Peers, Size};
use super::postgres::Postgres;
use super::requirement::Requirement;
use super::rows::{Line, Results};
use crate::client::HttpClient;
use crate::shell::step;
use anyhow::{Context, Result};

const WITHOUT_DEDUP: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    dedup: none
    rules: [{on: video.viewed, op: increment}]
";

pub const VIEWS_AND_IMPRESSIONS: &str = "\
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
pub const IMPRESSIONS: [&str; 9] =
    ["--op", "events", "--type", "ad.shown", "--dimension", "ad", "--keys", "100000", "--ids"];
const REGISTRY_IDS: u64 = 100_000_000;

/// The same views, without dedup and with it, in turn: a machine that slows down meanwhile does so for both.
pub fn measure_dedup(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let (row, mut with, mut without) = (Row::Dedup, Vec::new(), Vec::new());
    let mut bytes_per_session: f64 = 0.0;
    for repetition in 1..=generator.repetitions {
        step(&format!("{}: repetition {repetition} of {}", row.title(), generator.repetitions));
        let server = peers.start_declared(WITHOUT_DEDUP, &[])?;
        without.push(generator.timed(&server, &VIEWS, repetition)?.shown());
        drop(server);
        let server = peers.start(Peer::Tally, Size::USUAL)?;
        with.push(generator.timed(&server, &VIEWS, repetition)?.shown());
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
        reports.push(generator.timed(&server, &load, repetition)?.shown());
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
    let filled = generator.once(&server, &[&load[..], &["--requests", &ids]].concat())?.shown();
    let seconds = generator.seconds.to_string();
    let timed = |sent_before: u64, more: &[&str]| {
        let sent_before = sent_before.to_string();
        let behind = ["--sent-before", &sent_before, "--seconds", &seconds];
        generator.once(&server, &[&load[..], &behind, more].concat()).map(Report::shown)
    };
    let fresh = timed(REGISTRY_IDS, &[])?;
    let repeated = timed(REGISTRY_IDS + fresh.operations(), &["--duplicates", "20"])?;
    let resident = machine::resident_bytes(server.pid())? as f64 / f64::from(1 << 30);
    let rate = |what: &str, least, report: &Report| {
        let what = format!("{}: {what}", Row::Registry.title());
        Requirement::at_least(what, least, report.operations_per_second(), "per second")
    };
    results
        .requirements
        .extend([rate("new ids", 500_000.0, &fresh), rate("20 % of them old, of any age", 300_000.0, &repeated)]);
    results.note(format!(
        "100 M event ids, `--memory 1GiB`: registered in {:.0} s; {resident:.2} GiB resident afterwards.",
        filled.seconds
    ));
    drop(server);
    peers.forget_data()
}

/// The sum of a metric over its labels.
pub fn metric(metrics: &str, name: &str) -> Result<f64> {
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
