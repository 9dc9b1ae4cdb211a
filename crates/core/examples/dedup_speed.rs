//! What the display rule costs: `cargo run --release -p tally-core --example dedup_speed`. One core, sessions of consecutive
//! seqs in random order, each asked for 16 ahead. Times are of the processor, so that a busy machine does not count.

use tally_core::id::{CellHasher, CellKey};
use tally_core::memory::dedup::Dedup;

const WINDOW_MS: u64 = 60_000;
const AHEAD: usize = 16;
/// Events of a session in each window.
const EVENTS: u64 = 5;
const WINDOWS: u64 = 4;

fn main() {
    for sessions in [1_000_000, 10_000_000] {
        speed(sessions);
    }
    memory(500_000, 1_100_000);
}

fn keys(count: usize) -> Vec<CellKey> {
    let hasher = CellHasher::new(1);
    (0..count as u64).map(|session| hasher.key(&session.to_le_bytes())).collect()
}

/// Every session sends a few events in each window; each event is sent again once.
fn speed(sessions: usize) {
    let keys = keys(sessions);
    let mut dedup = Dedup::new(WINDOW_MS);
    println!("{sessions} sessions, ns per call");
    for window in 0..WINDOWS {
        let mut times = Vec::new();
        for event in 0..EVENTS {
            times.push(pass(&mut dedup, &keys, window * EVENTS + event, window * WINDOW_MS, false));
        }
        let again = pass(&mut dedup, &keys, window * EVENTS, window * WINDOW_MS, true);
        let next = times[1..].iter().sum::<f64>() / (EVENTS - 1) as f64;
        let bytes = dedup.bytes() as f64 / dedup.groups() as f64;
        println!(
            "  window {window}: first {:5.1}  next {next:5.1}  repeat {again:5.1}  {bytes:.1} bytes/session",
            times[0]
        );
    }
    println!(
        "  resident: {:.1} bytes per session, with 16 for the keys of this program",
        resident() as f64 / sessions as f64
    );
}

/// One event of each session: nanoseconds per call.
fn pass(dedup: &mut Dedup, keys: &[CellKey], seq: u64, log_time_ms: u64, repeat: bool) -> f64 {
    let start_ns = processor_ns();
    let mut repeats = 0;
    for (index, key) in keys.iter().enumerate() {
        if let Some(ahead) = keys.get(index + AHEAD) {
            dedup.prefetch(*ahead);
        }
        repeats += usize::from(dedup.is_repeat(*key, seq, log_time_ms));
    }
    assert_eq!(repeats, if repeat { keys.len() } else { 0 });
    (processor_ns() - start_ns) as f64 / keys.len() as f64
}

/// The most bytes per session over more than a doubling of the sessions.
fn memory(from: usize, to: usize) {
    let mut dedup = Dedup::new(WINDOW_MS);
    let mut worst = (0.0, 0);
    for (index, key) in keys(to).iter().enumerate() {
        dedup.is_repeat(*key, 1, 0);
        let sessions = index + 1;
        if sessions >= from && sessions % 1000 == 0 {
            let bytes = dedup.bytes() as f64 / sessions as f64;
            worst = if bytes > worst.0 { (bytes, sessions) } else { worst };
        }
    }
    println!("at worst, from {from} to {to} sessions: {:.1} bytes per session, at {}", worst.0, worst.1);
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    number_in("/proc/self/statm", 1) * 4096
}

/// How long this thread has run, to a few milliseconds.
fn processor_ns() -> u64 {
    number_in("/proc/thread-self/schedstat", 0)
}

fn number_in(file: &str, field: usize) -> u64 {
    let text = std::fs::read_to_string(file).expect("this measures on Linux");
    text.split_whitespace().nth(field).and_then(|number| number.parse().ok()).expect("a number")
}
