//! What the ledger costs on this machine. Not part of the suite, since a figure is no promise:
//! `cargo test --release -p tally-storage measure -- --ignored --nocapture`.
//!
//! Figures are processor time, which other work on the machine disturbs least.

use super::*;
use crate::store::{Change, LedgerRow};
use std::fs;
use std::thread::yield_now;
use tally_core::id::CellHasher;
use tally_core::memory::names::Names;
use tally_core::position::Position;

const ROWS: u64 = 5_000_000;
const ROWS_PER_CUT: u64 = 500_000;
const LOOKUPS: u64 = 500_000;
const CACHE_BYTES: u64 = 64 << 20;

/// Like the id of an event in a registry: a kind and a hash.
fn key(n: u64) -> Vec<u8> {
    let mut key = vec![1];
    key.extend_from_slice(&CellHasher::new(7).key(&n.to_le_bytes()).to_bytes());
    key
}

fn keys(cut: u64) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = (cut * ROWS_PER_CUT..(cut + 1) * ROWS_PER_CUT).map(key).collect();
    keys.sort_unstable();
    keys
}

fn commit(store: &LocalStore, cut: u64, keys: Vec<Vec<u8>>) {
    let position = |cut| Position { epoch: 1, log: 0, offset: cut * ROWS_PER_CUT };
    let to = Checkpoint { position: position(cut + 1), ..Checkpoint::default() };
    let cut = Cut {
        from: cut.checked_sub(1).map(|_| position(cut)),
        to: &to,
        replace: false,
        names: &Names::default(),
        rows: &mut || Ok(None),
        ledger: &mut keys.into_iter().map(|key| Ok(LedgerRow { key, change: Change::Put(vec![0; 20]) })),
    };
    store.commit(cut).unwrap();
}

/// Processor seconds of a thread of this process; `thread-self` is the one that asks.
fn seconds(thread: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or_default() / 1e9
}

fn compaction_seconds() -> f64 {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten().map(|entry| entry.path());
    let workers = threads.filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.contains("fjall")));
    workers.map(|path| seconds(path.strip_prefix("/proc").unwrap().to_str().unwrap())).sum()
}

#[test]
#[ignore = "takes a minute and prints figures"]
fn measure_cuts_hits_and_misses_of_a_registry() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), StoreIdentity::default(), CACHE_BYTES).unwrap();
    let cuts = ROWS / ROWS_PER_CUT;
    for cut in 0..cuts {
        let keys = keys(cut);
        let before = seconds("thread-self");
        commit(&store, cut, keys);
        println!("cut {cut}: {:.2} s", seconds("thread-self") - before);
        // fjall looks for work once per cut. With nothing else to do, it never falls behind: the most it can cost.
        while store.generation().unwrap().db.compactions_completed() <= cut as usize {
            yield_now();
        }
    }
    let waiting = store.generation().unwrap().keyspace.l0_table_count();
    println!("compaction: {:.1} s; {waiting} tables wait for the next one", compaction_seconds());
    for (what, first, expected) in [("misses", ROWS, 0), ("hits", 0, LOOKUPS)] {
        let before = seconds("thread-self");
        let numbers = (0..LOOKUPS).map(|n| first + n * (ROWS / LOOKUPS));
        let found = numbers.filter(|&n| store.ledger_get(&key(n)).unwrap().is_some()).count();
        println!("{what}: {:.0} per second", LOOKUPS as f64 / (seconds("thread-self") - before));
        assert_eq!(found as u64, expected);
    }
}
