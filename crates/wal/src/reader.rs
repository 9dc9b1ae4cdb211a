//! Follows a log batch by batch, from any record up to the synced end, on any thread and while it is written.
//!
//! Invariant: what is handed out was synced when it was read from the disk, passed its checksum, and stood at the offset
//! expected. Bytes beyond the synced end may be read along, but are read anew once they are synced.

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::{Disk, DiskFile};
use crate::handle::{ReadFrom, SharedLog};
use crate::segment::SegmentHeader;
use crate::{Error, segment};
use std::io;
use std::sync::Arc;

/// Reads start small, because a reader at the end of the log wants a batch or two, and grow while there is more.
const CHUNK_BYTES_MIN: usize = 64 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// A batch as it was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBatch<'a> {
    /// Ordinal of the first record.
    pub base_offset: u64,
    pub epoch: u32,
    pub count: u32,
    pub log_time_ms: u64,
    pub records: &'a [u8],
}

pub struct WalReader<D: Disk> {
    shared: Arc<SharedLog<D>>,
    file: D::File,
    segment: SegmentHeader,
    /// The record at which the caller wants to start.
    from: u64,
    /// The next batch: its first record, its place in the file, and the least epoch it may have.
    offset: u64,
    at: u64,
    epoch: u32,
    /// Bytes of the file from `chunk_at` on, in which batches before record `limit` may be trusted.
    chunk: Vec<u8>,
    chunk_at: u64,
    chunk_bytes: usize,
    limit: u64,
    /// How many files had been replaced by copies when `file` was opened.
    copies: u64,
}

impl<D: Disk> WalReader<D> {
    pub(crate) fn open(shared: Arc<SharedLog<D>>, from: u64) -> Result<WalReader<D>, Error> {
        let ReadFrom { header, entry } = shared.find(from)?;
        let copies = shared.copies();
        Ok(WalReader {
            file: open_segment(&shared, &header, from)?,
            segment: header,
            from,
            offset: entry.offset,
            at: entry.at,
            epoch: 0,
            chunk: Vec::new(),
            chunk_at: entry.at,
            chunk_bytes: CHUNK_BYTES_MIN,
            limit: entry.offset,
            copies,
            shared,
        })
    }

