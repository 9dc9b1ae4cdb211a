//! `POST /v1/events` with NDJSON bodies or compact batches.
//!
//! Every line (or record) has the same length and its fields the same places, so a body is built once per connection; for each
//! request only its numbers are overwritten. An event is a function of its request and its line: no two share their id
//! or their session and seq, unless one repeats the other on purpose, and then they are equal.

mod answer;
mod compact;
mod line;
mod requests;
mod sessions;

use crate::http::{HttpAnswer, excerpt};
use crate::keys::Picker;
use crate::lane::{Errors, Heard, Lane, LaneKind};
use answer::Entries;
use compact::CompactBody;

pub use line::EventsShape;
use line::{LineShape, Overwriter};
use requests::{RequestTurn, Requests};
pub use sessions::Sessions;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How many requests back a repeat is looked for where only recent ones are known to be recognised.
const RECENT_REQUESTS: u64 = 16;

pub struct EventsLane {
    number: usize,
    shape: Rc<EventsShape>,
    requests: Rc<RefCell<Requests>>,
    question: Vec<u8>,
    /// Where the body of the question begins, and its first line.
    body_at: usize,
    lines_at: usize,
    line: LineShape,
    stamp: Overwriter,
    /// How many events of the question repeat an earlier one.
    repeats: u64,
    answer: Vec<u8>,
}

/// The lanes of a run, which number their requests together.
pub fn lanes(shape: EventsShape, lanes: usize) -> Result<Vec<EventsLane>, String> {
    let requests = Rc::new(RefCell::new(Requests::new(shape.requests_before, lanes)));
    let shape = Rc::new(shape);
    (0..lanes).map(|number| EventsLane::new(number, shape.clone(), requests.clone())).collect()
}

/// The body of a request before its numbers are overwritten.
struct EventsBody {
    bytes: Vec<u8>,
    /// Where its first line begins.
    lines_at: usize,
    line: LineShape,
}

impl EventsBody {
    fn new(shape: &EventsShape) -> Result<EventsBody, String> {
        if shape.compact {
            let CompactBody { bytes, records_at, record } = CompactBody::new(shape);
            return Ok(EventsBody { bytes, lines_at: records_at, line: record });
        }
        let (mut body, mut line) = (String::new(), None);
        for n in 0..shape.events_per_request {
            line = Some(LineShape::push(&mut body, shape, n)?);
        }
        let line = line.ok_or("a request needs at least one event")?;
        Ok(EventsBody { bytes: body.into_bytes(), lines_at: 0, line })
    }
}

impl EventsLane {
    fn new(number: usize, shape: Rc<EventsShape>, requests: Rc<RefCell<Requests>>) -> Result<EventsLane, String> {
        let EventsBody { bytes, lines_at, line } = EventsBody::new(&shape)?;
        let token = shape.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let media_type = if shape.compact { compact::MEDIA_TYPE } else { "application/x-ndjson" };
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nHost: {}\r\n{token}Content-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
            shape.host,
            bytes.len()
        );
        Ok(EventsLane {
            number,
            requests,
            body_at: head.len(),
            lines_at: head.len() + lines_at,
            question: [head.as_bytes(), &bytes].concat(),
            line,
            stamp: Overwriter::new(&shape),
            repeats: 0,
            answer: Vec::with_capacity(4096),
            shape,
        })
    }

    /// The request whose event this line repeats, if it repeats one.
    #[inline]
    fn repeated(&self, turn: RequestTurn, line: u64, picker: &mut Picker) -> Option<u64> {
        if !self.is_repeat(turn.request, line) {
            return None;
        }
        let reach = if self.shape.repeats_reach_back { u64::MAX } else { RECENT_REQUESTS };
        let (first, end) = (turn.answered_below.saturating_sub(reach), turn.answered_below);
        if first == end {
            return None;
        }
        // What was a repeat itself was not sent under its own number.
        let chosen = first + picker.below(end - first);
        (first..=chosen).rev().chain(chosen + 1..end).find(|&request| !self.is_repeat(request, line))
    }

    /// A share of all lines, which moves on from request to request so that every line has fresh events, too.
    #[inline]
    fn is_repeat(&self, request: u64, line: u64) -> bool {
        request >= self.shape.requests_before && (request + line) * self.shape.duplicates % 100 < self.shape.duplicates
    }
}

impl Lane for EventsLane {
    fn group(&self) -> LaneKind {
        LaneKind::Events
    }

    /// A request is always whole, so the last one may go beyond `operations_max`.
    fn prepare(&mut self, picker: &mut Picker, _operations_max: u64) -> u64 {
        let turn = self.requests.borrow_mut().next(self.number);
        let events = self.shape.events_per_request;
        let mut question = std::mem::take(&mut self.question);
        self.repeats = 0;
        for (n, line) in (0..).zip(question[self.lines_at..].chunks_exact_mut(self.line.bytes)) {
            let repeated = self.repeated(turn, n, picker);
            self.repeats += u64::from(repeated.is_some());
            let request = repeated.unwrap_or(turn.request);
            let (session, key) = (self.shape.sessions.of(request, n, events), picker.of(request * events + n));
            self.stamp.put(line, &self.line, request, session, key);
        }
        if self.shape.compact {
            compact::seal(&mut question[self.body_at..]);
        }
        self.question = question;
        self.answer.clear();
        events
    }

    fn question(&self) -> &[u8] {
        &self.question
    }

    fn answer(&mut self, bytes: &[u8], errors: &mut Errors) -> ControlFlow<Heard> {
        self.answer.extend_from_slice(bytes);
        let (events, repeats) = (self.shape.events_per_request, self.repeats);
        match HttpAnswer::parse(&self.answer) {
            HttpAnswer::Incomplete if self.answer.len() < ANSWER_BYTES_MAX => return ControlFlow::Continue(()),
            HttpAnswer::Incomplete => errors.add(|| format!("an answer longer than {ANSWER_BYTES_MAX} bytes")),
            HttpAnswer::Whole { status: 200..=299, body, .. } => {
                let entries = Entries::parse(body);
                if !entries.fit(events, repeats) {
                    errors.add(|| {
                        format!("of {events} events {repeats} were repeats, and the answer is {}", excerpt(body))
                    });
                }
            }
            HttpAnswer::Whole { status: 503, retry_after: Some(after), .. } => {
                self.answer.clear();
                return ControlFlow::Break(Heard::Refusal(after));
            }
            HttpAnswer::Whole { status, body, .. } => errors.add(|| format!("HTTP {status}: {}", excerpt(body))),
            HttpAnswer::Nonsense => errors.add(|| format!("not an HTTP answer: {}", excerpt(&self.answer))),
        }
        ControlFlow::Break(Heard::Answer)
    }
}

#[cfg(test)]
mod tests;
