//! The settings of a log: plain data.

use crate::Error;
use crate::segment::{self, PAGE_BYTES};

const SEGMENT_BYTES_MIN: u64 = 2 * PAGE_BYTES as u64;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of a new segment file: a multiple of 4 KiB from 8 KiB to 1 GiB. Segments that are there keep their size.
    pub segment_bytes: u64,
    /// Freed segments kept for reuse.
    pub spares_max: usize,
    /// How many spares [`crate::Handle::prepare_spare`] sees to; making one costs as much as writing a segment.
    pub spares_ahead: usize,
    /// Identity of the log, a random number: one that is not there yet gets it, one that has another is refused.
    pub log_id: u64,
    /// Where reading will start. Segments wholly before it are not verified; a log that ends before it is refused.
    pub from_offset: u64,
    /// Lets the log end where it is damaged, if that is at this record or behind it: the last remedy. Segments behind the
    /// damage are set aside. Does nothing to a log that is whole.
    pub discard_from: Option<u64>,
    /// A log that is begun has higher epochs than this: it goes on from one that others may go on with as well.
    pub epoch_above: u32,
    /// Only the last two segments are verified: whoever reads others finds out then.
    pub tail_only: bool,
    /// Batches are written past the page cache: cheaper for the processor, and dearer for whoever reads them soon.
    pub bypass_cache: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 64 << 20,
            spares_max: 4,
            spares_ahead: 2,
            log_id: 0,
            from_offset: 0,
            discard_from: None,
            epoch_above: 0,
            tail_only: false,
            bypass_cache: false,
        }
    }
}

impl LogOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bytes = self.segment_bytes;
        if !bytes.is_multiple_of(PAGE_BYTES as u64) || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
            return Err(Error::BadOption(format!(
                "segment_bytes is {bytes}: it must be a multiple of {PAGE_BYTES} from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            )));
        }
        Ok(())
    }

    /// Whether an operator agreed to lose what is damaged at this record.
    pub(crate) fn gives_up(&self, offset: u64) -> bool {
        self.discard_from.is_some_and(|from| from <= offset)
    }

    /// The largest batch of records, in bytes, that one append takes.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        self.segment_bytes as usize - segment::HEADER_BYTES - crate::batch::HEADER_BYTES
    }
}
