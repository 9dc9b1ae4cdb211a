//! The cells: one number per counter, compact in memory, shared with readers on other threads.
//!
//! There is one writer, [`Table`], and any number of readers, [`Cells`]. Cells live in segments, each a small open-addressing
//! table of 24-byte slots, so that growing never stops the world: a grown or thinned-out segment is a new one, swapped in by
//! pointer. A slot never changes its key, and a key is published last; a reader therefore needs no lock and never waits.
//!
//! What memory has no room for is *cold*: only the store knows it. A key that is in no segment is absent for certain only
//! while nothing is cold, or once the store was asked ([`Table::load`]); that a key has no row is knowledge like any other.

mod change;
mod cut;
mod expiry;
mod mark;
mod read;
mod row;
mod segment;
mod spans;
mod table;
#[cfg(test)]
mod tests;
mod unsettled;

pub use change::{ValueChange, ValueChanges};
pub use cut::{Collected, RowChange};
pub use read::{Cells, SEGMENTS, segment_parts};
pub use spans::Spans;
pub use table::{Added, Settled, Table};

/// What memory knows about a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hot {
    Value(i64),
    Absent,
    /// Only the store knows.
    Cold,
}

/// A counter as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellRow {
    pub value: i64,
    pub mark: Mark,
    pub expiry: Option<RowExpiry>,
}

impl CellRow {
    /// A counter that nobody has corrected and that never expires.
    pub fn plain(value: i64) -> CellRow {
        CellRow { value, mark: Mark::default(), expiry: None }
    }
}

/// What corrections have done to a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The last generation that touched it; 0 if none did.
    pub generation: u64,
    /// What clears have taken of what was counted.
    pub spans: Spans,
}

/// When a counter expires. It carries the counter's id, since expiry starts from the clock and not from a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowExpiry {
    pub at_ms: u64,
    pub id: Box<[u8]>,
}
