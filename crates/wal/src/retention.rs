//! Freeing segments that are no longer needed, and spare files for those to come.
//!
//! Filling a new file with zeros takes longer than anything else the log does, so freed segments are kept as spares and
//! missing spares are prepared off the writer's thread. A spare keeps its old batches: all of them lie before the first
//! offset of the log, so none can ever be where it is expected.

use crate::disk::Disk;
use crate::handle::{Handle, SharedLog, lock};
use crate::segment::{self, SegmentHeader, create_zeroed};
use crate::{Error, LogOptions};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Prepared files by name, all of the size that new segments have.
pub(crate) struct Spares {
    ready: Mutex<Vec<String>>,
    next_number: AtomicU64,
    /// Held while a file is made, so that a writer in need waits for that one instead of making another.
    making: Mutex<()>,
}

pub(crate) const SPARE_SUFFIX: &str = ".spare";
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

impl Spares {
    pub fn new(ready: Vec<String>) -> Spares {
        let number = |name: &String| name.strip_suffix(SPARE_SUFFIX)?.parse::<u64>().ok();
        let next = ready.iter().filter_map(number).max().unwrap_or(0) + 1;
        Spares { ready: Mutex::new(ready), next_number: AtomicU64::new(next), making: Mutex::new(()) }
    }

    /// The name of a file that can become a segment: a spare, or one made on the spot.
    pub fn take<D: Disk>(&self, disk: &D, options: &LogOptions) -> Result<String, Error> {
        if let Some(name) = self.pop() {
            return Ok(name);
        }
        let _making = lock(&self.making);
        self.pop().map_or_else(|| self.make(disk, options), Ok)
    }

    /// Makes a file under a temporary name, and renames it when it is whole.
    fn make<D: Disk>(&self, disk: &D, options: &LogOptions) -> Result<String, Error> {
        let spare = self.next_name();
        let temporary = format!("{spare}{TEMPORARY_SUFFIX}");
        disk.close(create_zeroed(disk, &temporary, options)?);
        disk.rename(&temporary, &spare).map_err(Error::io(format!("rename {temporary}")))?;
        Ok(spare)
    }

    fn next_name(&self) -> String {
        format!("{:012}{SPARE_SUFFIX}", self.next_number.fetch_add(1, Ordering::Relaxed))
    }

    pub fn pop(&self) -> Option<String> {
        lock(&self.ready).pop()
    }

    fn len(&self) -> usize {
        lock(&self.ready).len()
    }
}

impl<D: Disk> Handle<D> {
    /// Prepares one spare file if fewer than the options ask for are there, and says whether it did. Takes as long as
    /// writing a segment takes: call it from a background thread after every new segment.
    pub fn prepare_spare(&self) -> Result<bool, Error> {
        let SharedLog { disk, options, spares, .. } = &*self.shared;
        let _making = lock(&spares.making);
        if spares.len() >= options.spares_ahead.min(options.spares_max) {
            return Ok(false);
        }
        let name = spares.make(disk, options)?;
        lock(&spares.ready).push(name);
        Ok(true)
    }

    /// Removes the spare files, where somebody else needs the room more.
    pub fn give_up_spares(&self) -> Result<(), Error> {
        let SharedLog { disk, spares, .. } = &*self.shared;
        while let Some(name) = spares.pop() {
            disk.remove(&name).map_err(Error::io(format!("remove {name}")))?;
        }
        Ok(())
    }

    /// Frees the segments that lie wholly before record `offset`; never the newest, so never what is not synced. A reader that
    /// is still in one gets [`Error::Trimmed`].
    pub fn retain_from(&self, offset: u64) -> Result<(), Error> {
        let _oldest_first = lock(&self.shared.trimming);
        self.shared.check_poison()?;
        while let Some(freed) = self.shared.pop_segment_before(offset) {
            // A failure leaves it open which names are durable. To go on could leave a gap behind after a crash.
            self.recycle(&freed).map_err(|error| self.shared.poison("free an old segment", &error))?;
        }
        Ok(())
    }

    /// One by one: were two names changed before a sync, a crash could keep the older and lose the younger.
    fn recycle(&self, freed: &SegmentHeader) -> io::Result<()> {
        let SharedLog { disk, options, spares, .. } = &*self.shared;
        let segment = segment::file_name(freed.sequence);
        if freed.segment_bytes != options.segment_bytes || spares.len() >= options.spares_max {
            disk.remove(&segment)?;
            return disk.sync_dir();
        }
        let spare = spares.next_name();
        disk.rename(&segment, &spare)?;
        // Only when the old name is gone for good may the file be written again.
        disk.sync_dir()?;
        lock(&spares.ready).push(spare);
        Ok(())
    }
}
