//! Segment files: their names, their header block, and how one comes into being.
//!
//! A file is called `.seg` only once it has its full length and its header, both durable. So a shorter one was truncated,
//! and one without a valid header was damaged; neither is ever the trace of a crash.

use crate::disk::{Disk, DiskFile};
use crate::error::is_full;
use crate::scan::{self, Reached, Stop};
use crate::{Error, LogOptions, batch};
use std::io;

/// The unit of writing.
pub const PAGE_BYTES: usize = 4096;
/// The header has the first page for itself, so that it is never rewritten together with batches.
pub const HEADER_BYTES: usize = PAGE_BYTES;

const MAGIC: [u8; 8] = *b"TALLYLOG";
const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub log_id: u64,
    /// Numbers the segments of a log without gaps; also the file's name.
    pub sequence: u64,
    /// Ordinal of the first record.
    pub base_offset: u64,
    /// The epoch in which this file was made or last reopened for writing; no batch in it is younger.
    pub epoch: u32,
    /// Length of the file.
    pub segment_bytes: u64,
    /// Log time of the last batch before this segment.
    pub log_time_ms: u64,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.base_offset.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.log_time_ms.to_le_bytes());
        let crc = header_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header in a file's first page; the error says what is wrong with it.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<SegmentHeader, String> {
        if bytes[0..8] != MAGIC {
            return Err("this is not a segment of a Tally log".to_owned());
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(format!(
                "its format is version {}, and only version {VERSION} is known here",
                u32_at(bytes, 8)
            ));
        }
        if u32_at(bytes, 12) != header_crc(bytes) {
            return Err("the checksum of its header does not match".to_owned());
        }
        Ok(SegmentHeader {
            log_id: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
            base_offset: u64_at(bytes, 32),
            epoch: u32_at(bytes, 40),
            segment_bytes: u64_at(bytes, 48),
            log_time_ms: u64_at(bytes, 56),
        })
    }
}

/// Over everything in the block but the checksum itself.
fn header_crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}

pub fn file_name(sequence: u64) -> String {
    format!("{sequence:012}.seg")
}

/// The sequence in the name of a segment file.
pub fn parse_file_name(name: &str) -> Option<u64> {
    let sequence = name.strip_suffix(".seg")?.parse().ok()?;
    (file_name(sequence) == name).then_some(sequence)
}

/// Makes a durable file of zeros that can become a segment, or leaves none behind.
pub(crate) fn create_zeroed<D: Disk>(disk: &D, name: &str, options: &LogOptions) -> Result<D::File, Error> {
    let bytes = options.segment_bytes;
    let made = disk.create(name).and_then(|file| {
        file.allocate(bytes)?;
        file.write_zeros(0, bytes)?;
        if !options.bypass_cache {
            file.warm_cache(bytes);
        }
        file.sync()?;
        Ok(file)
    });
    made.map_err(|error| {
        // If even this fails, the next opening of the log removes the file.
        let _ = disk.remove(name);
        if is_full(&error) { Error::Full { bytes } } else { Error::io(format!("prepare log file {name}"))(error) }
    })
}

/// Turns the prepared file `name` into the segment that `header` describes: empty, whatever lies in it.
pub(crate) fn install<D: Disk>(disk: &D, name: &str, header: &SegmentHeader) -> io::Result<D::File> {
    let file = disk.open(name)?;
    // The page of zeros behind the header is what recovery knows an end of the log by.
    let mut front = [0; HEADER_BYTES + PAGE_BYTES];
    front[..HEADER_BYTES].copy_from_slice(&header.encode());
    file.write_at(&front, 0)?;
    file.sync()?;
    disk.rename(name, &file_name(header.sequence))?;
    disk.sync_dir()?;
    Ok(file)
}

/// The headers of all batches that stand one behind the other from the start of a segment's `image`, with their byte
/// offsets: for people who want to look at a file. Recovery is stricter.
pub fn batches(image: &[u8]) -> Result<(SegmentHeader, Vec<(usize, batch::BatchHeader)>), String> {
    let block = image.first_chunk().ok_or("it is shorter than a segment's header")?;
    let header = SegmentHeader::decode(block)?;
    let mut found = Vec::new();
    let (mut at, mut offset) = (HEADER_BYTES, header.base_offset);
    while let Some(batch) = image.get(at..).and_then(|bytes| batch::BatchHeader::decode(header.log_id, bytes)) {
        if batch.base_offset != offset || batch.payload(&image[at..]).is_none() {
            break;
        }
        found.push((at, batch));
        offset = batch.end();
        at += batch.stored_bytes();
    }
    Ok((header, found))
}

/// What is missing behind the batches that [`batches`] has found, if it has been durable: as recovery sees it in the last segment of
/// a log.
pub fn damage_behind(image: &[u8], header: &SegmentHeader, found: &[(usize, batch::BatchHeader)]) -> Option<String> {
    let SegmentHeader { base_offset, epoch, log_time_ms, .. } = *header;
    let (at, before) = match found.last() {
        None => (HEADER_BYTES, Reached { offset: base_offset, epoch, log_time_ms }),
        Some((at, last)) => {
            let before = Reached { offset: last.end(), epoch: last.epoch, log_time_ms: last.log_time_ms };
            (at + last.stored_bytes(), before)
        }
    };
    match scan::tail(image, at, header, &before) {
        Stop::Damaged { what } => Some(format!("at byte {at}, where record {} is expected: {what}", before.offset)),
        Stop::End | Stop::Torn { .. } => None,
    }
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        log_id: 0x0123_4567_89ab_cdef,
        sequence: 7,
        base_offset: 1000,
        epoch: 3,
        segment_bytes: 64 << 20,
        log_time_ms: 1_700_000_000_000,
    };

    #[test]
    fn the_bytes_of_a_header_are_pinned() {
        let bytes = HEADER.encode();
        let front: String = bytes[..64].iter().map(|byte| format!("{byte:02x}")).collect();
        let pinned = concat!(
            "54414c4c594c4f47010000004de9000b",
            "efcdab89674523010700000000000000",
            "e8030000000000000300000000000000",
            "00000004000000000068e5cf8b010000",
        );
        assert_eq!(front, pinned);
        assert!(bytes[64..].iter().all(|byte| *byte == 0));
        assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
    }

    #[test]
    fn a_header_with_any_bit_flipped_is_refused_with_a_reason() {
        let bytes = HEADER.encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let reason = SegmentHeader::decode(&flipped).unwrap_err();
            assert!(bit < 12 * 8 || reason.contains("checksum"), "bit {bit}: {reason}");
        }
        let mut newer = bytes;
        newer[8] = 2;
        assert!(SegmentHeader::decode(&newer).unwrap_err().contains("version 2"));
    }

    #[test]
    fn only_names_that_we_give_are_segments() {
        assert_eq!(parse_file_name(&file_name(42)), Some(42));
        for name in ["42.seg", "000000000042.spare", "000000000042.seg.discarded", "+00000000042.seg", ".seg"] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
