//! Moments as people send them: a time as RFC 3339 has it, or a duration before now.

use jiff::Timestamp;
use tally_core::counter::duration;

/// How to send one.
pub const FIX: &str = "send a time such as 2026-11-15T18:00:00Z, or a duration before now such as -24h";

/// Milliseconds since 1970; `None` if it is no moment.
pub fn parse(text: &str, now_ms: u64) -> Option<i64> {
    let before = text.strip_prefix('-').and_then(duration::parse);
    let before = before.map(|ms| (now_ms as i64).saturating_sub_unsigned(ms));
    before.or_else(|| Some(text.parse::<Timestamp>().ok()?.as_millisecond()))
}
