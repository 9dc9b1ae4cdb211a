//! The leaves of the trees: rows of the archive, and commits.
//!
//! A leaf has nothing but what its row in the archive has, so it can be made from either. Of an event's payload there is only the
//! hash: whoever is shown the leaf need not be shown that.

use super::{Fields, Hash};
use crate::position::Position;
use serde::{Deserialize, Serialize};

/// A row of `events`. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLeaf<'a> {
    pub position: Position,
    pub log_time_ms: i64,
    pub received_at_ms: i64,
    pub occurred_at_ms: Option<i64>,
    pub event_type: &'a str,
    pub event_id: Option<&'a str>,
    pub session: Option<&'a str>,
    /// The same 64 bits.
    pub seq: Option<i64>,
    pub delta: i64,
    pub group: i64,
    pub rules: i64,
    pub config_version: i64,
    pub generation: i64,
    /// Of the payload.
    pub payload: Option<Hash>,
    /// In the order of their names.
    pub dimensions: Vec<(&'a str, &'a str)>,
}

impl EventLeaf<'_> {
    pub fn hash(&self) -> Hash {
        debug_assert!(self.dimensions.is_sorted_by(|one, next| one.0 < next.0), "there is one order of dimensions");
        let mut fields = place(b'E', self.position, self.log_time_ms);
        fields.number(self.received_at_ms);
        fields.maybe(self.occurred_at_ms, Fields::number);
        fields.text(self.event_type);
        fields.maybe(self.event_id, Fields::text);
        fields.maybe(self.session, Fields::text);
        fields.maybe(self.seq, Fields::number);
        for number in [self.delta, self.group, self.rules, self.config_version, self.generation] {
            fields.number(number);
        }
        fields.maybe(self.payload, |fields, hash| fields.bytes(&hash.0));
        fields.number(self.dimensions.len() as i64);
        for (name, value) in &self.dimensions {
            fields.text(name).text(value);
        }
        fields.hash()
    }
}

/// A row of `fates`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FateLeaf<'a> {
    pub position: Position,
    pub log_time_ms: i64,
    pub counter: &'a str,
    pub fate: &'a str,
    pub event_id: Option<&'a str>,
    pub first_seen_ms: Option<i64>,
    /// No part of the hash: it is found out when the row is made, and may be missing when that is done again.
    pub reason: Option<&'a str>,
}

impl FateLeaf<'_> {
    pub fn hash(&self) -> Hash {
        let mut fields = place(b'F', self.position, self.log_time_ms);
        fields.text(self.counter).text(self.fate);
        fields.maybe(self.event_id, Fields::text);
        fields.maybe(self.first_seen_ms, Fields::number).hash()
    }
}

/// A row of `corrections`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrectionLeaf<'a> {
    pub position: Position,
    pub log_time_ms: i64,
    pub number: i64,
    pub generation: i64,
    pub cause: &'a str,
    pub of: Option<i64>,
    pub purpose: &'a str,
    pub reason: &'a str,
    pub author: &'a str,
    pub applied_by: &'a str,
    pub counter: &'a str,
    pub bucket_ms: Option<i64>,
    pub delta: i64,
}

impl CorrectionLeaf<'_> {
    pub fn hash(&self) -> Hash {
        let mut fields = place(b'C', self.position, self.log_time_ms);
        fields.number(self.number).number(self.generation).text(self.cause);
        fields.maybe(self.of, Fields::number);
        for text in [self.purpose, self.reason, self.author, self.applied_by, self.counter] {
            fields.text(text);
        }
        fields.maybe(self.bucket_ms, Fields::number);
        fields.number(self.delta).hash()
    }
}

/// A commit: a row of `chain`. Its rows in each table are a tree of their own, so whoever finds a difference knows where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitLeaf {
    pub log: u32,
    pub epoch: u32,
    /// Where it begins and ends.
    pub from: u64,
    pub to: u64,
    pub log_time_ms: i64,
    /// Of what the commit says beside its deltas, of which its digest is made.
    pub head: Hash,
    /// How many rows it has in each table, and the roots of their trees.
    pub events: u64,
    pub events_root: Hash,
    pub fates: u64,
    pub fates_root: Hash,
    pub corrections: u64,
    pub corrections_root: Hash,
}

impl CommitLeaf {
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch, log: self.log, offset: self.to }
    }

    pub fn hash(&self) -> Hash {
        let mut fields = place(b'K', self.position(), self.log_time_ms);
        fields.number(self.from as i64).bytes(&self.head.0);
        fields.number(self.events as i64).bytes(&self.events_root.0);
        fields.number(self.fates as i64).bytes(&self.fates_root.0);
        fields.number(self.corrections as i64).bytes(&self.corrections_root.0).hash()
    }
}

fn place(tag: u8, position: Position, log_time_ms: i64) -> Fields {
    let mut fields = Fields::leaf(tag);
    fields.number(position.log.into()).number(position.epoch.into()).number(position.offset as i64).number(log_time_ms);
    fields
}
