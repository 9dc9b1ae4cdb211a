//! Views: absolute rows of a key's owner, in buckets that carry their position.
//!
//! Nobody adds up in a view: what is written there is what the owner has at a position, so writing it again changes nothing. A
//! bucket is changed only from the position that its writer knows it at; one that is at another, because it was lost or went back
//! in time, is sent as a whole. One that is ahead belongs to a later owner and is left alone.

use crate::route::key_slot;
use std::collections::{BTreeMap, BTreeSet};

/// Keys of a view fall into so many buckets for each values partition.
pub const BUCKETS: u32 = 4;

pub fn bucket_of(id: &[u8]) -> u32 {
    key_slot(id) % BUCKETS
}

/// A row as its owner has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRow {
    /// `None` if there is no such counter any more.
    pub value: Option<i64>,
    pub generation: u64,
}

/// A change of one bucket: all of it is made, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketWrite {
    pub bucket: u32,
    /// All changes since then are in it; `None`: the rows are all there are, and take the place of what is there.
    pub from: Option<u64>,
    /// The position that the rows are true for.
    pub to: u64,
    pub rows: BTreeMap<Box<[u8]>, OwnerRow>,
}

/// What a view says to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewAnswer {
    /// The bucket stands where the rows are true for, or further on.
    Stands,
    /// Nothing was written: the bucket is gone or went back in time. Or nobody knows whether it was written.
    Elsewhere,
}

/// What the owner of a values partition knows of its buckets.
#[derive(Clone, Debug, Default)]
pub struct ViewWriter {
    buckets: BTreeMap<u32, OwnedBucket>,
}

#[derive(Clone, Debug, Default)]
struct OwnedBucket {
    /// Where the view has it, as far as is known.
    at: Option<u64>,
    changed: BTreeSet<Box<[u8]>>,
}

impl ViewWriter {
    /// Values of these changed.
    pub fn changed<'i>(&mut self, ids: impl IntoIterator<Item = &'i [u8]>) {
        for id in ids {
            self.buckets.entry(bucket_of(id)).or_default().changed.insert(id.into());
        }
    }

    /// Buckets that something is to be written to.
    pub fn due(&self) -> impl Iterator<Item = u32> + '_ {
        self.buckets.iter().filter(|(_, bucket)| !bucket.changed.is_empty()).map(|(bucket, _)| *bucket)
    }

    /// What to write to a bucket, at the position its owner stands at. `all` are the ids of its counters, `row` tells what one is.
    pub fn write<'i>(
        &self,
        bucket: u32,
        to: u64,
        all: impl Iterator<Item = &'i [u8]>,
        mut row: impl FnMut(&[u8]) -> OwnerRow,
    ) -> BucketWrite {
        let known = self.buckets.get(&bucket);
        let from = known.and_then(|bucket| bucket.at);
        let rows = match (from, known) {
            (Some(_), Some(known)) => known.changed.iter().map(|id| (id.clone(), row(id))).collect(),
            _ => all.filter(|id| bucket_of(id) == bucket).map(|id| (id.into(), row(id))).collect(),
        };
        BucketWrite { bucket, from, to, rows }
    }

    /// What the view said to a write. Nothing has changed since the write was made.
    pub fn answered(&mut self, write: &BucketWrite, answer: ViewAnswer) {
        let bucket = self.buckets.entry(write.bucket).or_default();
        match answer {
            ViewAnswer::Stands => {
                bucket.at = Some(write.to);
                bucket.changed.clear();
            }
            // What was written before may be gone with it: all of it is sent again.
            ViewAnswer::Elsewhere => bucket.at = None,
        }
    }

    /// A bucket was seen at a position. If it is behind where it was left, it is sent again.
    pub fn seen(&mut self, bucket: u32, at: Option<u64>, id: impl FnOnce() -> Option<Box<[u8]>>) {
        let known = self.buckets.entry(bucket).or_default();
        if known.at.is_some() && at < known.at {
            known.at = None;
            // That it changed makes the bucket due; all of it is sent.
            known.changed.extend(id());
        }
    }
}
