//! A batch: a header that proves where it belongs, and the records as they were appended.
//!
//! A recycled segment is full of old batches with valid checksums, so a checksum alone proves nothing: a batch counts only
//! where its base offset is the one expected and its epoch has not gone backwards. The header's checksum is seeded with the
//! log's id, so that neither another log's bytes nor a record that imitates a header is ever taken for a batch of this one.

use crc32fast::Hasher;

pub const HEADER_BYTES: usize = 56;
pub const MAGIC: [u8; 4] = *b"TBAT";
/// Batches begin at multiples of this.
pub const ALIGN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub payload_crc: u32,
    pub payload_bytes: u32,
    pub epoch: u32,
    pub count: u32,
    /// Ordinal of the first record.
    pub base_offset: u64,
    pub log_time_ms: u64,
    /// All records before this one were known durable when the batch was written.
    pub synced: u64,
}

impl BatchHeader {
    pub fn encode(&self, log_id: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        // Bytes of the records, and flags: a payload is its records as they are, and there is no flag yet.
        bytes[16..20].copy_from_slice(&self.payload_bytes.to_le_bytes());
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
    pub fn decode(log_id: u64, bytes: &[u8]) -> Option<BatchHeader> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        if bytes[0..4] != MAGIC || u32_at(bytes, 4) != header_crc(log_id, bytes) {
            return None;
        }
        let header = BatchHeader {
            payload_crc: u32_at(bytes, 8),
            payload_bytes: u32_at(bytes, 12),
            epoch: u32_at(bytes, 24),
            count: u32_at(bytes, 28),
            base_offset: u64_at(bytes, 32),
            log_time_ms: u64_at(bytes, 40),
            synced: u64_at(bytes, 48),
        };
        let plain = u32_at(bytes, 16) == header.payload_bytes && u32_at(bytes, 20) == 0;
        (plain && header.count > 0 && header.base_offset.checked_add(header.count.into()).is_some()).then_some(header)
    }

    /// The offset behind the last record.
    pub fn end(&self) -> u64 {
        self.base_offset + u64::from(self.count)
    }

    /// Header, payload and padding.
    pub fn stored_bytes(&self) -> usize {
        stored_bytes(self.payload_bytes as usize)
    }

    /// The payload behind the header at the front of `bytes`, which is the records, if it is there and unharmed.
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let payload = bytes.get(HEADER_BYTES..HEADER_BYTES + self.payload_bytes as usize)?;
        (payload_crc(payload) == self.payload_crc).then_some(payload)
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
        let header = BatchHeader {
            payload_crc: payload_crc(b"tally"),
            payload_bytes: 5,
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

    /// With its checksum mended, as a later version would have written it.
    fn with(at: usize, byte: u8) -> Option<BatchHeader> {
        let mut bytes = BatchHeader {
            payload_crc: 0,
            payload_bytes: 5,
            epoch: 1,
            count: 1,
            base_offset: 0,
            log_time_ms: 0,
            synced: 0,
        }
        .encode(9);
        bytes[at] = byte;
        let crc = header_crc(9, &bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        BatchHeader::decode(9, &bytes)
    }

    #[test]
    fn a_batch_with_a_flag_or_with_packed_records_is_refused() {
        assert!(with(20, 0).is_some() && with(16, 5).is_some());
        assert_eq!((with(20, 1), with(23, 128), with(16, 6)), (None, None, None));
    }

    fn header() -> impl Strategy<Value = BatchHeader> {
        let sizes = (any::<u32>(), any::<u32>(), any::<u32>(), 1..=u32::MAX);
        let places = (0..=u64::MAX - u64::from(u32::MAX), any::<u64>(), any::<u64>());
        (sizes, places).prop_map(|((payload_crc, payload_bytes, epoch, count), (base_offset, log_time_ms, synced))| {
            BatchHeader { payload_crc, payload_bytes, epoch, count, base_offset, log_time_ms, synced }
        })
    }

    proptest! {
        #[test]
        fn a_header_survives_its_bytes_and_no_flipped_bit_does(header in header(), log_id: u64, bit in 0..HEADER_BYTES * 8) {
            let mut bytes = header.encode(log_id);
            prop_assert_eq!(BatchHeader::decode(log_id, &bytes), Some(header));
            prop_assert_eq!(BatchHeader::decode(log_id ^ 1, &bytes), None);
            prop_assert_eq!(BatchHeader::decode(log_id, &bytes[..HEADER_BYTES - 1]), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(BatchHeader::decode(log_id, &bytes), None);
        }

        #[test]
        fn strange_bytes_are_no_batch_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(BatchHeader::decode(0, &bytes), None);
        }
    }
}
