//! The events of one compact batch (`docs/formats/batch.md`): no JSON, and nothing looked up per event.
//!
//! What events that look alike have in common is said once, as a shape; what is worked out from it (the plan of its entries, the
//! beginning of its records) is worked out once as well. A record is then numbers, and texts that stay where they are: it becomes a
//! [`Line`] like an event in JSON, and from there on nothing knows which of the two it was.
//!
//! A batch is taken as a whole or not at all. One whose checksum or structure is wrong is refused; whoever called forgets what
//! the sink was given. Only a value that an event cannot have is that event's own fault, and does not stop the others.

pub(super) mod cursor;
mod dictionary;
pub(super) mod error;
mod record;

use super::body::Sink;
use super::{Arrival, Event, Line};
use crate::limits::EVENTS_PER_REQUEST_MAX;
use cursor::Cursor;
use dictionary::Dictionary;
pub use error::BatchError;
use error::Broken;
use record::RecordReader;
use tally_batch::{BatchEvent, Encoder, HEADER_BYTES, Header, PushError};

/// Hands the events of `batch` to the sink, and answers how many there are.
pub fn read<S: Sink>(batch: &[u8], arrival: Arrival, sink: &mut S) -> Result<usize, BatchError> {
    let header = header(batch)?;
    if batch.len() != header.batch_bytes() {
        return Err(BatchError::Length { said: header.batch_bytes(), found: batch.len() });
    }
    if !header.matches(batch) {
        return Err(BatchError::Checksum);
    }
    let mut cursor = Cursor::new(batch, HEADER_BYTES);
    let mut dictionary = Dictionary::read(&mut cursor)?;
    let events = cursor.varint().map_err(|broken| broken.at("the number of events", &cursor))?;
    if events > EVENTS_PER_REQUEST_MAX as u64 {
        return Err(BatchError::TooManyEvents(events));
    }
    // Each has a byte at least, so what is promised is there or the batch is refused.
    if events > (batch.len() - cursor.at()) as u64 {
        return Err(Broken::Ends.at("the events", &cursor));
    }
    sink.expect(events as usize, batch.len());
    let mut records = RecordReader { cursor, base_ms: dictionary.base_ms, arrival };
    for index in 0..events as usize {
        records.next(index, &dictionary.texts, &mut dictionary.shapes, sink)?;
    }
    match batch.len() - records.cursor.at() {
        0 => Ok(events as usize),
        behind => Err(BatchError::Behind(behind)),
    }
}

/// Adds an event to a batch.
pub fn push(event: &Event<'_>, encoder: &mut Encoder) -> Result<(), PushError> {
    let dimensions: Vec<_> = event.dimensions.iter().map(|(name, value)| (&**name, &**value)).collect();
    encoder.push(&BatchEvent {
        event_type: &event.event_type,
        event_id: event.event_id.as_deref(),
        occurred_at_ms: event.occurred_at_ms,
        session: event.session.as_deref(),
        seq: event.seq,
        delta: (event.delta != 1).then_some(event.delta),
        dimensions: &dimensions,
        payload: event.payload,
    })
}

/// The header of the batch that `bytes` begin with.
pub fn header(bytes: &[u8]) -> Result<Header, BatchError> {
    let header = bytes.first_chunk().ok_or(BatchError::Length { said: HEADER_BYTES, found: bytes.len() })?;
    Ok(Header::read(header)?)
}

#[cfg(test)]
pub(super) mod tests;
