//! The little that the log asks of a disk, so that a disk with faults ([`crate::testing::FaultDisk`]) can stand in.
//!
//! A disk is one flat directory. Nothing is durable before the sync that belongs to it: file contents by
//! [`DiskFile::sync`], names by [`Disk::sync_dir`].

use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of files.
pub trait Disk: Clone + Send + Sync + 'static {
    type File: DiskFile;

    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Makes an empty file, in place of one that has this name.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Atomic; replaces what is at `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes all names durable as they are.
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file. It stays readable after it was renamed or removed.
pub trait DiskFile: Send + Sync + 'static {
    /// Fills the whole of `into`, or fails.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all of `bytes`, or fails with any part of them written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// `fdatasync`. After a failure nothing is known about what was written since the last success.
    fn sync(&self) -> io::Result<()>;
    fn bytes(&self) -> io::Result<u64>;

    /// Writes zeros from `from` to `to`.
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        write_zeros(self, from, to)
    }
}

fn write_zeros(file: &(impl DiskFile + ?Sized), from: u64, to: u64) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let bytes = (to - at).min(ZEROS.0.len() as u64);
        file.write_at(&ZEROS.0[..bytes as usize], at)?;
        at += bytes;
    }
    Ok(())
}

/// Aligned as direct writes must be.
#[repr(align(4096))]
struct Zeros([u8; 1 << 20]);
static ZEROS: Zeros = Zeros([0; 1 << 20]);

/// A directory of the operating system.
#[derive(Clone, Debug)]
pub struct RealDisk {
    root: Arc<PathBuf>,
    dir: Arc<File>,
}

impl RealDisk {
    /// Opens a directory and makes it first if it is not there.
    pub fn open(root: impl AsRef<Path>) -> io::Result<RealDisk> {
        let root = root.as_ref();
        if !root.is_dir() {
            fs::create_dir_all(root)?;
            let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(RealDisk { root: Arc::new(root.to_owned()), dir: Arc::new(File::open(root)?) })
    }
}

impl Disk for RealDisk {
    type File = File;

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.root.join(name))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.root.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.root.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&*self.root)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        // A name that is not text is none of ours.
        names.filter_map(Result::transpose).collect()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.dir.sync_all()
    }
}

impl DiskFile for File {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(into, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    /// Past the page cache, where the file system allows that: a segment of zeros is not worth copying there first.
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        if !from.is_multiple_of(4096) || !to.is_multiple_of(4096) {
            return write_zeros(self, from, to);
        }
        let flags = fcntl_getfl(self)?;
        let direct = match fcntl_setfl(self, flags | OFlags::DIRECT) {
            Ok(()) => write_zeros(self, from, to),
            Err(error) => Err(error.into()),
        };
        fcntl_setfl(self, flags)?;
        // Writes over pages that are in the cache are the fast ones; reading them in costs the processor next to nothing.
        let _ = fadvise(self, from, NonZeroU64::new(to - from), Advice::WillNeed);
        match direct {
            // Some file systems take the flag and refuse the write.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
                write_zeros(self, from, to)
            }
            result => result,
        }
    }
}
