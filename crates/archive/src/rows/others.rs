//! Rows of the smaller tables: fates, corrections, and what was there before the archive.

use super::{Place, Places, kept_ms, taken, text, texts, times, us};
use crate::schema::{Table, arrow, arrow_error};
use arrow_array::builder::{Int64Builder, StringBuilder, TimestampMicrosecondBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use iceberg::Result;
use std::sync::Arc;
use tally_core::commit::{AuditRow, Commit, NamedException};
use tally_core::ledger::{Cause, Correction, Purpose};
use tally_core::position::Position;
use tally_core::proof::{CorrectionLeaf, FateLeaf};

/// Entries that were not simply counted.
pub struct FateRows {
    schema: SchemaRef,
    places: Places,
    counter: StringBuilder,
    fate: StringBuilder,
    event_id: StringBuilder,
    first_seen: TimestampMicrosecondBuilder,
    reason: StringBuilder,
}

/// Why the entries were not counted that a commit tells of, one for each of them; `None` where it is not known.
pub type Reasons = [Option<Arc<str>>];

impl FateRows {
    pub fn new() -> Result<FateRows> {
        Ok(FateRows {
            schema: arrow(&Table::Fates.schema()?)?,
            places: Places::new(),
            counter: texts(),
            fate: texts(),
            event_id: texts(),
            first_seen: times(),
            reason: texts(),
        })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn push(&mut self, row: &FateLeaf<'_>) {
        self.places.push(Place { position: row.position, log_time_ms: row.log_time_ms as u64 });
        self.counter.append_value(row.counter);
        self.fate.append_value(row.fate);
        self.event_id.append_option(row.event_id);
        self.first_seen.append_option(row.first_seen_ms.map(us));
        self.reason.append_option(row.reason);
    }

    pub fn take(&mut self) -> Result<RecordBatch> {
        let own = vec![
            taken(&mut self.counter),
            taken(&mut self.fate),
            taken(&mut self.event_id),
            taken(&mut self.first_seen),
            taken(&mut self.reason),
        ];
        RecordBatch::try_new(self.schema.clone(), [self.places.take(), own].concat()).map_err(arrow_error)
    }
}

/// What a commit tells of an entry, and why it was not counted.
pub fn with_fate(commit: &Commit, told: &NamedException, reason: Option<&str>, push: impl FnOnce(FateLeaf<'_>)) {
    let again = again(commit.audit.rows(), told.offset);
    push(FateLeaf {
        position: Position { offset: told.offset, ..commit.to },
        log_time_ms: kept_ms(commit.log_time_ms as i64),
        counter: &text(&told.counter),
        fate: told.fate.name(),
        event_id: again.map(|row| text(&row.event_id)).as_deref(),
        first_seen_ms: again.map(|row| kept_ms(row.first_seen_ms as i64)),
        reason,
    });
}

/// The row of the audit of a record, if there is one. They are in the order of the log.
fn again(audit: &[AuditRow], offset: u64) -> Option<&AuditRow> {
    let behind = audit.partition_point(|row| row.offset <= offset);
    audit[..behind].last().filter(|row| row.offset == offset)
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

    pub fn push(&mut self, row: &CorrectionLeaf<'_>) {
        self.places.push(Place { position: row.position, log_time_ms: row.log_time_ms as u64 });
        self.number.append_value(row.number);
        self.generation.append_value(row.generation);
        self.cause.append_value(row.cause);
        self.of.append_option(row.of);
        self.purpose.append_value(row.purpose);
        self.reason.append_value(row.reason);
        self.author.append_value(row.author);
        self.applied_by.append_value(row.applied_by);
        self.counter.append_value(row.counter);
        self.bucket.append_option(row.bucket_ms.map(us));
        self.delta.append_value(row.delta);
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

/// All that a correction changed.
pub fn each_correction(place: Place, correction: &Correction, mut push: impl FnMut(CorrectionLeaf<'_>)) {
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
        push(CorrectionLeaf {
            position: place.position,
            log_time_ms: kept_ms(place.log_time_ms as i64),
            number: correction.number as i64,
            generation: correction.generation as i64,
            cause,
            of: of.map(|number| number as i64),
            purpose,
            reason: &correction.reason,
            author: &correction.author,
            applied_by: &correction.applied_by,
            counter: &text(&delta.id),
            bucket_ms: delta.bucket_ms.map(|ms| kept_ms(ms as i64)),
            delta: delta.delta,
        });
    }
}

/// What counters were worth at a position.
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

/// Probes of one hour.
pub struct ProbeRows {
    schema: SchemaRef,
    places: Places,
    event_id: StringBuilder,
}

impl ProbeRows {
    pub fn new() -> Result<ProbeRows> {
        Ok(ProbeRows { schema: arrow(&Table::Probes.schema()?)?, places: Places::new(), event_id: texts() })
    }

    pub fn push(&mut self, place: Place, event_id: &str) {
        self.places.push(place);
        self.event_id.append_value(event_id);
    }

    pub fn take(&mut self) -> Result<RecordBatch> {
        let own = vec![taken(&mut self.event_id)];
        RecordBatch::try_new(self.schema.clone(), [self.places.take(), own].concat()).map_err(arrow_error)
    }
}

/// One version of what was declared, as a batch.
pub fn configuration(place: Place, version: u64, yaml: &str) -> Result<RecordBatch> {
    let mut places = Places::new();
    places.push(place);
    let own: [ArrayRef; 2] =
        [Arc::new(Int64Array::from_iter_values([version as i64])), Arc::new(StringArray::from_iter_values([yaml]))];
    let schema = arrow(&Table::Configurations.schema()?)?;
    RecordBatch::try_new(schema, [places.take(), own.to_vec()].concat()).map_err(arrow_error)
}
