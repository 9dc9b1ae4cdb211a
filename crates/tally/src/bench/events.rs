//! What can be said about the events of a run (`--op events`), and what it means.

use super::bounded;
use crate::failure::{Failure, Result};
use clap::Args;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tally_bench::{EventsShape, KeyPattern, Sessions};

pub const DEFAULT_KEY_PATTERN: &str = "v%08d";

#[derive(Args, Debug)]
pub struct EventsArgs {
    /// Events per request
    #[arg(long, default_value_t = 1000, value_name = "N", help_heading = "Events (--op events)")]
    events_per_request: u64,
    /// Send compact batches (application/vnd.tally.batch) instead of NDJSON: of each event its time, session, seq and key, and its
    /// id with --ids
    #[arg(long, help_heading = "Events (--op events)")]
    compact: bool,
    /// Length of one event with its line end (NDJSON)
    #[arg(long, default_value_t = 250, value_name = "BYTES", help_heading = "Events (--op events)")]
    event_bytes: usize,
    /// Their type
    #[arg(long = "type", default_value = "video.viewed", value_name = "TYPE", help_heading = "Events (--op events)")]
    event_type: String,
    /// The dimension that holds the key
    #[arg(long, default_value = "video", value_name = "NAME", help_heading = "Events (--op events)")]
    dimension: String,
    /// Countries that they come from, in turn (NDJSON)
    #[arg(long, default_value_t = 8, value_name = "N", help_heading = "Events (--op events)")]
    countries: u64,
    /// Spread the requests over the first so many hours of the day before, in turn [default: they happen when the run begins]
    #[arg(long, value_name = "N", conflicts_with = "compact", help_heading = "Events (--op events)")]
    hours: Option<u64>,
    /// Sessions that take turns, each with consecutive seqs [default: a session is 20 events of a request]
    #[arg(long, value_name = "N", help_heading = "Events (--op events)")]
    sessions: Option<u64>,
    /// Number the event ids under --seed instead of the time: the same seed is the same ids
    #[arg(long, help_heading = "Events (--op events)")]
    ids: bool,
    /// How many events earlier runs with this --seed and no --duplicates have sent; the ids go on behind them
    #[arg(long, default_value_t = 0, value_name = "N", requires = "ids", help_heading = "Events (--op events)")]
    sent_before: u64,
    /// Events that repeat an earlier one, in percent: with --ids any earlier one, otherwise one of the last requests.
    /// They must be answered as duplicates, so all counters that the events feed must recognise them
    #[arg(long, default_value_t = 0, value_name = "PERCENT", help_heading = "Events (--op events)")]
    duplicates: u64,
}

const EVENTS_PER_REQUEST_MAX: u64 = 10_000;
const EVENT_BYTES_MAX: u64 = 65_536;
const COUNTRIES_MAX: u64 = 1000;
const HOURS_MAX: u64 = 24;
const DAY_SECONDS: u64 = 24 * 60 * 60;
const SESSIONS_MAX: u64 = 1_000_000_000;
/// Beyond it there would be hardly anything left to repeat.
const DUPLICATES_MAX: u64 = 90;
const EVENTS_MAX: u64 = 1_000_000_000_000;

impl EventsArgs {
    pub fn check(&self) -> Result<()> {
        bounded("events-per-request", self.events_per_request, EVENTS_PER_REQUEST_MAX)?;
        bounded("event-bytes", self.event_bytes as u64, EVENT_BYTES_MAX)?;
        bounded("countries", self.countries, COUNTRIES_MAX)?;
        bounded("hours", self.hours.unwrap_or(1), HOURS_MAX)?;
        bounded("sessions", self.sessions.unwrap_or(1), SESSIONS_MAX)?;
        bounded("duplicates", self.duplicates.max(1), DUPLICATES_MAX)?;
        bounded("sent-before", self.sent_before.max(1), EVENTS_MAX)?;
        if !self.sent_before.is_multiple_of(self.events_per_request) {
            return Err(Failure::new(format!("--sent-before {} is no number of whole requests", self.sent_before))
                .why(format!("a request has {} events", self.events_per_request))
                .remedy("Give a multiple of --events-per-request."));
        }
        for (name, text) in [("type", &self.event_type), ("dimension", &self.dimension)] {
            let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
            if text.is_empty() || !text.bytes().all(plain) {
                return Err(Failure::new(format!("--{name} {text:?} cannot be sent as it is"))
                    .remedy("Use printable ASCII without blanks, quotes and backslashes."));
            }
        }
        Ok(())
    }

    /// What all lanes of a run have in common.
    pub fn shape(
        &self,
        host: String,
        token: Option<String>,
        key: KeyPattern,
        seed: u64,
        now: SystemTime,
    ) -> EventsShape {
        let time = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let occurred_at_seconds = match self.hours {
            // No hour of the day before is yet to come.
            Some(_) => (time.as_secs() / DAY_SECONDS).saturating_sub(1) * DAY_SECONDS,
            None => time.as_secs(),
        };
        EventsShape {
            host,
            token,
            key,
            event_type: self.event_type.clone(),
            dimension: self.dimension.clone(),
            events_per_request: self.events_per_request,
            event_bytes: self.event_bytes,
            occurred_at: humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(occurred_at_seconds))
                .to_string(),
            occurred_at_ms: occurred_at_seconds * 1000,
            countries: self.countries,
            hours: self.hours,
            compact: self.compact,
            // Without --ids, no two runs within a day share an id or a session.
            run: if self.ids { seed } else { time.as_secs() % 100_000 },
            sessions: self.sessions.map_or(Sessions::Short, Sessions::Lasting),
            requests_before: self.sent_before / self.events_per_request,
            duplicates: self.duplicates,
            repeats_reach_back: self.ids,
        }
    }
}
