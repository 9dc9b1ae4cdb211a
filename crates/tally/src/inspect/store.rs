//! A data directory for a person: how far its store has come, and the counters in it.

use super::{moment, readable};
use crate::failure::{Failure, Result};
use std::path::Path;
use tally_core::aggregate::{ReplayError, State};
use tally_core::cell::Row;
use tally_core::id::CellHasher;
use tally_node::data_dir::DataDir;
use tally_storage::store::local::LocalStore;
use tally_storage::store::{Checkpoint, Store};

/// What a data directory has and nothing else: where the store is.
pub const DIRECTORY: &str = "store";

const CACHE_BYTES: u64 = 16 << 20;
const NAMES_PER_PAGE: usize = 1000;

/// Shows the checkpoint and up to `limit` counters.
pub fn show(path: &Path, limit: usize) -> Result<()> {
    let data = DataDir::view(path).map_err(|error| unreadable(path, error))?;
    let (identity, hasher) = (data.identity.of_store(), data.identity.hasher());
    let store = LocalStore::view(&data.store(), identity, CACHE_BYTES).map_err(|error| unreadable(path, error))?;
    let Some(store) = store else {
        return Err(unreadable(path, "its store was never finished: start a server on it once"));
    };
    let checkpoint = store.checkpoint().map_err(|error| unreadable(path, error))?;
    println!("data directory {}", path.display());
    match &checkpoint {
        Some(checkpoint) => show_checkpoint(checkpoint, hasher).map_err(|error| unreadable(path, error))?,
        None => println!("  no checkpoint yet: everything is in the log"),
    }
    show_counters(&store, &hasher, limit).map_err(|error| unreadable(path, error))
}

fn show_checkpoint(checkpoint: &Checkpoint, hasher: CellHasher) -> std::result::Result<(), ReplayError> {
    let mut state = State::new(hasher);
    let read_from = state.resume(&checkpoint.state)?;
    state.resumed()?;
    let (declarations, ledger) = (state.declarations(), &state.ledger);
    println!("  checkpoint     everything before position {}", checkpoint.position);
    println!("  log            is read from record {read_from} on");
    println!("  log time       {}", moment(state.log_time_ms()));
    println!("  counters       {}", checkpoint.counters);
    println!("  generation     {}", state.corrections.generation);
    println!("  event ids      {}", ledger.claims.len());
    println!("  entities       {}", ledger.entities.len());
    println!("  idempotency    {} keys", ledger.answers.len());
    println!("  parked         {} sums of late entries", state.contracts.parked.len());
    println!("  configuration  version {}", declarations.version());
    declarations.yaml().lines().for_each(|line| println!("    {line}"));
    Ok(())
}

fn show_counters(
    store: &LocalStore,
    hasher: &CellHasher,
    limit: usize,
) -> std::result::Result<(), tally_storage::store::Error> {
    let mut shown = 0;
    let mut after: Option<Vec<u8>> = None;
    loop {
        let names = store.names(b"", after.as_deref(), NAMES_PER_PAGE)?;
        let Some(last) = names.last() else { return Ok(()) };
        after = Some(last.clone());
        for name in &names {
            if shown == limit {
                println!("  … more counters: raise --limit to see them");
                return Ok(());
            }
            if let Some(row) = store.get(hasher.key(name))? {
                println!("  {}  {}", readable(name), describe(&row));
                shown += 1;
            }
        }
    }
}

fn describe(row: &Row) -> String {
    match &row.expiry {
        Some(expiry) => format!("{}  expires {}", row.value, moment(expiry.at_ms)),
        None => row.value.to_string(),
    }
}

fn unreadable(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{} cannot be read", path.display()))
        .why(error)
        .remedy("Stop the server that uses it, if there is one; its segments in log/ can be shown at any time.")
}
