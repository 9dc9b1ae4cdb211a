//! Events as compact batches: what `POST /v1/events` takes as `application/vnd.tally.batch`.
//!
//! `docs/formats/batch.md` has the bytes. Here are its header and its numbers, and the [`Encoder`] for whoever sends events. It
//! depends on nothing of the server, so that a client can have it without the rest.

mod encode;
mod header;
mod text;

pub use encode::{BatchEvent, Encoder, PushError};
pub use header::{Header, HeaderError};

/// One batch in one request.
pub const MEDIA_TYPE: &str = "application/vnd.tally.batch";

/// The version of the format, which every batch says.
pub const VERSION: u8 = 1;

/// What stands before the content of a batch, in bytes.
pub const HEADER_BYTES: usize = 16;

/// One batch with its header, in bytes.
pub const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Events of one batch.
pub const EVENTS_MAX: usize = 100_000;

/// Texts in the dictionary of one batch.
pub const TEXTS_MAX: usize = 65_536;

/// Shapes of one batch.
pub const SHAPES_MAX: usize = 256;

/// Dimensions of one shape.
pub const DIMENSIONS_MAX: usize = 64;

/// Which fields the events of a shape have; they stand in their records in this order.
pub mod has {
    pub const EVENT_ID: u8 = 1;
    pub const OCCURRED_AT: u8 = 1 << 1;
    pub const SESSION: u8 = 1 << 2;
    pub const SEQ: u8 = 1 << 3;
    pub const DELTA: u8 = 1 << 4;
    pub const DIMENSIONS: u8 = 1 << 5;
    pub const PAYLOAD: u8 = 1 << 6;
    pub const RESERVED: u8 = 1 << 7;
}
