//! The times that a table's metadata says: those of its log, and none of the wall clock.
//!
//! Iceberg's library takes the wall clock for every change, refuses to go on where that went back, and after a leap ahead writes what
//! it cannot read again. So a change is made to metadata without times, and they are put in behind it: a version is of the log time
//! that its table has come to, and always later than the version before it.

use crate::Reached;
use iceberg::spec::TableMetadata;
use iceberg::{Error, ErrorKind, Result};
use serde_json::{Value, json};

/// Old metadata files that a table names, and so the versions that somebody who is reading it may still ask for.
pub const VERSIONS_KEPT: usize = 20;

/// Metadata that the library can change whatever time it is.
pub fn without_times(metadata: &TableMetadata) -> Result<TableMetadata> {
    let mut value = written(metadata)?;
    value["last-updated-ms"] = json!(0);
    value["metadata-log"] = json!([]);
    for entry in list(&mut value, "snapshot-log") {
        entry["timestamp-ms"] = json!(0);
    }
    parsed(value)
}

/// What the library made of metadata without times, with the times of the version before and its own. That one is in the file `left`.
pub fn with_times(made: &TableMetadata, before: &TableMetadata, left: &str) -> Result<TableMetadata> {
    let at_ms = log_time_ms(made).max(before.last_updated_ms() + 1);
    let mut value = written(made)?;
    value["last-updated-ms"] = json!(at_ms);
    for snapshot in list(&mut value, "snapshots") {
        let is_new = snapshot["snapshot-id"].as_i64().is_some_and(|id| before.snapshot_by_id(id).is_none());
        if is_new {
            snapshot["timestamp-ms"] = json!(at_ms);
        }
    }
    for entry in list(&mut value, "snapshot-log") {
        let known = before.history().iter().find(|known| Some(known.snapshot_id) == entry["snapshot-id"].as_i64());
        entry["timestamp-ms"] = json!(known.map_or(at_ms, |known| known.timestamp_ms));
    }
    let versions = before.metadata_log().iter().map(|version| (version.metadata_file.as_str(), version.timestamp_ms));
    let versions: Vec<_> = versions.chain([(left, before.last_updated_ms())]).collect();
    let kept = versions[versions.len().saturating_sub(VERSIONS_KEPT)..].iter();
    value["metadata-log"] = kept.map(|(file, at_ms)| json!({"metadata-file": file, "timestamp-ms": at_ms})).collect();
    parsed(value)
}

/// The metadata of a table that has just been made.
pub fn made_at(made: &TableMetadata, at_ms: u64) -> Result<TableMetadata> {
    let mut value = written(made)?;
    value["last-updated-ms"] = json!(at_ms);
    parsed(value)
}

fn log_time_ms(metadata: &TableMetadata) -> i64 {
    let reached = Reached::read(metadata.properties()).ok().flatten();
    reached.and_then(|reached| i64::try_from(reached.log_time_ms).ok()).unwrap_or(0)
}

fn list<'v>(value: &'v mut Value, name: &str) -> impl Iterator<Item = &'v mut Value> {
    value.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

fn written(metadata: &TableMetadata) -> Result<Value> {
    serde_json::to_value(metadata).map_err(|error| unreadable(&error))
}

/// Read as a reader reads it, so nothing is put in force that nobody can read.
fn parsed(value: Value) -> Result<TableMetadata> {
    serde_json::from_value(value).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> Error {
    Error::new(ErrorKind::DataInvalid, format!("the metadata of a table could not be read again: {error}"))
}
