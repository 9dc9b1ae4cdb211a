//! A proof as it is written down: JSON, in which every field that is hashed stands as it is hashed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tally_core::position::Position;
use tally_core::proof::{CommitLeaf, CorrectionLeaf, EventLeaf, Hash, Root, Signature, Step};

/// The version of the document.
pub const FORMAT: u32 = 1;

/// What a key is worth, and where that comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Proof {
    pub format: u32,
    pub id: String,
    pub counter: String,
    /// Whose values make the id, in this order.
    pub dimensions: Vec<String>,
    pub rules: Vec<ProvenRule>,
    pub start: Start,
    /// The end of the last root.
    pub to: u64,
    /// The value at the start, and all that is in `commits`.
    pub value: i64,
    /// Those with something for the key.
    pub commits: Vec<ProvenCommit>,
    /// The anchor before the first link.
    pub before: Hash,
    /// All roots from the start to the end.
    pub chain: Vec<Link>,
}

/// Events of a type that counted under some versions of the declarations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvenRule {
    pub r#type: String,
    /// `increment` or `decrement`.
    pub op: String,
    pub from_version: u64,
    pub to_version: u64,
}

/// Where counting begins, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Start {
    pub kind: StartKind,
    pub offset: u64,
    pub value: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartKind {
    /// With the first record of the log.
    Beginning,
    /// With a base: its value is taken as it is, since what was before is gone.
    Base,
    /// Where somebody asked for: only what came since is counted.
    Time,
}

/// A root of the chain: in full if something is proven by it, otherwise its hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Link {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Hash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<Root>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvenCommit {
    /// The number of its root.
    pub root: u64,
    pub commit: CommitLeaf,
    /// From the commit to its root.
    pub path: Vec<Step>,
    pub events: Vec<ProvenEvent>,
    pub corrections: Vec<ProvenCorrection>,
}

/// An event that was counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvenEvent {
    pub log: u32,
    pub epoch: u32,
    pub offset: u64,
    pub log_time_ms: i64,
    pub received_at_ms: i64,
    pub occurred_at_ms: Option<i64>,
    pub r#type: String,
    pub event_id: Option<String>,
    pub session: Option<String>,
    pub seq: Option<i64>,
    pub delta: i64,
    pub group: i64,
    pub rules: i64,
    pub config_version: i64,
    pub generation: i64,
    /// Of the payload, which is not shown.
    pub payload_hash: Option<Hash>,
    pub dimensions: BTreeMap<String, String>,
    /// To the root of the events of its commit.
    pub path: Vec<Step>,
}

/// A correction of the key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvenCorrection {
    pub log: u32,
    pub epoch: u32,
    pub offset: u64,
    pub log_time_ms: i64,
    pub number: i64,
    pub generation: i64,
    pub cause: String,
    pub of: Option<i64>,
    pub purpose: String,
    pub reason: String,
    pub author: String,
    pub applied_by: String,
    pub counter: String,
    pub bucket_ms: Option<i64>,
    pub delta: i64,
    /// To the root of the corrections of its commit.
    pub path: Vec<Step>,
}

/// A root as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootView {
    #[serde(flatten)]
    pub root: Root,
    /// Stands for everything up to its end.
    pub anchor: Hash,
    #[serde(flatten)]
    pub signature: Option<Signature>,
}

impl ProvenEvent {
    pub fn new(leaf: &EventLeaf<'_>) -> ProvenEvent {
        let text = |text: &str| text.to_owned();
        ProvenEvent {
            log: leaf.position.log,
            epoch: leaf.position.epoch,
            offset: leaf.position.offset,
            log_time_ms: leaf.log_time_ms,
            received_at_ms: leaf.received_at_ms,
            occurred_at_ms: leaf.occurred_at_ms,
            r#type: text(leaf.event_type),
            event_id: leaf.event_id.map(text),
            session: leaf.session.map(text),
            seq: leaf.seq,
            delta: leaf.delta,
            group: leaf.group,
            rules: leaf.rules,
            config_version: leaf.config_version,
            generation: leaf.generation,
            payload_hash: leaf.payload,
            dimensions: leaf.dimensions.iter().map(|(name, value)| (text(name), text(value))).collect(),
            path: Vec::new(),
        }
    }

    pub fn leaf(&self) -> EventLeaf<'_> {
        EventLeaf {
            position: Position { epoch: self.epoch, log: self.log, offset: self.offset },
            log_time_ms: self.log_time_ms,
            received_at_ms: self.received_at_ms,
            occurred_at_ms: self.occurred_at_ms,
            event_type: &self.r#type,
            event_id: self.event_id.as_deref(),
            session: self.session.as_deref(),
            seq: self.seq,
            delta: self.delta,
            group: self.group,
            rules: self.rules,
            config_version: self.config_version,
            generation: self.generation,
            payload: self.payload_hash,
            dimensions: self.dimensions.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        }
    }
}

impl ProvenCorrection {
    pub fn new(leaf: &CorrectionLeaf<'_>) -> ProvenCorrection {
        ProvenCorrection {
            log: leaf.position.log,
            epoch: leaf.position.epoch,
            offset: leaf.position.offset,
            log_time_ms: leaf.log_time_ms,
            number: leaf.number,
            generation: leaf.generation,
            cause: leaf.cause.to_owned(),
            of: leaf.of,
            purpose: leaf.purpose.to_owned(),
            reason: leaf.reason.to_owned(),
            author: leaf.author.to_owned(),
            applied_by: leaf.applied_by.to_owned(),
            counter: leaf.counter.to_owned(),
            bucket_ms: leaf.bucket_ms,
            delta: leaf.delta,
            path: Vec::new(),
        }
    }

    pub fn leaf(&self) -> CorrectionLeaf<'_> {
        CorrectionLeaf {
            position: Position { epoch: self.epoch, log: self.log, offset: self.offset },
            log_time_ms: self.log_time_ms,
            number: self.number,
            generation: self.generation,
            cause: &self.cause,
            of: self.of,
            purpose: &self.purpose,
            reason: &self.reason,
            author: &self.author,
            applied_by: &self.applied_by,
            counter: &self.counter,
            bucket_ms: self.bucket_ms,
            delta: self.delta,
        }
    }
}
