//! The events of one request body: an object, an array of objects, or NDJSON.
//!
//! A body may come in any pieces. NDJSON is read as it streams in: whole lines straight from the piece they came in,
//! only a line that is cut in two is copied. An array or a single object is kept until its end. A bad event is
//! reported by its index and does not stop the others; only behind broken JSON inside an array nothing can be read.

use super::error::EventError;
use super::json::{check_size, describe, parse_into, scan_event};
pub use super::layouts::Layouts;
use super::scan::{ScanFault, ScanTrouble, Scanner};
use super::{Arrival, Event, Line, Shape};
use crate::limits::{BODY_BYTES_MAX, EVENT_BYTES_MAX, EVENTS_PER_REQUEST_MAX};
use memchr::{memchr, memrchr};

/// How the events of a body are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One event per line; blank lines mean nothing.
    Lines,
    /// One event, over as many lines as it likes, or an array of events.
    Document,
}

/// Why a body is refused as a whole; whatever was read from it must not be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the body has more than {BODY_BYTES_MAX} bytes (decompressed); send the events in several requests")]
    TooLarge,
    #[error("the body has more than {EVENTS_PER_REQUEST_MAX} events; send them in several requests")]
    TooManyEvents,
}

impl Form {
    #[inline(always)]
    pub(super) fn scanner(self, text: &str) -> Scanner<'_> {
        match self {
            Form::Lines => Scanner::on_line(text),
            Form::Document => Scanner::new(text),
        }
    }
}

/// Receives each event of a body, or what is wrong with it, and its index. Only called in order.
pub trait Sink {
    /// What it works out once for all events of one shape and one type.
    type Plan;

    fn plan(&mut self, shape: &Shape, event_type: &str) -> Self::Plan;

    /// So many events are there, in so many bytes; for whoever likes to make room at once.
    fn expect(&mut self, _events: usize, _bytes: usize) {}

    /// An event that looks like one before it.
    fn line(&mut self, index: usize, line: &Line<'_>, plan: &Self::Plan);

    fn event(&mut self, index: usize, event: Result<&Event<'_>, EventError>);
}

impl<F: FnMut(usize, Result<&Event<'_>, EventError>)> Sink for F {
    type Plan = ();

    fn plan(&mut self, _: &Shape, _: &str) {}

    fn line(&mut self, index: usize, line: &Line<'_>, (): &()) {
        self(index, Ok(&line.to_event()))
    }

    fn event(&mut self, index: usize, event: Result<&Event<'_>, EventError>) {
        self(index, event)
    }
}

/// Reads the events of one body, piece by piece.
#[derive(Debug)]
pub struct BodyReader<P> {
    form: Option<Form>,
    arrival: Arrival,
    /// What was received and cannot be read yet.
    held: Vec<u8>,
    /// What the events have looked like so far.
    layouts: Layouts<P>,
    /// Inside a line that is longer than an event may be and has been reported.
    in_long_line: bool,
    bytes: usize,
    events: usize,
}

impl<P> BodyReader<P> {
    /// Without a form, the body's first line decides: `[`, or an object that goes on after the line, is a document.
    pub fn new(form: Option<Form>, arrival: impl Into<Arrival>) -> BodyReader<P> {
        BodyReader::knowing(Layouts::default(), form, arrival)
    }

    /// The same with what events before this body have looked like, under the same declarations.
    pub fn knowing(layouts: Layouts<P>, form: Option<Form>, arrival: impl Into<Arrival>) -> BodyReader<P> {
        BodyReader {
            form,
            arrival: arrival.into(),
            held: Vec::new(),
            layouts,
            in_long_line: false,
            bytes: 0,
            events: 0,
        }
    }

    /// Reads what can be read of the body so far.
    pub fn feed(&mut self, piece: &[u8], sink: &mut impl Sink<Plan = P>) -> Result<(), BodyError> {
        self.bytes += piece.len();
        if self.bytes > BODY_BYTES_MAX {
            return Err(BodyError::TooLarge);
        }
        match self.form {
            Some(Form::Lines) => self.feed_lines(piece, sink),
            Some(Form::Document) => {
                self.held.extend_from_slice(piece);
                Ok(())
            }
            None => self.feed_undecided(piece, sink),
        }
    }

    /// What its events have looked like.
    pub fn into_layouts(self) -> Layouts<P> {
        self.layouts
    }

    /// Reads what is left when the body has ended, and answers how many events it had.
    pub fn finish(&mut self, sink: &mut impl Sink<Plan = P>) -> Result<usize, BodyError> {
        let held = std::mem::take(&mut self.held);
        match self.form.unwrap_or(Form::Lines) {
            Form::Lines => self.lines(&held, sink)?,
            Form::Document => self.document(&held, sink)?,
        }
        Ok(self.events)
    }

    fn feed_undecided(&mut self, piece: &[u8], sink: &mut impl Sink<Plan = P>) -> Result<(), BodyError> {
        if self.held.is_empty() {
            self.form = detect(piece);
            if self.form == Some(Form::Lines) {
                return self.feed_lines(piece, sink);
            }
        }
        self.held.extend_from_slice(piece);
        self.form = self.form.or_else(|| detect(&self.held));
        if self.form == Some(Form::Lines) {
            let held = std::mem::take(&mut self.held);
            return self.feed_lines(&held, sink);
        }
        Ok(())
    }

    fn feed_lines(&mut self, mut piece: &[u8], sink: &mut impl Sink<Plan = P>) -> Result<(), BodyError> {
        if self.in_long_line || !self.held.is_empty() {
            let Some(end) = memchr(b'\n', piece) else { return self.hold(piece, sink) };
            self.hold(&piece[..end], sink)?;
            piece = &piece[end + 1..];
            let line = std::mem::take(&mut self.held);
            if !std::mem::take(&mut self.in_long_line) {
                self.lines(&line, sink)?;
            }
            self.held = line;
            self.held.clear();
        }
        let whole = memrchr(b'\n', piece).map_or(0, |end| end + 1);
        self.lines(&piece[..whole], sink)?;
        self.hold(&piece[whole..], sink)
    }

    /// Keeps the beginning of a line, as long as it may become an event.
    fn hold(&mut self, part: &[u8], sink: &mut impl Sink<Plan = P>) -> Result<(), BodyError> {
        if self.in_long_line {
            return Ok(());
        }
        if let Err(error) = check_size(self.held.len() + part.len()) {
            self.in_long_line = true;
            self.held.clear();
            return self.emit(Err(error), sink);
        }
        self.held.extend_from_slice(part);
        Ok(())
    }

    /// Reads whole lines.
    fn lines(&mut self, bytes: &[u8], sink: &mut impl Sink<Plan = P>) -> Result<(), BodyError> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return self.text_lines(text, sink);
        }
        // Somewhere a line is not UTF-8; the others are read all the same.
        for line in bytes.split(|byte| *byte == b'\n') {
            match std::str::from_utf8(line) {
                Ok(line) => self.text_lines(line, sink)?,
                Err(error) => self.emit(Err(not_utf8(error.valid_up_to())), sink)?,
            }
        }
        Ok(())
    }

