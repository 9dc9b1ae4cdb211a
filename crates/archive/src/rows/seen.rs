//! Rows of events as they are read back: what [`super::EventRows`] writes, the other way round.

use super::{Place, Under, us};
use crate::ArchiveError;
use crate::schema::{DIMENSIONS, Table};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, MapArray, PrimitiveArray, RecordBatch, StringArray};
use std::borrow::Cow;
use tally_core::event::Event;
use tally_core::position::Position;

/// Some rows of events.
pub struct EventBatch {
    log: PrimitiveArray<Int32Type>,
    epoch: PrimitiveArray<Int32Type>,
    offset: PrimitiveArray<Int64Type>,
    log_time: PrimitiveArray<TimestampMicrosecondType>,
    received_at: PrimitiveArray<TimestampMicrosecondType>,
    occurred_at: PrimitiveArray<TimestampMicrosecondType>,
    types: StringArray,
    event_id: StringArray,
    session: StringArray,
    seq: PrimitiveArray<Int64Type>,
    delta: PrimitiveArray<Int64Type>,
    group: PrimitiveArray<Int32Type>,
    rules: PrimitiveArray<Int32Type>,
    config_version: PrimitiveArray<Int64Type>,
    generation: PrimitiveArray<Int64Type>,
    payload: StringArray,
    others: MapArray,
    dimensions: Vec<(String, StringArray)>,
}

/// An event as the archive has it.
#[derive(Debug)]
pub struct ArchivedEvent<'a> {
    pub place: Place,
    pub under: Under,
    pub event: Event<'a>,
}

/// What an archived event says otherwise than the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    pub field: &'static str,
    pub logged: String,
    pub archived: String,
}

impl EventBatch {
    pub fn new(batch: &RecordBatch) -> Result<EventBatch, ArchiveError> {
        let others = batch.column_by_name(DIMENSIONS).and_then(|column| column.as_map_opt()).cloned();
        let mut dimensions = Vec::new();
        for field in batch.schema().fields().iter().filter(|field| !Table::Events.has_column(field.name())) {
            dimensions.push((field.name().clone(), texts(batch, field.name())?));
        }
        Ok(EventBatch {
            log: numbers(batch, "log")?,
            epoch: numbers(batch, "epoch")?,
            offset: numbers(batch, "offset")?,
            log_time: numbers(batch, "log_time")?,
            received_at: numbers(batch, "received_at")?,
            occurred_at: numbers(batch, "occurred_at")?,
            types: texts(batch, "type")?,
            event_id: texts(batch, "event_id")?,
            session: texts(batch, "session")?,
            seq: numbers(batch, "seq")?,
            delta: numbers(batch, "delta")?,
            group: numbers(batch, "group")?,
            rules: numbers(batch, "rules")?,
            config_version: numbers(batch, "config_version")?,
            generation: numbers(batch, "generation")?,
            payload: texts(batch, "payload")?,
            others: others.ok_or_else(|| no_column(DIMENSIONS))?,
            dimensions,
        })
    }

    pub fn len(&self) -> usize {
        self.offset.len()
    }

    pub fn offset(&self, row: usize) -> u64 {
        self.offset.value(row) as u64
    }

    pub fn get(&self, row: usize) -> ArchivedEvent<'_> {
        let position =
            Position { epoch: self.epoch.value(row) as u32, log: self.log.value(row) as u32, offset: self.offset(row) };
        let place = Place { position, log_time_ms: ms(self.log_time.value(row)) as u64 };
        let under = Under {
            group: self.group.value(row) as u16,
            rules: self.rules.value(row) as u32,
            config_version: self.config_version.value(row) as u64,
            generation: self.generation.value(row) as u64,
        };
        let event = Event {
            event_id: text(&self.event_id, row).map(Cow::Borrowed),
            occurred_at_ms: self.occurred_at.is_valid(row).then(|| ms(self.occurred_at.value(row))),
            session: text(&self.session, row).map(Cow::Borrowed),
            seq: self.seq.is_valid(row).then(|| self.seq.value(row) as u64),
            delta: self.delta.value(row),
            dimensions: self.dimensions(row),
            payload: text(&self.payload, row),
            ..Event::new(self.types.value(row), ms(self.received_at.value(row)) as u64)
        };
        ArchivedEvent { place, under, event }
    }

    fn dimensions(&self, row: usize) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let columns = self.dimensions.iter().filter_map(|(name, values)| Some((name.as_str(), text(values, row)?)));
        let (keys, values) = (self.others.keys().as_string_opt::<i32>(), self.others.values().as_string_opt::<i32>());
        let offsets = self.others.value_offsets();
        let within = match self.others.is_valid(row) {
            true => offsets[row] as usize..offsets[row + 1] as usize,
            false => 0..0,
        };
        let others = within.filter_map(|at| Some((text(keys?, at)?, text(values?, at)?)));
        columns.chain(others).map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value))).collect()
    }
}

impl ArchivedEvent<'_> {
    /// The first thing that it says otherwise than the log, if there is any. Dimensions are the same in any order.
    pub fn differs(&self, place: Place, event: &Event<'_>) -> Option<Differing> {
        let (own, its) = (&self.event, event);
        let time = |ms: Option<i64>| ms.map(us).map(self::ms);
        let fields = [
            ("position", self.place.position.to_string(), place.position.to_string()),
            ("log_time", self.place.log_time_ms.to_string(), place.log_time_ms.to_string()),
            ("type", own.event_type.to_string(), its.event_type.to_string()),
            ("event_id", told(&own.event_id), told(&its.event_id)),
            ("session", told(&own.session), told(&its.session)),
            ("seq", told(&own.seq), told(&its.seq)),
            ("delta", own.delta.to_string(), its.delta.to_string()),
            ("received_at", own.received_at_ms.to_string(), its.received_at_ms.to_string()),
            ("occurred_at", told(&own.occurred_at_ms), told(&time(its.occurred_at_ms))),
            ("payload", told(&own.payload), told(&its.payload)),
            ("dimensions", sorted(own), sorted(its)),
        ];
        let differing = fields.into_iter().find(|(_, archived, logged)| archived != logged);
        differing.map(|(field, archived, logged)| Differing { field, logged, archived })
    }
}

fn told(value: &Option<impl ToString>) -> String {
    value.as_ref().map_or("none".to_owned(), ToString::to_string)
}

fn sorted(event: &Event<'_>) -> String {
    let mut all: Vec<_> = event.dimensions.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    all.sort_unstable();
    all.join(" ")
}

fn ms(us: i64) -> i64 {
    us / 1000
}

fn text(values: &StringArray, row: usize) -> Option<&str> {
    values.is_valid(row).then(|| values.value(row))
}

fn numbers<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str) -> Result<PrimitiveArray<T>, ArchiveError> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<T>());
    column.cloned().ok_or_else(|| no_column(name))
}

fn texts(batch: &RecordBatch, name: &str) -> Result<StringArray, ArchiveError> {
    let column = batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.cloned().ok_or_else(|| no_column(name))
}

fn no_column(name: &str) -> ArchiveError {
    ArchiveError::Damaged(format!("there is no column {name} as Tally writes it"))
}
