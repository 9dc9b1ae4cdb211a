//! Rows on their way into a table: columns that grow until they are a batch.

mod chain;
mod events;
mod others;
mod seen;

pub use chain::{ChainRows, root_row};
pub use events::{EventRows, Under, event_leaf};
pub use others::{BaseRows, CorrectionRows, FateRows, ProbeRows, Reasons, configuration, each_correction, with_fate};
pub use seen::{ArchivedEvent, Differing, EventBatch};

use arrow_array::ArrayRef;
use arrow_array::builder::{ArrayBuilder, Int32Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder};
use tally_core::position::Position;

/// Where a row is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub position: Position,
    pub log_time_ms: u64,
}

impl Place {
    /// The hour of its log time, since 1970: what its partition is.
    pub fn hour(self) -> i32 {
        hour_of(self.log_time_ms)
    }
}

/// The hour of a log time, since 1970.
pub fn hour_of(log_time_ms: u64) -> i32 {
    (log_time_ms / 3_600_000) as i32
}

/// The columns that every table has.
struct Places {
    log: Int32Builder,
    epoch: Int32Builder,
    offset: Int64Builder,
    log_time: TimestampMicrosecondBuilder,
}

impl Places {
    fn new() -> Places {
        let (log, epoch) = (Int32Builder::new(), Int32Builder::new());
        Places { log, epoch, offset: Int64Builder::new(), log_time: times() }
    }

    fn push(&mut self, place: Place) {
        self.log.append_value(place.position.log as i32);
        self.epoch.append_value(place.position.epoch as i32);
        self.offset.append_value(place.position.offset as i64);
        self.log_time.append_value(us(place.log_time_ms as i64));
    }

    fn len(&self) -> usize {
        self.offset.len()
    }

    fn take(&mut self) -> Vec<ArrayRef> {
        vec![taken(&mut self.log), taken(&mut self.epoch), taken(&mut self.offset), taken(&mut self.log_time)]
    }
}

/// Times are microseconds in UTC.
fn times() -> TimestampMicrosecondBuilder {
    TimestampMicrosecondBuilder::new().with_timezone("+00:00")
}

fn us(ms: i64) -> i64 {
    ms.saturating_mul(1000)
}

/// What of a time a row keeps.
fn kept_ms(ms: i64) -> i64 {
    us(ms) / 1000
}

fn taken(builder: &mut impl ArrayBuilder) -> ArrayRef {
    builder.finish()
}

fn texts() -> StringBuilder {
    StringBuilder::new()
}

/// What clients call things need not be UTF-8; tables are.
fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
