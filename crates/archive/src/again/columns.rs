//! From columns of a file to leaves of a tree.

use super::{Declared, Keep, Row, SignedRoot};
use crate::ArchiveError;
use crate::schema::{DIMENSIONS, Table};
use arrow_array::{
    Array, Int32Array, Int64Array, MapArray, RecordBatch, StringArray, TimestampMicrosecondArray, cast::AsArray,
};
use std::path::Path;
use tally_core::position::Position;
use tally_core::proof::{CommitLeaf, CorrectionLeaf, EventLeaf, FateLeaf, Hash, Root, Signature};

/// Rows of a file.
pub struct Columns<'b> {
    pub batch: &'b RecordBatch,
    pub file: &'b Path,
}

impl<'b> Columns<'b> {
    fn get<A: Array + 'static>(&self, name: &str) -> Result<&'b A, ArchiveError> {
        let column = self.batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref::<A>());
        column.ok_or_else(|| self.damaged(&format!("the column {name} is missing or of another kind")))
    }

    fn damaged(&self, what: &str) -> ArchiveError {
        ArchiveError::Damaged(format!("the file {}: {what}", self.file.display()))
    }

    fn number(&self, name: &str, row: usize) -> Result<i64, ArchiveError> {
        Ok(self.get::<Int64Array>(name)?.value(row))
    }

    fn text(&self, name: &str, row: usize) -> Result<&'b str, ArchiveError> {
        Ok(self.get::<StringArray>(name)?.value(row))
    }

    fn hash(&self, name: &str, row: usize) -> Result<Hash, ArchiveError> {
        self.text(name, row)?.parse().map_err(|error| self.damaged(&format!("{name}: {error}")))
    }

    fn places(&self) -> Result<Places<'b>, ArchiveError> {
        Ok(Places {
            log: self.get("log")?,
            epoch: self.get("epoch")?,
            offset: self.get("offset")?,
            log_time: self.get("log_time")?,
        })
    }
}

struct Places<'b> {
    log: &'b Int32Array,
    epoch: &'b Int32Array,
    offset: &'b Int64Array,
    log_time: &'b TimestampMicrosecondArray,
}

impl Places<'_> {
    fn at(&self, row: usize) -> (Position, i64) {
        let (log, epoch) = (self.log.value(row) as u32, self.epoch.value(row) as u32);
        (Position { epoch, log, offset: self.offset.value(row) as u64 }, self.log_time.value(row) / 1000)
    }
}

fn some_text(column: &StringArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row))
}

fn some_number(column: &Int64Array, row: usize) -> Option<i64> {
    column.is_valid(row).then(|| column.value(row))
}

fn some_time(column: &TimestampMicrosecondArray, row: usize) -> Option<i64> {
    column.is_valid(row).then(|| column.value(row) / 1000)
}

pub fn events<K: Keep>(columns: &Columns<'_>, keep: &K) -> Result<Vec<Row<K::Event>>, ArchiveError> {
    let places = columns.places()?;
    let received_at: &TimestampMicrosecondArray = columns.get("received_at")?;
    let occurred_at: &TimestampMicrosecondArray = columns.get("occurred_at")?;
    let (types, event_id): (&StringArray, &StringArray) = (columns.get("type")?, columns.get("event_id")?);
    let (session, payload): (&StringArray, &StringArray) = (columns.get("session")?, columns.get("payload")?);
    let (seq, delta): (&Int64Array, &Int64Array) = (columns.get("seq")?, columns.get("delta")?);
    let (group, rules): (&Int32Array, &Int32Array) = (columns.get("group")?, columns.get("rules")?);
    let config_version: &Int64Array = columns.get("config_version")?;
    let generation: &Int64Array = columns.get("generation")?;
    let dimensions = Dimensions::of(columns)?;
    let mut rows = Vec::with_capacity(columns.batch.num_rows());
    for row in 0..columns.batch.num_rows() {
        let (position, log_time_ms) = places.at(row);
        let leaf = EventLeaf {
            position,
            log_time_ms,
            received_at_ms: received_at.value(row) / 1000,
            occurred_at_ms: some_time(occurred_at, row),
            event_type: types.value(row),
            event_id: some_text(event_id, row),
            session: some_text(session, row),
            seq: some_number(seq, row),
            delta: delta.value(row),
            group: group.value(row).into(),
            rules: rules.value(row).into(),
            config_version: config_version.value(row),
            generation: generation.value(row),
            payload: some_text(payload, row).map(|payload| Hash::of(payload.as_bytes())),
            dimensions: dimensions.at(row),
        };
        rows.push(Row { offset: position.offset, leaf: leaf.hash(), kept: keep.event(&leaf) });
    }
    Ok(rows)
}

