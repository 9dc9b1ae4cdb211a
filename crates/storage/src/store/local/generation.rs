//! One generation of the store: a fjall database in a directory of its own, with one keyspace.

use super::current::{self, CurrentName, UNFINISHED};
use super::pace::{self, EarlySync, Merges, Pace};
use super::{StoreIdentity, verify};
use crate::store::key::Key;
use crate::store::{Checkpoint, Error};
use fjall::compaction::Leveled;
use fjall::compaction::filter::Factory;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, PartitioningPolicy,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Snapshot};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tally_core::limits::STORE_FILES_MAX;

/// Bits per key of the filters, on every level, the last one too: most ids that are looked up in the ledger were never
/// seen, and only a filter can say so without reading rows. One lookup in 120 reads a block for nothing, per table asked.
const FILTER_BITS: f32 = 10.0;

/// Tables that cuts may leave before they are merged; the first level holds as many. Keys are hashes, so each merge rewrites
/// that whole level, and each step down most of what it meets. A model of 80 million rows in cuts of 500,000, at an eighth of
/// the size, wrote 4.0 bytes per byte with 16 tables and 8.7 with fjall's own 4. Reads pay for it: they ask a filter of
/// each cut that waits.
const TABLES_BEFORE_MERGE: u8 = 16;

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub cache_bytes: u64,
    /// Threads that merge tables; without one, nothing is written.
    pub workers: usize,
}

/// Fields are dropped in this order: the directory goes after the database is closed.
pub(super) struct StoreGeneration {
    pub keyspace: Keyspace,
    pub(super) db: Database,
    early: Arc<EarlySync>,
    remains: Remains,
}

/// A generation as it was before a cut.
pub(super) struct Before {
    tables: verify::Tables,
    pub snapshot: Snapshot,
}

/// The directory of a generation, which goes with it if it is void.
struct Remains {
    directory: PathBuf,
    void: AtomicBool,
}

