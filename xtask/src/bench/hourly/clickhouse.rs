//! ClickHouse, as the Python package that has all of it: `xtask/bench/clickhouse.py` does what is asked of it here.

use super::events::{EVENTS, Event, FRESH, hours, keys_to_read};
use super::{Kept, Quantiles};
use crate::{install, shell};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const VERSION: &str = "4.4.0";
/// Each becomes a part of the table: many small ones would be its worst.
pub const EVENTS_PER_BATCH: u64 = 100_000;

#[derive(Deserialize)]
struct Measured {
    seconds: f64,
    cpu_seconds: f64,
    counted: u64,
    bytes: u64,
    query_us: Vec<f64>,
    fresh_us: Vec<f64>,
}

pub fn measure() -> Result<Kept> {
    let python = install::python_packages("chdb", &[&format!("chdb=={VERSION}")])?;
    let directory = shell::scratch_dir("clickhouse-")?;
    let plan = json!({
        "data": directory.path().join("data"),
        "batches": write_batches(directory.path())?,
        "keys": keys_to_read().collect::<Vec<_>>(),
        "hours": hours(),
        "fresh": FRESH,
    });
    let measured = run(&python, &plan.to_string())?;
    ensure!(measured.counted == EVENTS, "ClickHouse counted {} of {EVENTS} events", measured.counted);
    Ok(Kept {
        name: "ClickHouse",
        events_per_second: EVENTS as f64 / measured.seconds,
        events_per_cpu_second: EVENTS as f64 / measured.cpu_seconds,
        point: Quantiles::of_us(measured.query_us),
        fresh: Quantiles::of_us(measured.fresh_us),
        bytes: measured.bytes,
    })
}

/// The events in the format `RowBinary`, a file for each batch.
fn write_batches(directory: &Path) -> Result<Vec<PathBuf>> {
    let write = |batch: u64| -> Result<PathBuf> {
        let path = directory.join(format!("batch{batch}"));
        let mut file = BufWriter::new(File::create(&path)?);
        for event in (batch * EVENTS_PER_BATCH..(batch + 1) * EVENTS_PER_BATCH).map(Event::of) {
            for text in [&*event.key, event.country] {
                // A length below 128 is one byte.
                file.write_all(&[text.len() as u8])?;
                file.write_all(text.as_bytes())?;
            }
            file.write_all(&(event.hour as u32).to_le_bytes())?;
        }
        file.flush()?;
        Ok(path)
    };
    (0..EVENTS / EVENTS_PER_BATCH).map(write).collect()
}

fn run(python: &Path, plan: &str) -> Result<Measured> {
    let mut command = Command::new(python);
    command.arg(shell::workspace().join("xtask/bench/clickhouse.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().context("python could not be started")?;
    // Dropped at the end of the statement, which ends what the script reads.
    process.stdin.take().expect("stdin was asked for as a pipe").write_all(plan.as_bytes())?;
    let output = process.wait_with_output()?;
    ensure!(output.status.success(), "ClickHouse ended in {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let last = text.lines().last().context("the script for ClickHouse printed nothing")?;
    serde_json::from_str(last).with_context(|| format!("the script for ClickHouse printed {last}"))
}
