//! The embedded store: fjall, one keyspace per generation.
//!
//! A cut is written as one sorted bulk load (checkpoint, cells, names, ledger), which fjall makes visible and durable in
//! one step; so position and state cannot part. Nothing goes through fjall's journal. A cut that replaces everything goes to
//! a keyspace of its own, the next generation; the file `CURRENT` names the one in force.

#[cfg(test)]
mod measure;

use super::key::Key;
use super::{Checkpoint, Cut, Error, Store, VisitLedger, settle};
use arc_swap::ArcSwap;
use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, PartitioningPolicy,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tally_core::cell::Row;
use tally_core::id::CellKey;

const CURRENT: &str = "CURRENT";

/// Bits per key of the filters, on every level, the last one too: most ids that are looked up in the ledger were never
/// seen, and only a filter can say so without reading rows. One lookup in 120 reads a block for nothing, per table asked.
const FILTER_BITS: f32 = 10.0;

/// Tables that cuts may leave before they are merged; the first level holds as many. Keys are hashes, so each merge rewrites
/// that whole level, and each step down most of what it meets. A model of 80 million rows in cuts of 500,000, at an eighth of
/// the size, wrote 4.0 bytes per byte with 16 tables and 8.7 with fjall's own 4. Reads pay for it: they ask a filter of
/// each cut that waits.
const TABLES_BEFORE_MERGE: u8 = 16;

pub struct LocalStore {
    dir: PathBuf,
    db: Database,
    current: ArcSwap<Generation>,
}

struct Generation {
    number: u64,
    keyspace: Keyspace,
}

impl LocalStore {
    /// Opens the store in `dir`, or makes one. `cache_bytes` bounds what it keeps in memory for reads.
    pub fn open(dir: &Path, cache_bytes: u64) -> Result<LocalStore, Error> {
        fs::create_dir_all(dir)?;
        let db = Database::builder(dir.join("db")).cache_size(cache_bytes).worker_threads(1).open()?;
        let number = read_current(dir)?;
        let current = open_generation(&db, number)?;
        let store = LocalStore { dir: dir.to_owned(), db, current: ArcSwap::from_pointee(current) };
        store.drop_other_generations();
        Ok(store)
    }

    /// Frees what is not in force. What cannot be freed now, on a full disk, is freed at the next opening.
    fn drop_other_generations(&self) {
        let number = self.current.load().number;
        for name in self.db.list_keyspace_names() {
            if *name != generation_name(number) {
                let _ = self.db.keyspace(&name, options).and_then(|keyspace| self.db.delete_keyspace(keyspace));
            }
        }
    }

    /// A generation that nobody has ever written to, not even a cut that failed.
    fn new_generation(&self) -> Result<Generation, Error> {
        let numbers = self.db.list_keyspace_names().into_iter().filter_map(|name| generation_number(&name));
        open_generation(&self.db, numbers.max().unwrap_or(0).max(self.current.load().number) + 1)
    }

    /// Makes a new generation the one in force: from here on a crash finds it.
    fn switch_to(&self, generation: Generation) -> Result<(), Error> {
        write_current(&self.dir, generation.number)?;
        self.current.store(generation.into());
        self.drop_other_generations();
        Ok(())
    }

    fn ledger_range(&self, from: &[u8], to: &[u8]) -> fjall::Iter {
        let end = to.max(from);
        self.current.load().keyspace.range(Key::Ledger(from).encode()..Key::Ledger(end).encode())
    }
}

impl Store for LocalStore {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        let bytes = self.current.load().keyspace.get(Key::Checkpoint.encode())?;
        bytes.map(|bytes| Checkpoint::decode(&bytes)).transpose()
    }

    fn get(&self, key: CellKey) -> Result<Option<Row>, Error> {
        let bytes = self.current.load().keyspace.get(Key::Cell(key).encode())?;
        bytes.map(|bytes| decode_row(&bytes)).transpose()
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, Row) -> ControlFlow<()>) -> Result<(), Error> {
        let range = Key::Cell(from).encode()..Key::Name(b"").encode();
        for entry in self.current.load().keyspace.range(range) {
            let (key, value) = entry.into_inner()?;
            let Key::Cell(key) = Key::decode(&key)? else {
                return Err(Error::Damaged("a key among the cells is not a cell".into()));
            };
            if visit(key, decode_row(&value)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let start = Key::Name(prefix.max(after.unwrap_or(prefix))).encode();
        let mut names = Vec::new();
        for entry in self.current.load().keyspace.range(start..Key::Ledger(b"").encode()) {
            let key = entry.key()?;
            let Key::Name(id) = Key::decode(&key)? else {
                return Err(Error::Damaged("a key among the names is not a name".into()));
            };
            if names.len() == limit || !id.starts_with(prefix) {
                break;
            }
            if after.is_none_or(|after| id > after) {
                names.push(id.to_vec());
            }
        }
        Ok(names)
    }

    fn ledger_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let bytes = self.current.load().keyspace.get(Key::Ledger(key).encode())?;
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitLedger<'_>) -> Result<(), Error> {
        visit_ledger(self.ledger_range(from, to), visit)
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitLedger<'_>) -> Result<(), Error> {
        visit_ledger(self.ledger_range(from, to).rev(), visit)
    }

    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        let found = self.checkpoint()?.map(|checkpoint| checkpoint.position);
        if found != cut.from {
            return Err(Error::Fenced { expected: cut.from, found });
        }
        if cut.replace {
            // Nobody has written to it yet, so merges find nothing there.
            let next = self.new_generation()?;
            write_cut(&next.keyspace, cut)?;
            self.switch_to(next)
        } else {
            write_cut(&self.current.load_full().keyspace, cut)
        }
    }
}