impl Drop for Remains {
    fn drop(&mut self) {
        if *self.void.get_mut() {
            // What cannot be freed now is freed after the next start.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

impl StoreGeneration {
    /// Opens the database that `named` names, after a look at its files.
    pub fn open(store: &Path, named: &CurrentName, opening: Opening) -> Result<StoreGeneration, Error> {
        let directory = store.join(&named.directory);
        verify::check(&directory)?;
        let early = EarlySync::new(&directory);
        let db = open_database(&directory, opening, &early)?;
        if !db.keyspace_exists(&named.keyspace) {
            let (directory, keyspace) = (directory.display(), &named.keyspace);
            return Err(Error::Damaged(format!("{directory} has no {keyspace}, which file CURRENT names")));
        }
        StoreGeneration::new(db, early, &named.keyspace, directory)
    }

    /// Makes a database that nobody names yet.
    pub fn create(store: &Path, named: &CurrentName, opening: Opening) -> Result<StoreGeneration, Error> {
        let directory = store.join(&named.directory);
        let early = EarlySync::new(&directory);
        let db = open_database(&directory, opening, &early)?;
        StoreGeneration::new(db, early, &named.keyspace, directory)
    }

    fn new(db: Database, early: Arc<EarlySync>, keyspace: &str, directory: PathBuf) -> Result<StoreGeneration, Error> {
        let keyspace = db.keyspace(keyspace, options)?;
        Ok(StoreGeneration { keyspace, db, early, remains: Remains { directory, void: AtomicBool::new(false) } })
    }

    /// How whoever writes many rows goes about it.
    pub fn pace(&self) -> Pace {
        self.early.pace()
    }

    /// From here on its directory is removed when nobody reads it any more.
    pub fn forget(&self) {
        self.remains.void.store(true, Ordering::Release);
    }

    /// What is in force, to tell it from what a cut adds, and to go back to.
    pub fn before(&self) -> Result<Before, Error> {
        Ok(Before { tables: verify::tables(&self.remains.directory)?, snapshot: self.db.snapshot() })
    }

    /// Reads back what was written since, and the checkpoint `to` as its readers would.
    pub fn read_back(&self, before: &Before, to: &Checkpoint) -> Result<(), Error> {
        verify::read_back(&self.remains.directory, &before.tables)?;
        let found = self.keyspace.get(Key::Checkpoint.encode())?.map(|bytes| Checkpoint::decode(&bytes)).transpose()?;
        match found.is_some_and(|found| found == *to) {
            true => Ok(()),
            false => Err(Error::Retry("the checkpoint that was written is not the one that is read back".to_owned())),
        }
    }

    /// Whether the thread that merges tables has given up, as it does for ever when the disk is full once.
    pub fn is_worn(&self) -> bool {
        self.db.persist(PersistMode::Buffer).is_err()
    }

    /// Whether the rows are those of `identity`; before the first cut there are none.
    pub fn check_identity(&self, identity: &StoreIdentity) -> Result<(), Error> {
        let found = self.keyspace.get(Key::Identity.encode())?;
        match found {
            Some(found) if *found == identity.encode() => Ok(()),
            Some(found) if found.get(..8) == Some(&identity.id.to_le_bytes()) => Err(Error::Foreign(
                "the counters in store/ were made with another hash-seed than file TALLY has, so none could be found: \
                 restore TALLY from a copy"
                    .to_owned(),
            )),
            Some(_) => Err(Error::Foreign(format!(
                "{} belongs to another data directory: put back the one that belongs here",
                self.remains.directory.display()
            ))),
            None if self.keyspace.get(Key::Checkpoint.encode())?.is_none() => Ok(()),
            None => Err(Error::Damaged(format!(
                "{} does not say which data directory it belongs to",
                self.remains.directory.display()
            ))),
        }
    }

    pub fn write_identity(&self, identity: &StoreIdentity) -> Result<(), Error> {
        let mut ingestion = self.keyspace.start_ingestion()?;
        ingestion.write(Key::Identity.encode(), identity.encode())?;
        Ok(ingestion.finish()?)
    }
}

/// Makes the first database of a store that has none. Until `CURRENT` names it it has another name, so a database without
/// a `CURRENT` is one that has lost it.
pub(super) fn create_first(store: &Path, identity: &StoreIdentity, opening: Opening) -> Result<CurrentName, Error> {
    if let Some(name) = current::names(store)?.iter().find(|name| is_finished(name)) {
        return Err(Error::Damaged(format!(
            "{} has data in {name}, but has lost its file CURRENT, which says what is in force; restore that file from a copy",
            store.display()
        )));
    }
    create_durably(store)?;
    let named = CurrentName::generation(1, identity);
    let unfinished = CurrentName { directory: format!("{}{UNFINISHED}", named.directory), ..named.clone() };
    if store.join(&unfinished.directory).exists() {
        fs::remove_dir_all(store.join(&unfinished.directory))?;
    }
    drop(StoreGeneration::create(store, &unfinished, opening)?);
    current::write(store, &named)?;
    Ok(named)
}

/// Gives the database that `CURRENT` names its name, if a crash came before that.
pub(super) fn finish_creation(store: &Path, named: &CurrentName) -> Result<(), Error> {
    let (finished, unfinished) = (store.join(&named.directory), store.join(format!("{}{UNFINISHED}", named.directory)));
    if !finished.exists() && unfinished.exists() {
        fs::rename(unfinished, finished)?;
        sync(store)?;
    }
    Ok(())
}

/// Makes the names in a directory durable.
fn sync(directory: &Path) -> Result<(), Error> {
    Ok(File::open(directory)?.sync_all()?)
}

/// Removes databases that are not in force.
pub(super) fn remove_others(store: &Path, named: &CurrentName) -> Result<(), Error> {
    let names = current::names(store)?;
    for name in names.iter().filter(|name| current::is_database(name) && **name != named.directory) {
        fs::remove_dir_all(store.join(name))?;
    }
    Ok(())
}

fn is_finished(name: &str) -> bool {
    current::is_database(name) && !name.ends_with(UNFINISHED)
}

fn create_durably(directory: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory)?;
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync(parent.unwrap_or(Path::new(".")))
}

fn open_database(directory: &Path, opening: Opening, early: &Arc<EarlySync>) -> Result<Database, Error> {
    let Opening { cache_bytes, workers } = opening;
    let builder = Database::builder(directory).cache_size(cache_bytes).max_cached_files(Some(STORE_FILES_MAX));
    let merges: Arc<dyn Factory> = Arc::new(Merges(early.clone()));
    let builder = builder.with_compaction_filter_factories(Arc::new(move |_| Some(merges.clone())));
    let builder = builder.worker_threads_unchecked(workers);
    // The threads that merge tables are as nice as the one that starts them.
    let open = || {
        pace::give_way(pace::NICENESS);
        builder.open()
    };
    let opened = std::thread::scope(|scope| scope.spawn(open).join());
    Ok(opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
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
