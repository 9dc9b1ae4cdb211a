//! Tally: events over HTTP into a counter with one roll-up, series out of it.

use super::super::load::{Figure, Generator};
use super::super::machine;
use super::super::peer::Peers;
use super::events::{COUNTRIES, EVENTS, FRESH, HOURS, KEYS, READS, keys_to_read};
use super::{Kept, Quantiles};
use crate::client::HttpClient;
use anyhow::{Context, Result, ensure};
use jiff::civil::Date;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Instant;

const CONFIG: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rollups: [[country, hour]]
    rules: [{on: video.viewed, op: increment}]
";

/// The generator reads without a look at what it gets; so many keys are looked at before.
const KEYS_LOOKED_AT: usize = 100;

#[derive(Deserialize)]
struct Series {
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    parts: BTreeMap<String, u64>,
}

pub fn measure(peers: &Peers, generator: &Generator) -> Result<Kept> {
    let data = peers.new_data()?;
    let server = peers.start_declared_on(&data, CONFIG, &[])?;
    let [keys, countries, hours, events, reads] =
        [KEYS, COUNTRIES.len() as u64, HOURS, EVENTS, READS].map(|number| number.to_string());
    let load = ["--op", "events", "--connections", "8", "--countries", &countries, "--hours", &hours];
    let filled = generator.once(&server, &[&load[..], &["--keys", &keys, "--requests", &events]].concat())?;
    let day = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).yesterday()?.date();
    let path = path("{}", day);
    let mut client = HttpClient::connect(server.http()?)?;
    let all = counted(&client.get(&path.replace("{}", "views"))?)?;
    ensure!(all == EVENTS, "Tally counted {all} of {EVENTS} events");
    for key in keys_to_read().take(KEYS_LOOKED_AT) {
        let one = counted(&client.get(&path.replace("{}", &format!("views:{key}")))?)?;
        ensure!(one > 0, "Tally has nothing of {key}");
    }
    let read = ["--op", "http-get", "--connections", "1", "--key-pattern", "views:v%08d", "--path", &path];
    let read = generator.once(&server, &[&read[..], &["--keys", &keys, "--requests", &reads]].concat())?;
    let latency = Figure::medians(std::slice::from_ref(&read), "GET")?.latency;
    let fresh = (0..FRESH).map(|number| fresh_us(&mut client, number, day)).collect::<Result<Vec<_>>>()?;
    server.stop()?; // Which makes a cut: all of it is in the store.
    let bytes = machine::directory_bytes(&data.join("store"))?;
    peers.forget_data()?;
    Ok(Kept {
        name: "Tally",
        events_per_second: filled.operations_per_second(),
        events_per_cpu_second: filled.server.operations_per_cpu_second,
        point: Quantiles { p50: latency.p50 / 1000.0, p99: latency.p99 / 1000.0 },
        fresh: Quantiles::of_us(fresh),
        bytes,
    })
}

fn path(id: &str, day: Date) -> String {
    format!("/v1/counters/{id}/series?from={day}T00:00:00Z&to={day}T23:59:59Z&step=1h&by=country")
}

/// What the parts of a series come to.
fn counted(series: &str) -> Result<u64> {
    let series: Series = serde_json::from_str(series).with_context(|| format!("a series was answered {series}"))?;
    Ok(series.points.iter().flat_map(|point| point.parts.values()).sum())
}

/// From the answer to an event until a series shows it.
fn fresh_us(client: &mut HttpClient, number: u64, day: Date) -> Result<f64> {
    let event = format!(
        r#"{{"type":"video.viewed","occurredAt":"{day}T05:00:00Z","dimensions":{{"video":"fresh{number}","country":"DE"}}}}"#
    );
    let (status, text) = client.post_lines("/v1/events", &event)?;
    let answered = Instant::now();
    ensure!(status == 200, "an event was answered {status}: {text}");
    let path = path(&format!("views:fresh{number}"), day);
    while !client.get(&path)?.contains("\"DE\":1") {}
    Ok(answered.elapsed().as_secs_f64() * 1e6)
}
