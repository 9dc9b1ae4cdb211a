//! Compact batches in the body of a request.
//!
//! A batch is looked at when all of it is there: before that its checksum says nothing. One that came in one piece is read where
//! it stands.

use bytes::Bytes;
use tally_batch::{BATCH_BYTES_MAX, HEADER_BYTES, HeaderError};
use tally_core::event::Arrival;
use tally_core::event::batch::{self, BatchError};
use tally_core::limits::EVENTS_PER_REQUEST_MAX;

use super::{EventsBatch, check};
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// Room that is made for a batch of which a part has arrived: at most so many times that part. What a header promises alone is
/// no reason to make any.
const EXPECTED_TIMES_MAX: usize = 16;

/// Reads all events of a body that is one batch.
pub async fn read(pieces: &mut Pieces, arrival: Arrival, events: &mut EventsBatch) -> Result<(), Problem> {
    let mut splitter = BatchSplitter::default();
    let Some(body) = splitter.next(pieces).await? else {
        return Err(BatchError::Length { said: HEADER_BYTES, found: 0 }.into());
    };
    let mut behind = splitter.held.len();
    while let Some(piece) = pieces.next().await? {
        behind += piece.len();
    }
    if behind > 0 {
        return Err(BatchError::Length { said: body.len(), found: body.len() + behind }.into());
    }
    batch::read(&body, arrival, events)?;
    check(events)?;
    Ok(pieces.charge.grow_to(body.len() + events.bytes())?)
}

/// Takes a body apart that is batches, one behind the other.
#[derive(Default)]
pub struct BatchSplitter {
    /// What has arrived and belongs to no batch yet.
    held: Bytes,
    /// The beginning of a batch that came in several pieces; then nothing is held.
    joined: Vec<u8>,
}

impl BatchSplitter {
    /// The next batch, all of it; `None` at the end of the body. Whoever gives up waiting can ask again.
    pub async fn next(&mut self, pieces: &mut Pieces) -> Result<Option<Bytes>, Problem> {
        loop {
            if let Some(batch) = self.whole()? {
                return Ok(Some(batch));
            }
            match pieces.next().await? {
                Some(piece) => self.add(piece),
                None if self.is_between() => return Ok(None),
                None => return Err(self.cut_short().into()),
            }
            pieces.charge.grow_to(self.held.len() + self.joined.capacity())?;
        }
    }

    /// Whether nothing of the next batch has come.
    pub fn is_between(&self) -> bool {
        self.held.is_empty() && self.joined.is_empty()
    }

    fn arrived(&self) -> &[u8] {
        if self.joined.is_empty() { &self.held } else { &self.joined }
    }

    /// How long the batch is that has begun, once that is known. What is not even the beginning of one is not waited for.
    fn batch_bytes(&self) -> Result<Option<usize>, BatchError> {
        let arrived = self.arrived();
        if arrived.len() < HEADER_BYTES {
            return Ok(None);
        }
        Ok(Some(batch::header(arrived)?.batch_bytes()))
    }

    /// Takes out the first batch, if all of it has arrived.
    fn whole(&mut self) -> Result<Option<Bytes>, BatchError> {
        let Some(bytes) = self.batch_bytes()?.filter(|bytes| *bytes <= self.arrived().len()) else { return Ok(None) };
        if self.joined.is_empty() {
            return Ok(Some(self.held.split_to(bytes)));
        }
        let mut batch = Bytes::from(std::mem::take(&mut self.joined));
        self.held = batch.split_off(bytes);
        Ok(Some(batch))
    }

    fn add(&mut self, piece: Bytes) {
        if self.is_between() {
            self.held = piece;
            return;
        }
        if self.joined.is_empty() {
            let begun = std::mem::take(&mut self.held);
            self.joined.extend_from_slice(&begun);
        }
        if let Ok(Some(bytes)) = self.batch_bytes() {
            let arrived = self.joined.len();
            self.joined.reserve(bytes.min(EXPECTED_TIMES_MAX * arrived).saturating_sub(arrived));
        }
        self.joined.extend_from_slice(&piece);
    }

    fn cut_short(&self) -> BatchError {
        let said = self.batch_bytes().ok().flatten().unwrap_or(HEADER_BYTES);
        BatchError::Length { said, found: self.arrived().len() }
    }
}

impl From<BatchError> for Problem {
    fn from(error: BatchError) -> Problem {
        let detail = format!("{error}; nothing of it was counted");
        match error {
            BatchError::TooManyEvents(_) => {
                Problem::new(ProblemKind::TooLarge, detail).with("limit", EVENTS_PER_REQUEST_MAX)
            }
            BatchError::Header(HeaderError::TooLarge(_)) => {
                Problem::new(ProblemKind::TooLarge, detail).with("limit", BATCH_BYTES_MAX)
            }
            _ => Problem::new(ProblemKind::InvalidBody, detail),
        }
    }
}
