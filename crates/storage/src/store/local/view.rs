//! A store that is only read: a shadow of it is opened, so that nothing of the store itself is touched.
//!
//! fjall cannot open a database without writing to it: it takes a lock, tidies up, removes what it does not know. So
//! it gets a directory of its own, with copies of the small files and links to the tables, which are never changed.

use super::current::{self, UNFINISHED};
use super::generation::{Opening, StoreGeneration};
use super::{LocalStore, StoreIdentity};
use crate::store::Error;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

impl LocalStore {
    /// Opens the store in `dir` for reading. `None` if there is none yet. Nobody else may write to it meanwhile.
    pub fn view(dir: &Path, identity: StoreIdentity, cache_bytes: u64) -> Result<Option<LocalStore>, Error> {
        let named = match current::read(dir)? {
            Some(named) => named,
            None if dir.join("db").is_dir() => current::named_of_format_2(0),
            None => return Ok(None),
        };
        let shadow = tempfile::tempdir()?;
        let unfinished = dir.join(format!("{}{UNFINISHED}", named.directory));
        let database = dir.join(&named.directory);
        let database = if database.exists() { database } else { unfinished };
        copy(&fs::canonicalize(database)?, &shadow.path().join(&named.directory))?;
        let opening = Opening { cache_bytes, workers: 0 };
        let generation = StoreGeneration::open(shadow.path(), &named, opening)?;
        if named.id.is_some() {
            generation.check_identity(&identity)?;
        }
        let store = LocalStore::of(shadow.path(), identity, opening, named, generation);
        Ok(Some(LocalStore { _shadow: Some(shadow), ..store }))
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir(to)?;
    let of_tables = from.file_name().is_some_and(|name| name == "tables");
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else if of_tables {
            symlink(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}
