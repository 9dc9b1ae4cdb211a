//! The rows over the Redis protocol: `INCR` as deep and over as many keys as there are figures for, beside Redis and the floor.

use super::Row;
use super::load::{Figure, Generator, Report};
use super::peer::{Peer, Peers, Size};
use super::requirement::Requirement;
use super::rows::{Line, Results};
use crate::shell::step;
use anyhow::Result;
use std::collections::HashMap;

/// Those that are compared, Tally first.
const PEERS: [Peer; 4] = [Peer::Tally, Peer::RedisAlways, Peer::RedisNone, Peer::Floor];
/// Cuts come every few seconds and belong to what is measured, so it takes longer than other rows.
const GROWN_SECONDS_TIMES: u32 = 3;

/// What is sent, and the group whose latency is shown.
struct Load {
    row: Row,
    group: &'static str,
    args: &'static [&'static str],
}

const LOADS: [Load; 5] = [
    Load { row: Row::P64, group: "INCR", args: &["--pipeline", "64"] },
    Load { row: Row::P16, group: "INCR", args: &["--pipeline", "16"] },
    Load { row: Row::P1, group: "INCR", args: &["--pipeline", "1"] },
    Load { row: Row::Hot, group: "INCR", args: &["--pipeline", "64", "--dist", "one"] },
    Load { row: Row::Mix, group: "GET", args: &["--op", "mix", "--pipeline", "64", "--readers", "10"] },
];

impl Load {
    /// The floor reads nothing back.
    fn is_for(&self, peer: Peer) -> bool {
        self.row != Row::Mix || peer != Peer::Floor
    }
}

/// One server after the other, each alone and with a million counters, runs all rows; and all of that several times, so that
/// a machine that slows down or speeds up meanwhile does so for everybody.
pub fn measure(rows: &[Row], peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let loads: Vec<&Load> = LOADS.iter().filter(|load| rows.contains(&load.row)).collect();
    let mut reports: HashMap<(Row, Peer), Vec<Report>> = HashMap::new();
    for (repetition, peer) in (1..=generator.repetitions).flat_map(|n| PEERS.map(|peer| (n, peer))) {
        if loads.is_empty() {
            return Ok(());
        }
        step(&format!("{peer}: {} loads, repetition {repetition} of {}", loads.len(), generator.repetitions));
        let server = peers.start(peer, Size::USUAL)?;
        generator.once(&server, &["--preload", "--requests", "0"])?;
        for load in loads.iter().filter(|load| load.is_for(peer)) {
            let report = generator.timed(&server, load.args, repetition)?;
            println!("  {:<60} {:>10.0} /s", load.row.title(), report.operations_per_second());
            reports.entry((load.row, peer)).or_default().push(report);
        }
        drop(server);
        peers.forget_data()?;
    }
    for load in &loads {
        for peer in PEERS.into_iter().filter(|peer| load.is_for(*peer)) {
            let figure = Figure::medians(&reports[&(load.row, peer)], load.group)?;
            results.lines.push(Line { row: load.row, peer, figure });
        }
    }
    loads.iter().for_each(|load| judge(load.row, results));
    Ok(())
}

fn judge(row: Row, results: &mut Results) {
    let of = |peer| results.figure(row, peer).expect("every row has every Redis");
    let (tally, always, none) = (of(Peer::Tally), of(Peer::RedisAlways), of(Peer::RedisNone));
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
            throughput(6.0),
            Requirement::at_least_times(
                format!("{title}: operations per server CPU-second against Redis without persistence"),
                3.0,
                tally.per_cpu_second / none.per_cpu_second,
            ),
        ],
        Row::P16 => vec![throughput(3.5)],
        Row::P1 => vec![throughput(1.4), latency("p99", always.latency.p99, tally.latency.p99)],
        Row::Hot => {
            let random = results.figure(Row::P64, Peer::Tally).expect("whoever chooses one gets the other");
            let what = format!("{title}: throughput against random keys");
            vec![Requirement::at_least_times(what, 1.0, tally.per_second / random.per_second)]
        }
        _ => vec![
            latency("p99", always.latency.p99, tally.latency.p99),
            latency("p999", always.latency.p999, tally.latency.p999),
        ],
    };
    results.requirements.extend(judged);
}

/// Tally over many counters, over a million, and the floor over many, in turn.
pub fn measure_grown(
    row: Row,
    counters: u64,
    least: f64,
    peers: &Peers,
    generator: &Generator,
    results: &mut Results,
) -> Result<()> {
    let sizes = [(Peer::Tally, counters), (Peer::TallyOneMillion, 1_000_000), (Peer::Floor, counters)];
    let mut reports = sizes.map(|_| Vec::new());
    for repetition in 1..=generator.repetitions {
        for ((peer, counters), reports) in sizes.iter().zip(&mut reports) {
            step(&format!("{}: {peer}, repetition {repetition} of {}", row.title(), generator.repetitions));
            let server = peers.start(*peer, Size { counters: *counters, ..Size::USUAL })?;
            let keys = counters.to_string();
            generator.once(&server, &["--keys", &keys, "--preload", "--requests", "0"])?;
            let seconds = generator.seconds * GROWN_SECONDS_TIMES;
            let load = ["--keys", &keys, "--pipeline", "64"];
            reports.push(generator.timed_for(&server, seconds, &load, repetition)?.shown());
            drop(server);
            peers.forget_data()?;
        }
    }
    let mut figures = Vec::new();
    for ((peer, _), reports) in sizes.iter().zip(&reports) {
        let figure = Figure::medians(reports, "INCR")?;
        results.lines.push(Line { row, peer: *peer, figure });
        figures.push(figure.per_second);
    }
    let what = format!("{}: throughput against 1 M keys", row.title());
    results.requirements.push(Requirement::at_least_times(what, least, figures[0] / figures[1]));
    Ok(())
}
