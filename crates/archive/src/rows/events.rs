//! Rows of events: what a client said, and where that stands in the log.

use super::{Place, Places, kept_ms, taken, texts, times, us};
use crate::bounds::{BATCH_BYTES, BATCH_ROWS};
use crate::schema::{arrow, arrow_error, dimension_columns};
use arrow_array::builder::{
    ArrayBuilder, Int32Builder, Int64Builder, MapBuilder, MapFieldNames, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use hashbrown::HashMap;
use iceberg::Result;
use iceberg::spec::Schema;
use tally_core::event::Event;
use tally_core::op::Stream;
use tally_core::proof::{EventLeaf, Hash};

/// What holds for all events of a batch of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Under {
    /// The identity group that they were routed by; 0 for all.
    pub group: u16,
    pub rules: u32,
    pub config_version: u64,
    pub generation: u64,
}

/// A row as it is in a tree: the same whether it is made from the log or read in the table.
pub fn event_leaf<'a>(place: Place, under: Under, event: &'a Event<'_>) -> EventLeaf<'a> {
    let mut dimensions: Vec<(&str, &str)> =
        event.dimensions.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
    dimensions.sort_unstable();
    EventLeaf {
        position: place.position,
        log_time_ms: kept_ms(place.log_time_ms as i64),
        received_at_ms: kept_ms(event.received_at_ms as i64),
        occurred_at_ms: event.occurred_at_ms.map(kept_ms),
        event_type: &event.event_type,
        event_id: event.event_id.as_deref(),
        session: event.session.as_deref(),
        seq: event.seq.map(|seq| seq as i64),
        delta: event.delta,
        group: under.group.into(),
        rules: (under.rules as i32).into(),
        config_version: under.config_version as i64,
        generation: under.generation as i64,
        payload: event.payload.map(|payload| Hash::of(payload.as_bytes())),
        dimensions,
    }
}

/// Events of one stream and one hour.
pub struct EventRows {
    schema: SchemaRef,
    stream: &'static str,
    places: Places,
    streams: StringBuilder,
    received_at: TimestampMicrosecondBuilder,
    occurred_at: TimestampMicrosecondBuilder,
    types: StringBuilder,
    event_id: StringBuilder,
    session: StringBuilder,
    seq: Int64Builder,
    delta: Int64Builder,
    group: Int32Builder,
    rules: Int32Builder,
    config_version: Int64Builder,
    generation: Int64Builder,
    payload: StringBuilder,
    others: MapBuilder<StringBuilder, StringBuilder>,
    /// A column for each dimension that has one.
    dimensions: Vec<StringBuilder>,
    column_of: HashMap<Box<str>, usize>,
    /// What the texts of all rows take.
    text_bytes: usize,
}

