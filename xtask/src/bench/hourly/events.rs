//! The events that `tally bench --countries 8 --hours 24` sends to Tally, for the others: keys by chance, countries in turn, and
//! another hour for every thousand.

use crate::random::mix;

pub const EVENTS: u64 = 2_000_000;
pub const KEYS: u64 = 10_000;
pub const HOURS: u64 = 24;
pub const COUNTRIES: [&str; 8] = ["DE", "US", "BR", "IN", "JP", "FR", "NG", "ID"];
/// Reads of one key, and events that are read back.
pub const READS: u64 = 2_000;
pub const FRESH: u64 = 300;
const EVENTS_PER_HOUR: u64 = 1000;
/// The first hour, since 1970; which day it is matters to nobody.
const FIRST_HOUR: u64 = 490_000;

pub struct Event {
    pub key: String,
    pub country: &'static str,
    pub hour: u64,
}

impl Event {
    pub fn of(number: u64) -> Event {
        Event {
            key: key(mix(number)),
            country: COUNTRIES[(number % COUNTRIES.len() as u64) as usize],
            hour: FIRST_HOUR + number / EVENTS_PER_HOUR % HOURS,
        }
    }
}

/// The keys that are read.
pub fn keys_to_read() -> impl Iterator<Item = String> {
    (0..READS).map(|number| key(mix(number << 32)))
}

/// From the first hour up to, not including, the last.
pub fn hours() -> [u64; 2] {
    [FIRST_HOUR, FIRST_HOUR + HOURS]
}

fn key(chance: u64) -> String {
    format!("v{:08}", chance % KEYS)
}