    /// The next batch, or `None` at the synced end; ask again when it has moved.
    #[expect(clippy::should_implement_trait, reason = "an Iterator cannot lend its items")]
    pub fn next(&mut self) -> Result<Option<ReadBatch<'_>>, Error> {
        while let Some(header) = self.next_header()? {
            let start = (self.at - self.chunk_at) as usize;
            self.at += header.stored_bytes() as u64;
            self.offset = header.end();
            self.epoch = header.epoch;
            if header.end() > self.from {
                return self.records(header, start).map(Some);
            }
        }
        Ok(None)
    }

    /// Gives back the memory of what was read; whatever comes next is read anew.
    pub fn rest(&mut self) {
        self.chunk = Vec::new();
        (self.chunk_at, self.chunk_bytes) = (self.at, CHUNK_BYTES_MIN);
        self.limit = self.offset;
    }

    /// The header of the next batch, all of which is in the chunk then.
    fn next_header(&mut self) -> Result<Option<BatchHeader>, Error> {
        if self.offset >= self.limit && !self.refill(0)? {
            return Ok(None);
        }
        if self.unread().len() < HEADER_BYTES {
            self.refill(HEADER_BYTES)?;
        }
        let header = BatchHeader::decode(self.shared.log_id, self.unread())
            .filter(|header| header.base_offset == self.offset && header.epoch >= self.epoch)
            .ok_or_else(|| self.damaged("there is no batch that follows the one before"))?;
        if self.unread().len() < header.stored_bytes() {
            self.refill(header.stored_bytes())?;
        }
        Ok(Some(header))
    }

    fn unread(&self) -> &[u8] {
        &self.chunk[(self.at - self.chunk_at) as usize..]
    }

    /// Reads on from the next batch, `needed` bytes at least; false at the synced end.
    fn refill(&mut self, needed: usize) -> Result<bool, Error> {
        // In this order: who sees a synced end sees all segments before it.
        let synced = self.shared.synced();
        if self.offset >= synced {
            self.chunk_bytes = CHUNK_BYTES_MIN;
            return Ok(false);
        }
        let segment_end = self.shared.segment_end(self.segment.sequence);
        if segment_end == Some(self.offset) {
            self.enter_next_segment()?;
            return self.refill(needed);
        }
        self.follow_copy()?;
        self.limit = segment_end.unwrap_or(synced).min(synced);
        let rest = (self.segment.segment_bytes - self.at) as usize;
        if needed > rest {
            return Err(self.damaged("a batch reaches beyond the end of the segment"));
        }
        self.read_chunk(self.chunk_bytes.max(needed).min(rest))?;
        self.chunk_bytes = (self.chunk_bytes * 2).min(CHUNK_BYTES_MAX);
        Ok(true)
    }

    /// What is written to the copy of a segment is not in the file that was opened before.
    fn follow_copy(&mut self) -> Result<(), Error> {
        let copies = self.shared.copies();
        if copies != self.copies {
            self.file = open_segment(&self.shared, &self.segment, self.offset)?;
            self.copies = copies;
        }
        Ok(())
    }

    fn read_chunk(&mut self, bytes: usize) -> Result<(), Error> {
        self.chunk.resize(bytes, 0);
        self.chunk_at = self.at;
        let read = self.file.read_at(&mut self.chunk, self.at);
        // The file may have been recycled meanwhile. What was read counts only if its place is still in the log.
        check_not_trimmed(&self.shared, self.offset)?;
        read.map_err(Error::io(format!("read log file {}", segment::file_name(self.segment.sequence))))
    }

    fn enter_next_segment(&mut self) -> Result<(), Error> {
        let ReadFrom { header, .. } = self.shared.find(self.offset)?;
        assert!(header.base_offset == self.offset, "a segment begins where the one before it ends");
        self.file = open_segment(&self.shared, &header, self.offset)?;
        self.segment = header;
        self.at = segment::HEADER_BYTES as u64;
        Ok(())
    }

    fn records(&mut self, header: BatchHeader, start: usize) -> Result<ReadBatch<'_>, Error> {
        if header.payload(&self.chunk[start..]).is_none() {
            return Err(self.damaged_batch(&header, "the checksum of a batch does not match"));
        }
        let payload = start + HEADER_BYTES..start + HEADER_BYTES + header.payload_bytes as usize;
        Ok(ReadBatch {
            base_offset: header.base_offset,
            epoch: header.epoch,
            count: header.count,
            log_time_ms: header.log_time_ms,
            records: &self.chunk[payload],
        })
    }

    fn damaged(&self, what: &str) -> Error {
        Error::Damaged {
            file: segment::file_name(self.segment.sequence),
            at: self.at,
            offset: self.offset,
            what: what.to_owned(),
            remedy: crate::recovery::remedy(self.offset),
        }
    }

    /// Damage in the batch that was just passed. The reader steps back, so that asking again fails again.
    fn damaged_batch(&mut self, header: &BatchHeader, what: &str) -> Error {
        self.at -= header.stored_bytes() as u64;
        self.offset = header.base_offset;
        self.damaged(what)
    }
}

fn open_segment<D: Disk>(shared: &SharedLog<D>, header: &SegmentHeader, offset: u64) -> Result<D::File, Error> {
    let name = segment::file_name(header.sequence);
    shared.disk.open_to_read(&name).or_else(|error: io::Error| {
        // A segment loses its name when it is recycled, and a name is never used again.
        check_not_trimmed(shared, offset)?;
        Err(Error::io(format!("open log file {name}"))(error))
    })
}

fn check_not_trimmed<D: Disk>(shared: &SharedLog<D>, offset: u64) -> Result<(), Error> {
    let first = shared.first();
    if offset < first { Err(Error::Trimmed { wanted: offset, first }) } else { Ok(()) }
}
