//! Writes batches.
//!
//! A text that a batch has seen before (a session, a country) goes into its dictionary when it comes a second time; the names
//! of types and dimensions go there at once. All of that is the encoder's choice: a server reads a text in either form.

use crate::Header;
use crate::text::{put_entry, put_known, put_signed, put_text, put_varint};
use crate::{BATCH_BYTES_MAX, DIMENSIONS_MAX, EVENTS_MAX, HEADER_BYTES, SHAPES_MAX, TEXTS_MAX, has};
use std::collections::HashMap;

/// Values that are looked out for in one batch, and the longest of them, in bytes. What comes often mostly comes early.
const WATCHED_MAX: usize = 4096;
const WATCHED_BYTES_MAX: usize = 64;

/// The most that a number takes, in bytes.
const NUMBER_BYTES_MAX: usize = 10;

/// One event; `docs/formats/events.md` says what its fields mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchEvent<'a> {
    pub event_type: &'a str,
    pub event_id: Option<&'a str>,
    /// Milliseconds since 1970.
    pub occurred_at_ms: Option<i64>,
    pub session: Option<&'a str>,
    pub seq: Option<u64>,
    /// 1 if absent.
    pub delta: Option<i64>,
    /// No name twice. Numbers are given as text, in plain decimal form without needless zeros.
    pub dimensions: &'a [(&'a str, &'a str)],
    /// One JSON value.
    pub payload: Option<&'a str>,
}

/// Why an event was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// Nothing is wrong with it: finish the batch, and push the event again.
    #[error("the batch is full")]
    Full,
    #[error("the event is larger than a batch may be")]
    TooLarge,
    #[error("the event has more than {DIMENSIONS_MAX} dimensions")]
    TooManyDimensions,
}

/// Takes events until there are enough of them for a batch.
#[derive(Debug, Default)]
pub struct Encoder {
    texts: Dictionary,
    /// By their bytes.
    shapes: HashMap<Vec<u8>, u32>,
    shape_bytes: Vec<u8>,
    /// Texts that came in records: once, or their number in the dictionary.
    watched: HashMap<Box<str>, Option<u32>>,
    /// What times are told from.
    base_ms: Option<i64>,
    records: Vec<u8>,
    events: usize,
    /// The bytes of a shape that is looked for.
    looked_for: Vec<u8>,
}

#[derive(Debug, Default)]
struct Dictionary {
    numbers: HashMap<Box<str>, u32>,
    bytes: Vec<u8>,
}

impl Dictionary {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.numbers.len() as u32;
        put_entry(&mut self.bytes, text);
        self.numbers.insert(text.into(), number);
        number
    }
}

impl Encoder {
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Events that wait for [`Encoder::finish`].
    pub fn events(&self) -> usize {
        self.events
    }

    /// Adds an event to the batch.
    pub fn push(&mut self, event: &BatchEvent<'_>) -> Result<(), PushError> {
        self.check_room(event)?;
        let shape = self.shape(event);
        put_varint(&mut self.records, shape.into());
        if let Some(event_id) = event.event_id {
            put_text(&mut self.records, event_id);
        }
        if let Some(occurred_at_ms) = event.occurred_at_ms {
            let base_ms = *self.base_ms.get_or_insert(occurred_at_ms);
            put_signed(&mut self.records, occurred_at_ms.wrapping_sub(base_ms));
        }
        if let Some(session) = event.session {
            self.put_value(session);
        }
        if let Some(seq) = event.seq {
            put_varint(&mut self.records, seq);
        }
        if let Some(delta) = event.delta {
            put_signed(&mut self.records, delta);
        }
        for (_, value) in event.dimensions {
            self.put_value(value);
        }
        if let Some(payload) = event.payload {
            put_text(&mut self.records, payload);
        }
        self.events += 1;
        Ok(())
    }

