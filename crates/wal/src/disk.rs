//! The little that the log asks of a disk, so that a disk with faults ([`crate::testing::FaultDisk`]) can stand in.
//!
//! A disk is one flat directory. Nothing is durable before the sync that belongs to it: file contents by
//! [`DiskFile::sync`], names by [`Disk::sync_dir`].
//!
//! Descriptors are few, and connections can take all of them. The log must not stop for want of one, so a [`RealDisk`] holds
//! some in reserve for [`Disk::open`] and [`Disk::create`], and gets them back by [`Disk::close`]. Readers get none of these.

use crate::handle::lock;
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, dup2};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A directory of files.
pub trait Disk: Clone + Send + Sync + 'static {
    type File: DiskFile;

    /// For reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// For reading only.
    fn open_to_read(&self, name: &str) -> io::Result<Self::File> {
        self.open(name)
    }
    /// Makes an empty file, in place of one that has this name.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Atomic; replaces what is at `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes all names durable as they are.
    fn sync_dir(&self) -> io::Result<()>;
    /// Closes a file whose descriptor others may not take.
    fn close(&self, file: Self::File) {
        drop(file);
    }
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

    /// Takes room for a file of so many bytes, if that can be done at once, or fails for want of it.
    fn allocate(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Writes zeros from `from` to `to`.
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        write_zeros(self, from, to)
    }

    /// Lets writes go past the page cache from now on, where the file system can. All of them must be whole pages, in memory too.
    fn bypass_cache(&self) {}

    /// Has a file of so many bytes in the page cache, where writes are fast that find their pages.
    fn warm_cache(&self, _bytes: u64) {}
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

/// What is written of zeros at a time: so little that a commit which comes in between does not wait behind it for milliseconds.
const ZEROS_BYTES: usize = 256 << 10;

/// Aligned as direct writes must be.
#[repr(align(4096))]
struct Zeros([u8; ZEROS_BYTES]);
static ZEROS: Zeros = Zeros([0; ZEROS_BYTES]);

/// What a segment change, a spare in the making and a trim take at once, twice over.
const RESERVE: usize = 8;

/// A directory of the operating system.
#[derive(Clone, Debug)]
pub struct RealDisk {
    root: Arc<PathBuf>,
    dir: Arc<File>,
    /// Descriptors of `dir`, only there to be given up.
    reserve: Arc<Mutex<Vec<OwnedFd>>>,
}

impl RealDisk {
    /// Opens a directory and makes it first if it is not there.
    pub fn open(root: impl AsRef<Path>) -> io::Result<RealDisk> {
        let root = root.as_ref();
        if !root.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(root)?;
            let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        let dir = File::open(root)?;
        let reserve = (0..RESERVE).map(|_| Ok(dir.try_clone()?.into())).collect::<io::Result<Vec<OwnedFd>>>()?;
        Ok(RealDisk { root: Arc::new(root.to_owned()), dir: Arc::new(dir), reserve: Arc::new(Mutex::new(reserve)) })
    }

    /// Opens a file; if there is no descriptor left, with one of the reserve. Another thread may be quicker to take what was
    /// given up, so more than one try may be needed.
    fn open_with_reserve(&self, options: &OpenOptions, name: &str) -> io::Result<File> {
        loop {
            let opened = options.open(self.root.join(name));
            let none_left = matches!(&opened, Err(error) if is_out_of_descriptors(error));
            if !none_left || lock(&self.reserve).pop().is_none() {
                return opened;
            }
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = Errno::from_io_error(error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

impl Disk for RealDisk {
    type File = File;

    fn open(&self, name: &str) -> io::Result<File> {
        self.open_with_reserve(OpenOptions::new().read(true).write(true), name)
    }

    fn open_to_read(&self, name: &str) -> io::Result<File> {
        File::open(self.root.join(name))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        self.open_with_reserve(options.read(true).write(true).create(true).truncate(true).mode(0o600), name)
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

    /// The descriptor becomes one of the directory without ever being free.
    fn close(&self, file: File) {
        let mut reserve = lock(&self.reserve);
        if reserve.len() < RESERVE {
            let mut descriptor = OwnedFd::from(file);
            if dup2(&*self.dir, &mut descriptor).is_ok() {
                reserve.push(descriptor);
            }
        }
    }
}

impl DiskFile for File {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(into, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self.write_all_at(bytes, at) {
            // Some file systems take the flag and refuse the write.
            Err(error) if is_refused(&error) && set_direct(self, false)? => self.write_all_at(bytes, at),
            result => result,
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    /// A disk that has not enough is told from one that has before all the rest of it is filled with zeros, which others may
    /// need just then.
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        match fallocate(self, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::NOSPC) => Err(Errno::NOSPC.into()),
            Err(Errno::DQUOT) => Err(Errno::DQUOT.into()),
            // Not every file system can; then the zeros will tell.
            _ => Ok(()),
        }
    }

    /// Past the page cache, where the file system allows that: a segment of zeros is not worth copying there first.
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        if !from.is_multiple_of(4096) || !to.is_multiple_of(4096) {
            return write_zeros(self, from, to);
        }
        self.bypass_cache();
        let written = write_zeros(self, from, to);
        set_direct(self, false)?;
        written
    }

    fn bypass_cache(&self) {
        // Where it cannot be, the cache is as right as it was.
        let _ = set_direct(self, true);
    }

    /// Reading a file in costs the processor next to nothing.
    fn warm_cache(&self, bytes: u64) {
        let _ = fadvise(self, 0, NonZeroU64::new(bytes), Advice::WillNeed);
    }
}

fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Whether writes go past the page cache. Answers whether that is a change.
fn set_direct(file: &File, direct: bool) -> io::Result<bool> {
    let flags = fcntl_getfl(file)?;
    if flags.contains(OFlags::DIRECT) == direct {
        return Ok(false);
    }
    fcntl_setfl(file, flags ^ OFlags::DIRECT)?;
    Ok(true)
}
