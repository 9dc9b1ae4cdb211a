//! Carries a store of format 2 over to the present one. Every step can be made again, so a crash in between costs nothing:
//! the data directory says format 2 until all of them are through.

use super::current::{self, CurrentName, UNFINISHED, named_of_format_2};
use super::generation::{Opening, StoreGeneration};
use super::{LocalStore, StoreIdentity};
use crate::store::{Error, Reads};
use std::fs;
use std::path::Path;
use tally_core::id::CellKey;

const OPENING: Opening = Opening { cache_bytes: 8 << 20, workers: 1 };

/// Tells the store in `dir` whose it is, after a look whether that is true: `key` is how rows are found.
pub fn carry_over(dir: &Path, identity: StoreIdentity, key: impl Fn(&[u8]) -> CellKey) -> Result<(), Error> {
    let found = current::read(dir)?;
    let is_new = found.is_none();
    let named = found.unwrap_or_else(|| named_of_format_2(0));
    let database = dir.join(&named.directory);
    if named.id.is_some() || !database.exists() {
        return Ok(());
    }
    if is_new && !has_rows(&database) {
        // What a first start left that did not come to its end.
        return Ok(fs::rename(&database, dir.join(format!("{}{UNFINISHED}", named.directory)))?);
    }
    let next = CurrentName { id: Some(identity.id), ..named };
    {
        let generation = StoreGeneration::open(dir, &next, OPENING)?;
        let store = LocalStore::of(dir, identity, OPENING, next.clone(), generation);
        check_seed(&store, key)?;
        store.generation()?.write_identity(&identity)?;
    }
    current::write(dir, &next)
}

/// Whether anything was ever written to a keyspace; number 0 is the database's own.
fn has_rows(database: &Path) -> bool {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let mut keyspaces = entries(&database.join("keyspaces")).filter(|keyspace| keyspace.file_name() != "0");
    keyspaces.any(|keyspace| entries(&keyspace.path().join("tables")).next().is_some())
}

/// Every name has a row, so the first one's must be found.
fn check_seed(store: &LocalStore, key: impl Fn(&[u8]) -> CellKey) -> Result<(), Error> {
    let names = store.names(b"", None, 1)?;
    match names.first() {
        Some(name) if store.get(key(name))?.is_none() => Err(Error::Foreign(
            "the counters in store/ cannot be found with the hash-seed of file TALLY: one of the two belongs to another \
             data directory, or was damaged; restore both from one copy"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}
