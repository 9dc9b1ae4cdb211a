//! One event as a line of JSON: built once with room for its numbers, which are then overwritten in place.

use super::compact::overwrite_varint;
use super::sessions::Sessions;
use crate::keys::{Digits, KeyPattern};
use std::ops::Range;

pub const REQUEST_DIGITS: usize = 12;
pub const SESSION_DIGITS: usize = 12;
/// Where the hour stands in a time such as 2026-11-15T18:00:00Z.
const HOUR_AT: usize = 11;
const HOUR_DIGITS: usize = 2;
const COUNTRIES: [&str; 8] = ["DE", "US", "BR", "IN", "JP", "FR", "NG", "ID"];
const DEVICES: [&str; 4] = ["tv", "phone", "tablet", "web"];

/// What all lanes of a run have in common.
#[derive(Clone, Debug)]
pub struct EventsShape {
    pub host: String,
    /// What the server asks for.
    pub token: Option<String>,
    pub event_type: String,
    pub dimension: String,
    pub key: KeyPattern,
    pub events_per_request: u64,
    pub event_bytes: usize,
    /// RFC 3339, the same for all events of the run.
    pub occurred_at: String,
    /// The same in milliseconds since 1970.
    pub occurred_at_ms: u64,
    /// How many countries they come from; a compact batch names none.
    pub countries: u64,
    /// Over so many hours of the day of `occurred_at` requests are spread, one after the other; not in a compact batch.
    pub hours: Option<u64>,
    /// Whether they are sent as compact batches instead of lines.
    pub compact: bool,
    /// Stands in ids and sessions; runs with different numbers share none.
    pub run: u64,
    pub sessions: Sessions,
    /// Requests that earlier runs have sent.
    pub requests_before: u64,
    /// Events that repeat an earlier one, in percent.
    pub duplicates: u64,
    /// Whether a repeat may be of any earlier event, or only of one of the last requests.
    pub repeats_reach_back: bool,
}

/// Where in a line, or in a record of a batch, the fields are that change.
#[derive(Clone)]
pub struct LineShape {
    pub bytes: usize,
    /// The id of the event; a record may have none.
    pub request: Option<Range<usize>>,
    /// The hour at which it happened, if that is not the same for all.
    pub hour: Option<Range<usize>>,
    pub session: Range<usize>,
    pub seq: Seq,
    pub key: Range<usize>,
}

/// How a seq is written.
#[derive(Clone)]
pub enum Seq {
    Digits(Range<usize>),
    Varint(Range<usize>),
}

impl LineShape {
    /// Appends the `n`-th line of a body, padded to its length; says where its fields are.
    pub fn push(body: &mut String, shape: &EventsShape, n: u64) -> Result<LineShape, String> {
        let EventsShape { event_type, dimension, key, occurred_at, run, .. } = shape;
        let start = body.len();
        let mark = |body: &mut String, text: &str, digits: usize| {
            body.push_str(text);
            let at = body.len() - start;
            body.push_str(&"0".repeat(digits));
            at..at + digits
        };
        let request = mark(body, &format!(r#"{{"eventId":"e{run}-"#), REQUEST_DIGITS);
        let (before, behind) = occurred_at.split_at(HOUR_AT);
        let hour = mark(body, &format!(r#"-{n:04}","type":"{event_type}","occurredAt":"{before}"#), HOUR_DIGITS);
        body.replace_range(start + hour.start.., &behind[..HOUR_DIGITS]);
        let behind = &behind[HOUR_DIGITS..];
        let session = mark(body, &format!(r#"{behind}","session":"s{run}-"#), SESSION_DIGITS);
        let seq = mark(body, r#"","seq":"#, shape.sessions.seq_digits());
        let digits = mark(body, &format!(r#","dimensions":{{"{dimension}":"{}"#, key.prefix), key.digits);
        let (country, device) = (country(n % shape.countries), DEVICES[n as usize % DEVICES.len()]);
        let suffix = &key.suffix;
        body.push_str(&format!(r#"{suffix}","country":"{country}","device":"{device}"}},"payload":{{"player":""#));
        push_padding(body, start, shape.event_bytes)?;
        Ok(LineShape {
            bytes: shape.event_bytes,
            request: Some(request),
            hour: shape.hours.map(|_| hour),
            session,
            seq: Seq::Digits(seq),
            key: digits,
        })
    }
}

/// The first have names, for the sake of whoever reads them.
fn country(number: u64) -> String {
    COUNTRIES.get(number as usize).map_or_else(|| format!("C{number:03}"), |name| (*name).to_owned())
}

/// Fills the line that begins at `start` up to its length.
fn push_padding(body: &mut String, start: usize, event_bytes: usize) -> Result<(), String> {
    const END: &str = "\"}}\n";
    let padding = (start + event_bytes).checked_sub(body.len() + END.len());
    let fields = body.len() + END.len() - start;
    let padding = padding
        .ok_or_else(|| format!("an event of {event_bytes} bytes is too short; its fields alone take {fields}"))?;
    body.extend("web-player/4.2 autoplay ".chars().cycle().take(padding));
    body.push_str(END);
    Ok(())
}

/// The numbers of the event that was written last. Neighbours share most digits, so the next one costs little.
pub struct Overwriter {
    request: Digits,
    hour: Digits,
    /// Over which requests are spread.
    hours: u64,
    session: Digits,
    seq: Digits,
    key: Digits,
}

impl Overwriter {
    pub fn new(shape: &EventsShape) -> Overwriter {
        Overwriter {
            request: Digits::zero(REQUEST_DIGITS),
            hour: Digits::zero(HOUR_DIGITS),
            hours: shape.hours.unwrap_or(1),
            session: Digits::zero(SESSION_DIGITS),
            seq: Digits::zero(shape.sessions.seq_digits()),
            key: Digits::zero(shape.key.digits),
        }
    }

    /// Makes `line` the event of `request`, in this session, with this seq and key.
    #[inline]
    pub fn put(&mut self, line: &mut [u8], at: &LineShape, request: u64, (session, seq): (u64, u64), key: u64) {
        if let Some(at) = &at.request {
            line[at.clone()].copy_from_slice(self.request.of(request));
        }
        if let Some(at) = &at.hour {
            line[at.clone()].copy_from_slice(self.hour.of(request % self.hours));
        }
        line[at.session.clone()].copy_from_slice(self.session.of(session));
        match &at.seq {
            Seq::Digits(at) => line[at.clone()].copy_from_slice(self.seq.of(seq)),
            Seq::Varint(at) => overwrite_varint(&mut line[at.clone()], seq),
        }
        line[at.key.clone()].copy_from_slice(self.key.of(key));
    }
}
