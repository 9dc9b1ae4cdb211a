//! A running Tally node, in the order in which data flows through it.

pub mod archive;
pub mod assemble;
pub mod clock;
pub mod counters;
pub mod data_dir;
pub mod descriptors;
pub mod engine;
pub mod frontend;
mod house;
pub mod memory;
pub mod metrics;
mod seldom;
pub mod worker;
