//! A data directory for a person: how far its store has come, and the counters in it.

use super::moment;
use crate::failure::{Failure, Result};
use crate::output::{Output, readable};
use serde_json::json;
use std::path::Path;
use tally_core::id::CellHasher;
use tally_core::ledger::LOOKED_UP;
use tally_core::machine::{Machine, ReplayError};
use tally_core::memory::cell::CellRow;
use tally_node::data_dir::DataDir;
use tally_storage::store::local::LocalStore;
use tally_storage::store::{Checkpoint, Reads};

/// What a data directory has and nothing else: where the store is.
pub const DIRECTORY: &str = "store";

const CACHE_BYTES: u64 = 16 << 20;
const NAMES_PER_PAGE: usize = 1000;

/// Shows the checkpoint and up to `limit` counters.
pub fn show(path: &Path, limit: usize, json: bool, out: &mut Output) -> Result<()> {
    let data = DataDir::view(path).map_err(|error| unreadable(path, error))?;
    let (identity, hasher) = (data.identity.of_store(), data.identity.hasher());
    let store = LocalStore::view(&data.store(), identity, CACHE_BYTES).map_err(|error| unreadable(path, error))?;
    let Some(store) = store else {
        return Err(unreadable(path, "its store was never finished: start a server on it once"));
    };
    let checkpoint = store.checkpoint().map_err(|error| unreadable(path, error))?;
    if !json {
        out.line(format_args!("data directory {}", path.display()))?;
    }
    match &checkpoint {
        Some(checkpoint) => {
            let facts = facts(checkpoint, hasher).map_err(|error| unreadable(path, error))?;
            show_checkpoint(&facts, json, out)?;
        }
        None if json => out.json(&json!({"checkpoint": null}))?,
        None => out.line("  no checkpoint yet: everything is in the log")?,
    }
    CounterCounts { path, store: &store, hasher: &hasher, json }.show(limit, out)
}

/// What a checkpoint says: names of facts and the facts, and the configuration.
struct FactCounts {
    facts: Vec<(&'static str, String)>,
    yaml: String,
}

fn facts(checkpoint: &Checkpoint, hasher: CellHasher) -> std::result::Result<FactCounts, ReplayError> {
    let mut state = Machine::new(hasher);
    let read_from = state.resume(&checkpoint.state)?;
    state.resumed()?;
    let declarations = state.declarations();
    let rows = LOOKED_UP.iter().map(|looked_up| (looked_up.name, state.looked_up(looked_up.kind).len().to_string()));
    let mut facts = vec![
        ("checkpoint", format!("everything before position {}", checkpoint.position)),
        ("log", format!("is read from record {read_from} on")),
        ("log time", moment(state.log_time_ms())),
        ("counters", checkpoint.counters.to_string()),
        ("generation", state.values.generations.current.to_string()),
    ];
    facts.extend(rows);
    facts.push(("parked", format!("{} sums of late entries", state.fates.contracts.parked.len())));
    facts.push(("configuration", format!("version {}", declarations.version())));
    Ok(FactCounts { facts, yaml: declarations.yaml().to_owned() })
}

fn show_checkpoint(FactCounts { facts, yaml }: &FactCounts, json: bool, out: &mut Output) -> Result<()> {
    if json {
        let mut members: serde_json::Map<String, serde_json::Value> =
            facts.iter().map(|(name, fact)| (name.replace(' ', "_"), fact.as_str().into())).collect();
        members.insert("yaml".to_owned(), yaml.as_str().into());
        return out.json(&members);
    }
    for (name, fact) in facts {
        out.line(format_args!("  {name:<16} {fact}"))?;
    }
    yaml.lines().try_for_each(|line| out.line(format_args!("    {line}")))
}

/// The counters of a store, in the order of their ids.
struct CounterCounts<'a> {
    path: &'a Path,
    store: &'a LocalStore,
    hasher: &'a CellHasher,
    json: bool,
}

impl CounterCounts<'_> {
    fn show(&self, limit: usize, out: &mut Output) -> Result<()> {
        let mut shown = 0;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let names = self.store.names(b"", after.as_deref(), NAMES_PER_PAGE);
            let names = names.map_err(|error| unreadable(self.path, error))?;
            let Some(last) = names.last() else { return Ok(()) };
            after = Some(last.clone());
            for name in &names {
                if shown == limit {
                    return if self.json { Ok(()) } else { out.line("  … more counters: raise --limit to see them") };
                }
                let row = self.store.get(self.hasher.key(name)).map_err(|error| unreadable(self.path, error))?;
                if let Some(row) = row {
                    self.counter(name, &row, out)?;
                    shown += 1;
                }
            }
        }
    }

    fn counter(&self, name: &[u8], row: &CellRow, out: &mut Output) -> Result<()> {
        if !self.json {
            return out.line(format_args!("  {}  {}", readable(name), describe(row)));
        }
        let expires = row.expiry.as_ref().map(|expiry| moment(expiry.at_ms));
        out.json(&json!({"id": readable(name), "value": row.value, "expires": expires}))
    }
}

fn describe(row: &CellRow) -> String {
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