impl EventRows {
    pub fn new(schema: &Schema, stream: Stream) -> Result<EventRows> {
        let column_of: HashMap<Box<str>, usize> =
            dimension_columns(schema).enumerate().map(|(index, name)| (name.into(), index)).collect();
        let schema = arrow(schema)?;
        Ok(EventRows {
            stream: stream.mode().name(),
            places: Places::new(),
            streams: texts(),
            received_at: times(),
            occurred_at: times(),
            types: texts(),
            event_id: texts(),
            session: texts(),
            seq: Int64Builder::new(),
            delta: Int64Builder::new(),
            group: Int32Builder::new(),
            rules: Int32Builder::new(),
            config_version: Int64Builder::new(),
            generation: Int64Builder::new(),
            payload: texts(),
            others: map(&schema),
            dimensions: column_of.iter().map(|_| texts()).collect(),
            column_of,
            schema,
            text_bytes: 0,
        })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they are enough for a file: some events take a quarter of a megabyte, and most a few hundred bytes.
    pub fn is_full(&self) -> bool {
        self.len() >= BATCH_ROWS || self.text_bytes >= BATCH_BYTES
    }

    pub fn push(&mut self, place: Place, under: Under, event: &Event<'_>) {
        self.text_bytes += text_bytes(event);
        self.places.push(place);
        self.streams.append_value(self.stream);
        self.received_at.append_value(us(event.received_at_ms as i64));
        self.occurred_at.append_option(event.occurred_at_ms.map(us));
        self.types.append_value(&event.event_type);
        self.event_id.append_option(event.event_id.as_deref());
        self.session.append_option(event.session.as_deref());
        // The same bits: engines have no unsigned numbers, and only whether two are the same is of interest.
        self.seq.append_option(event.seq.map(|seq| seq as i64));
        self.delta.append_value(event.delta);
        self.group.append_value(under.group.into());
        self.rules.append_value(under.rules as i32);
        self.config_version.append_value(under.config_version as i64);
        self.generation.append_value(under.generation as i64);
        self.payload.append_option(event.payload);
        self.push_dimensions(event);
    }

    fn push_dimensions(&mut self, event: &Event<'_>) {
        let (rows, mut has_others) = (self.places.len(), false);
        for (name, value) in &event.dimensions {
            match self.column_of.get(name.as_ref()) {
                Some(&column) => self.dimensions[column].append_value(value),
                None => {
                    has_others = true;
                    self.others.keys().append_value(name);
                    self.others.values().append_value(value);
                }
            }
        }
        self.others.append(has_others).expect("there are as many names as values");
        for column in &mut self.dimensions {
            // No name comes twice, so a column has this row's value or it has none.
            if column.len() < rows {
                column.append_null();
            }
        }
    }

    /// What was pushed since the last time.
    pub fn take(&mut self) -> Result<RecordBatch> {
        self.text_bytes = 0;
        let mut columns: Vec<ArrayRef> = self.places.take();
        columns.extend([
            taken(&mut self.streams),
            taken(&mut self.received_at),
            taken(&mut self.occurred_at),
            taken(&mut self.types),
            taken(&mut self.event_id),
            taken(&mut self.session),
            taken(&mut self.seq),
            taken(&mut self.delta),
            taken(&mut self.group),
            taken(&mut self.rules),
            taken(&mut self.config_version),
            taken(&mut self.generation),
            taken(&mut self.payload),
            taken(&mut self.others),
        ]);
        columns.extend(self.dimensions.iter_mut().map(|column| taken(column)));
        RecordBatch::try_new(self.schema.clone(), columns).map_err(arrow_error)
    }
}

fn text_bytes(event: &Event<'_>) -> usize {
    let texts = [Some(&*event.event_type), event.event_id.as_deref(), event.session.as_deref(), event.payload];
    let texts = texts.into_iter().flatten().map(str::len).sum::<usize>();
    texts + event.dimensions.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
}

/// A builder of the map, with the names and ids that its column has.
fn map(schema: &SchemaRef) -> MapBuilder<StringBuilder, StringBuilder> {
    let field = schema.field_with_name(crate::schema::DIMENSIONS).expect("every table of events has it");
    let DataType::Map(entries, _) = field.data_type() else { unreachable!("it was declared as a map") };
    let DataType::Struct(fields) = entries.data_type() else { unreachable!("entries of a map are a struct") };
    let (key, value) = (fields[0].clone(), fields[1].clone());
    let names = MapFieldNames { entry: entries.name().clone(), key: key.name().clone(), value: value.name().clone() };
    MapBuilder::new(Some(names), texts(), texts()).with_keys_field(key).with_values_field(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Table;
    use tally_core::position::Position;

    #[test]
    fn rows_are_enough_for_a_file_by_whichever_of_their_texts_is_long() {
        let long = "t".repeat(250 << 10);
        let event = |event_type: &'static str| Event::new(event_type, 0);
        let of_type = Event::new(long.as_str(), 0);
        let of_id = Event { event_id: Some(long.as_str().into()), ..event("t") };
        let of_session = Event { session: Some(long.as_str().into()), ..event("t") };
        let of_payload = Event { payload: Some(&long), ..event("t") };
        let of_dimension = Event { dimensions: vec![("d".into(), long.as_str().into())], ..event("t") };
        for event in [of_type, of_id, of_session, of_payload, of_dimension] {
            let mut rows = EventRows::new(&Table::Events.schema().unwrap(), Stream::Simple).unwrap();
            while !rows.is_full() {
                let position = Position { epoch: 1, log: 0, offset: rows.len() as u64 };
                rows.push(Place { position, log_time_ms: 0 }, Under::default(), &event);
            }
            assert_eq!(rows.len(), BATCH_BYTES.div_ceil(long.len()));
        }
    }
}
