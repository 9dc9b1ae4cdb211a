//! Commits: what the log came to, slot by slot, kept in a second log that others follow.
//!
//! The writer hands on what it has applied ([`Recorder`]); a thread of its own makes commits of it ([`Maker`]) and appends them
//! to the second log ([`CommitLog`]). The order, everywhere: the log is durable up to a position, then the commits up to it,
//! then the cut of it. So a restart finds every commit before its cut, makes those behind it again, and compares.

mod follow;
mod log;
mod make;
mod record;

pub use follow::{CommitReader, Commits};

pub use log::CommitsError;
pub use make::CommitsOptions;
pub(super) use make::{CommitMaker, CommitQueue, Maker, queue};
pub(super) use record::{Applied, Changed, CommitStep, Recorder};