fn write_cut(keyspace: &Keyspace, cut: Cut<'_>) -> Result<(), Error> {
    let mut ingestion = keyspace.start_ingestion()?;
    ingestion.write(Key::Checkpoint.encode(), cut.to.encode())?;
    let mut value = Vec::new();
    while let Some(chunk) = (cut.rows)().map_err(|_| Error::Abandoned)? {
        for change in chunk {
            let key = Key::Cell(change.key).encode();
            match change.row {
                Some(row) => {
                    value.clear();
                    row.encode(&mut value);
                    ingestion.write(key, value.as_slice())?;
                }
                None => ingestion.write_tombstone(key)?,
            }
        }
    }
    for (id, exists) in cut.names.sorted() {
        let key = Key::Name(id).encode();
        if exists { ingestion.write(key, [])? } else { ingestion.write_tombstone(key)? }
    }
    for row in cut.ledger {
        // Until the load is finished the keyspace is as of before the cut.
        let (key, value) = settle(row, cut.merge, |key| Ok(keyspace.get(Key::Ledger(key).encode())?))?;
        let key = Key::Ledger(&key).encode();
        match value {
            Some(value) => ingestion.write(key, value)?,
            None => ingestion.write_tombstone(key)?,
        }
    }
    Ok(ingestion.finish()?)
}

fn visit_ledger(entries: impl Iterator<Item = fjall::Guard>, visit: &mut VisitLedger<'_>) -> Result<(), Error> {
    for entry in entries {
        let (key, value) = entry.into_inner()?;
        let Key::Ledger(key) = Key::decode(&key)? else {
            return Err(Error::Damaged("a key in the ledger is not of the ledger".into()));
        };
        if visit(key, &value).is_break() {
            break;
        }
    }
    Ok(())
}

fn decode_row(bytes: &[u8]) -> Result<Row, Error> {
    Row::decode(bytes).map_err(|error| Error::Damaged(format!("a row: {error}")))
}

fn generation_name(number: u64) -> String {
    format!("counters-{number}")
}

fn generation_number(name: &str) -> Option<u64> {
    name.strip_prefix("counters-")?.parse().ok()
}

fn open_generation(db: &Database, number: u64) -> Result<Generation, Error> {
    Ok(Generation { number, keyspace: db.keyspace(&generation_name(number), options)? })
}

/// Keys are hashes, so blocks do not compress. Index and filter are read in parts, since a cut's tables are not pinned, and
/// a whole filter would push everything else out of a small cache.
///
/// fjall writes these options down when it makes a keyspace; one that exists keeps those it was made with.
fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS))))
        .expect_point_read_hits(false)
        .compaction_strategy(Arc::new(Leveled::default().with_l0_threshold(TABLES_BEFORE_MERGE)))
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        .data_block_size_policy(BlockSizePolicy::all(4 * 1024))
        .index_block_partitioning_policy(PartitioningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(true))
}

fn read_current(dir: &Path) -> Result<u64, Error> {
    let text = match fs::read_to_string(dir.join(CURRENT)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let number = text.trim().strip_prefix("generation ").and_then(|number| number.parse().ok());
    number.ok_or_else(|| Error::Damaged(format!("file {CURRENT} says {text:?} instead of `generation N`")))
}

fn write_current(dir: &Path, number: u64) -> Result<(), Error> {
    let temporary = dir.join("CURRENT.new");
    let mut file = File::create(&temporary)?;
    writeln!(file, "generation {number}")?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(CURRENT))?;
    File::open(dir)?.sync_all()?;
    Ok(())
}

impl From<fjall::Error> for Error {
    fn from(error: fjall::Error) -> Error {
        Error::Io(error.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Io(error.to_string())
    }
}
