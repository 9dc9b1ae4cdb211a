//! A running Tally node, in the order in which data flows through it.

pub mod anomalies;
pub mod archive;
pub mod assemble;
pub mod backup;
pub mod clock;
pub mod counters;
pub mod data_dir;
pub mod descriptors;
pub mod engine;
pub mod frontend;
mod house;
pub mod memory;
pub mod metrics;
pub mod probe;
pub mod proof;
pub mod reconcile;
mod seldom;
pub mod sql;
pub mod verify;
pub mod webhook;
pub mod worker;
