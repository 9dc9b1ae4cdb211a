//! The one writer of a log: appends batches to the newest segment, syncs, and moves on to the next segment.
//!
//! Invariant: a segment is synced as a whole before the next one exists. So wherever a later segment is found, everything
//! before it was durable, and damage there cannot be the trace of a crash.

use crate::batch::{self, BatchHeader};
use crate::disk::{Disk, DiskFile};
use crate::handle::{Handle, SharedLog};
use crate::index::IndexEntry;
use crate::pages::Pages;
use crate::recovery::{self, RecoveredLog};
use crate::segment::{self, HEADER_BYTES, SegmentHeader};
use crate::{Error, LogOptions};
use std::sync::Arc;

/// The writing end of a log. After a failed write or sync it refuses to write for ever ([`Error::Poisoned`]): the kernel may
/// have dropped what it could not write, so trying again could acknowledge what is not there.
pub struct WalWriter<D: Disk> {
    shared: Arc<SharedLog<D>>,
    active: Active<D::File>,
    end: u64,
    log_time_ms: u64,
}

/// The segment that is written.
pub(crate) struct Active<F> {
    pub file: F,
    pub header: SegmentHeader,
    /// From the last page boundary before the end of the batches.
    pub pages: Pages,
    /// Where in the file `pages` begins.
    pub pages_at: u64,
    /// The file is still that of the epoch before, because the disk had no room for a copy: it must not be written on.
    pub waits_for_copy: bool,
}

impl<F> Active<F> {
    pub fn empty(file: F, header: SegmentHeader) -> Active<F> {
        Active { file, header, pages: Pages::new(), pages_at: HEADER_BYTES as u64, waits_for_copy: false }
    }

    /// Takes the place of a full segment, whose file is handed back, and keeps its buffer.
    fn start_over(&mut self, file: F, header: SegmentHeader) -> F {
        (self.header, self.pages_at) = (header, HEADER_BYTES as u64);
        self.pages.clear();
        std::mem::replace(&mut self.file, file)
    }

    /// The byte behind the last batch.
    fn end_at(&self) -> u64 {
        self.pages_at + self.pages.len() as u64
    }
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedBatch {
    /// Ordinal of the first record.
    pub base_offset: u64,
    /// The log time of the batch: the given one, or that of the batch before if it was later.
    pub log_time_ms: u64,
}

impl<D: Disk> WalWriter<D> {
    /// Opens the log on `disk`, or starts one. Recovers first: see `docs/formats/wal.md`.
    pub fn open(disk: D, options: LogOptions) -> Result<(WalWriter<D>, RecoveredLog), Error> {
        recovery::open(disk, options)
    }

    pub(crate) fn new(shared: SharedLog<D>, active: Active<D::File>, end: u64, log_time_ms: u64) -> WalWriter<D> {
        let mut log = WalWriter { shared: Arc::new(shared), active, end, log_time_ms };
        log.take_up();
        log
    }

    /// Writes a batch of `count` records behind the last one. It is durable, and visible to readers, after [`Self::sync`].
    pub fn append(&mut self, log_time_ms: u64, count: u32, records: &[u8]) -> Result<AppendedBatch, Error> {
        assert!(count > 0 && !records.is_empty(), "a batch has at least one record");
        self.shared.check_poison()?;
        if records.len() > self.batch_bytes_max() {
            return Err(Error::TooLarge { bytes: records.len(), max: self.batch_bytes_max() });
        }
        self.make_copy()?;
        self.make_room(batch::stored_bytes(records.len()))?;
        let log_time_ms = log_time_ms.max(self.log_time_ms);
        let base_offset = self.end;
        self.push(log_time_ms, count, records);
        self.write()?;
        self.end = base_offset.checked_add(count.into()).expect("2^64 records are never written");
        self.log_time_ms = log_time_ms;
        Ok(AppendedBatch { base_offset, log_time_ms })
    }

    /// Makes everything appended durable and shows it to readers.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.shared.check_poison()?;
        if self.shared.synced() == self.end {
            return Ok(());
        }
        self.active.file.sync().map_err(|error| self.shared.poison("sync the log", &error))?;
        self.shared.set_synced(self.end);
        Ok(())
    }

    /// The offset that the next record gets.
    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn synced_end(&self) -> u64 {
        self.shared.synced()
    }

