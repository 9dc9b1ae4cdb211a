//! A running Tally node, in the order in which data flows through it.

pub mod clock;
pub mod engine;
pub mod frontend;
pub mod metrics;