/// Those with a column, and those without.
struct Dimensions<'b> {
    named: Vec<(&'b str, &'b StringArray)>,
    others: &'b MapArray,
}

impl<'b> Dimensions<'b> {
    fn of(columns: &Columns<'b>) -> Result<Dimensions<'b>, ArchiveError> {
        let mut named = Vec::new();
        for field in columns.batch.schema_ref().fields().iter().filter(|field| !Table::Events.has_column(field.name()))
        {
            named.push((field.name().as_str(), columns.get(field.name())?));
        }
        Ok(Dimensions { named, others: columns.get(DIMENSIONS)? })
    }

    fn at(&self, row: usize) -> Vec<(&'b str, &'b str)> {
        let named = self.named.iter().filter_map(|(name, column)| Some((*name, some_text(column, row)?)));
        let mut all: Vec<(&str, &str)> = named.collect();
        if self.others.is_valid(row) {
            let (names, values) = (self.others.keys().as_string::<i32>(), self.others.values().as_string::<i32>());
            let offsets = self.others.value_offsets();
            let entries = offsets[row] as usize..offsets[row + 1] as usize;
            all.extend(entries.map(|entry| (names.value(entry), values.value(entry))));
        }
        all.sort_unstable();
        all
    }
}

pub fn fates<K: Keep>(columns: &Columns<'_>, keep: &K) -> Result<Vec<Row<K::Fate>>, ArchiveError> {
    let places = columns.places()?;
    let (counter, fate): (&StringArray, &StringArray) = (columns.get("counter")?, columns.get("fate")?);
    let (event_id, reason): (&StringArray, &StringArray) = (columns.get("event_id")?, columns.get("reason")?);
    let first_seen: &TimestampMicrosecondArray = columns.get("first_seen")?;
    let leaf = |row: usize| {
        let (position, log_time_ms) = places.at(row);
        FateLeaf {
            position,
            log_time_ms,
            counter: counter.value(row),
            fate: fate.value(row),
            event_id: some_text(event_id, row),
            first_seen_ms: some_time(first_seen, row),
            reason: some_text(reason, row),
        }
    };
    let row = |leaf: FateLeaf<'_>| Row { offset: leaf.position.offset, leaf: leaf.hash(), kept: keep.fate(&leaf) };
    Ok((0..columns.batch.num_rows()).map(|number| row(leaf(number))).collect())
}

pub fn corrections<K: Keep>(columns: &Columns<'_>, keep: &K) -> Result<Vec<Row<K::Correction>>, ArchiveError> {
    let places = columns.places()?;
    let numbers = |name| columns.get::<Int64Array>(name);
    let texts = |name| columns.get::<StringArray>(name);
    let (number, generation, of, delta) =
        (numbers("number")?, numbers("generation")?, numbers("of")?, numbers("delta")?);
    let (cause, purpose, reason) = (texts("cause")?, texts("purpose")?, texts("reason")?);
    let (author, applied_by, counter) = (texts("author")?, texts("applied_by")?, texts("counter")?);
    let bucket: &TimestampMicrosecondArray = columns.get("bucket")?;
    let leaf = |row: usize| {
        let (position, log_time_ms) = places.at(row);
        CorrectionLeaf {
            position,
            log_time_ms,
            number: number.value(row),
            generation: generation.value(row),
            cause: cause.value(row),
            of: some_number(of, row),
            purpose: purpose.value(row),
            reason: reason.value(row),
            author: author.value(row),
            applied_by: applied_by.value(row),
            counter: counter.value(row),
            bucket_ms: some_time(bucket, row),
            delta: delta.value(row),
        }
    };
    let row = |leaf: CorrectionLeaf<'_>| Row {
        offset: leaf.position.offset,
        leaf: leaf.hash(),
        kept: keep.correction(&leaf),
    };
    Ok((0..columns.batch.num_rows()).map(|number| row(leaf(number))).collect())
}

