//! Files of a table that are of no use any more. Iceberg's library forgets them in its metadata and leaves them where they are.

use crate::ArchiveError;
use crate::disk::Disk;
use hashbrown::HashSet;
use iceberg::table::Table;
use std::fs;
use std::io;
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

/// Where a table has files of its own, and how they end. Whatever else is there is somebody else's.
const OWN: [(&str, &[&str]); 2] = [("data", &[".parquet"]), ("metadata", &[".avro", ".metadata.json"])];

/// Removes every other file that a table may have left in its directory; answers the bytes of those that stay.
pub fn remove_others(directory: &Path, used: &Used) -> Result<u64, ArchiveError> {
    let mut bytes = 0;
    for (below, endings) in OWN {
        each_file(&directory.join(below), &mut |file, len| {
            if used.files.contains(file) {
                bytes += len;
            } else if endings.iter().any(|ending| file.to_string_lossy().ends_with(ending)) {
                fs::remove_file(file)?;
            }
            Ok(())
        })?;
    }
    Ok(bytes)
}

/// Refuses a directory for a table that is to be made, if it has a file that was not left there by who was stopped while making it: its
/// files would be taken for those of the table, and swept away.
pub fn check_is_free(directory: &Path) -> Result<(), ArchiveError> {
    let metadata = directory.join("metadata");
    each_file(directory, &mut |file, _| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_first_version = name.starts_with("00000-") && name.ends_with(".metadata.json");
        if is_first_version && file.parent() == Some(&metadata) {
            return Ok(());
        }
        Err(ArchiveError::NotEmpty { file: file.to_owned() })
    })
}

/// Each file below a directory, if there is one, and its length.
fn each_file(
    directory: &Path,
    each: &mut dyn FnMut(&Path, u64) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            each_file(&entry.path(), each)?;
        } else {
            each(&entry.path(), entry.metadata()?.len())?;
        }
    }
    Ok(())
}
