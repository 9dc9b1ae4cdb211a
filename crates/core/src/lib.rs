//! The pure part of Tally: what an event means and what it changes.
//!
//! Nothing here reads a clock, a disk, a socket or a source of randomness. Time is a field of a batch and the
//! hash seed a parameter, so the same code decides in the running node, in a replay and in a test.

pub mod anomaly;
pub mod available;
pub mod combined;
pub mod commit;
pub mod contract;
pub mod counter;
pub mod database;
pub mod event;
pub mod fact;
pub mod fates;
pub mod head;
pub mod id;
pub mod identity;
pub mod ledger;
pub mod limits;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod nearest;
pub mod op;
mod pen;
#[cfg(debug_assertions)]
pub mod planted;
pub mod position;
pub mod proof;
pub mod record;
pub mod series;
pub mod values;
