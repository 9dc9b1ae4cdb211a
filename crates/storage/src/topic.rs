//! The seams *appender* and *source*: a log in partitions, to which many append and which many read.
//!
//! The embedded node's one writer uses its log directly ([`crate::log::Log`]); a collector of a cluster and the partitions behind
//! it know only these. [`partitions`] makes both of any logs of one's own.

pub mod faulty;
pub mod partitions;
pub mod suite;

use crate::log::{Appended, LogError, LogReader};
use tally_core::position::Position;

/// Appends to any partition; many may, at the same time.
///
/// - A batch is appended as a whole, behind what is there, and is durable when the call answers.
/// - [`LogError::Retry`], [`LogError::TooLarge`] and [`LogError::Full`]: nothing was appended. [`LogError::Unknown`]: it is there, or it
///   will be, or it never will; the same bytes are sent again to the same partition, and readers tell the copies by their sender.
/// - What one caller appends to a partition, waiting for each answer, is there in this order; copies may come later.
pub trait Appender: Send + Sync {
    /// How many there are; fixed when a topic is made.
    fn partitions(&self) -> u32;

    /// Appends `count` records (at least one), encoded one behind the other.
    fn append(&self, partition: u32, count: u32, records: &[u8]) -> Result<Appended, LogError>;
}

/// Reads the partitions that are assigned to somebody.
///
/// - A reader gives the batches of a partition in their order, each as it was appended, and only durable ones.
/// - A reader that was told [`LogError::Retry`] stands where it stood.
/// - What is released may be forgotten, when and as far as that is convenient; reading it is [`LogError::Trimmed`].
pub trait Source: Send + Sync {
    type Reader: LogReader;

    fn assigned(&self) -> Vec<u32>;

    /// Reads from the batch with record `from` on, as [`crate::log::LogHandle::reader`] does.
    fn batches(&self, partition: u32, from: Position) -> Result<Self::Reader, LogError>;

    /// Everything before it is durable. It may be a little behind, and never goes back.
    fn high_water(&self, partition: u32) -> Result<Position, LogError>;

    /// Nothing before `to` is needed any more.
    fn release(&self, partition: u32, to: Position) -> Result<(), LogError>;
}
