//! The file `CURRENT`: which database is in force, and whose it is.

use super::StoreIdentity;
use crate::label;
use crate::store::Error;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

const CURRENT: &str = "CURRENT";
/// What the databases of generations are called, each with its number.
const GENERATION: &str = "gen-";
/// The suffix of a database that is being made for a store that has none.
pub(super) const UNFINISHED: &str = ".new";

/// The database in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CurrentName {
    /// Its directory beside `CURRENT`.
    pub directory: String,
    pub keyspace: String,
    /// The data directory it belongs to; a store of format 2 does not say.
    pub id: Option<u64>,
}

impl CurrentName {
    pub fn generation(number: u64, identity: &StoreIdentity) -> CurrentName {
        CurrentName {
            directory: format!("{GENERATION}{number}"),
            keyspace: "counters".to_owned(),
            id: Some(identity.id),
        }
    }
}

/// What `CURRENT` says; `None` if there is no such file.
pub(super) fn read(store: &Path) -> Result<Option<CurrentName>, Error> {
    let bytes = match fs::read(store.join(CURRENT)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8_lossy(&bytes);
    let named = of_format_2(&text).or_else(|| {
        let text = label::unseal(&text)?;
        let directory = label::field(text, "directory")?.to_owned();
        let keyspace = label::field(text, "keyspace")?.to_owned();
        Some(CurrentName { directory, keyspace, id: Some(label::field(text, "id")?.parse().ok()?) })
    });
    named.map(Some).ok_or_else(|| {
        Error::Damaged(format!(
            "file {CURRENT} says {text:?}, and its checksum does not match. Restore it from a copy: it names the database in force"
        ))
    })
}

/// In format 2 all generations were keyspaces of one database.
fn of_format_2(text: &str) -> Option<CurrentName> {
    let number = text.strip_prefix("generation ")?.strip_suffix('\n')?.parse().ok()?;
    Some(named_of_format_2(number))
}

/// No file meant the first.
pub(super) fn named_of_format_2(number: u64) -> CurrentName {
    CurrentName { directory: "db".to_owned(), keyspace: format!("counters-{number}"), id: None }
}

pub(super) fn write(store: &Path, named: &CurrentName) -> Result<(), Error> {
    let id = named.id.expect("only a store that says whose it is is written");
    let text = format!("directory {}\nkeyspace {}\nid {id}\n", named.directory, named.keyspace);
    Ok(label::write(&store.join(CURRENT), &text)?)
}

/// A number that no generation has, not even one that failed.
pub(super) fn unused_number(store: &Path) -> Result<u64, Error> {
    let names = names(store)?;
    let number = |name: &String| name.strip_prefix(GENERATION)?.parse::<u64>().ok();
    Ok(names.iter().filter_map(number).max().unwrap_or(0) + 1)
}

/// What is in the store's directory; nothing if there is none.
pub(super) fn names(store: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(store) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let names: io::Result<Vec<String>> =
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
    Ok(names?)
}

/// Whether a name is that of a database of ours, finished or not.
pub(super) fn is_database(name: &str) -> bool {
    name == "db" || name.starts_with(GENERATION)
}
