//! The header of a batch: that it is one, its version, how long it is and its checksum.

use crate::{BATCH_BYTES_MAX, HEADER_BYTES, VERSION};
use crc32fast::Hasher;

const MAGIC: [u8; 4] = *b"TLYB";

/// What the checksum covers of the header: all that stands before it.
const CHECKED_BYTES: usize = 12;

/// A header that is well formed. Whether the batch is what was sent, [`Header::matches`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What follows behind the header.
    content_bytes: usize,
    checksum: u32,
}

/// Why something is not the header of a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error(
        "it begins with {0:02x?} instead of \"TLYB\", so it is no batch; send one as docs/formats/batch.md has it, or JSON as application/json"
    )]
    NoBatch([u8; 4]),
    #[error("its version is {0}, and this server reads version {VERSION}; use an encoder for that version")]
    Version(u8),
    #[error("bytes 5 to 7 of its header are {0:02x?} and have to be 0; use an encoder for version {VERSION}")]
    Reserved([u8; 3]),
    #[error("it has {0} bytes, and {BATCH_BYTES_MAX} are allowed; send the events in several batches")]
    TooLarge(usize),
}

impl Header {
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Header, HeaderError> {
        let [m0, m1, m2, m3, version, r0, r1, r2, l0, l1, l2, l3, c0, c1, c2, c3] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(HeaderError::NoBatch([m0, m1, m2, m3]));
        }
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        if [r0, r1, r2] != [0; 3] {
            return Err(HeaderError::Reserved([r0, r1, r2]));
        }
        let content_bytes = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if content_bytes > BATCH_BYTES_MAX - HEADER_BYTES {
            return Err(HeaderError::TooLarge(content_bytes.saturating_add(HEADER_BYTES)));
        }
        Ok(Header { content_bytes, checksum: u32::from_le_bytes([c0, c1, c2, c3]) })
    }

    /// The whole batch, in bytes.
    pub fn batch_bytes(&self) -> usize {
        HEADER_BYTES + self.content_bytes
    }

    /// Whether the checksum is that of the batch.
    pub fn matches(&self, batch: &[u8]) -> bool {
        batch.len() == self.batch_bytes() && checksum(batch) == self.checksum
    }

    /// Writes the header of a batch, for which there is room before its content.
    pub(crate) fn put(batch: &mut [u8]) {
        let content_bytes = (batch.len() - HEADER_BYTES) as u32;
        batch[..4].copy_from_slice(&MAGIC);
        batch[4..8].copy_from_slice(&[VERSION, 0, 0, 0]);
        batch[8..12].copy_from_slice(&content_bytes.to_le_bytes());
        let checksum = checksum(batch);
        batch[12..16].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn checksum(batch: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&batch[..CHECKED_BYTES]);
    hasher.update(&batch[HEADER_BYTES..]);
    hasher.finalize()
}
