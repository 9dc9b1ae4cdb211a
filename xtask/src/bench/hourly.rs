//! The row about views by country and hour, kept by Tally, by PostgreSQL and by ClickHouse: how fast they come in, how long it takes
//! to read one key, how soon a view is seen that was acknowledged, and what all of it takes on disk.
//!
//! Each is asked the way that suits it, and every acknowledgement means that it is on disk. Tally also knows repeats of its events,
//! which the others are spared.

mod clickhouse;
mod events;
mod postgres;
mod tally;

use super::Row;
use super::load::{Generator, median};
use super::peer::Peers;
use super::requirement::{Requirement, amount};
use super::rows::{Results, Table};
use crate::shell::step;
use anyhow::Result;

const MIB: f64 = (1 << 20) as f64;

/// What was measured of one of them.
struct Kept {
    name: &'static str,
    events_per_second: f64,
    events_per_cpu_second: f64,
    /// Reads of one key, by country and hour.
    point: Quantiles,
    /// From an acknowledgement until a read shows what was acknowledged, that read included.
    fresh: Quantiles,
    bytes: u64,
}

/// In milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quantiles {
    p50: f64,
    p99: f64,
}

impl Quantiles {
    fn of_us(mut us: Vec<f64>) -> Quantiles {
        us.sort_by(f64::total_cmp);
        let at = |share: f64| us[((us.len() as f64 * share) as usize).min(us.len() - 1)] / 1000.0;
        Quantiles { p50: at(0.5), p99: at(0.99) }
    }
}

/// All of them in turn, each from empty: a machine that slows down meanwhile does so for all.
pub fn measure(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let mut rounds = Vec::new();
    for repetition in 1..=generator.repetitions {
        step(&format!("{}: repetition {repetition} of {}", Row::Hourly.title(), generator.repetitions));
        rounds.push([
            tally::measure(peers, generator)?.shown(),
            postgres::measure()?.shown(),
            clickhouse::measure()?.shown(),
        ]);
    }
    let [tally, postgres, clickhouse] = [0, 1, 2].map(|at| Kept::median(rounds.iter().map(|round| &round[at])));
    results.requirements.extend(ahead_in_keeping(&tally, &postgres));
    results.requirements.extend(ahead_in_reading(&tally, &postgres));
    // Its batches may come in faster and lie closer together: it is made for that.
    results.requirements.extend(ahead_in_reading(&tally, &clickhouse));
    results.tables.push(table(&[tally, postgres, clickhouse]));
    Ok(())
}

fn ahead_in_keeping(tally: &Kept, other: &Kept) -> [Requirement; 3] {
    [
        ahead("events per second", other, tally.events_per_second / other.events_per_second),
        ahead("events per server CPU-second", other, tally.events_per_cpu_second / other.events_per_cpu_second),
        ahead("less on disk", other, other.bytes as f64 / tally.bytes as f64),
    ]
}

fn ahead_in_reading(tally: &Kept, other: &Kept) -> [Requirement; 2] {
    [
        ahead("p99 of a read", other, other.point.p99 / tally.point.p99),
        ahead("p99 until an event is seen", other, other.fresh.p99 / tally.fresh.p99),
    ]
}

fn ahead(what: &str, other: &Kept, times: f64) -> Requirement {
    Requirement::at_least_times(format!("{}: {what}, against {}", Row::Hourly.title(), other.name), 1.0, times)
}

impl Kept {
    /// Each number by itself.
    fn median<'k>(rounds: impl Iterator<Item = &'k Kept>) -> Kept {
        let rounds: Vec<&Kept> = rounds.collect();
        let of = |pick: fn(&Kept) -> f64| median(rounds.iter().map(|kept| pick(kept)).collect());
        Kept {
            name: rounds[0].name,
            events_per_second: of(|kept| kept.events_per_second),
            events_per_cpu_second: of(|kept| kept.events_per_cpu_second),
            point: Quantiles { p50: of(|kept| kept.point.p50), p99: of(|kept| kept.point.p99) },
            fresh: Quantiles { p50: of(|kept| kept.fresh.p50), p99: of(|kept| kept.fresh.p99) },
            bytes: of(|kept| kept.bytes as f64) as u64,
        }
    }

    fn cells(&self) -> Vec<String> {
        let ms = |ms: f64| format!("{ms:.2}");
        vec![
            self.name.to_owned(),
            amount(self.events_per_second),
            amount(self.events_per_cpu_second),
            ms(self.point.p50),
            ms(self.point.p99),
            ms(self.fresh.p50),
            ms(self.fresh.p99),
            format!("{:.1}", self.bytes as f64 / MIB),
        ]
    }

    /// Tells its figures to whoever waits.
    fn shown(self) -> Kept {
        println!("  {}", self.cells().join(", "));
        self
    }
}

fn table(kept: &[Kept]) -> Table {
    Table {
        title: "Views by country and hour".to_owned(),
        about: format!(
            "{} M events of {} keys, {} countries and {} hours, from empty; then single reads of one key by country and hour, then\n\
             single events that are read back (*seen*: from the acknowledgement to the answer that shows it). Every acknowledgement means\n\
             that it is on disk. Tally and PostgreSQL are asked over TCP on loopback. Tally gets 1,000 events a request over HTTP and knows repeats; PostgreSQL has a table with the three as its key and gets\n\
             {} events a transaction, summed up before they meet the table, on 4 connections, and is vacuumed; ClickHouse (chdb {}, in the\n\
             process that asks) has a SummingMergeTree and gets {} a part, merged before it is read. On disk is what is kept without a log.",
            events::EVENTS / 1_000_000,
            events::KEYS,
            events::COUNTRIES.len(),
            events::HOURS,
            postgres::EVENTS_PER_BATCH,
            clickhouse::VERSION,
            clickhouse::EVENTS_PER_BATCH,
        ),
        head: [
            "server",
            "events/s",
            "per server CPU-second",
            "read p50 ms",
            "p99 ms",
            "seen p50 ms",
            "p99 ms",
            "MiB on disk",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: kept.iter().map(Kept::cells).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_in_milliseconds() {
        let us = (1..=100).map(|n| f64::from(n) * 1000.0).collect();
        assert_eq!(Quantiles::of_us(us), Quantiles { p50: 51.0, p99: 100.0 });
        assert_eq!(Quantiles::of_us(vec![500.0]), Quantiles { p50: 0.5, p99: 0.5 });
    }
}
