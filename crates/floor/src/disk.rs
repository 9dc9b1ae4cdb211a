//! A file of space that was written before, overwritten round and round past the page cache: one write and one sync per batch.
//!
//! Where the file system has no direct writes, it goes through the page cache.

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What direct writes are aligned to, in memory and in the file.
const PAGE_BYTES: usize = 4096;
const FILE_BYTES: usize = 256 << 20;
pub const BATCH_BYTES_MAX: usize = 32 << 20;

pub struct Disk {
    file: File,
    /// The batch that gathers, from the first aligned byte on.
    memory: Vec<u8>,
    aligned_from: usize,
    filled: usize,
    /// Where in the file the next batch goes.
    position: usize,
}

impl Disk {
    /// Makes the file; its space is written here, so that no sync has to note where it is.
    pub fn create(path: &Path) -> Result<Disk> {
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        let file = open(flags | OFlags::DIRECT).or_else(|_| open(flags)).context("the floor's file cannot be made")?;
        let memory = vec![0; BATCH_BYTES_MAX + PAGE_BYTES];
        let aligned_from = memory.as_ptr().align_offset(PAGE_BYTES);
        let mut disk = Disk { file: File::from(file), memory, aligned_from, filled: 0, position: 0 };
        for _ in 0..FILE_BYTES / BATCH_BYTES_MAX {
            disk.filled = BATCH_BYTES_MAX;
            disk.commit()?;
        }
        Ok(disk)
    }

    /// Whether so many more bytes fit into the batch.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.filled + bytes <= BATCH_BYTES_MAX
    }

    /// Adds to the batch that gathers.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let at = self.aligned_from + self.filled;
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Makes the batch durable, in whole pages.
    pub fn commit(&mut self) -> io::Result<()> {
        let bytes = self.filled.next_multiple_of(PAGE_BYTES);
        assert!(bytes <= BATCH_BYTES_MAX, "whoever pushes asks for room");
        if self.position + bytes > FILE_BYTES {
            self.position = 0;
        }
        let batch = &self.memory[self.aligned_from..self.aligned_from + bytes];
        self.file.write_all_at(batch, self.position as u64)?;
        self.file.sync_data()?;
        self.position += bytes;
        self.filled = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_stand_on_pages_of_their_own_and_begin_again_at_the_end_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut disk = Disk::create(&path).unwrap();
        let mut commit = |bytes: &[u8]| {
            assert!(disk.has_room(bytes.len()));
            disk.push(bytes);
            disk.commit().unwrap();
        };
        // The file has been written to its end once.
        commit(b"first");
        commit(b"second");
        let written = std::fs::read(&path).unwrap();
        assert_eq!(written.len(), FILE_BYTES);
        assert!(written.starts_with(b"first") && written[PAGE_BYTES..].starts_with(b"second"));
    }
}
