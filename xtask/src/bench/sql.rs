//! The row about SQL: events of the archive counted by key, by Tally and by DuckDB on the same files, and all of them counted again as a
//! reconciliation does, each event id once.

use super::Row;
use super::contracts::{IMPRESSIONS, VIEWS_AND_IMPRESSIONS};
use super::load::{Generator, median};
use super::machine;
use super::peer::Peers;
use super::requirement::Requirement;
use super::rows::Results;
use crate::archive::{PACKAGES, ask};
use crate::install;
use crate::shell::{self, step};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const EVENTS: u64 = 100_000_000;
const EVENTS_PER_REQUEST: u64 = 10_000;
const BY_KEY: &str = "SELECT ad, count(*) AS n FROM events GROUP BY ad ORDER BY n DESC, ad LIMIT 10";

pub fn measure(peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    let title = Row::Sql.title();
    step(title);
    let python = install::python_packages("archive", &PACKAGES)?;
    let (server, archive) = peers.start_archived(VIEWS_AND_IMPRESSIONS, &["--memory", "2GiB"])?;
    let requests = EVENTS.to_string();
    let load = ["--compact", "--duplicates", "5", "--events-per-request", &EVENTS_PER_REQUEST.to_string()];
    let load = [&IMPRESSIONS, &load[..], &["--connections", "8", "--requests", &requests, "--keep"]].concat();
    generator.once(&server, &load)?;
    let http = server.http()?;
    ask(http, "/v1/archive/flush", "")?;
    // The store merges what came with the load for a while, beside both.
    machine::wait_for_rest(server.pid())?;
    let bytes = machine::directory_bytes(&archive)? as f64;
    results.note(format!("{title}: {:.1} bytes for each event in the archive", bytes / EVENTS as f64));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..generator.repetitions {
        let (seconds, rows) = timed(http)?;
        let (duckdb_seconds, duckdb_rows) = duckdb(&python, &archive)?;
        ensure!(rows == duckdb_rows, "{rows} and, by DuckDB, {duckdb_rows}");
        ours.push(seconds);
        theirs.push(duckdb_seconds);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    results.note(format!("{title}: counted by key in {ours:.2} s, by DuckDB in {theirs:.2} s"));
    let watch = Instant::now();
    let report = ask(http, "/v1/reconciliation", r#"{"counter":"impressions"}"#)?;
    let recount = watch.elapsed().as_secs_f64();
    ensure!(report["counters"][0]["differing"] == 0, "the recount differs: {report}");
    results.requirements.extend([
        Requirement::at_most(
            format!("{title}: time to count by key, times that of DuckDB"),
            1.5,
            ours / theirs,
            "times",
        ),
        Requirement::at_most(format!("{title}: recount, each event id once"), 90.0, recount, "s"),
    ]);
    drop(server);
    peers.forget_data()
}

fn timed(http: SocketAddr) -> Result<(f64, Value)> {
    let watch = Instant::now();
    let answer = ask(http, "/v1/sql", &json!({"query": BY_KEY, "timeoutMs": 600_000}).to_string())?;
    let seconds = watch.elapsed().as_secs_f64();
    let rows = answer["rows"].as_array().context("an answer has rows")?;
    Ok((seconds, rows.iter().map(|row| json!([row["ad"], row["n"]])).collect()))
}

/// Seconds and rows, as the script prints them.
fn duckdb(python: &Path, archive: &Path) -> Result<(f64, Value)> {
    let script = shell::workspace().join("xtask/archive/ask.py");
    let output = Command::new(python).arg(script).arg(archive).arg(BY_KEY).output()?;
    ensure!(output.status.success(), "DuckDB: {}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    Ok((answer["seconds"].as_f64().context("it says how long it took")?, answer["rows"].clone()))
}