    /// The batch of all events since the last one; `None` if there are none. The next event begins a new batch.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        let Encoder { texts, shapes, shape_bytes, base_ms, records, events, .. } = std::mem::take(self);
        if events == 0 {
            return None;
        }
        let mut batch = vec![0; HEADER_BYTES];
        put_signed(&mut batch, base_ms.unwrap_or(0));
        put_varint(&mut batch, texts.numbers.len() as u64);
        batch.extend_from_slice(&texts.bytes);
        put_varint(&mut batch, shapes.len() as u64);
        batch.extend_from_slice(&shape_bytes);
        put_varint(&mut batch, events as u64);
        batch.extend_from_slice(&records);
        Header::put(&mut batch);
        Some(batch)
    }

    /// Whether the event fits, whatever it adds to the dictionary.
    fn check_room(&self, event: &BatchEvent<'_>) -> Result<(), PushError> {
        if event.dimensions.len() > DIMENSIONS_MAX {
            return Err(PushError::TooManyDimensions);
        }
        let texts = 2 * event.dimensions.len() + 4;
        let held = HEADER_BYTES + self.texts.bytes.len() + self.shape_bytes.len() + self.records.len();
        let bytes = held + bytes_max(event) + 8 * NUMBER_BYTES_MAX;
        let is_full = bytes > BATCH_BYTES_MAX
            || self.events == EVENTS_MAX
            || self.shapes.len() == SHAPES_MAX
            || self.texts.numbers.len() + texts > TEXTS_MAX;
        match (is_full, self.events) {
            (false, _) => Ok(()),
            (true, 0) => Err(PushError::TooLarge),
            (true, _) => Err(PushError::Full),
        }
    }

    /// The number of the event's shape.
    fn shape(&mut self, event: &BatchEvent<'_>) -> u32 {
        let Encoder { texts, shapes, shape_bytes, looked_for, .. } = self;
        looked_for.clear();
        put_varint(looked_for, texts.number(event.event_type).into());
        looked_for.push(fields(event));
        if !event.dimensions.is_empty() {
            put_varint(looked_for, event.dimensions.len() as u64);
            for (name, _) in event.dimensions {
                put_varint(looked_for, texts.number(name).into());
            }
        }
        if let Some(shape) = shapes.get(looked_for.as_slice()) {
            return *shape;
        }
        let shape = shapes.len() as u32;
        shape_bytes.extend_from_slice(looked_for);
        shapes.insert(looked_for.clone(), shape);
        shape
    }

    fn put_value(&mut self, value: &str) {
        match self.known(value) {
            Some(number) => put_known(&mut self.records, number),
            None => put_text(&mut self.records, value),
        }
    }

    /// The number of a value in the dictionary, if it came before.
    fn known(&mut self, value: &str) -> Option<u32> {
        if value.len() > WATCHED_BYTES_MAX {
            return None;
        }
        if let Some(seen) = self.watched.get_mut(value) {
            return Some(*seen.get_or_insert_with(|| self.texts.number(value)));
        }
        if self.watched.len() < WATCHED_MAX {
            self.watched.insert(value.into(), None);
        }
        None
    }
}

fn fields(event: &BatchEvent<'_>) -> u8 {
    let flag = |present: bool, flag: u8| if present { flag } else { 0 };
    flag(event.event_id.is_some(), has::EVENT_ID)
        | flag(event.occurred_at_ms.is_some(), has::OCCURRED_AT)
        | flag(event.session.is_some(), has::SESSION)
        | flag(event.seq.is_some(), has::SEQ)
        | flag(event.delta.is_some(), has::DELTA)
        | flag(!event.dimensions.is_empty(), has::DIMENSIONS)
        | flag(event.payload.is_some(), has::PAYLOAD)
}

/// What an event takes if all of its texts are new.
fn bytes_max(event: &BatchEvent<'_>) -> usize {
    let texts = [Some(event.event_type), event.event_id, event.session, event.payload];
    let own = texts.into_iter().flatten().map(|text| 2 * text.len() + NUMBER_BYTES_MAX);
    let dimensions = event.dimensions.iter().map(|(name, value)| name.len() + 2 * value.len() + 4 * NUMBER_BYTES_MAX);
    own.chain(dimensions).sum()
}
