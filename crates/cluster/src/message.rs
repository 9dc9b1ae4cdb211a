//! What lies in the logs between the roles.

use std::collections::BTreeMap;
use tally_core::commit::Commit;

/// A batch as its sender made it: a head and its records. One that is sent again has the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// A [`tally_core::head::Head`], and the records behind it.
    pub bytes: Vec<u8>,
    /// How many records there are.
    pub count: u32,
}

/// A message with its place in a log.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'a, T> {
    /// Of its first record. A message takes up as many offsets as it has records, and one if it has none.
    pub offset: u64,
    /// When it was appended, by the clock of whoever keeps the log.
    pub appended_ms: u64,
    pub message: &'a T,
}

/// How many offsets a message takes up.
pub trait Offsets {
    fn span(&self) -> u64;
}

impl Offsets for Payload {
    fn span(&self) -> u64 {
        u64::from(self.count).max(1)
    }
}

/// What the owner of a values partition reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToValues {
    /// Operations by name.
    Operations(Payload),
    /// What a slot of a fates partition came to, for the keys of this partition.
    Slot(SlotPart),
}

impl Offsets for ToValues {
    fn span(&self) -> u64 {
        match self {
            ToValues::Operations(payload) => payload.span(),
            ToValues::Slot(_) => 1,
        }
    }
}

/// One slot of a fates partition and what it did to the keys of one values partition, which may be nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPart {
    /// Whose slot.
    pub partition: u32,
    pub from: u64,
    pub to: u64,
    pub log_time_ms: u64,
    /// The control position that it was decided under.
    pub control: u64,
    /// By id, in order.
    pub changes: BTreeMap<Box<[u8]>, KeyChange>,
}

/// What a slot did to one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChange {
    /// Entries that counted, added up; `None` if none did.
    pub counted: Option<i64>,
    /// Offsets of batches in which something counted that is taken back, and how often. Whether it is still there is known where
    /// the key is.
    pub taken_back: BTreeMap<u64, u64>,
    /// Late entries that wait now, less those that do no more.
    pub waiting: i64,
    /// What a run has let count: its generation and the sum.
    pub late: BTreeMap<u64, i64>,
}

/// What a slot came to: the commit for those who follow, and a part for each values partition, empty ones too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emission {
    pub commit: Commit,
    pub parts: Vec<SlotPart>,
}
