//! Most events look like one before: the same fields in the same order, the same dimensions, the same spaces.
//!
//! A layout is what an event has between its values, learnt from one that was read in full. An event in which all of
//! that stands again to the byte needs no look at its names: only where its values begin and end is found. Whatever is
//! different, written in an unusual way, or wrong, is read in full. So a layout changes how fast an event is read and
//! never what is read.

use super::json::EventField;
use super::literal::Literal;
use super::scan::Scanner;
use super::shape::{Shape, ShapeDimension, Span, Values};
use super::skeleton::Skeleton;
use super::time::{LastDay, parse_rfc3339};
use crate::limits::EVENT_DELTA_MAX;
use std::borrow::Cow;

/// What a layout may have between its values, in bytes; it stays in memory.
const LAYOUT_BYTES_MAX: usize = 4096;

/// What the events of a layout have in common.
#[derive(Debug, Default)]
pub(super) struct Layout {
    parts: Vec<LayoutPart>,
    end: Literal,
    pub shape: Shape,
    skeleton: Skeleton,
}

/// What stands before a value, and what kind of value it is.
#[derive(Debug)]
struct LayoutPart {
    before: Literal,
    value: LayoutValue,
}

/// How a value is read. The quotes of texts belong to what stands around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LayoutValue {
    Text,
    /// A text that is not empty.
    Name,
    Time,
    Seq,
    Delta,
    Number,
    Flag,
    Payload,
}

impl Layout {
    /// How many values its events have.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Finds the values of the event that the text begins with, and answers where it ends; `None` if it has another layout, or a
    /// value is not written in the usual way.
    #[inline]
    pub fn read(&self, mut scanner: Scanner<'_>, values: &mut Values) -> Option<usize> {
        let Values { spans, occurred_at_ms, seq, delta, last_day } = values;
        (*occurred_at_ms, *seq, *delta) = (None, None, None);
        let mut spans = spans.iter_mut();
        for part in &self.parts {
            let span = spans.next()?;
            part.before.take(&mut scanner)?;
            let start = scanner.at() as u32;
            match part.value {
                LayoutValue::Text => drop(scanner.plain_text()),
                LayoutValue::Name if scanner.plain_text().is_empty() => return None,
                LayoutValue::Name => {}
                LayoutValue::Time => *occurred_at_ms = Some(read_time(&mut scanner, last_day)?),
                LayoutValue::Seq => *seq = Some(scanner.plain_whole()?),
                LayoutValue::Delta => *delta = Some(read_delta(&mut scanner)?),
                LayoutValue::Number => read_number(&mut scanner)?,
                LayoutValue::Flag => read_flag(&mut scanner)?,
                LayoutValue::Payload => self.skeleton.read(&mut scanner)?,
            }
            *span = Span { start, end: scanner.at() as u32 };
        }
        self.end.take(&mut scanner)?;
        Some(scanner.at())
    }

    /// The layout of the event that `text` begins with and that was read without a fault; `None` if it is written in a way that is
    /// not worth learning.
    #[cold]
    pub fn learn(text: &str) -> Option<Layout> {
        let mut learner = Learner { text, scanner: Scanner::new(text), learnt: 0, layout: Layout::default(), bytes: 0 };
        learner.fields()?;
        Some(learner.layout)
    }
}

impl LayoutValue {
    fn is_quoted(self) -> bool {
        matches!(self, LayoutValue::Text | LayoutValue::Name | LayoutValue::Time)
    }

    fn of_field(field: EventField) -> Option<LayoutValue> {
        match field {
            EventField::Type | EventField::EventId | EventField::Session => Some(LayoutValue::Name),
            EventField::OccurredAt => Some(LayoutValue::Time),
            EventField::Seq => Some(LayoutValue::Seq),
            EventField::Delta => Some(LayoutValue::Delta),
            EventField::Payload => Some(LayoutValue::Payload),
            EventField::Dimensions => None,
        }
    }

