//! What the writer shares with everybody else: which segments there are, how far they are synced, and whether it failed.
//!
//! Two orders keep readers right without making them wait. A new segment is in the list before anything in it is synced, so
//! who sees the synced end sees the list that belongs to it. And the first offset moves before a segment's file is touched,
//! so who still sees the old one after reading has read what was meant.

use crate::disk::Disk;
use crate::index::{Index, IndexEntry};
use crate::reader::WalReader;
use crate::retention::Spares;
use crate::segment::{HEADER_BYTES, SegmentHeader};
use crate::{Error, LogOptions};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Everything but writing, from any thread: reading, trimming, and preparing files ahead of the writer.
pub struct Handle<D: Disk> {
    pub(crate) shared: Arc<SharedLog<D>>,
}

impl<D: Disk> Clone for Handle<D> {
    fn clone(&self) -> Self {
        Handle { shared: self.shared.clone() }
    }
}

impl<D: Disk> Handle<D> {
    /// Reads from the batch that contains record `from` on. Its first batch may begin before `from`.
    pub fn reader(&self, from: u64) -> Result<WalReader<D>, Error> {
        WalReader::open(self.shared.clone(), from)
    }

    /// The epoch in which the log was opened.
    pub fn epoch(&self) -> u32 {
        self.shared.epoch
    }

    /// The oldest record that is still there.
    pub fn first_offset(&self) -> u64 {
        self.shared.first()
    }

    /// All records before this one are durable.
    pub fn synced_end(&self) -> u64 {
        self.shared.synced()
    }

    /// What its segments take on the disk.
    pub fn bytes(&self) -> u64 {
        lock(&self.shared.segments).iter().map(|segment| segment.header.segment_bytes).sum()
    }
}

pub(crate) struct SharedLog<D: Disk> {
    pub disk: D,
    pub options: LogOptions,
    pub log_id: u64,
    pub epoch: u32,
    pub spares: Spares,
    /// Held while segments are freed, so that they go oldest first.
    pub trimming: Mutex<()>,
    segments: Mutex<VecDeque<KnownSegment>>,
    first: AtomicU64,
    synced: AtomicU64,
    /// How often a segment's file was replaced by a copy: who has it open has the old one.
    copies: AtomicU64,
    poison: OnceLock<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct KnownSegment {
    pub header: SegmentHeader,
    pub index: Index,
}

/// Where a reader goes on.
pub(crate) struct ReadFrom {
    pub header: SegmentHeader,
    pub entry: IndexEntry,
}

impl<D: Disk> SharedLog<D> {
    pub fn new(
        disk: D,
        options: LogOptions,
        epoch: u32,
        spares: Spares,
        segments: Vec<KnownSegment>,
        end: u64,
    ) -> SharedLog<D> {
        let oldest = segments.first().expect("a log has at least one segment").header;
        SharedLog {
            disk,
            options,
            log_id: oldest.log_id,
            epoch,
            spares,
            trimming: Mutex::new(()),
            segments: Mutex::new(segments.into()),
            first: AtomicU64::new(oldest.base_offset),
            synced: AtomicU64::new(end),
            copies: AtomicU64::new(0),
            poison: OnceLock::new(),
        }
    }

    pub fn first(&self) -> u64 {
        self.first.load(Ordering::SeqCst)
    }

    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    pub fn set_synced(&self, end: u64) {
        self.synced.store(end, Ordering::Release);
    }

    pub fn copies(&self) -> u64 {
        self.copies.load(Ordering::Acquire)
    }

    /// Says so before anything in the copy is synced, so whoever sees that has heard of the copy.
    pub fn note_copy(&self) {
        self.copies.fetch_add(1, Ordering::Release);
    }

    pub fn check_poison(&self) -> Result<(), Error> {
        match self.poison.get() {
            Some(cause) => Err(Error::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Refuses all writes from now on. The first cause stays.
    pub fn poison(&self, doing: &str, error: &io::Error) -> Error {
        let cause = self.poison.get_or_init(|| format!("it could not {doing}: {error}").into());
        Error::Poisoned { cause: cause.clone() }
    }

    pub fn push_segment(&self, header: SegmentHeader) {
        lock(&self.segments).push_back(KnownSegment { header, index: Index::default() });
    }

    /// Notes a batch of the newest segment in its index.
    pub fn note_batch(&self, entry: IndexEntry) {
        let mut segments = lock(&self.segments);
        segments.back_mut().expect("a log has at least one segment").index.note(entry.offset, entry.at);
    }

    /// The segment with record `offset`, and the nearest known batch at or before it.
    pub fn find(&self, offset: u64) -> Result<ReadFrom, Error> {
        let segments = lock(&self.segments);
        let behind = segments.partition_point(|segment| segment.header.base_offset <= offset);
        let Some(segment) = behind.checked_sub(1).map(|last| &segments[last]) else {
            return Err(Error::Trimmed { wanted: offset, first: self.first() });
        };
        let start = IndexEntry { offset: segment.header.base_offset, at: HEADER_BYTES as u64 };
        Ok(ReadFrom { header: segment.header, entry: segment.index.find(offset).unwrap_or(start) })
    }

    /// The offset behind a segment's last record; `None` while it is the newest.
    pub fn segment_end(&self, sequence: u64) -> Option<u64> {
        let segments = lock(&self.segments);
        let oldest = segments.front()?.header.sequence;
        let next = usize::try_from((sequence + 1).saturating_sub(oldest)).ok()?;
        segments.get(next).map(|segment| segment.header.base_offset)
    }

    /// Takes the oldest segment off the list if all of it lies before `offset`.
    pub fn pop_segment_before(&self, offset: u64) -> Option<SegmentHeader> {
        let mut segments = lock(&self.segments);
        let next = segments.get(1)?.header.base_offset;
        if next > offset {
            return None;
        }
        self.first.store(next, Ordering::SeqCst);
        segments.pop_front().map(|segment| segment.header)
    }
}

/// What these locks guard is whole at every step, so a panic elsewhere does not make it unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
