//! What the files of the embedded store mean: whose they are, which are in force, and what is refused.

use super::*;
use crate::store::suite;
use fjall::{Database, KeyspaceCreateOptions};
use std::fs;
use tally_core::id::CellHasher;
use tally_core::memory::cell::{Collected, RowChange};
use tally_core::memory::names::Names;
use tally_core::position::Position;

const OURS: StoreIdentity = StoreIdentity { id: 1, seed_check: [7; 16] };
const CACHE_BYTES: u64 = 1 << 20;

fn hasher() -> CellHasher {
    CellHasher::new(5)
}

fn at(offset: u64) -> Checkpoint {
    Checkpoint { position: Position { epoch: 1, log: 0, offset }, counters: 1, state: Vec::new() }
}

fn open(dir: &Path) -> Result<LocalStore, Error> {
    LocalStore::open(dir, OURS, CACHE_BYTES)
}

/// Puts a counter `id` with a value into the store.
fn commit(store: &LocalStore, from: Option<u64>, to: u64, value: i64, replace: bool) -> Result<(), Error> {
    let mut names = Names::default();
    names.created(b"v:1");
    let row = RowChange { key: hasher().key(b"v:1"), row: Some(CellRow::plain(value)) };
    let mut rows = Some(Collected::from_iter([row]));
    store.commit(Cut {
        from: from.map(|offset| at(offset).position),
        to: &at(to),
        replace,
        names: &names,
        rows: &mut || Ok(rows.take()),
        ledger: &mut std::iter::empty(),
    })
}

fn value(store: &LocalStore) -> Option<i64> {
    store.get(hasher().key(b"v:1")).unwrap().map(|row| row.value)
}

/// A store with one counter, written in two cuts.
fn written(dir: &Path) {
    let store = open(dir).unwrap();
    commit(&store, None, 5, 10, false).unwrap();
    commit(&store, Some(5), 6, 11, false).unwrap();
}

/// What the version before this one left.
fn written_in_format_2(dir: &Path, generation: u64, current: Option<&str>) {
    let db = Database::builder(dir.join("db")).open().unwrap();
    let keyspace = db.keyspace(&format!("counters-{generation}"), KeyspaceCreateOptions::default).unwrap();
    let mut ingestion = keyspace.start_ingestion().unwrap();
    ingestion.write(Key::Checkpoint.encode(), at(5).encode()).unwrap();
    let mut row = Vec::new();
    CellRow::plain(10).encode(&mut row);
    ingestion.write(Key::Cell(hasher().key(b"v:1")).encode(), row).unwrap();
    ingestion.write(Key::Name(b"v:1").encode(), []).unwrap();
    ingestion.finish().unwrap();
    if let Some(current) = current {
        fs::write(dir.join("CURRENT"), current).unwrap();
    }
}

/// Every file below a directory with its bytes and the time of its last change.
fn image(dir: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let changed = fs::symlink_metadata(&path).unwrap().modified().unwrap();
        if path.is_dir() {
            files.extend(image(&path));
            files.push((path, Vec::new(), changed));
        } else {
            files.push((path.clone(), fs::read(&path).unwrap(), changed));
        }
    }
    files.sort();
    files
}

#[test]
fn a_store_says_whose_it_is_and_is_refused_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path());
    assert_eq!(LocalStore::belongs_to(dir.path()).unwrap(), Some(1));
    let elsewhere = StoreIdentity { id: 2, ..OURS };
    let refused = LocalStore::open(dir.path(), elsewhere, CACHE_BYTES).err().unwrap();
    assert!(refused.to_string().contains("belongs to another data directory"), "{refused}");
    let reseeded = StoreIdentity { seed_check: [8; 16], ..OURS };
    let refused = LocalStore::open(dir.path(), reseeded, CACHE_BYTES).err().unwrap();
    assert!(refused.to_string().contains("another hash-seed"), "{refused}");
    assert_eq!(value(&open(dir.path()).unwrap()), Some(11));
}

