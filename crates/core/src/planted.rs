//! A bug that tests plant: one counter counts twice for a stretch of log time. No release has it.
//!
//! It is what reconciliation and restatement are shown to find and put right with. Whoever sets it does so before the first event, and
//! the same again after a restart: a replay makes of the log what was made of it.

use std::ops::Range;
use std::sync::OnceLock;

static TWICE: OnceLock<(Box<str>, Range<u64>)> = OnceLock::new();

/// From now on a counter counts twice what is appended at these log times, in milliseconds.
pub fn count_twice(counter: &str, log_times_ms: Range<u64>) {
    TWICE.get_or_init(|| (counter.into(), log_times_ms));
}

pub(crate) fn counts_twice(counter: &str, log_time_ms: u64) -> bool {
    TWICE.get().is_some_and(|(planted, times)| **planted == *counter && times.contains(&log_time_ms))
}
