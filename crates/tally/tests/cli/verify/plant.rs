//! Faults in a data directory that nobody uses: bits, rows of the archive, rows of the store.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tally_archive::{Archive, EventsInOrder, Reader, Table, Writer};
use tally_core::fact;
use tally_core::ledger::LedgerKey;
use tally_core::memory::cell::{Collected, RowChange};
use tally_core::memory::names::Names;
use tally_core::op::Stream;
use tally_node::data_dir::DataDir;
use tally_storage::store::local::LocalStore;
use tally_storage::store::{Change, Cut, LedgerRow, Reads, Store};

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to)
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The file below a directory whose name ends so, or whose directory is called so. Of several it is the one with the last name.
pub fn only(directory: &Path, end: &str) -> PathBuf {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                directories.push(path);
            } else if path.to_str().unwrap().ends_with(end) || directory.ends_with(end) {
                found.push(path);
            }
        }
    }
    found.into_iter().max_by_key(|path| path.file_name().map(ToOwned::to_owned)).expect(end)
}

/// Flips a bit; behind zero it is so many bytes before the end.
pub fn flip(file: &Path, at: i64) {
    let mut bytes = fs::read(file).unwrap();
    let at = if at < 0 { bytes.len() - at.unsigned_abs() as usize } else { at as usize };
    bytes[at] ^= 4;
    fs::write(file, bytes).unwrap();
}

/// The list of manifests of the events as they are now.
pub fn manifest_list(data: &Path) -> PathBuf {
    let metadata = only(&data.join("archive/events/metadata"), ".metadata.json");
    let metadata: serde_json::Value = serde_json::from_slice(&fs::read(metadata).unwrap()).unwrap();
    let snapshots = metadata["snapshots"].as_array().unwrap();
    let current = snapshots.iter().find(|snapshot| snapshot["snapshot-id"] == metadata["current-snapshot-id"]).unwrap();
    let list = current["manifest-list"].as_str().unwrap();
    data.join("archive/events/metadata").join(Path::new(list).file_name().unwrap())
}

/// Takes what the last commit has put into `events` out of it, as if it had never been there, and says nothing of it.
pub fn drop_last_commit(data: &Path) {
    let file = only(&data.join("archive/events/metadata"), ".metadata.json");
    let mut metadata: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let current = metadata["current-snapshot-id"].clone();
    let snapshots = metadata["snapshots"].as_array().unwrap();
    let before =
        snapshots.iter().find(|snapshot| snapshot["snapshot-id"] == current).unwrap()["parent-snapshot-id"].clone();
    assert!(before.is_i64(), "{metadata}");
    metadata["current-snapshot-id"] = before.clone();
    metadata["refs"]["main"]["snapshot-id"] = before;
    fs::write(file, metadata.to_string()).unwrap();
}

/// Puts the first events of the archive into it once more; answers of which records they are.
pub fn double_rows(data: &Path, rows: usize) -> BTreeSet<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (root, id) = (data.join("archive"), DataDir::view(data).unwrap().identity.id);
        let readable = Reader::new(root.clone()).table(Table::Events).await.unwrap().unwrap();
        let mut archive = Archive::open(&root, Writer { log_id: id, nonce: 7, now_ms: 0 }).await.unwrap();
        let (mut events, mut records) = (EventsInOrder::new(readable.files), BTreeSet::new());
        for _ in 0..rows {
            let row = events.get().unwrap();
            records.insert(row.place.position.offset);
            archive.event(Stream::Display, row.place, row.under, &row.event).await.unwrap();
            events.pass();
        }
        archive.commit(&readable.reached.unwrap()).await.unwrap();
        records
    })
}

/// Makes the store forget that it has seen some event ids.
pub fn lose_claims(data: &Path, event_ids: &[&str]) {
    let hasher = DataDir::view(data).unwrap().identity.hasher();
    let mut keys: Vec<_> = event_ids.iter().map(|id| fact::claim_key(&hasher, id.as_bytes())).collect();
    keys.sort_by_key(|key| key.to_bytes());
    let rows = keys.into_iter().map(|key| LedgerRow { key: LedgerKey::Claim(key).encode(), change: Change::Delete });
    cut(data, Collected::default(), &mut rows.map(Ok));
}

/// Changes what a counter is worth, and nothing else.
pub fn change_value(data: &Path, id: &str, delta: i64) {
    let viewed = DataDir::view(data).unwrap();
    let key = viewed.identity.hasher().key(id.as_bytes());
    let store = LocalStore::view(&viewed.store(), viewed.identity.of_store(), 8 << 20).unwrap().unwrap();
    let mut row = store.get(key).unwrap().unwrap();
    row.value += delta;
    cut(data, Collected::from_iter([RowChange { key, row: Some(row) }]), &mut std::iter::empty());
}

/// A cut of nothing but that, at the position where the store stands.
fn cut(data: &Path, rows: Collected, ledger: &mut dyn Iterator<Item = Result<LedgerRow, tally_storage::store::Error>>) {
    let viewed = DataDir::view(data).unwrap();
    let store = LocalStore::open(&viewed.store(), viewed.identity.of_store(), 8 << 20).unwrap();
    let checkpoint = store.checkpoint().unwrap().unwrap();
    let mut rows = Some(rows);
    let cut = Cut {
        from: Some(checkpoint.position),
        to: &checkpoint,
        replace: false,
        names: &Names::default(),
        rows: &mut || Ok(rows.take()),
        ledger,
    };
    store.commit(cut).unwrap();
}