#[test]
fn a_database_of_another_store_is_refused_although_current_names_it() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    written(ours.path());
    commit(&LocalStore::open(theirs.path(), StoreIdentity { id: 2, ..OURS }, CACHE_BYTES).unwrap(), None, 5, 99, false)
        .unwrap();
    fs::remove_dir_all(ours.path().join("gen-1")).unwrap();
    fs::rename(theirs.path().join("gen-1"), ours.path().join("gen-1")).unwrap();
    let refused = open(ours.path()).err().unwrap();
    assert!(refused.to_string().contains("gen-1 belongs to another data directory"), "{refused}");
}

#[test]
fn a_cut_names_what_is_in_force_if_current_has_come_to_name_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let current = dir.path().join("CURRENT");
    let in_force = fs::read(&current).unwrap();
    // As if a generation had been named, and that could not be made durable.
    crate::label::write(&current, "directory gen-9\nkeyspace counters\nid 1\n").unwrap();
    commit(&store, None, 5, 10, false).unwrap();
    assert_eq!(fs::read(&current).unwrap(), in_force);
}

#[test]
fn a_lost_or_wrong_current_is_refused_and_nothing_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    commit(&store, None, 5, 10, false).unwrap();
    commit(&store, Some(5), 6, 11, true).unwrap();
    drop(store);
    let current = dir.path().join("CURRENT");
    let whole = fs::read(&current).unwrap();
    fs::remove_file(&current).unwrap();
    let before = image(dir.path());
    assert!(open(dir.path()).err().unwrap().to_string().contains("lost its file CURRENT"));
    assert_eq!(image(dir.path()), before);
    for wrong in
        [&b"generation 0\n"[..], b"directory gen-1\nkeyspace counters\nid 1\nchecksum 00000000\n", b"\xff", b""]
    {
        fs::write(&current, wrong).unwrap();
        let before = image(dir.path());
        open(dir.path()).err().unwrap();
        assert_eq!(image(dir.path()), before);
    }
    // Right in itself, but what it names is not there.
    crate::label::write(&current, "directory gen-9\nkeyspace counters\nid 1\n").unwrap();
    assert!(open(dir.path()).err().unwrap().to_string().contains("gen-9"));
    fs::write(&current, whole).unwrap();
    assert_eq!(value(&open(dir.path()).unwrap()), Some(11));
}

#[test]
fn what_is_not_in_force_goes_when_all_is_well() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path());
    fs::create_dir(dir.path().join("gen-7")).unwrap();
    fs::create_dir(dir.path().join("gen-1.new")).unwrap();
    let store = open(dir.path()).unwrap();
    assert!(dir.path().join("gen-7").exists());
    store.tidy().unwrap();
    let mut names = current::names(dir.path()).unwrap();
    names.sort();
    assert_eq!(names, ["CURRENT", "gen-1"]);
}

#[test]
fn a_replaced_generation_goes_when_nobody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path());
    let store = open(dir.path()).unwrap();
    let reads = store.generation().unwrap();
    commit(&store, Some(6), 7, 12, true).unwrap();
    assert!(dir.path().join("gen-1").exists());
    drop(reads);
    assert!(!dir.path().join("gen-1").exists());
    assert_eq!(value(&store), Some(12));
    drop(store);
    assert_eq!(value(&open(dir.path()).unwrap()), Some(12));
}

#[test]
fn a_creation_that_stopped_anywhere_is_finished_by_the_next_opening() {
    let dir = tempfile::tempdir().unwrap();
    let stopped = || open(dir.path()).unwrap();
    // Before the database was whole.
    fs::create_dir_all(dir.path().join("gen-1.new/keyspaces")).unwrap();
    fs::write(dir.path().join("gen-1.new/version"), "").unwrap();
    commit(&stopped(), None, 5, 10, false).unwrap();
    // Between its name in CURRENT and its own.
    fs::rename(dir.path().join("gen-1"), dir.path().join("gen-1.new")).unwrap();
    assert_eq!(value(&stopped()), Some(10));
}

