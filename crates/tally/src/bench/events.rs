//! `POST /v1/events` with NDJSON bodies.
//!
//! Every line has the same length and its fields the same places, so a body is built once per connection; for each
//! request only its ids, sessions, keys and time are overwritten. No two events of a run share their session and seq.

use super::keys::{KeyPattern, Picker, write_digits};
use super::lane::{Errors, Group, Lane};
use std::ops::{ControlFlow, Range};

pub const DEFAULT_KEY_PATTERN: &str = "v%08d";

const ID_DIGITS: usize = 12;
/// Consecutive events of a request that belong to one session.
const SEQS_PER_SESSION: u64 = 20;
const COUNTRIES: [&str; 8] = ["DE", "US", "BR", "IN", "JP", "FR", "NG", "ID"];
const DEVICES: [&str; 4] = ["tv", "phone", "tablet", "web"];
const ANSWER_BYTES_MAX: usize = 1 << 20;

pub struct EventsLane {
    question: Vec<u8>,
    head_bytes: usize,
    line: LineShape,
    events: u64,
    /// This lane's requests are `lane`, `lane + lanes`, `lane + 2 × lanes`, …, so no two lanes share one.
    next_request: u64,
    lanes: u64,
    answer: Vec<u8>,
}

/// Where in a line the fields are that change.
#[derive(Clone)]
struct LineShape {
    bytes: usize,
    id: Range<usize>,
    session: Range<usize>,
    key: Range<usize>,
}

/// What all lanes of a run have in common.
pub struct EventsShape<'a> {
    pub host: &'a str,
    pub key: &'a KeyPattern,
    pub events_per_request: u64,
    pub event_bytes: usize,
    /// RFC 3339, the same for all events of the run.
    pub occurred_at: &'a str,
    /// Makes sessions of different runs different.
    pub run: u64,
}

impl EventsLane {
    pub fn new(shape: &EventsShape<'_>, lane: u64, lanes: u64) -> Result<EventsLane, String> {
        let mut body = String::new();
        let mut line = None;
        for n in 0..shape.events_per_request {
            line = Some(push_line(&mut body, shape, n)?);
        }
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
            shape.host,
            body.len()
        );
        Ok(EventsLane {
            head_bytes: head.len(),
            question: (head + &body).into_bytes(),
            line: line.ok_or("a request needs at least one event")?,
            events: shape.events_per_request,
            next_request: shape.run + lane,
            lanes,
            answer: Vec::with_capacity(4096),
        })
    }
}

