//! The memory of an embedded node, under the rules it serves: what is hot, what has changed since the last cut, and what only the
//! store knows. Whoever reads about contracts need not come here.
//!
//! [`cell`] is the table of counters and its eras, [`layer`] keyed facts above the store with their filters, [`journal`] facts that
//! are only written, [`names`] the ids that came and went, [`dedup`] repeats as runs.

pub mod cell;
pub mod dedup;
mod filter;
pub mod journal;
pub mod layer;
pub mod names;
pub(crate) mod pending;
pub(crate) mod prefetch;
pub(crate) mod stratum;