    fn of_dimension(first: u8) -> LayoutValue {
        match first {
            b'"' => LayoutValue::Text,
            b't' | b'f' => LayoutValue::Flag,
            _ => LayoutValue::Number,
        }
    }
}

#[inline(always)]
fn read_time(scanner: &mut Scanner<'_>, last_day: &mut LastDay) -> Option<i64> {
    if let Some((ms, len)) = last_day.read(scanner.rest()) {
        scanner.skip(len);
        return Some(ms);
    }
    parse_rfc3339(scanner.plain_text())
}

#[inline]
fn read_flag(scanner: &mut Scanner<'_>) -> Option<()> {
    (scanner.take(b"true") || scanner.take(b"false")).then_some(())
}

#[inline]
fn read_delta(scanner: &mut Scanner<'_>) -> Option<i64> {
    let is_negative = scanner.take_byte(b'-');
    let delta = i64::try_from(scanner.plain_whole()?).ok().filter(|delta| *delta <= EVENT_DELTA_MAX)?;
    Some(if is_negative { -delta } else { delta })
}

/// A number that is its own plain form.
#[inline]
fn read_number(scanner: &mut Scanner<'_>) -> Option<()> {
    let is_negative = scanner.take_byte(b'-');
    let magnitude = scanner.plain_whole()?;
    (magnitude != 0 || !is_negative).then_some(())
}

struct Learner<'a> {
    text: &'a str,
    scanner: Scanner<'a>,
    /// Up to where the text is in the layout.
    learnt: usize,
    layout: Layout,
    bytes: usize,
}

impl<'a> Learner<'a> {
    fn fields(&mut self) -> Option<()> {
        let mut more = self.scanner.first_member().ok()?;
        while more {
            let name = self.plain_key()?;
            self.field(EventField::known(name)?)?;
            more = self.scanner.next_member().ok()?;
        }
        self.layout.end = self.literal(self.scanner.at())?;
        Some(())
    }

    fn field(&mut self, field: EventField) -> Option<()> {
        let Some(value) = LayoutValue::of_field(field) else { return self.dimensions() };
        let part = self.value(value)?;
        let shape = &mut self.layout.shape;
        match field {
            EventField::Type => shape.event_type = part,
            EventField::EventId => shape.event_id = Some(part),
            EventField::Session => shape.session = Some(part),
            EventField::Payload => shape.payload = Some(part),
            EventField::OccurredAt => shape.has_time = true,
            EventField::Seq => shape.has_seq = true,
            EventField::Delta | EventField::Dimensions => {}
        }
        Some(())
    }

    fn dimensions(&mut self) -> Option<()> {
        let mut more = self.scanner.first_member().ok()?;
        while more {
            let name = self.plain_key()?;
            let value = LayoutValue::of_dimension(self.scanner.next_token()?);
            let part = self.value(value)?;
            self.layout.shape.dimensions.push(ShapeDimension::new(name, part));
            more = self.scanner.next_member().ok()?;
        }
        Some(())
    }

    /// Adds what stands between the last value and this one; answers which part it is.
    fn value(&mut self, value: LayoutValue) -> Option<usize> {
        self.scanner.next_token();
        let quote = usize::from(value.is_quoted());
        let before = self.literal(self.scanner.at() + quote)?;
        let written = self.scanner.value().ok()?;
        if value == LayoutValue::Payload {
            self.layout.skeleton = Skeleton::learn(written);
        }
        self.learnt = self.scanner.at() - quote;
        self.layout.parts.push(LayoutPart { before, value });
        Some(self.layout.parts.len() - 1)
    }

    /// What stands between the last value and `end`.
    fn literal(&mut self, end: usize) -> Option<Literal> {
        let literal = Literal::new(&self.text[self.learnt..end]);
        self.bytes += literal.len();
        (self.bytes <= LAYOUT_BYTES_MAX).then_some(literal)
    }

    /// A name written without escapes, and its colon.
    fn plain_key(&mut self) -> Option<&'a str> {
        match self.scanner.key().ok()? {
            Cow::Borrowed(text) => Some(text),
            Cow::Owned(_) => None,
        }
    }
}