/// Appends the `n`-th line of a body, padded to its length; says where its fields are.
fn push_line(body: &mut String, shape: &EventsShape<'_>, n: u64) -> Result<LineShape, String> {
    let start = body.len();
    let mark = |body: &mut String, text: &str, digits: usize| {
        body.push_str(text);
        let at = body.len() - start;
        body.push_str(&"0".repeat(digits));
        at..at + digits
    };
    let id = mark(body, r#"{"eventId":"e"#, ID_DIGITS);
    let session_text =
        format!(r#"-{:04}","type":"video.viewed","occurredAt":"{}","session":"s"#, n % 10_000, shape.occurred_at);
    let session = mark(body, &session_text, ID_DIGITS);
    let key_text = format!(r#"","seq":{},"dimensions":{{"video":"{}"#, 100 + n % SEQS_PER_SESSION, shape.key.prefix);
    let key = mark(body, &key_text, shape.key.digits);
    let (country, device) = (COUNTRIES[n as usize % COUNTRIES.len()], DEVICES[n as usize % DEVICES.len()]);
    body.push_str(&format!(
        r#"{}","country":"{country}","device":"{device}"}},"payload":{{"player":""#,
        shape.key.suffix
    ));
    const END: &str = "\"}}\n";
    let padding = (start + shape.event_bytes).checked_sub(body.len() + END.len());
    let padding = padding.ok_or_else(|| {
        format!(
            "an event of {} bytes is too short; its fields alone take {}",
            shape.event_bytes,
            body.len() + END.len() - start
        )
    })?;
    body.extend("web-player/4.2 autoplay ".chars().cycle().take(padding));
    body.push_str(END);
    Ok(LineShape { bytes: shape.event_bytes, id, session, key })
}

impl Lane for EventsLane {
    fn group(&self) -> Group {
        Group::Events
    }

    /// A request is always whole, so the last one may go beyond `operations_max`.
    fn prepare(&mut self, picker: &mut Picker, _operations_max: u64) -> u64 {
        let sessions_per_request = self.events.div_ceil(SEQS_PER_SESSION);
        let sessions = self.next_request * sessions_per_request..;
        let (mut id, mut session) = ([0; ID_DIGITS], [0; ID_DIGITS]);
        write_digits(&mut id, self.next_request);
        let lines_of_sessions =
            self.question[self.head_bytes..].chunks_mut(self.line.bytes * SEQS_PER_SESSION as usize);
        for (number, lines) in sessions.zip(lines_of_sessions) {
            write_digits(&mut session, number);
            for line in lines.chunks_exact_mut(self.line.bytes) {
                line[self.line.id.clone()].copy_from_slice(&id);
                line[self.line.session.clone()].copy_from_slice(&session);
                write_digits(&mut line[self.line.key.clone()], picker.next());
            }
        }
        self.next_request += self.lanes;
        self.answer.clear();
        self.events
    }

    fn question(&self) -> &[u8] {
        &self.question
    }

    fn answer(&mut self, bytes: &[u8], errors: &mut Errors) -> ControlFlow<()> {
        self.answer.extend_from_slice(bytes);
        match parse_answer(&self.answer) {
            Parsed::Incomplete if self.answer.len() < ANSWER_BYTES_MAX => return ControlFlow::Continue(()),
            Parsed::Incomplete => errors.add(|| format!("an answer longer than {ANSWER_BYTES_MAX} bytes")),
            Parsed::Whole { status: 200..=299, body } => {
                // An event counts once for every counter it feeds; how many those are is the server's configuration.
                let counted = number_after(body, br#""counted":"#).unwrap_or(0);
                if counted == 0 || !counted.is_multiple_of(self.events) {
                    errors.add(|| format!("of {} events {counted} were counted: {}", self.events, excerpt(body)));
                }
            }
            Parsed::Whole { status, body } => errors.add(|| format!("HTTP {status}: {}", excerpt(body))),
            Parsed::Nonsense => errors.add(|| format!("not an HTTP answer: {}", excerpt(&self.answer))),
        }
        ControlFlow::Break(())
    }
}

enum Parsed<'a> {
    Incomplete,
    Whole { status: u16, body: &'a [u8] },
    Nonsense,
}

fn parse_answer(bytes: &[u8]) -> Parsed<'_> {
    let Some(head_end) = find(bytes, b"\r\n\r\n") else { return Parsed::Incomplete };
    let Ok(head) = std::str::from_utf8(&bytes[..head_end]) else { return Parsed::Nonsense };
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok());
    let (Some(status), Some(length)) = (status, length) else { return Parsed::Nonsense };
    let body = &bytes[head_end + 4..];
    if body.len() < length { Parsed::Incomplete } else { Parsed::Whole { status, body: &body[..length] } }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The number that follows `label`, where there is one.
fn number_after(text: &[u8], label: &[u8]) -> Option<u64> {
    let rest = text[find(text, label)? + label.len()..].trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn shape(key: &KeyPattern, event_bytes: usize) -> EventsShape<'_> {
        EventsShape {
            host: "h",
            key,
            events_per_request: 50,
            event_bytes,
            occurred_at: "2026-11-15T18:00:00Z",
            run: 7000,
        }
    }

    #[test]
    fn every_event_is_json_of_the_asked_length_and_no_two_share_session_and_seq() {
        let key = DEFAULT_KEY_PATTERN.parse().unwrap();
        let mut seen = HashSet::new();
        for lane in 0..3 {
            let mut lane = EventsLane::new(&shape(&key, 250), lane, 3).unwrap();
            let mut picker = Picker::in_order(1000);
            for _ in 0..4 {
                assert_eq!(lane.prepare(&mut picker, 1), 50);
                let body = &lane.question()[lane.head_bytes..];
                for line in body.split_inclusive(|&byte| byte == b'\n') {
                    assert_eq!(line.len(), 250);
                    let event: serde_json::Value = serde_json::from_slice(line).unwrap();
                    assert!(event["dimensions"]["video"].as_str().unwrap().starts_with("v000"), "{event}");
                    assert!(seen.insert((event["session"].to_string(), event["seq"].to_string())), "{event}");
                }
            }
        }
        assert_eq!(seen.len(), 600);
    }

    #[test]
    fn an_event_too_short_for_its_fields_is_refused() {
        let key = DEFAULT_KEY_PATTERN.parse().unwrap();
        assert!(EventsLane::new(&shape(&key, 60), 0, 1).err().unwrap().contains("60 bytes is too short"));
    }

    #[test]
    fn an_answer_is_judged_by_what_was_counted() {
        let key = DEFAULT_KEY_PATTERN.parse().unwrap();
        let check = |answer: &str, error: Option<&str>| {
            let mut lane = EventsLane::new(&shape(&key, 250), 0, 1).unwrap();
            let mut errors = Errors::default();
            let (last, head) = answer.as_bytes().split_last().unwrap();
            assert!(lane.answer(head, &mut errors).is_continue(), "{answer}");
            assert!(lane.answer(&[*last], &mut errors).is_break(), "{answer}");
            assert_eq!(errors.first.is_some(), error.is_some(), "{errors:?}");
            assert!(errors.first.unwrap_or_default().contains(error.unwrap_or_default()));
        };
        check("HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"counted\":50}", None);
        check("HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"counted\":49}", Some("of 50 events 49 were counted"));
        check("HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"counted\":0}", Some("0 were counted"));
        check("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"counted\":100}", None);
        check("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy", Some("HTTP 503: busy"));
    }
}
