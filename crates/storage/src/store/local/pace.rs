//! Tables are written at a pace that leaves processor and disk to those who have somebody waiting.
//!
//! fjall writes a table into the page cache and syncs all of it at its end: the disk gets up to 64 MiB at once, and the log's next
//! sync stands behind them. So what cuts and merges have written is synced early, a little at a time, with a rest behind each, and a
//! thread that merely works gives up the processor now and then: the system lets who wakes up wait for its next tick
//! otherwise, some milliseconds. What is read back has rests as well: systems let reads go before writes.
//!
//! Nothing relies on any of this. That a table is durable is fjall's business as before; an error here comes to it as well, since it
//! had the file open when it happened.

use super::verify::keyspaces;
use fjall::compaction::filter::{CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict};
use rustix::process::setpriority_process;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the disk is given at a time: half a millisecond or so.
const DISK_BYTES: usize = 1 << 20;
/// What comes behind it: the time in which the log syncs a few times.
const REST: Duration = Duration::from_millis(1);
/// A millisecond of work or so. Who gives up the processor has it back only when others have had theirs, so where all of them are
/// busy much less would make a cut take for ever.
const TURN_BYTES: usize = 256 << 10;
/// What a row takes beside its bytes, and takes to be written.
const ROW_BYTES: usize = 32;
/// Of so many tables one may be under way: the newest. Cuts and merges write one each, and a merge may finish some meanwhile.
const UNDER_WAY_MAX: usize = 16;

/// Of threads that merge tables, for which nobody waits but the next merge.
pub(super) const NICENESS: i32 = 5;

/// This thread, and those that it starts from here on, leave the processors to others.
pub fn give_way(niceness: i32) {
    // On Linux nobody is a process of its own here, but each thread is. It may be as nice as that already, which is as well.
    let _ = setpriority_process(None, niceness);
}

/// What has been written of a database's tables, and how much of it is synced.
pub(super) struct EarlySync {
    database: PathBuf,
    /// The lengths of the newest tables when they were synced last. Whoever syncs holds it, so that there is one at a time.
    synced: Mutex<BTreeMap<PathBuf, u64>>,
}

impl EarlySync {
    pub fn new(database: &Path) -> Arc<EarlySync> {
        Arc::new(EarlySync { database: database.to_owned(), synced: Mutex::default() })
    }

    /// A thread's own pace.
    pub fn pace(self: &Arc<EarlySync>) -> Pace {
        Pace { early: self.clone(), turn_bytes: 0, sync_bytes: 0 }
    }

    /// Syncs the tables that have grown since the last time, and says how many. One that is gone, or cannot be looked at, needs no
    /// sync from here.
    fn sync(&self) -> usize {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = self.newest();
        synced.retain(|table, _| newest.contains(table));
        let mut grown = 0;
        for table in newest {
            let Ok(bytes) = fs::metadata(&table).map(|metadata| metadata.len()) else { continue };
            if synced.insert(table.clone(), bytes) != Some(bytes) {
                let _ = File::open(&table).and_then(|file| file.sync_data());
                grown += 1;
            }
        }
        grown
    }

    fn newest(&self) -> Vec<PathBuf> {
        let mut tables: Vec<(u64, PathBuf)> = Vec::new();
        for keyspace in keyspaces(&self.database).unwrap_or_default() {
            for entry in fs::read_dir(keyspace.join("tables")).into_iter().flatten().flatten() {
                let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
                tables.extend(id.map(|id| (id, entry.path())));
            }
        }
        tables.sort_unstable_by(|a, b| b.cmp(a));
        tables.into_iter().take(UNDER_WAY_MAX).map(|(_, path)| path).collect()
    }
}

/// Told of every row that is written, it lets others go first now and then.
pub(super) struct Pace {
    early: Arc<EarlySync>,
    turn_bytes: usize,
    sync_bytes: usize,
}

impl Pace {
    pub fn wrote(&mut self, bytes: usize) {
        self.turn_bytes += bytes + ROW_BYTES;
        if self.turn_bytes < TURN_BYTES {
            return;
        }
        self.sync_bytes += std::mem::take(&mut self.turn_bytes);
        if self.sync_bytes < DISK_BYTES {
            std::thread::yield_now();
            return;
        }
        self.sync_bytes = 0;
        self.early.sync();
        std::thread::park_timeout(REST);
    }
}

/// The same for who reads a lot of what is not in memory.
#[derive(Default)]
pub(super) struct ReadPace {
    bytes: usize,
}

impl ReadPace {
    pub fn read(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= DISK_BYTES {
            self.bytes = 0;
            std::thread::park_timeout(REST);
        }
    }
}

/// fjall tells nobody of what its merges write but those who would leave rows out. This one keeps every row.
impl CompactionFilter for Pace {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        self.wrote(item.key().len() + item.value()?.len());
        Ok(Verdict::Keep)
    }
}

/// A pace for each merge.
pub(super) struct Merges(pub Arc<EarlySync>);

impl Factory for Merges {
    fn name(&self) -> &str {
        "pace"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(self.0.pace())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_newest_tables_what_has_grown_is_synced_and_no_more() {
        let database = tempfile::tempdir().unwrap();
        let tables = database.path().join("keyspaces/1/tables");
        fs::create_dir_all(&tables).unwrap();
        let table = |id: usize| tables.join(id.to_string());
        (0..UNDER_WAY_MAX + 4).for_each(|id| fs::write(table(id), [0; 7]).unwrap());
        fs::write(tables.join("none"), "of the tables").unwrap();
        let early = EarlySync::new(database.path());
        let synced = || early.synced.lock().unwrap().clone();
        assert_eq!(early.sync(), UNDER_WAY_MAX);
        assert_eq!(synced(), (4..20).map(|id| (table(id), 7)).collect());
        assert_eq!(early.sync(), 0, "nothing has been written since");
        fs::write(table(9), [0; 8]).unwrap();
        fs::write(table(20), []).unwrap();
        fs::remove_file(table(5)).unwrap();
        assert_eq!(early.sync(), 2, "one has grown and one is new");
        assert_eq!(synced().get(&table(9)), Some(&8));
        assert_eq!(synced().len(), UNDER_WAY_MAX);
    }

    #[test]
    fn who_writes_much_has_it_synced_on_the_way() {
        let database = tempfile::tempdir().unwrap();
        let tables = database.path().join("keyspaces/1/tables");
        fs::create_dir_all(&tables).unwrap();
        fs::write(tables.join("1"), [0; 9]).unwrap();
        let early = EarlySync::new(database.path());
        let mut pace = early.pace();
        let is_synced = || !early.synced.lock().unwrap().is_empty();
        (0..DISK_BYTES / 1024 / 2).for_each(|_| pace.wrote(1024));
        assert!(!is_synced(), "it is half of a step");
        (0..DISK_BYTES / 1024 / 2).for_each(|_| pace.wrote(1024));
        assert!(is_synced());
    }
}
