//! What the data directory takes of its disk, and what is left there. Measured for a scrape, on a thread that may wait.

use super::gauge;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[derive(Debug)]
pub struct DiskSpace {
    /// The data directory, once it is known.
    directory: OnceLock<PathBuf>,
    log_bytes: Gauge,
    store_bytes: Gauge,
    free_bytes: Gauge,
}

impl DiskSpace {
    pub fn new(registry: &mut Registry) -> DiskSpace {
        DiskSpace {
            directory: OnceLock::new(),
            log_bytes: gauge(registry, "log_bytes", "Bytes of the log's files, spare ones included"),
            store_bytes: gauge(registry, "store_bytes", "Bytes of the store's files"),
            free_bytes: gauge(registry, "disk_free_bytes", "Bytes that are left on the disk of the data directory"),
        }
    }

    /// Says which directory is measured.
    pub fn watch(&self, directory: &Path) {
        let _ = self.directory.set(directory.to_owned());
    }

    /// Looks at the disk, and may have to wait for it.
    pub fn measure(&self) {
        let Some(directory) = self.directory.get() else { return };
        self.log_bytes.set(bytes(&directory.join("log")));
        self.store_bytes.set(bytes(&directory.join("store")));
        if let Ok(disk) = rustix::fs::statvfs(directory) {
            self.free_bytes.set((disk.f_bavail * disk.f_frsize) as i64);
        }
    }
}

/// Of all files below a directory. What goes away meanwhile does not count.
fn bytes(directory: &Path) -> i64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes(&entry.path()),
        Ok(metadata) => metadata.len() as i64,
        Err(_) => 0,
    });
    sizes.sum()
}
