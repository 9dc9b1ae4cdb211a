//! What a batch says once for all of its events: its texts, and the shapes of its events.

use super::cursor::Cursor;
use super::error::{BatchError, Broken};
use super::{Arrival, Line};
use crate::event::line::RecordHead;
use crate::event::received_at_ms;
use crate::event::shape::{Shape, ShapeDimension, Span, Values};
use crate::limits::DIMENSIONS_PER_EVENT_MAX;
use tally_batch::{SHAPES_MAX, TEXTS_MAX, has};

pub(super) struct Dictionary<P> {
    /// What times are told from.
    pub base_ms: i64,
    pub texts: Vec<Span>,
    pub shapes: Vec<BatchShape<P>>,
}

/// A shape, and room for one event that has it.
pub(super) struct BatchShape<P> {
    pub shape: Shape,
    /// The fields of its records, [`has`].
    pub fields: u8,
    pub values: Values,
    /// Bytes of the texts that all of its events have: the type, and the names of dimensions.
    pub common_bytes: usize,
    /// What is worked out when its first event comes.
    plan: Option<P>,
    /// For events that happened by the time of the log, and for those that happened later.
    heads: [Option<RecordHead>; 2],
}

impl<P> Dictionary<P> {
    pub fn read(cursor: &mut Cursor<'_>) -> Result<Dictionary<P>, BatchError> {
        let base_ms = cursor.signed().map_err(|broken| broken.at("the base of times", cursor))?;
        let texts = read_list(cursor, "text", TEXTS_MAX, Broken::ManyTexts, read_text)?;
        let shape = |cursor: &mut Cursor<'_>| BatchShape::read(cursor, &texts);
        let shapes = read_list(cursor, "shape", SHAPES_MAX, Broken::ManyShapes, shape)?;
        Ok(Dictionary { base_ms, texts, shapes })
    }
}

/// How many there are, and then each.
fn read_list<'a, T>(
    cursor: &mut Cursor<'a>,
    name: &str,
    max: usize,
    too_many: Broken,
    mut read: impl FnMut(&mut Cursor<'a>) -> Result<T, Broken>,
) -> Result<Vec<T>, BatchError> {
    let count = cursor.varint().and_then(|count| if count > max as u64 { Err(too_many) } else { Ok(count) });
    let count = count.map_err(|broken| broken.at(format!("the number of {name}s"), cursor))?;
    // A promise alone is no reason to make room.
    let mut list = Vec::with_capacity((count as usize).min(cursor.bytes().len() - cursor.at()));
    for n in 0..count {
        let start = cursor.clone();
        list.push(read(cursor).map_err(|broken| broken.at(format!("{name} {n}"), &start))?);
    }
    Ok(list)
}

fn read_text(cursor: &mut Cursor<'_>) -> Result<Span, Broken> {
    let len = cursor.varint()?;
    let span = cursor.span(len)?;
    match std::str::from_utf8(&cursor.bytes()[span.range()]) {
        Ok(_) => Ok(span),
        Err(_) => Err(Broken::NotUtf8),
    }
}

impl<P> BatchShape<P> {
    fn read(cursor: &mut Cursor<'_>, texts: &[Span]) -> Result<BatchShape<P>, Broken> {
        let text = |number: u64| texts.get(number as usize).copied().ok_or(Broken::NoText);
        let event_type = text(cursor.varint()?)?;
        let fields = cursor.byte()?;
        if fields & has::RESERVED != 0 {
            return Err(Broken::ReservedField);
        }
        let mut parts = 1;
        let mut part = |field: u8| {
            let next = parts;
            parts += usize::from(fields & field != 0);
            (parts > next).then_some(next)
        };
        let mut shape = Shape {
            event_type: 0,
            event_id: part(has::EVENT_ID),
            session: part(has::SESSION),
            payload: part(has::PAYLOAD),
            dimensions: Vec::new(),
            has_time: fields & has::OCCURRED_AT != 0,
            has_seq: fields & has::SEQ != 0,
        };
        let mut common_bytes = event_type.len();
        if fields & has::DIMENSIONS != 0 {
            let count = cursor.varint()?;
            if count == 0 || count > DIMENSIONS_PER_EVENT_MAX as u64 {
                return Err(Broken::ManyDimensions);
            }
            for _ in 0..count {
                let name = text(cursor.varint()?)?;
                let dimension = ShapeDimension::new(known_text(cursor.bytes(), name), parts);
                if shape.dimension(&dimension.name).is_some() {
                    return Err(Broken::TwiceNamed);
                }
                shape.dimensions.push(dimension);
                common_bytes += name.len();
                parts += 1;
            }
        }
        let mut values = Values::default();
        values.make_room(parts);
        values.spans[0] = event_type;
        Ok(BatchShape { shape, fields, values, common_bytes, plan: None, heads: [None, None] })
    }

    /// The event whose values were read last, and the plan for it.
    #[inline(always)]
    pub fn line<'a>(
        &'a mut self,
        bytes: &'a [u8],
        text_bytes: usize,
        arrival: Arrival,
        plan: impl FnOnce(&Shape, &str) -> P,
    ) -> (Line<'a>, &'a P) {
        let BatchShape { shape, values, .. } = self;
        let event_type = values.spans[0];
        let is_later = values.occurred_at_ms.is_some_and(|at_ms| at_ms > arrival.log_ms as i64);
        let head = self.heads[usize::from(is_later)].get_or_insert_with(|| {
            let received_at_ms = received_at_ms(arrival, values.occurred_at_ms);
            RecordHead::new(known_text(bytes, event_type), shape, received_at_ms)
        });
        let plan = self.plan.get_or_insert_with(|| plan(shape, known_text(bytes, event_type)));
        (Line::new(bytes, text_bytes, shape, values, head), plan)
    }
}

fn known_text(bytes: &[u8], text: Span) -> &str {
    std::str::from_utf8(&bytes[text.range()]).expect("a text of the dictionary was checked when it was read")
}
