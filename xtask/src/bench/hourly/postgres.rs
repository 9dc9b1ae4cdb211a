//! PostgreSQL: one row for each key, country and hour, and batches that are summed up before they meet it.

use super::super::postgres::Postgres;
use super::events::{EVENTS, Event, FRESH, hours, keys_to_read};
use super::{Kept, Quantiles};
use anyhow::{Result, ensure};
use postgres::Client;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

const CONNECTIONS: usize = 4;
/// Few enough that a batch is soon seen, and so many that a commit is cheap.
pub const EVENTS_PER_BATCH: u64 = 10_000;

const SCHEMA: &str = "
    CREATE TABLE hourly (
        key text NOT NULL,
        country text NOT NULL,
        hour integer NOT NULL,
        n bigint NOT NULL,
        PRIMARY KEY (key, country, hour)) WITH (fillfactor = 90);
    CHECKPOINT;";

/// In sorted order, so that batches that meet wait for each other instead of locking each other out.
const BATCH: &str = "
    INSERT INTO hourly (key, country, hour, n)
    SELECT key, country, hour, count(*)
    FROM unnest($1::text[], $2::text[], $3::integer[]) AS sent (key, country, hour)
    GROUP BY key, country, hour ORDER BY key, country, hour
    ON CONFLICT (key, country, hour) DO UPDATE SET n = hourly.n + EXCLUDED.n";

const POINT: &str = "SELECT country, hour, n FROM hourly WHERE key = $1 AND hour >= $2 AND hour < $3";

pub fn measure() -> Result<Kept> {
    let server = Postgres::start()?;
    let mut client = server.connect()?;
    client.batch_execute(SCHEMA)?;
    let (cpu_before, began) = (server.cpu_seconds()?, Instant::now());
    fill(&server)?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), server.cpu_seconds()? - cpu_before);
    let counted: i64 = client.query_one("SELECT sum(n)::bigint FROM hourly", &[])?.get(0);
    ensure!(counted as u64 == EVENTS, "PostgreSQL counted {counted} of {EVENTS} events");
    client.batch_execute("VACUUM ANALYZE hourly")?;
    let bytes: i64 = client.query_one("SELECT pg_total_relation_size('hourly')", &[])?.get(0);
    Ok(Kept {
        name: "PostgreSQL",
        events_per_second: EVENTS as f64 / seconds,
        events_per_cpu_second: EVENTS as f64 / cpu,
        point: Quantiles::of_us(reads_us(&mut client)?),
        fresh: Quantiles::of_us(fresh_us(&mut client)?),
        bytes: bytes as u64,
    })
}

/// All events, in batches that the connections take in turn.
fn fill(server: &Postgres) -> Result<()> {
    let next = &AtomicU64::new(0);
    let clients = (0..CONNECTIONS).map(|_| server.connect()).collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let connections: Vec<_> = clients.into_iter().map(|client| scope.spawn(move || send(client, next))).collect();
        connections.into_iter().try_for_each(|all| all.join().expect("a connection answers, it does not panic"))
    })
}

fn send(mut client: Client, next: &AtomicU64) -> Result<()> {
    let statement = client.prepare(BATCH)?;
    loop {
        let first = next.fetch_add(EVENTS_PER_BATCH, Ordering::Relaxed);
        if first >= EVENTS {
            return Ok(());
        }
        let (mut keys, mut countries, mut hours) = (Vec::new(), Vec::new(), Vec::new());
        for event in (first..EVENTS.min(first + EVENTS_PER_BATCH)).map(Event::of) {
            keys.push(event.key);
            countries.push(event.country);
            hours.push(event.hour as i32);
        }
        client.execute(&statement, &[&keys, &countries, &hours])?;
    }
}

fn reads_us(client: &mut Client) -> Result<Vec<f64>> {
    let (statement, [from, to]) = (client.prepare(POINT)?, hours().map(|hour| hour as i32));
    let mut read = |key: String| -> Result<f64> {
        let asked = Instant::now();
        let rows = client.query(&statement, &[&key, &from, &to])?;
        ensure!(!rows.is_empty(), "PostgreSQL has nothing of {key}");
        Ok(asked.elapsed().as_secs_f64() * 1e6)
    };
    keys_to_read().map(&mut read).collect()
}

/// From the answer to a commit until a query shows it.
fn fresh_us(client: &mut Client) -> Result<Vec<f64>> {
    let (insert, point, [from, to]) = (client.prepare(BATCH)?, client.prepare(POINT)?, hours().map(|hour| hour as i32));
    let mut fresh = |number: u64| -> Result<f64> {
        let key = format!("fresh{number}");
        client.execute(&insert, &[&vec![&key], &vec!["DE"], &vec![from]])?;
        let answered = Instant::now();
        while client.query(&point, &[&key, &from, &to])?.is_empty() {}
        Ok(answered.elapsed().as_secs_f64() * 1e6)
    };
    (0..FRESH).map(&mut fresh).collect()
}
