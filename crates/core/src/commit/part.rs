//! Commits in records of the second log: each in one record, or in several parts (`docs/formats/commits.md`, "On disk").
//!
//! A commit of which the end is missing never was: another begins behind it.

use super::codec::Commit;
use crate::record::DecodeError;

/// The most of a commit that stands in one record.
pub const PART_BYTES: usize = 1 << 20;

/// In the first byte of a record: a commit begins here, a commit ends here.
const FIRST: u8 = 1;
const LAST: u8 = 2;
/// No part of a commit: deltas are recorded from here on.
const FOLLOWED: u8 = 4;

/// The record that says that deltas are recorded from here on.
pub const FOLLOWED_RECORD: &[u8] = &[FOLLOWED];

/// The parts of a commit's bytes for records of at most `record_bytes_max`: the flags of each, and what stands behind them.
pub fn parts(commit: &[u8], record_bytes_max: usize) -> impl Iterator<Item = (u8, &[u8])> {
    let room = PART_BYTES.min(record_bytes_max - 1);
    let last = commit.len().div_ceil(room) - 1;
    let flags = move |n| if n == 0 { FIRST } else { 0 } | if n == last { LAST } else { 0 };
    commit.chunks(room).enumerate().map(move |(n, part)| (flags(n), part))
}

/// Puts parts together.
#[derive(Default)]
pub struct Parts {
    bytes: Vec<u8>,
    /// Where the commit begins that was put together last, or that has begun.
    ordinal: u64,
    has_begun: bool,
}

/// What a record of the second log came to.
#[derive(Debug, PartialEq)]
pub enum Taken {
    /// A part of something.
    Part,
    /// Deltas are recorded from here on.
    Followed,
    /// A commit ends with it.
    Commit(Result<Box<Commit>, DecodeError>),
}

impl Parts {
    /// Takes a record, and which one it is.
    pub fn take(&mut self, ordinal: u64, record: &[u8]) -> Taken {
        let Some((flags, part)) = record.split_first() else { return Taken::Part };
        if flags & FOLLOWED != 0 {
            return Taken::Followed;
        }
        if flags & FIRST != 0 {
            // What was there before was never finished.
            self.bytes.clear();
            (self.ordinal, self.has_begun) = (ordinal, true);
        }
        if !self.has_begun {
            return Taken::Part;
        }
        self.bytes.extend_from_slice(part);
        if flags & LAST == 0 {
            return Taken::Part;
        }
        self.has_begun = false;
        Taken::Commit(Commit::decode(&self.bytes).map(Box::new))
    }

    /// The record where the commit that was put together last begins.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Gives memory back that only a large commit needs.
    pub fn rest(&mut self) {
        self.bytes.shrink_to(PART_BYTES);
    }
}
