//! Files of a table that are of no use any more. Iceberg's library forgets them in its metadata and leaves them where they are.

use crate::ArchiveError;
use crate::disk::Disk;
use hashbrown::HashSet;
use iceberg::table::Table;
use std::fs;
use std::path::{Path, PathBuf};

/// What a table consists of.
pub struct Used {
    files: HashSet<PathBuf>,
    /// That can be read in it as it is now.
    pub rows: u64,
    pub data_files: u64,
}

impl Used {
    /// Everything that one of its snapshots or versions names.
    pub async fn of(table: &Table, disk: &Disk) -> Result<Used, ArchiveError> {
        let metadata = table.metadata();
        let mut used = Used { files: HashSet::new(), rows: 0, data_files: 0 };
        let versions = metadata.metadata_log().iter().map(|version| version.metadata_file.as_str());
        used.files.extend(versions.chain(table.metadata_location()).map(|location| disk.path(location)));
        let current = metadata.current_snapshot_id();
        // What can be read is in the current one, which therefore comes first: manifests are shared.
        let mut snapshots: Vec<_> = metadata.snapshots().collect();
        snapshots.sort_by_key(|snapshot| Some(snapshot.snapshot_id()) != current);
        let mut seen = HashSet::new();
        for snapshot in snapshots {
            used.files.insert(disk.path(snapshot.manifest_list()));
            let list = table.manifest_list_reader(snapshot).load().await?;
            for manifest in list.entries() {
                if !seen.insert(manifest.manifest_path.clone()) {
                    continue;
                }
                used.files.insert(disk.path(&manifest.manifest_path));
                let loaded = manifest.load_manifest(table.file_io()).await?;
                for entry in loaded.entries().iter().filter(|entry| entry.is_alive()) {
                    used.files.insert(disk.path(entry.file_path()));
                    if Some(snapshot.snapshot_id()) == current {
                        used.rows += entry.record_count();
                        used.data_files += 1;
                    }
                }
            }
        }
        Ok(used)
    }
}

/// Removes every other file below a table's directory; answers the bytes of those that stay.
pub fn remove_others(directory: &Path, used: &Used) -> Result<u64, ArchiveError> {
    let mut bytes = 0;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if used.files.contains(&entry.path()) {
                bytes += entry.metadata()?.len();
            } else {
                fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(bytes)
}
