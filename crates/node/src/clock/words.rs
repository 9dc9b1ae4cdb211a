//! Moments as people and programs read them.

use jiff::Timestamp;

/// Milliseconds since 1970 as people and programs read them, such as `2026-11-15T18:00:00.000Z`.
pub fn rfc3339(ms: u64) -> String {
    rfc3339_signed(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// The same for a time that a client has given, which may lie before 1970.
pub fn rfc3339_signed(ms: i64) -> String {
    let beyond = if ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    format!("{:.3}", Timestamp::from_millisecond(ms).unwrap_or(beyond))
}
