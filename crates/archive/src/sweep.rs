//! Files of a table that are of no use any more. Iceberg's library forgets them in its metadata and leaves them where they are.

use crate::ArchiveError;
use crate::disk::Disk;
use hashbrown::HashSet;
use iceberg::table::Table;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where a table has files of its own, and how they end. Whatever else is there is somebody else's.
const OWN: [(&str, &[&str]); 2] = [("data", &[".parquet"]), ("metadata", &[".avro", ".metadata.json"])];

/// Removes every file that a table has left in its directory and does not name; none, if it cannot be read in full. One that cannot be
/// removed keeps no other.
pub async fn sweep(table: &Table, disk: &Disk, directory: &Path) -> Result<(), ArchiveError> {
    let (used, mut swept) = (used(table, disk).await?, Ok(()));
    for (below, endings) in OWN {
        let is_own = |file: &Path| endings.iter().any(|ending| file.to_string_lossy().ends_with(ending));
        each_file(&directory.join(below), &mut |file| {
            if is_own(file) && !used.contains(file) {
                let removed = fs::remove_file(file).map_err(|error| not_removed(file, &error));
                swept = std::mem::replace(&mut swept, Ok(())).and(removed);
            }
            Ok(())
        })?;
    }
    swept
}

fn not_removed(file: &Path, error: &io::Error) -> ArchiveError {
    ArchiveError::Failed(format!("{} cannot be removed: {error}", file.display()))
}

/// Every file that one of a table's snapshots or versions names.
async fn used(table: &Table, disk: &Disk) -> Result<HashSet<PathBuf>, ArchiveError> {
    let metadata = table.metadata();
    let versions = metadata.metadata_log().iter().map(|version| version.metadata_file.as_str());
    let mut used: HashSet<PathBuf> =
        versions.chain(table.metadata_location()).map(|location| disk.path(location)).collect();
    for snapshot in metadata.snapshots() {
        used.insert(disk.path(snapshot.manifest_list()));
        let list = table.manifest_list_reader(snapshot).load().await?;
        for manifest in list.entries() {
            // Snapshots share them.
            let at = disk.path(&manifest.manifest_path);
            if used.contains(&at) {
                continue;
            }
            let loaded = manifest.load_manifest(table.file_io()).await.map_err(|error| unread(&at, &error))?;
            let alive = loaded.entries().iter().filter(|entry| entry.is_alive());
            used.extend(alive.map(|entry| disk.path(entry.file_path())));
            used.insert(at);
        }
    }
    Ok(used)
}

fn unread(file: &Path, error: &iceberg::Error) -> ArchiveError {
    ArchiveError::Damaged(format!("{} cannot be read, so nothing of its table is removed: {error}", file.display()))
}

/// Refuses a directory for a table that is to be made, if it has a file that was not left there by who was stopped while making it: its
/// files would be taken for those of the table, and swept away.
pub fn check_is_free(directory: &Path) -> Result<(), ArchiveError> {
    let metadata = directory.join("metadata");
    each_file(directory, &mut |file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_first_version = name.starts_with("00000-") && name.ends_with(".metadata.json");
        if is_first_version && file.parent() == Some(&metadata) {
            return Ok(());
        }
        Err(ArchiveError::NotEmpty { file: file.to_owned() })
    })
}

/// Each file below a directory, if there is one.
fn each_file(directory: &Path, each: &mut dyn FnMut(&Path) -> Result<(), ArchiveError>) -> Result<(), ArchiveError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            each_file(&entry.path(), each)?;
        } else {
            each(&entry.path())?;
        }
    }
    Ok(())
}
