//! The audit in a commit: event ids that came again, as [`crate::ledger::Duplicate`] keeps them, but for what stands in the record.
//!
//! It is a function of the log like the rest of the head, so it is part of the digest. A commit has a bound of rows and says how many
//! there are.

use crate::limits::AUDIT_TOLD_MAX;
use crate::record::{DecodeError, put_bytes, put_varint, take_byte, take_bytes, take_varint};

/// An event of persistent counters whose id stood before. Its entries are exceptions of the same offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// The record it came from.
    pub offset: u64,
    pub event_id: Box<[u8]>,
    /// The log time of the first event with this id.
    pub first_seen_ms: u64,
    /// Its content is not that of the first one.
    pub conflict: bool,
}

/// The first rows of a commit, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    count: u64,
    rows: Vec<AuditRow>,
}

impl Audit {
    /// Adds a row. Only the first ones are kept, so it is made only if it is one of them.
    pub fn push(&mut self, row: impl FnOnce() -> AuditRow) {
        self.count += 1;
        if self.rows.len() < AUDIT_TOLD_MAX {
            self.rows.push(row());
        }
    }

    /// How many there are, those that are not told included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first of them, in the order of the log.
    pub fn rows(&self) -> &[AuditRow] {
        &self.rows
    }

    /// Of a commit that begins at an offset.
    pub(super) fn encode(&self, from_offset: u64, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        put_varint(out, self.rows.len() as u64);
        let mut before = from_offset;
        for AuditRow { offset, event_id, first_seen_ms, conflict } in &self.rows {
            out.push((*conflict).into());
            put_varint(out, offset - before);
            put_varint(out, *first_seen_ms);
            put_bytes(out, event_id);
            before = *offset;
        }
    }

    pub(super) fn take(from_offset: u64, bytes: &mut &[u8]) -> Result<Audit, DecodeError> {
        let (count, told) = (take_varint(bytes)?, take_varint(bytes)?);
        if told > count {
            return Err(DecodeError::BadValue { field: "rows of the audit", value: told });
        }
        let mut audit = Audit { count, rows: Vec::new() };
        let mut before = from_offset;
        for _ in 0..told {
            let row = take_row(before, bytes)?;
            before = row.offset;
            audit.rows.push(row);
        }
        Ok(audit)
    }
}

fn take_row(before: u64, bytes: &mut &[u8]) -> Result<AuditRow, DecodeError> {
    let conflict = match take_byte(bytes)? {
        0 => false,
        1 => true,
        other => return Err(DecodeError::BadValue { field: "conflict", value: other.into() }),
    };
    let distance = take_varint(bytes)?;
    let offset = before.checked_add(distance);
    let offset = offset.ok_or(DecodeError::BadValue { field: "offset of a row of the audit", value: distance })?;
    let first_seen_ms = take_varint(bytes)?;
    Ok(AuditRow { offset, event_id: take_bytes(bytes)?.into(), first_seen_ms, conflict })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_a_bound_of_rows_and_says_how_many_there_are() {
        let mut audit = Audit::default();
        for offset in 0..AUDIT_TOLD_MAX as u64 + 7 {
            audit.push(|| AuditRow { offset, event_id: b"e"[..].into(), first_seen_ms: 5, conflict: false });
        }
        assert_eq!((audit.count(), audit.rows().len()), (AUDIT_TOLD_MAX as u64 + 7, AUDIT_TOLD_MAX));
        assert_eq!(audit.rows().last().map(|row| row.offset), Some(AUDIT_TOLD_MAX as u64 - 1), "the first stay");
        let mut bytes = Vec::new();
        audit.encode(0, &mut bytes);
        assert_eq!(Audit::take(0, &mut bytes.as_slice()), Ok(audit));
        assert!(Audit::take(0, &mut &b"\x00\x01\x00\x00\x05\x00"[..]).is_err(), "more rows than there are");
    }
}
