//! The load on PostgreSQL: the batches that `tally bench --ids --duplicates 5` sends to Tally, on 4 connections.

use super::super::load::{Figure, Latency};
use super::BATCH;
use crate::random::Random;
use anyhow::Result;
use postgres::Client;
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS: u64 = 4;
const EVENTS_PER_BATCH: u64 = 1000;
const KEYS: u64 = 100_000;
/// One event in this many repeats one of an earlier batch: 5 %.
const EVENTS_PER_REPEAT: u64 = 20;

#[derive(Default)]
pub struct Run {
    elapsed: Duration,
    events: u64,
    pub different_ids: u64,
    /// Of whole batches.
    latencies: Vec<Duration>,
}

impl Run {
    pub fn figure(mut self, cpu_seconds: f64) -> Figure {
        self.latencies.sort();
        let quantile = |share: f64| {
            let at = (self.latencies.len() as f64 * share) as usize;
            self.latencies[at.min(self.latencies.len() - 1)].as_secs_f64() * 1e6
        };
        Figure {
            per_second: self.events as f64 / self.elapsed.as_secs_f64(),
            per_cpu_second: self.events as f64 / cpu_seconds,
            latency: Latency { p50: quantile(0.5), p99: quantile(0.99), p999: quantile(0.999), max: quantile(1.0) },
            // Its processes share most of what they have; the sum would say nothing.
            peak_bytes: None,
        }
    }
}

/// Sends batches on all connections for some time.
pub fn run(connect: impl Fn() -> Result<Client>, time: Duration, seed: u64) -> Result<Run> {
    let clients = (0..CONNECTIONS).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    let runs = thread::scope(|scope| {
        let connections: Vec<_> = (0..)
            .zip(clients)
            .map(|(lane, client)| scope.spawn(move || send(client, Events::new(lane, seed), started, time)))
            .collect();
        connections
            .into_iter()
            .map(|connection| connection.join().expect("a connection answers, it does not panic"))
            .collect::<Result<Vec<Run>>>()
    })?;
    let mut all = Run { elapsed: started.elapsed(), ..Run::default() };
    for mut run in runs {
        all.events += run.events;
        all.different_ids += run.different_ids;
        all.latencies.append(&mut run.latencies);
    }
    Ok(all)
}

fn send(mut client: Client, mut events: Events, started: Instant, time: Duration) -> Result<Run> {
    let statement = client.prepare(BATCH)?;
    let mut run = Run::default();
    while started.elapsed() < time {
        let (ids, keys) = events.batch();
        let asked = Instant::now();
        client.execute(&statement, &[&ids, &keys])?;
        run.latencies.push(asked.elapsed());
        run.events += EVENTS_PER_BATCH;
    }
    run.different_ids = events.next;
    Ok(run)
}

/// The events of one connection. A key is a function of its id.
struct Events {
    lane: u64,
    random: Random,
    next: u64,
}

impl Events {
    fn new(lane: u64, seed: u64) -> Events {
        Events { lane, random: Random::new(seed << 8 | lane), next: 0 }
    }

    /// Ids and keys.
    fn batch(&mut self) -> (Vec<String>, Vec<String>) {
        let sent_before = self.next;
        let numbers = (0..EVENTS_PER_BATCH).map(|_| {
            if sent_before > 0 && self.random.one_in(EVENTS_PER_REPEAT) {
                return self.random.below(sent_before);
            }
            self.next += 1;
            self.next - 1
        });
        let lane = self.lane;
        numbers.map(|number| (format!("e{lane}-{number:017}"), key(lane, number))).unzip()
    }
}

fn key(lane: u64, number: u64) -> String {
    format!("v{:08}", Random::new(lane << 48 | number).below(KEYS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn one_event_in_twenty_repeats_one_of_an_earlier_batch_with_its_key() {
        let (mut events, mut seen, mut repeats) = (Events::new(1, 1), HashMap::new(), 0);
        for _ in 0..50 {
            let (ids, keys) = events.batch();
            let earlier = seen.clone();
            for (id, key) in ids.into_iter().zip(keys) {
                match earlier.get(&id) {
                    Some(first) => {
                        assert_eq!(*first, key);
                        repeats += 1;
                    }
                    None => assert!(seen.insert(id, key).is_none(), "twice within a batch"),
                }
            }
        }
        assert_eq!(seen.len() as u64, events.next);
        assert!((2000..3000).contains(&repeats), "{repeats}");
    }

    #[test]
    fn a_figure_has_the_latencies_of_whole_batches() {
        let latencies = (1..=100).map(Duration::from_millis).collect();
        let run = Run { elapsed: Duration::from_secs(2), events: 100_000, different_ids: 1, latencies };
        let figure = run.figure(4.0);
        assert_eq!((figure.per_second, figure.per_cpu_second), (50_000.0, 25_000.0));
        assert_eq!((figure.latency.p50, figure.latency.p999), (51_000.0, 100_000.0));
    }
}