    /// The epoch of all batches appended here; every opening of a log has its own.
    pub fn epoch(&self) -> u32 {
        self.shared.epoch
    }

    pub fn first_offset(&self) -> u64 {
        self.shared.first()
    }

    /// Log time of the last batch.
    pub fn log_time_ms(&self) -> u64 {
        self.log_time_ms
    }

    /// The largest batch that one append takes.
    pub fn batch_bytes_max(&self) -> usize {
        self.shared.options.batch_bytes_max()
    }

    pub fn handle(&self) -> Handle<D> {
        Handle { shared: self.shared.clone() }
    }

    /// Makes up for the copy that the opening had no room for. Fails with [`Error::Full`] only while nothing has changed.
    fn make_copy(&mut self) -> Result<(), Error> {
        if !self.active.waits_for_copy {
            return Ok(());
        }
        let SharedLog { disk, options, spares, .. } = &*self.shared;
        let (header, mut image) = (self.active.header, vec![0; self.active.end_at() as usize]);
        self.active.file.read_at(&mut image, 0).map_err(|error| self.shared.poison("read the log", &error))?;
        let spare = if header.segment_bytes == options.segment_bytes { spares.pop() } else { None };
        let copied = recovery::rewrite(disk, &header, &image, spare).map_err(|error| match error {
            Error::Io { doing, source } => self.shared.poison(&doing, &source),
            full => full,
        })?;
        disk.close(std::mem::replace(&mut self.active.file, copied));
        self.active.waits_for_copy = false;
        self.take_up();
        self.shared.note_copy();
        Ok(())
    }

    /// Makes sure that the active segment has room for `bytes`. Fails with [`Error::Full`] only while nothing has changed.
    fn make_room(&mut self, bytes: usize) -> Result<(), Error> {
        if self.active.end_at() + bytes as u64 <= self.active.header.segment_bytes {
            return Ok(());
        }
        assert!(self.end > self.active.header.base_offset, "the largest batch fits into an empty segment");
        self.sync()?;
        let spare = self.shared.spares.take(&self.shared.disk, &self.shared.options).map_err(|error| match error {
            Error::Io { doing, source } => self.shared.poison(&doing, &source),
            full => full,
        })?;
        let header = SegmentHeader {
            log_id: self.shared.log_id,
            sequence: self.active.header.sequence + 1,
            base_offset: self.end,
            epoch: self.shared.epoch,
            segment_bytes: self.shared.options.segment_bytes,
            log_time_ms: self.log_time_ms,
        };
        let file = segment::install(&self.shared.disk, &spare, &header)
            .map_err(|error| self.shared.poison("start a new log segment", &error))?;
        self.shared.push_segment(header);
        let full = self.active.start_over(file, header);
        self.shared.disk.close(full);
        self.take_up();
        Ok(())
    }

    /// From here on the active file gets whole pages and nothing else; one that waits for its copy is still read.
    fn take_up(&mut self) {
        if self.shared.options.bypass_cache && !self.active.waits_for_copy {
            self.active.file.bypass_cache();
        }
    }

    /// Puts header, records and padding into the pages.
    fn push(&mut self, log_time_ms: u64, count: u32, records: &[u8]) {
        let header = BatchHeader {
            payload_crc: batch::payload_crc(records),
            payload_bytes: records.len() as u32,
            epoch: self.shared.epoch,
            count,
            base_offset: self.end,
            log_time_ms,
            synced: self.shared.synced(),
        };
        self.shared.note_batch(IndexEntry { offset: self.end, at: self.active.end_at() });
        self.active.pages.push(&header.encode(self.shared.log_id));
        self.active.pages.push(records);
        self.active.pages.pad_to(batch::ALIGN);
    }

    fn write(&mut self) -> Result<(), Error> {
        assert!(!self.active.waits_for_copy, "a segment of an older epoch is not written on");
        let Active { file, header, pages, pages_at, .. } = &mut self.active;
        let room = (header.segment_bytes - *pages_at) as usize;
        assert!(pages.len() <= room, "a batch never reaches beyond its segment");
        file.write_at(pages.padded(room), *pages_at).map_err(|error| self.shared.poison("write to the log", &error))?;
        *pages_at += pages.drain_whole() as u64;
        Ok(())
    }
}
