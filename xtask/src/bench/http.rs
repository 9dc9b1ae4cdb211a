//! The rows of events over HTTP, beside programs that take the same requests and do nothing with them.

use super::Row;
use super::load::{Figure, Generator};
use super::peer::{Peer, Peers, Size};
use super::requirement::Requirement;
use super::rows::{Line, Results};
use crate::shell::step;
use anyhow::{Context, Result};

/// What is sent, to whom, and how large it is.
struct Load {
    row: Row,
    args: &'static [&'static str],
    /// Tally first.
    peers: &'static [Peer],
    size: Size,
}

const SMALL: &[Peer] = &[Peer::Tally, Peer::Axum, Peer::Nginx];
const LARGE: &[Peer] = &[Peer::Tally, Peer::Floor];

const LOADS: [Load; 5] = [
    Load { row: Row::Events, args: &["--connections", "8"], peers: LARGE, size: Size::USUAL },
    Load {
        row: Row::Ten,
        args: &["--connections", "64", "--events-per-request", "10"],
        peers: SMALL,
        size: Size { events: 10, ..Size::USUAL },
    },
    Load {
        row: Row::One,
        args: &["--connections", "64", "--events-per-request", "1"],
        peers: SMALL,
        size: Size { events: 1, ..Size::USUAL },
    },
    Load { row: Row::Compact, args: &["--connections", "8", "--compact"], peers: LARGE, size: Size::USUAL },
    Load {
        row: Row::CompactGrown,
        args: &["--connections", "8", "--compact"],
        peers: LARGE,
        size: Size { counters: 10_000_000, ..Size::USUAL },
    },
];

/// The servers in turn, each alone, several times.
pub fn measure(row: Row, peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let load = LOADS.iter().find(|load| load.row == row).context("the row is not one of events")?;
    let keys = load.size.counters.to_string();
    let args = [&["--op", "events", "--keys", &keys], load.args].concat();
    let mut reports = vec![Vec::new(); load.peers.len()];
    for repetition in 1..=generator.repetitions {
        for (peer, reports) in load.peers.iter().zip(&mut reports) {
            step(&format!("{}: {peer}, repetition {repetition} of {}", row.title(), generator.repetitions));
            let server = peers.start(*peer, load.size)?;
            if *peer == Peer::Tally {
                // Most of the counters are there before it is measured, as in the other rows.
                let events = (2 * load.size.counters).to_string();
                let warm = ["--op", "events", "--compact", "--ids", "--keys", &keys, "--requests", &events];
                generator.once(&server, &warm)?;
            }
            reports.push(generator.timed(&server, &args, repetition)?.shown());
            drop(server);
            peers.forget_data()?;
        }
    }
    let figures = reports.iter().map(|reports| Figure::medians(reports, "events")).collect::<Result<Vec<_>>>()?;
    judge(row, figures[0], figures[1], results);
    for (peer, figure) in load.peers.iter().zip(figures) {
        results.lines.push(Line { row, peer: *peer, figure });
    }
    Ok(())
}

fn judge(row: Row, tally: Figure, limit: Figure, results: &mut Results) {
    let title = row.title();
    let rate = |least: f64, unit, measured| Requirement::at_least(format!("{title}: events"), least, measured, unit);
    let judged = match row {
        Row::Events => vec![
            rate(3.5e6, "per second", tally.per_second),
            rate(2.7e6, "per server CPU-second", tally.per_cpu_second),
        ],
        Row::Ten | Row::One => {
            let what = format!("{title}: requests per server CPU-second against axum answering a constant");
            vec![Requirement::at_least_times(what, 0.6, tally.per_cpu_second / limit.per_cpu_second)]
        }
        Row::Compact => vec![rate(8e6, "per second", tally.per_second)],
        _ => Vec::new(),
    };
    results.requirements.extend(judged);
}
