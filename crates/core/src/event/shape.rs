//! What events that look alike have in common, however they are written: which fields they have, and which of their parts is
//! the text of each.
//!
//! A [`super::layout::Layout`] finds the parts in JSON, a [`super::batch`] in its records. What is made of an event from there on
//! (its record, its entries) is the same.

use super::time::LastDay;
use crate::pen::Stamped;
use crate::record::put_bytes;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The fields of events that look alike; texts by the part that they are.
#[derive(Debug, Default)]
pub struct Shape {
    pub(super) event_type: usize,
    pub(super) event_id: Option<usize>,
    pub(super) session: Option<usize>,
    pub(super) payload: Option<usize>,
    /// In the order of the client.
    pub(super) dimensions: Vec<ShapeDimension>,
    pub(super) has_time: bool,
    pub(super) has_seq: bool,
}

#[derive(Debug)]
pub(super) struct ShapeDimension {
    pub name: Box<str>,
    /// As it stands in a record, behind its length.
    pub encoded_name: Stamped,
    pub name_hash: u64,
    /// The part that is its value.
    pub part: usize,
}

/// The values of one event.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// Where each part stands; there may be room for more of them.
    pub spans: Vec<Span>,
    pub occurred_at_ms: Option<i64>,
    pub seq: Option<u64>,
    pub delta: Option<i64>,
    pub last_day: LastDay,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    #[inline(always)]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    #[inline(always)]
    pub fn len(self) -> usize {
        self.range().len()
    }
}

impl Values {
    pub fn make_room(&mut self, parts: usize) {
        let parts = parts.max(self.spans.len());
        self.spans.resize(parts, Span::default());
    }
}

impl ShapeDimension {
    pub fn new(name: &str, part: usize) -> ShapeDimension {
        let mut encoded_name = Vec::new();
        put_bytes(&mut encoded_name, name.as_bytes());
        let name_hash = xxh3_64_with_seed(name.as_bytes(), 0);
        ShapeDimension { name: name.into(), encoded_name: Stamped::new(encoded_name), name_hash, part }
    }
}

impl Shape {
    /// Which part of it is the value of a dimension.
    pub(crate) fn dimension(&self, name: &str) -> Option<usize> {
        self.dimensions.iter().find(|dimension| &*dimension.name == name).map(|dimension| dimension.part)
    }

    pub(crate) fn event_type(&self) -> usize {
        self.event_type
    }

    pub(crate) fn event_id(&self) -> Option<usize> {
        self.event_id
    }

    pub(crate) fn session(&self) -> Option<usize> {
        self.session
    }
}
