//! What an hour of the log came to, as one hash that is chained to all hours before it.

use super::{Fields, Hash, hex, kind};
use crate::ledger::BoxKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The commits of an hour of log time, or of a part of it: a row of `roots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Root {
    /// They are numbered from 0.
    pub number: u64,
    /// Of the log, in 16 hexadecimal digits.
    pub log_id: String,
    /// Hours of log time since 1970.
    pub hour: i64,
    pub log: u32,
    pub epoch: u32,
    /// Where its first commit begins and its last one ends.
    pub from: u64,
    pub to: u64,
    /// Of its last commit.
    pub log_time_ms: i64,
    pub digest: String,
    pub commits: u64,
    /// Rows of `events` in them.
    pub events: u64,
    /// The root of the tree of its commits.
    pub root: Hash,
    /// By the names of declared counters.
    pub counts: BTreeMap<String, Counts>,
    /// The anchor of the one before; zeros for the first.
    pub before: Hash,
}

/// What became of the entries of a counter. What is in none of the other boxes was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub received: u64,
    pub duplicate: u64,
    pub conflict: u64,
    pub rejected: u64,
    pub ignored: u64,
    pub late: u64,
}

impl Root {
    /// Of all that it says, but for what was before.
    pub fn body(&self) -> Hash {
        let mut fields = Fields::of(kind::BODY);
        fields.number(self.number as i64).text(&self.log_id).number(self.hour);
        fields.number(self.log.into()).number(self.epoch.into());
        fields.number(self.from as i64).number(self.to as i64).number(self.log_time_ms).text(&self.digest);
        fields.number(self.commits as i64).number(self.events as i64).bytes(&self.root.0);
        fields.number(self.counts.len() as i64);
        for (counter, counts) in &self.counts {
            fields.text(counter);
            for count in counts.numbers() {
                fields.number(count as i64);
            }
        }
        fields.hash()
    }

    /// Stands for everything up to its end.
    pub fn anchor(&self) -> Hash {
        Root::anchor_of(self.before, self.body())
    }

    /// The same by the hash of its body alone.
    pub fn anchor_of(before: Hash, body: Hash) -> Hash {
        Fields::of(kind::ANCHOR).bytes(&before.0).bytes(&body.0).hash()
    }
}

impl Counts {
    /// An entry that was not simply counted.
    pub fn add_to_box(&mut self, fate: BoxKind) {
        *match fate {
            BoxKind::Counted => return,
            BoxKind::Duplicate => &mut self.duplicate,
            BoxKind::Conflict => &mut self.conflict,
            BoxKind::Rejected => &mut self.rejected,
            BoxKind::Ignored => &mut self.ignored,
            BoxKind::Late => &mut self.late,
        } += 1;
    }

    pub fn add(&mut self, more: &Counts) {
        self.received += more.received;
        self.duplicate += more.duplicate;
        self.conflict += more.conflict;
        self.rejected += more.rejected;
        self.ignored += more.ignored;
        self.late += more.late;
    }

    fn numbers(&self) -> [u64; 6] {
        [self.received, self.duplicate, self.conflict, self.rejected, self.ignored, self.late]
    }
}

/// What is signed for an anchor: a line of text, so that any tool can check it.
pub fn signed_text(anchor: &Hash) -> String {
    format!("tally root {anchor}\n")
}

/// An Ed25519 signature of an anchor's line, and the key that it can be checked with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signature {
    /// In 64 hexadecimal digits.
    pub public_key: String,
    /// In 128 hexadecimal digits.
    pub signature: String,
}

impl Signature {
    pub fn new(public_key: &[u8], signature: &[u8]) -> Signature {
        Signature { public_key: hex(public_key), signature: hex(signature) }
    }
}