    fn text_lines(&mut self, mut text: &str, sink: &mut impl Sink<Plan = P>) -> Result<(), BodyError> {
        let mut event = Event::new("", self.arrival.log_ms);
        while !text.is_empty() {
            if let Some(next) = self.known_line(text, sink)? {
                text = &text[next..];
                continue;
            }
            let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
            self.line(line, &mut event, sink)?;
            text = rest;
        }
        Ok(())
    }

    /// Reads the first line if it looks like one before, and answers where the next begins.
    #[inline(always)]
    fn known_line(&mut self, text: &str, sink: &mut impl Sink<Plan = P>) -> Result<Option<usize>, BodyError> {
        let Some(end) = self.layouts.read(text, Form::Lines) else { return Ok(None) };
        let Some(next) = behind_line(text.as_bytes(), end) else { return Ok(None) };
        Ok(self.emit_known(text, end, sink)?.then_some(next))
    }

    fn line<'a>(
        &mut self,
        line: &'a str,
        event: &mut Event<'a>,
        sink: &mut impl Sink<Plan = P>,
    ) -> Result<(), BodyError> {
        if line.bytes().all(|byte| byte.is_ascii_whitespace()) {
            return Ok(());
        }
        let parsed = parse_into(line, self.arrival.log_ms, event);
        self.learn(line, parsed.is_ok());
        event.arrive(self.arrival);
        self.emit(parsed.map(|()| &*event), sink)
    }

    fn document(&mut self, bytes: &[u8], sink: &mut impl Sink<Plan = P>) -> Result<(), BodyError> {
        let (text, broken_at) = match std::str::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(error) => (valid_prefix(bytes, error.valid_up_to()), Some(error.valid_up_to())),
        };
        let mut scanner = Scanner::new(text);
        let read = match scanner.next_token() {
            None if broken_at.is_none() => return Ok(()),
            Some(b'[') => self.array(&mut scanner, sink)?,
            _ => self.object(&mut scanner, sink)?,
        };
        let Err(fault) = read.and_then(|()| end_of_body(&mut scanner, broken_at)) else { return Ok(()) };
        let mut error = match broken_at {
            Some(at) if scanner.peek().is_none() => not_utf8(at),
            _ => describe(*fault, text),
        };
        error.reason.push_str("; what follows in the body cannot be read");
        self.emit(Err(error), sink)
    }

    /// One event. `Ok(Err(…))` is JSON so broken that nothing can be read behind it.
    fn object(
        &mut self,
        scanner: &mut Scanner<'_>,
        sink: &mut impl Sink<Plan = P>,
    ) -> Result<Result<(), ScanFault>, BodyError> {
        let mut event = Event::new("", self.arrival.log_ms);
        self.element(scanner, &mut event, sink)
    }

    fn array(
        &mut self,
        scanner: &mut Scanner<'_>,
        sink: &mut impl Sink<Plan = P>,
    ) -> Result<Result<(), ScanFault>, BodyError> {
        let mut event = Event::new("", self.arrival.log_ms);
        let mut more = scanner.first_element();
        while let Ok(true) = more {
            if let Err(fault) = self.element(scanner, &mut event, sink)? {
                return Ok(Err(fault));
            }
            more = scanner.next_element();
        }
        Ok(more.map(drop))
    }

    /// Reads one event and reports it; steps over it, if it is JSON, even if it is a bad event.
    fn element<'a>(
        &mut self,
        scanner: &mut Scanner<'a>,
        event: &mut Event<'a>,
        sink: &mut impl Sink<Plan = P>,
    ) -> Result<Result<(), ScanFault>, BodyError> {
        scanner.next_token();
        if let Some(end) = self.layouts.read(scanner.rest_text(), Form::Document)
            && self.emit_known(scanner.rest_text(), end, sink)?
        {
            scanner.skip(end);
            return Ok(Ok(()));
        }
        let start = scanner.at();
        let text = scanner.rest_text();
        let parsed = scan_event(scanner, self.arrival.log_ms, event);
        if parsed.is_err() {
            scanner.rewind(start);
            if let Err(fault) = scanner.value() {
                return Ok(Err(fault));
            }
        }
        let checked = parsed
            .map_err(|fault| describe_in_body(*fault, scanner, start))
            .and_then(|()| check_size(scanner.at() - start));
        self.learn(text, checked.is_ok());
        event.arrive(self.arrival);
        self.emit(checked.map(|()| &*event), sink)?;
        Ok(Ok(()))
    }

    /// Remembers what an event looks like.
    fn learn(&mut self, text: &str, is_good: bool) {
        if is_good {
            self.layouts.learn(text);
        }
    }

    /// Reports the event that `text` begins with, up to `end`, and that was read by its layout; false if there is no plan for it.
    #[inline(always)]
    fn emit_known(&mut self, text: &str, end: usize, sink: &mut impl Sink<Plan = P>) -> Result<bool, BodyError> {
        if self.events == EVENTS_PER_REQUEST_MAX {
            return Err(BodyError::TooManyEvents);
        }
        let plan = |shape: &Shape, event_type: &str| sink.plan(shape, event_type);
        let Some((line, plan)) = self.layouts.found(text, end, self.arrival, plan) else { return Ok(false) };
        sink.line(self.events, &line, plan);
        self.events += 1;
        Ok(true)
    }

    fn emit(&mut self, event: Result<&Event<'_>, EventError>, sink: &mut impl Sink<Plan = P>) -> Result<(), BodyError> {
        if self.events == EVENTS_PER_REQUEST_MAX {
            return Err(BodyError::TooManyEvents);
        }
        sink.event(self.events, event);
        self.events += 1;
        Ok(())
    }
}

