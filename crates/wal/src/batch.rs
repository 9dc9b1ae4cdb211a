//! A batch: a header that proves where it belongs, and the records as they were appended.
//!
//! A recycled segment is full of old batches with valid checksums, so a checksum alone proves nothing: a batch counts only
//! where its base offset is the one expected and its epoch has not gone backwards. The header's checksum is seeded with the
//! log's id, so that neither another log's bytes nor a record that imitates a header is ever taken for a batch of this one.

use crc32fast::Hasher;
use std::borrow::Cow;

pub const HEADER_BYTES: usize = 56;
pub const MAGIC: [u8; 4] = *b"TBAT";
/// Batches begin at multiples of this.
pub const ALIGN: usize = 8;

const FLAG_LZ4: u32 = 1;
/// Below this a batch is not worth compressing.
const COMPRESS_BYTES_MIN: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub payload_crc: u32,
    /// Bytes of the payload as they stand in the file.
    pub payload_bytes: u32,
    /// Bytes of the records after decompression.
    pub records_bytes: u32,
    pub lz4: bool,
    pub epoch: u32,
    pub count: u32,
    /// Ordinal of the first record.
    pub base_offset: u64,
    pub log_time_ms: u64,
    /// All records before this one were known durable when the batch was written.
    pub synced: u64,
}

impl Header {
    pub fn encode(&self, log_id: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.records_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&(if self.lz4 { FLAG_LZ4 } else { 0 }).to_le_bytes());
        bytes[24..28].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.count.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.base_offset.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.log_time_ms.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.synced.to_le_bytes());
        let crc = header_crc(log_id, &bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the front of `bytes`; `None` if there is none of this log.
    pub fn decode(log_id: u64, bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        if bytes[0..4] != MAGIC || u32_at(bytes, 4) != header_crc(log_id, bytes) {
            return None;
        }
        let header = Header {
            payload_crc: u32_at(bytes, 8),
            payload_bytes: u32_at(bytes, 12),
            records_bytes: u32_at(bytes, 16),
            lz4: u32_at(bytes, 20) & FLAG_LZ4 != 0,
            epoch: u32_at(bytes, 24),
            count: u32_at(bytes, 28),
            base_offset: u64_at(bytes, 32),
            log_time_ms: u64_at(bytes, 40),
            synced: u64_at(bytes, 48),
        };
        let known = u32_at(bytes, 20) & !FLAG_LZ4 == 0;
        (known && header.count > 0 && header.base_offset.checked_add(header.count.into()).is_some()).then_some(header)
    }

    /// The offset behind the last record.
    pub fn end(&self) -> u64 {
        self.base_offset + u64::from(self.count)
    }

    /// Header, payload and padding.
    pub fn stored_bytes(&self) -> usize {
        stored_bytes(self.payload_bytes as usize)
    }

    /// The payload behind the header at the front of `bytes`, if it is there and unharmed.
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let payload = bytes.get(HEADER_BYTES..HEADER_BYTES + self.payload_bytes as usize)?;
        (payload_crc(payload) == self.payload_crc).then_some(payload)
    }

    /// The records behind the header at the front of `bytes`, if they are there and unharmed.
    pub fn records<'a>(&self, bytes: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let payload = self.payload(bytes)?;
        if !self.lz4 {
            return Some(payload.into());
        }
        let mut records = Vec::new();
        decompress(payload, self.records_bytes as usize, &mut records)?;
        Some(records.into())
    }
}

/// What a payload takes up in the file.
pub fn stored_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGN)
}

pub fn payload_crc(payload: &[u8]) -> u32 {
    crc32fast::hash(payload)
}

fn header_crc(log_id: u64, bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&log_id.to_le_bytes());
    hasher.update(&bytes[8..]);
    hasher.finalize()
}

/// Compresses `records` into `out`; `None` if that saves less than an eighth.
pub(crate) fn compress<'a>(records: &[u8], out: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    if records.len() < COMPRESS_BYTES_MIN {
        return None;
    }
    out.resize(lz4_flex::block::get_maximum_output_size(records.len()), 0);
    let bytes = lz4_flex::block::compress_into(records, out).ok()?;
    (bytes <= records.len() - records.len() / 8).then(|| &out[..bytes])
}

/// Undoes [`compress`]; `None` if the payload does not hold exactly `records_bytes`.
pub(crate) fn decompress(payload: &[u8], records_bytes: usize, out: &mut Vec<u8>) -> Option<()> {
    out.resize(records_bytes, 0);
    let bytes = lz4_flex::block::decompress_into(payload, out).ok()?;
    (bytes == records_bytes).then_some(())
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
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_bytes_of_a_header_are_pinned() {
        let header = Header {
            payload_crc: payload_crc(b"tally"),
            payload_bytes: 5,
            records_bytes: 5,
            lz4: false,
            epoch: 3,
            count: 2,
            base_offset: 1000,
            log_time_ms: 1_700_000_000_000,
            synced: 998,
        };
        let pinned = concat!(
            "54424154528bcf8f03feb6e805000000",
            "05000000000000000300000002000000",
            "e8030000000000000068e5cf8b010000",
            "e603000000000000",
        );
        assert_eq!(hex(&header.encode(0x0123_4567_89ab_cdef)), pinned);
    }

    fn header() -> impl Strategy<Value = Header> {
        let sizes = (any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>(), any::<u32>(), 1..=u32::MAX);
        let places = (0..=u64::MAX - u64::from(u32::MAX), any::<u64>(), any::<u64>());
        (sizes, places).prop_map(
            |((payload_crc, payload_bytes, records_bytes, lz4, epoch, count), (base_offset, log_time_ms, synced))| {
                Header {
                    payload_crc,
                    payload_bytes,
                    records_bytes,
                    lz4,
                    epoch,
                    count,
                    base_offset,
                    log_time_ms,
                    synced,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_survives_its_bytes_and_no_flipped_bit_does(header in header(), log_id: u64, bit in 0..HEADER_BYTES * 8) {
            let mut bytes = header.encode(log_id);
            prop_assert_eq!(Header::decode(log_id, &bytes), Some(header));
            prop_assert_eq!(Header::decode(log_id ^ 1, &bytes), None);
            prop_assert_eq!(Header::decode(log_id, &bytes[..HEADER_BYTES - 1]), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::decode(log_id, &bytes), None);
        }

        #[test]
        fn strange_bytes_are_no_batch_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Header::decode(0, &bytes), None);
            let _ = decompress(&bytes, 1000, &mut Vec::new());
        }
    }
}
