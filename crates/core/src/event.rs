//! An event: something that happened, as a client tells it.
//!
//! An event enters as JSON ([`body`] splits a request into events, [`json`] reads one), is written to the log as it was
//! received ([`Event::encode`]) and is interpreted there, under the declarations at its position
//! ([`crate::counter::Stager`]). Its texts are borrowed from the request or from the log; only a JSON escape or a
//! number that was not in its plain form makes a copy. Of an event that looks like one before no [`Event`] is made at all: as
//! a [`Line`] it goes straight from the text into its record and its entries.

pub mod batch;
pub mod body;
mod codec;
mod error;
pub mod json;
mod layout;
mod layouts;
mod line;
mod literal;
mod number;
pub mod proto;
mod scan;
mod shape;
mod skeleton;
mod special;
mod time;

use std::borrow::Cow;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) use codec::{copy_content, raw_dimensions, raw_time_and_dimensions};
pub use error::EventError;
pub(crate) use error::excerpt;
pub use line::Line;
pub use shape::Shape;

/// What a client said, and when it was received. `docs/formats/events.md` has the fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    /// `type` in JSON: what happened, such as `video.viewed`.
    pub event_type: Cow<'a, str>,
    pub event_id: Option<Cow<'a, str>>,
    /// The client's clock, in milliseconds since 1970.
    pub occurred_at_ms: Option<i64>,
    pub session: Option<Cow<'a, str>>,
    /// The number of the event within its session.
    pub seq: Option<u64>,
    /// How many it counts for.
    pub delta: i64,
    /// In the order of the client; no name twice.
    pub dimensions: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The client's own data: one well-formed JSON value, kept as it was written.
    pub payload: Option<&'a str>,
    /// The collector's clock, in milliseconds since 1970; see [`Arrival`].
    pub received_at_ms: u64,
}

/// When events arrive, by the two clocks of a node.
///
/// An event is dated by log time. But who says when it happened is refused only for being ahead of both: while the two are
/// apart nobody can know which of them is right, and a sender with a right clock must not lose events.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub log_ms: u64,
    pub wall_ms: u64,
}

impl From<u64> for Arrival {
    fn from(ms: u64) -> Arrival {
        Arrival { log_ms: ms, wall_ms: ms }
    }
}

/// When something was received that happened then, as far as its sender says.
#[inline]
fn received_at_ms(arrival: Arrival, occurred_at_ms: Option<i64>) -> u64 {
    match occurred_at_ms {
        Some(at_ms) if at_ms > arrival.log_ms as i64 => arrival.log_ms.max(arrival.wall_ms),
        _ => arrival.log_ms,
    }
}

impl<'a> Event<'a> {
    pub fn new(event_type: impl Into<Cow<'a, str>>, received_at_ms: u64) -> Event<'a> {
        Event {
            event_type: event_type.into(),
            event_id: None,
            occurred_at_ms: None,
            session: None,
            seq: None,
            delta: 1,
            dimensions: Vec::new(),
            payload: None,
            received_at_ms,
        }
    }

    /// Says when it was received, once it is known when it happened.
    #[inline]
    fn arrive(&mut self, arrival: Arrival) {
        self.received_at_ms = received_at_ms(arrival, self.occurred_at_ms);
    }

    /// The value of a dimension.
    #[inline]
    pub fn dimension(&self, name: &str) -> Option<&str> {
        self.dimensions.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_ref())
    }

    /// When it happened: as the client says, or else when it was received.
    #[inline]
    pub fn time_ms(&self) -> i64 {
        self.occurred_at_ms.unwrap_or(self.received_at_ms as i64)
    }

    /// What two events with one id must agree on: type, dimensions in any order, and delta. Pinned: it is kept forever.
    pub fn content_hash(&self) -> u64 {
        let dimension = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| {
            xxh3_64_with_seed(value.as_bytes(), xxh3_64_with_seed(name.as_bytes(), 0))
        };
        let own = xxh3_64_with_seed(self.event_type.as_bytes(), self.delta as u64);
        self.dimensions.iter().map(dimension).fold(own, u64::wrapping_add)
    }

    /// Forgets everything but keeps the room for dimensions, so that one event can be read after the other without
    /// allocating.
    fn reset(&mut self, received_at_ms: u64) {
        let mut dimensions = std::mem::take(&mut self.dimensions);
        dimensions.clear();
        *self = Event { dimensions, ..Event::new("", received_at_ms) };
    }
}

#[cfg(test)]
mod tests;