#[test]
fn a_store_of_format_2_is_carried_over_with_its_counters() {
    for (generation, current) in [(0, None), (3, Some("generation 3\n"))] {
        let dir = tempfile::tempdir().unwrap();
        written_in_format_2(dir.path(), generation, current);
        assert!(open(dir.path()).is_err());
        let view = LocalStore::view(dir.path(), OURS, CACHE_BYTES).unwrap().unwrap();
        assert_eq!(value(&view), Some(10));
        // Twice, as after a crash before the data directory says format 3.
        carry_over(dir.path(), OURS, |id| hasher().key(id)).unwrap();
        carry_over(dir.path(), OURS, |id| hasher().key(id)).unwrap();
        let store = open(dir.path()).unwrap();
        assert_eq!(store.checkpoint().unwrap(), Some(at(5)));
        assert_eq!(value(&store), Some(10));
        commit(&store, Some(5), 6, 11, false).unwrap();
        commit(&store, Some(6), 7, 12, true).unwrap();
        drop(store);
        assert_eq!(value(&open(dir.path()).unwrap()), Some(12));
        assert!(!dir.path().join("db").exists());
    }
}

#[test]
fn a_store_of_format_2_that_another_seed_made_is_not_carried_over() {
    let dir = tempfile::tempdir().unwrap();
    written_in_format_2(dir.path(), 0, None);
    let refused = carry_over(dir.path(), OURS, |id| CellHasher::new(6).key(id)).unwrap_err();
    assert!(refused.to_string().contains("hash-seed"), "{refused}");
    carry_over(dir.path(), OURS, |id| hasher().key(id)).unwrap();
}

#[test]
fn a_store_of_format_2_that_was_never_finished_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("db/keyspaces")).unwrap();
    fs::write(dir.path().join("db/version"), "").unwrap();
    carry_over(dir.path(), OURS, |id| hasher().key(id)).unwrap();
    assert_eq!(value(&open(dir.path()).unwrap()), None);
}

#[test]
fn a_view_reads_everything_and_changes_nothing_also_of_a_damaged_store() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path());
    let before = image(dir.path());
    let view = LocalStore::view(dir.path(), OURS, CACHE_BYTES).unwrap().unwrap();
    assert_eq!(view.checkpoint().unwrap(), Some(at(6)));
    assert_eq!(value(&view), Some(11));
    drop(view);
    assert_eq!(image(dir.path()), before);
    // A table that nobody names: an opening that writes would remove it.
    let tables = dir.path().join("gen-1/keyspaces/1/tables");
    fs::write(tables.join("999"), "half of a cut").unwrap();
    fs::write(dir.path().join("gen-1/keyspaces/1/v999"), "an old version").unwrap();
    fs::remove_file(dir.path().join("gen-1/keyspaces/0/current")).unwrap();
    let before = image(dir.path());
    LocalStore::view(dir.path(), OURS, CACHE_BYTES).err().unwrap();
    assert_eq!(image(dir.path()), before);
}

#[test]
fn a_database_that_has_lost_a_file_is_refused_by_name_and_keeps_the_others() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path());
    // An opening removes old versions, which nobody would miss.
    drop(open(dir.path()).unwrap());
    let files: Vec<_> = image(dir.path()).into_iter().filter(|(path, ..)| path.is_file()).collect();
    let mut refused = 0;
    for (path, bytes, _) in &files {
        let name = path.file_name().unwrap().to_str().unwrap();
        if ["lock", "CURRENT"].contains(&name) || name.ends_with(".jnl") {
            continue;
        }
        fs::remove_file(path).unwrap();
        let error = open(dir.path()).err().unwrap_or_else(|| panic!("{} was not missed", path.display()));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        fs::write(path, bytes).unwrap();
        refused += 1;
    }
    assert!(refused >= 6, "{files:?}");
    assert_eq!(value(&open(dir.path()).unwrap()), Some(11));
}

/// Turns one byte in the middle of every table that `before` does not have.
fn spoil_new_tables(dir: &Path, before: &[PathBuf]) -> usize {
    let fresh: Vec<PathBuf> = tables(dir).into_iter().filter(|table| !before.contains(table)).collect();
    for table in &fresh {
        let mut bytes = fs::read(table).unwrap();
        // Among the rows, where only the checksum of the file, or a read of just this block, can tell.
        bytes[10] ^= 1;
        fs::write(table, bytes).unwrap();
    }
    fresh.len()
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    image(dir).into_iter().map(|(path, ..)| path).filter(|path| path.parent().unwrap().ends_with("tables")).collect()
}

