//! Rows of the smaller tables: fates, corrections, and what was there before the archive.

use super::{Place, Places, taken, text, texts, times, us};
use crate::schema::{Table, arrow, arrow_error};
use arrow_array::RecordBatch;
use arrow_array::builder::{Int64Builder, StringBuilder, TimestampMicrosecondBuilder};
use arrow_schema::SchemaRef;
use hashbrown::HashMap;
use iceberg::Result;
use tally_core::commit::{AuditRow, Commit};
use tally_core::ledger::{Cause, Correction, Purpose};
use tally_core::position::Position;

/// Entries that were not simply counted.
pub struct FateRows {
    schema: SchemaRef,
    places: Places,
    counter: StringBuilder,
    fate: StringBuilder,
    event_id: StringBuilder,
    first_seen: TimestampMicrosecondBuilder,
}

impl FateRows {
    pub fn new() -> Result<FateRows> {
        Ok(FateRows {
            schema: arrow(&Table::Fates.schema()?)?,
            places: Places::new(),
            counter: texts(),
            fate: texts(),
            event_id: texts(),
            first_seen: times(),
        })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// All that a commit tells.
    pub fn push(&mut self, commit: &Commit) {
        let again: HashMap<u64, &AuditRow> = commit.audit.rows().iter().map(|row| (row.offset, row)).collect();
        for exception in &commit.exceptions {
            let position = Position { offset: exception.offset, ..commit.to };
            self.places.push(Place { position, log_time_ms: commit.log_time_ms });
            self.counter.append_value(text(&exception.counter));
            self.fate.append_value(exception.fate.name());
            let again = again.get(&exception.offset);
            self.event_id.append_option(again.map(|row| text(&row.event_id)));
            self.first_seen.append_option(again.map(|row| us(row.first_seen_ms as i64)));
        }
    }

    pub fn take(&mut self) -> Result<RecordBatch> {
        let own = vec![
            taken(&mut self.counter),
            taken(&mut self.fate),
            taken(&mut self.event_id),
            taken(&mut self.first_seen),
        ];
        RecordBatch::try_new(self.schema.clone(), [self.places.take(), own].concat()).map_err(arrow_error)
    }
}

/// What corrections changed: a row for each counter and bucket.
pub struct CorrectionRows {
    schema: SchemaRef,
    places: Places,
    number: Int64Builder,
    generation: Int64Builder,
    cause: StringBuilder,
    of: Int64Builder,
    purpose: StringBuilder,
    reason: StringBuilder,
    author: StringBuilder,
    applied_by: StringBuilder,
    counter: StringBuilder,
    bucket: TimestampMicrosecondBuilder,
    delta: Int64Builder,
}

impl CorrectionRows {
    pub fn new() -> Result<CorrectionRows> {
        Ok(CorrectionRows {
            schema: arrow(&Table::Corrections.schema()?)?,
            places: Places::new(),
            number: Int64Builder::new(),
            generation: Int64Builder::new(),
            cause: texts(),
            of: Int64Builder::new(),
            purpose: texts(),
            reason: texts(),
            author: texts(),
            applied_by: texts(),
            counter: texts(),
            bucket: times(),
            delta: Int64Builder::new(),
        })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn push(&mut self, place: Place, correction: &Correction) {
        let (cause, of) = match correction.cause {
            Cause::Proposal(number) => ("proposal", Some(number)),
            Cause::Late { run } => ("late", Some(run)),
            Cause::Clear => ("clear", None),
            Cause::Revert(number) => ("revert", Some(number)),
        };
        let purpose = match correction.purpose {
            Purpose::Adjust => "adjust",
            Purpose::Restore => "restore",
            Purpose::Count => "count",
        };
        for delta in &correction.deltas {
            self.places.push(place);
            self.number.append_value(correction.number as i64);
            self.generation.append_value(correction.generation as i64);
            self.cause.append_value(cause);
            self.of.append_option(of.map(|number| number as i64));
            self.purpose.append_value(purpose);
            self.reason.append_value(&correction.reason);
            self.author.append_value(&correction.author);
            self.applied_by.append_value(&correction.applied_by);
            self.counter.append_value(text(&delta.id));
            self.bucket.append_option(delta.bucket_ms.map(|ms| us(ms as i64)));
            self.delta.append_value(delta.delta);
        }
    }

    pub fn take(&mut self) -> Result<RecordBatch> {
        let own = vec![
            taken(&mut self.number),
            taken(&mut self.generation),
            taken(&mut self.cause),
            taken(&mut self.of),
            taken(&mut self.purpose),
            taken(&mut self.reason),
            taken(&mut self.author),
            taken(&mut self.applied_by),
            taken(&mut self.counter),
            taken(&mut self.bucket),
            taken(&mut self.delta),
        ];
        RecordBatch::try_new(self.schema.clone(), [self.places.take(), own].concat()).map_err(arrow_error)
    }
}

/// What counters were worth where the archive begins.
pub struct BaseRows {
    schema: SchemaRef,
    places: Places,
    counter: StringBuilder,
    value: Int64Builder,
}

impl BaseRows {
    pub fn new() -> Result<BaseRows> {
        let schema = arrow(&Table::Base.schema()?)?;
        Ok(BaseRows { schema, places: Places::new(), counter: texts(), value: Int64Builder::new() })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn push(&mut self, place: Place, id: &[u8], value: i64) {
        self.places.push(place);
        self.counter.append_value(text(id));
        self.value.append_value(value);
    }

    pub fn take(&mut self) -> Result<RecordBatch> {
        let own = vec![taken(&mut self.counter), taken(&mut self.value)];
        RecordBatch::try_new(self.schema.clone(), [self.places.take(), own].concat()).map_err(arrow_error)
    }
}
