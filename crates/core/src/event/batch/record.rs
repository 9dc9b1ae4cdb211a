//! One record of a batch: the values of one event.

use super::cursor::Cursor;
use super::dictionary::BatchShape;
use super::error::{BatchError, Broken};
use crate::event::Arrival;
use crate::event::body::Sink;
use crate::event::error::EventError;
use crate::event::json::{check_size, dimension_field, empty_text, not_whole, one_value};
use crate::event::shape::{Shape, Span, Values};
use crate::event::time::{EARLIEST_MS, LATEST_MS, not_a_time};
use crate::limits::{EVENT_BYTES_MAX, EVENT_DELTA_MAX};
use tally_batch::has;

pub(super) struct RecordReader<'a> {
    pub cursor: Cursor<'a>,
    pub base_ms: i64,
    pub arrival: Arrival,
}

/// What was noticed while the values of an event were read.
#[derive(Default)]
struct Noticed {
    text_bytes: usize,
    /// Something is unusual or wrong; which of both, a closer look tells.
    unusual: bool,
}

impl<'a> RecordReader<'a> {
    /// Hands the next event to the sink.
    #[inline(always)]
    pub fn next<S: Sink>(
        &mut self,
        index: usize,
        texts: &[Span],
        shapes: &mut [BatchShape<S::Plan>],
        sink: &mut S,
    ) -> Result<(), BatchError> {
        let start = self.cursor.at();
        let (shape, noticed) = match self.read(texts, shapes) {
            Ok(read) => read,
            Err(broken) => return Err(broken.at(format!("event {index}, which begins at byte {start}"), &self.cursor)),
        };
        let bytes = self.cursor.bytes();
        if noticed.unusual
            && let Err(error) = look(bytes, &shape.shape, &mut shape.values, noticed.text_bytes)
        {
            sink.event(index, Err(error));
            return Ok(());
        }
        let plan = |shape: &Shape, event_type: &str| sink.plan(shape, event_type);
        let (line, plan) = shape.line(bytes, noticed.text_bytes, self.arrival, plan);
        sink.line(index, &line, plan);
        Ok(())
    }

    /// Reads the values of the next event into the room that its shape has for them.
    #[inline(always)]
    fn read<'s, P>(
        &mut self,
        texts: &[Span],
        shapes: &'s mut [BatchShape<P>],
    ) -> Result<(&'s mut BatchShape<P>, Noticed), Broken> {
        let number = self.cursor.varint()?;
        let of_event = shapes.get_mut(number as usize).ok_or(Broken::NoShape)?;
        let BatchShape { shape, fields, values, .. } = of_event;
        let Values { spans, occurred_at_ms, seq, delta, .. } = values;
        // A type that is empty is every event's fault.
        let mut noticed = Noticed { text_bytes: of_event.common_bytes, unusual: spans[0].len() == 0 };
        if let Some(part) = shape.event_id {
            spans[part] = self.name(texts, &mut noticed)?;
        }
        if shape.has_time {
            let at_ms = self.cursor.signed()?.wrapping_add(self.base_ms);
            noticed.unusual |= !(EARLIEST_MS..=LATEST_MS).contains(&at_ms);
            *occurred_at_ms = Some(at_ms);
        }
        if let Some(part) = shape.session {
            spans[part] = self.name(texts, &mut noticed)?;
        }
        if shape.has_seq {
            *seq = Some(self.cursor.varint()?);
        }
        if *fields & has::DELTA != 0 {
            let by = self.cursor.signed()?;
            noticed.unusual |= !(-EVENT_DELTA_MAX..=EVENT_DELTA_MAX).contains(&by);
            *delta = Some(by);
        }
        for dimension in &shape.dimensions {
            spans[dimension.part] = self.text(texts, &mut noticed)?;
        }
        if let Some(part) = shape.payload {
            spans[part] = self.text(texts, &mut noticed)?;
            noticed.unusual = true;
        }
        noticed.unusual |= noticed.text_bytes > EVENT_BYTES_MAX;
        Ok((of_event, noticed))
    }

    /// A text that should not be empty.
    #[inline(always)]
    fn name(&mut self, texts: &[Span], noticed: &mut Noticed) -> Result<Span, Broken> {
        let span = self.text(texts, noticed)?;
        noticed.unusual |= span.len() == 0;
        Ok(span)
    }

    #[inline(always)]
    fn text(&mut self, texts: &[Span], noticed: &mut Noticed) -> Result<Span, Broken> {
        let number = self.cursor.varint()?;
        let span = if number & 1 == 0 {
            let span = self.cursor.span(number >> 1)?;
            noticed.unusual |= !is_ascii(&self.cursor.bytes()[span.range()]);
            span
        } else {
            *texts.get((number >> 1) as usize).ok_or(Broken::NoText)?
        };
        noticed.text_bytes += span.len();
        Ok(span)
    }
}

/// Whether a text is ASCII, and so UTF-8. Eight bytes at a time, since most are too short for more; the last eight overlap those
/// before them.
#[inline(always)]
fn is_ascii(text: &[u8]) -> bool {
    let Some(last) = text.last_chunk() else { return text.is_ascii() };
    let words = text.as_chunks().0.iter().chain([last]);
    words.fold(0, |all, word| all | u64::from_ne_bytes(*word)) & 0x8080_8080_8080_8080 == 0
}

/// Says what is wrong with the values of an event, if anything is; the rules and the words are those for JSON. Of the client's own
/// data, what stands around it is left out.
#[inline(never)]
fn look(bytes: &[u8], shape: &Shape, values: &mut Values, text_bytes: usize) -> Result<(), EventError> {
    check_size(text_bytes)?;
    let spans = &mut values.spans;
    let name = |field: &'static str, part: usize| match text(bytes, spans[part], field)? {
        "" => Err(empty_text(field)),
        _ => Ok(()),
    };
    name("type", shape.event_type)?;
    shape.event_id.map_or(Ok(()), |part| name("eventId", part))?;
    shape.session.map_or(Ok(()), |part| name("session", part))?;
    for dimension in &shape.dimensions {
        text(bytes, spans[dimension.part], &dimension_field(&dimension.name))?;
    }
    if let Some(at_ms) = values.occurred_at_ms.filter(|at_ms| !(EARLIEST_MS..=LATEST_MS).contains(at_ms)) {
        return Err(not_a_time(at_ms));
    }
    if let Some(delta) = values.delta.filter(|delta| delta.unsigned_abs() > EVENT_DELTA_MAX as u64) {
        return Err(not_whole("delta", &delta.to_string(), -EVENT_DELTA_MAX, EVENT_DELTA_MAX));
    }
    if let Some(part) = shape.payload {
        spans[part] = json(bytes, spans[part])?;
    }
    Ok(())
}

fn text<'a>(bytes: &'a [u8], span: Span, field: &str) -> Result<&'a str, EventError> {
    std::str::from_utf8(&bytes[span.range()]).map_err(|error| {
        EventError::field(field, format!("not UTF-8 at byte {} of it; texts are sent in UTF-8", error.valid_up_to()))
    })
}

/// Where the one JSON value stands that a text consists of.
fn json(bytes: &[u8], span: Span) -> Result<Span, EventError> {
    let range = one_value(text(bytes, span, "payload")?)?;
    Ok(Span { start: span.start + range.start as u32, end: span.start + range.end as u32 })
}
