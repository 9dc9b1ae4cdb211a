//! Why a batch is refused as a whole.

use super::cursor::Cursor;
use crate::limits::{DIMENSIONS_PER_EVENT_MAX, EVENTS_PER_REQUEST_MAX};
use tally_batch::{HeaderError, SHAPES_MAX, TEXTS_MAX};

/// Nothing of the batch may be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("the batch cannot be read: {0}")]
    Header(#[from] HeaderError),
    #[error(
        "the batch should have {said} bytes, as its header says, and has {found}; send one batch per request, and all of it"
    )]
    Length { said: usize, found: usize },
    #[error("the batch is not what was sent: its checksum is wrong; send it again")]
    Checksum,
    #[error("{place}, at byte {at} of the batch: {broken}; mend the encoder")]
    Broken { place: String, at: usize, broken: Broken },
    #[error("the batch has {0} events, and {EVENTS_PER_REQUEST_MAX} are allowed; send them in several batches")]
    TooManyEvents(u64),
    #[error("{0} bytes follow behind the last event of the batch; mend the encoder")]
    Behind(usize),
}

/// What is wrong with the structure of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("the batch ends too early")]
    Ends,
    #[error("the number has more than 64 bits")]
    LongNumber,
    #[error("there is no text of this number in the dictionary")]
    NoText,
    #[error("there is no shape of this number")]
    NoShape,
    #[error("the text is not UTF-8")]
    NotUtf8,
    #[error("there are more than {TEXTS_MAX} texts")]
    ManyTexts,
    #[error("there are more than {SHAPES_MAX} shapes")]
    ManyShapes,
    #[error("there are more than {DIMENSIONS_PER_EVENT_MAX} dimensions, or none")]
    ManyDimensions,
    #[error("the dimension is given twice")]
    TwiceNamed,
    #[error("the fields have a bit that is reserved")]
    ReservedField,
}

impl Broken {
    /// Says where the reader stood.
    #[cold]
    pub(super) fn at(self, place: impl Into<String>, cursor: &Cursor<'_>) -> BatchError {
        BatchError::Broken { place: place.into(), at: cursor.at(), broken: self }
    }
}