/// A fault inside an element that is well-formed JSON.
fn describe_in_body(trouble: ScanTrouble, scanner: &Scanner<'_>, start: usize) -> EventError {
    match trouble {
        ScanTrouble::Shape(error) => error,
        // The element is JSON but no object.
        ScanTrouble::Syntax { .. } | ScanTrouble::TooDeep { .. } => EventError {
            field: None,
            value: Some(super::error::excerpt(scanner.since(start))),
            reason: "is not an event; an event is an object such as {\"type\":\"video.viewed\"}".to_owned(),
        },
    }
}

fn end_of_body(scanner: &mut Scanner<'_>, broken_at: Option<usize>) -> Result<(), ScanFault> {
    match scanner.next_token() {
        None if broken_at.is_none() => Ok(()),
        _ => Err(scanner.syntax("the end of the body (one event per line, or an array of events)")),
    }
}

fn valid_prefix(bytes: &[u8], valid_up_to: usize) -> &str {
    std::str::from_utf8(&bytes[..valid_up_to]).expect("this much was found to be valid")
}

fn not_utf8(at: usize) -> EventError {
    EventError::event(format!("not UTF-8 at byte {at}; JSON is sent in UTF-8"))
}

/// Where the next line begins, if nothing but the end of the line is at `end`.
#[inline]
fn behind_line(bytes: &[u8], end: usize) -> Option<usize> {
    match bytes[end..] {
        [] => Some(end),
        [b'\n', ..] => Some(end + 1),
        [b'\r', b'\n', ..] => Some(end + 2),
        _ => behind_spaces(bytes, end),
    }
}

#[cold]
fn behind_spaces(bytes: &[u8], end: usize) -> Option<usize> {
    let spaces = bytes[end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    let line_end = end + spaces;
    let next = bytes.get(line_end).map_or(Some(line_end), |byte| (*byte == b'\n').then_some(line_end + 1));
    next.filter(|_| line_end <= EVENT_BYTES_MAX)
}

/// Looks at the first line that is not blank; `None` while it has not come to its end.
fn detect(body: &[u8]) -> Option<Form> {
    let first = body.trim_ascii_start();
    match first.first()? {
        b'[' => Some(Form::Document),
        b'{' => match memchr(b'\n', first) {
            Some(end) if first[..end].trim_ascii_end().ends_with(b"}") => Some(Form::Lines),
            Some(_) => Some(Form::Document),
            None => (body.len() > EVENT_BYTES_MAX).then_some(Form::Lines),
        },
        _ => Some(Form::Lines),
    }
}

#[cfg(test)]
mod tests;
