//! What the log costs on a real disk: `cargo run --release -p tally-wal --example measure [DIRECTORY]`.
//!
//! Prints the latency of append + sync by batch size, with spares prepared ahead, and how fast a reader replays small records.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use tally_wal::{Error, LogOptions, RealDisk, WalWriter};

const RECORD: &[u8; 13] = b"\x02\x0bv:000000042";

fn main() -> Result<(), Error> {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = parent.join(format!("tally-wal-measure-{}", std::process::id()));
    for (bytes, times) in [(100, 2000), (4 << 10, 2000), (64 << 10, 1000), (1 << 20, 300), (4 << 20, 100)] {
        for bypass_cache in [false, true] {
            measure_appends(&directory.join(format!("{bytes}-{bypass_cache}")), bytes, times, bypass_cache)?;
        }
    }
    measure_replay(&directory.join("replay"), 100_000_000)?;
    std::fs::remove_dir_all(&directory).map_err(|error| Error::BadOption(error.to_string()))
}

fn open(directory: &PathBuf, bypass_cache: bool) -> Result<WalWriter<RealDisk>, Error> {
    let disk = RealDisk::open(directory).map_err(|error| Error::BadOption(error.to_string()))?;
    let options = LogOptions { log_id: 1, spares_max: 16, bypass_cache, ..LogOptions::default() };
    let (log, _) = WalWriter::open(disk, options)?;
    Ok(log)
}

fn measure_appends(directory: &PathBuf, bytes: usize, times: usize, bypass_cache: bool) -> Result<(), Error> {
    let mut log = open(directory, bypass_cache)?;
    let segments = bytes * times / (64 << 20) + 1;
    for _ in 0..segments {
        log.handle().prepare_spare()?;
    }
    let records = vec![7; bytes];
    let mut latencies = Vec::new();
    for _ in 0..times {
        let start = now();
        log.append(0, 1, &records)?;
        log.sync()?;
        latencies.push(start.elapsed());
    }
    latencies.sort_unstable();
    let total: Duration = latencies.iter().sum();
    let at = |share: f64| latencies[((times - 1) as f64 * share) as usize];
    println!(
        "append + sync, {bytes:>8} bytes{}: p50 {:>9.1?}  p99 {:>9.1?}  max {:>9.1?}  {:>7.1} MB/s",
        if bypass_cache { ", past the page cache" } else { "" },
        at(0.5),
        at(0.99),
        at(1.0),
        (bytes * times) as f64 / total.as_secs_f64() / 1e6
    );
    Ok(())
}

fn measure_replay(directory: &PathBuf, count: u64) -> Result<(), Error> {
    let mut log = open(directory, false)?;
    let per_batch = 5000;
    let records = RECORD.repeat(per_batch);
    let start = now();
    while log.end() < count {
        log.append(0, per_batch as u32, &records)?;
    }
    log.sync()?;
    report("written without syncs", count, start.elapsed());
    drop(log);
    let start = now();
    let log = open(directory, false)?;
    report("verified at opening", count, start.elapsed());
    let mut reader = log.handle().reader(0)?;
    let start = now();
    let mut sum = 0u64;
    while let Some(batch) = reader.next()? {
        // A consumer that looks at every record.
        sum += batch.records.chunks_exact(RECORD.len()).map(|record| u64::from(record[12])).sum::<u64>();
    }
    report("replayed by a reader", count, start.elapsed());
    assert_eq!(sum, count * u64::from(RECORD[12]));
    Ok(())
}

fn report(what: &str, count: u64, took: Duration) {
    let rate = count as f64 / took.as_secs_f64();
    println!("{count} records of {} bytes {what}: {took:.2?}, {:.1} M/s", RECORD.len(), rate / 1e6);
}

#[expect(clippy::disallowed_methods, reason = "measuring time is all that this does")]
fn now() -> Instant {
    Instant::now()
}