#[test]
fn a_cut_that_cannot_be_read_back_is_none_and_the_store_is_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    commit(&store, None, 5, 10, false).unwrap();
    let generation = store.generation().unwrap();
    let (before, tables_before) = (generation.before().unwrap(), tables(dir.path()));
    commit(&store, Some(5), 6, 11, false).unwrap();
    store.make_final(&generation, &before, &at(6)).unwrap();
    let other = store.make_final(&generation, &before, &at(7)).unwrap_err().to_string();
    assert!(other.contains("is not the one that is read back"), "{other}");
    assert_eq!((value(&store), store.checkpoint().unwrap()), (Some(10), Some(at(5))), "it went back");
    drop((generation, before));

    let generation = store.generation().unwrap();
    let (before, tables_before) = (generation.before().unwrap(), [tables_before, tables(dir.path())].concat());
    commit(&store, Some(5), 6, 11, false).unwrap();
    assert!(spoil_new_tables(dir.path(), &tables_before) > 0);
    let damaged = store.make_final(&generation, &before, &at(6)).unwrap_err();
    assert!(matches!(&damaged, Error::Retry(why) if why.contains("is not what is read back")), "{damaged}");
    drop((generation, before));
    assert_eq!((value(&store), store.checkpoint().unwrap()), (Some(10), Some(at(5))));
    assert_eq!(store.names(b"", None, 9).unwrap(), [b"v:1"]);
    commit(&store, Some(5), 7, 12, false).unwrap();
    drop(store);
    let store = open(dir.path()).unwrap();
    assert_eq!((value(&store), store.checkpoint().unwrap()), (Some(12), Some(at(7))), "and goes on from there");
}

suite::tests!(&|| {
    let dir = tempfile::tempdir().unwrap();
    Box::new(move || Box::new(LocalStore::open(dir.path(), StoreIdentity::default(), 1 << 20).unwrap()))
});

#[test]
fn a_store_that_is_loaded_with_what_a_walk_tells_is_the_same() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, count) = (open(first.path()).unwrap(), 10_000u32);
    let mut names = Names::default();
    let ids: Vec<String> = (0..count).map(|n| format!("id:{n}")).collect();
    ids.iter().for_each(|id| names.created(id.as_bytes()));
    let cells = ids.iter().zip(0..).map(|(id, n)| (hasher().key(id.as_bytes()), Some(CellRow::plain(n))));
    let mut rows = Some(cells.map(|(key, row)| RowChange { key, row }).collect::<Collected>());
    let ledger = |n: u32| crate::store::LedgerRow {
        key: [&[5], &n.to_be_bytes()[..]].concat(),
        change: crate::store::Change::Put(n.to_string().into()),
    };
    let mut ledger = (0..count).map(|n| Ok(ledger(n)));
    let rows: &mut dyn FnMut() -> _ = &mut || Ok(rows.take());
    store.commit(Cut { from: None, to: &at(7), replace: false, names: &names, rows, ledger: &mut ledger }).unwrap();

    let told = |store: &LocalStore, from: &[u8], most: usize| {
        let mut told = Vec::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            told.push((key.to_vec(), value.to_vec()));
            if told.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        crate::store::walk(store, from, visit).unwrap();
        told
    };
    let all = told(&store, b"", usize::MAX);
    assert_eq!(all.len(), 3 * count as usize);
    assert!(all.is_sorted_by(|a, b| a.0 < b.0));
    // From any row on it is the rest of the same.
    for from in [0, 1, 9_999, 10_000, 14_096, 14_097, 19_999, 20_000, 25_000, 29_999] {
        assert_eq!(told(&store, &all[from].0, 3), all[from..].iter().take(3).cloned().collect::<Vec<_>>(), "{from}");
    }

    let loaded = open(second.path()).unwrap();
    for stretch in all.chunks(7_000).chain([&all[..10]]) {
        loaded.load(&mut stretch.iter().cloned().map(Ok)).unwrap();
        assert_eq!(loaded.checkpoint().unwrap(), None, "nobody takes it for a store yet");
    }
    loaded.load(&mut std::iter::once(Ok((Key::Identity.encode(), Vec::new())))).unwrap_err();
    loaded.finish_load(&at(7)).unwrap();
    drop(loaded);
    let loaded = open(second.path()).unwrap();
    assert_eq!((loaded.checkpoint().unwrap(), told(&loaded, b"", usize::MAX)), (Some(at(7)), all));
}