pub fn chain_leaf(columns: &Columns<'_>) -> Result<Vec<Row<CommitLeaf>>, ArchiveError> {
    let places = columns.places()?;
    let leaf = |row: usize| -> Result<CommitLeaf, ArchiveError> {
        let (position, log_time_ms) = places.at(row);
        Ok(CommitLeaf {
            log: position.log,
            epoch: position.epoch,
            from: columns.number("from_offset", row)? as u64,
            to: position.offset,
            log_time_ms,
            head: columns.hash("head_hash", row)?,
            events: columns.number("events", row)? as u64,
            events_root: columns.hash("events_root", row)?,
            fates: columns.number("fates", row)? as u64,
            fates_root: columns.hash("fates_root", row)?,
            corrections: columns.number("corrections", row)? as u64,
            corrections_root: columns.hash("corrections_root", row)?,
        })
    };
    let row = |leaf: CommitLeaf| Row { offset: leaf.to, leaf: leaf.hash(), kept: Some(leaf) };
    (0..columns.batch.num_rows()).map(|number| leaf(number).map(row)).collect()
}

pub fn signed_root(columns: &Columns<'_>, row: usize) -> Result<SignedRoot, ArchiveError> {
    let (position, log_time_ms) = columns.places()?.at(row);
    let counts = serde_json::from_str(columns.text("counts", row)?);
    let root = Root {
        number: columns.number("number", row)? as u64,
        log_id: columns.text("log_id", row)?.to_owned(),
        hour: columns.number("hour", row)?,
        log: position.log,
        epoch: position.epoch,
        from: columns.number("from_offset", row)? as u64,
        to: position.offset,
        log_time_ms,
        digest: columns.text("digest", row)?.to_owned(),
        commits: columns.number("commits", row)? as u64,
        events: columns.number("events", row)? as u64,
        root: columns.hash("root", row)?,
        counts: counts.map_err(|error| columns.damaged(&format!("counts: {error}")))?,
        before: columns.hash("before", row)?,
    };
    let (public_key, signature) = (columns.get::<StringArray>("public_key")?, columns.get::<StringArray>("signature")?);
    let signed = some_text(public_key, row).zip(some_text(signature, row));
    let signature = signed.map(|(public_key, signature)| Signature {
        public_key: public_key.to_owned(),
        signature: signature.to_owned(),
    });
    Ok(SignedRoot { root, anchor: columns.hash("anchor", row)?, signature, file: columns.file.to_owned() })
}

/// What was declared, by its version.
pub fn declared(columns: &Columns<'_>) -> Result<Vec<(u64, Declared)>, ArchiveError> {
    let (offsets, versions): (&Int64Array, &Int64Array) = (columns.get("offset")?, columns.get("version")?);
    let yaml: &StringArray = columns.get("yaml")?;
    let declared = |row| Declared { from: offsets.value(row) as u64, yaml: yaml.value(row).to_owned() };
    Ok((0..versions.len()).map(|row| (versions.value(row) as u64, declared(row))).collect())
}

/// What a counter was worth in a base.
pub fn worth(columns: &Columns<'_>, offset: u64, id: &str) -> Result<i64, ArchiveError> {
    let (offsets, values): (&Int64Array, &Int64Array) = (columns.get("offset")?, columns.get("value")?);
    let counters: &StringArray = columns.get("counter")?;
    let its = |row: &usize| offsets.value(*row) as u64 == offset && counters.value(*row) == id;
    Ok((0..counters.len()).filter(its).map(|row| values.value(row)).sum())
}
