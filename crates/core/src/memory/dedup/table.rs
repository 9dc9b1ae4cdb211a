//! The groups of one counter, in segments by the top bits of their hash.
//!
//! A table starts with nothing, is one segment while it is small, and then many, so that neither growth nor a sweep ever
//! moves more than a small part of a large one.

use super::segment::{DedupPlace, DedupSegment};
use super::slot::Fingerprint;

/// Segments of a table that is not small.
const SEGMENTS: usize = 256;
/// A table of more groups than this is not small: from here on, the list of segments costs about two bytes per group.
const SMALL_GROUPS_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct DedupTable {
    /// None, one, or [`SEGMENTS`].
    segments: Vec<DedupSegment>,
    next_to_sweep: usize,
}

impl DedupTable {
    /// Notes a seq in a window and answers whether it stood before, in this window or in the one before.
    #[inline]
    pub fn note(&mut self, group: Fingerprint, seq: u64, window: u32) -> bool {
        let (index, within) = group.locate(self.segments.len());
        let Some(segment) = self.segments.get_mut(index) else {
            self.segments.push(DedupSegment::new());
            return self.note(group, seq, window);
        };
        match segment.place(group, within) {
            DedupPlace::Found(at) => segment.note(at, seq, window),
            DedupPlace::Free(at) => {
                segment.fill(at, group, seq, window);
                if segment.is_full() {
                    self.make_room(index, window);
                }
                false
            }
        }
    }

    /// Whether a seq can be noted without more memory.
    pub fn has_place(&self, group: Fingerprint, seq: u64, window: u32) -> bool {
        let (index, within) = group.locate(self.segments.len());
        self.segments.get(index).is_some_and(|segment| match segment.place(group, within) {
            DedupPlace::Found(at) => segment.has_place(at, seq, window),
            DedupPlace::Free(_) => false,
        })
    }

    /// Takes over what another table has beside a seq of a group.
    pub fn copy_beside(&mut self, from: &DedupTable, group: Fingerprint, seq: u64, window: u32) {
        let (index, within) = group.locate(from.segments.len());
        let Some(segment) = from.segments.get(index) else { return };
        let DedupPlace::Found(at) = segment.place(group, within) else { return };
        if self.segments.is_empty() {
            self.segments.push(DedupSegment::new());
        }
        let (index, within) = group.locate(self.segments.len());
        self.segments[index].copy_beside(segment, at, within, seq);
        if self.segments[index].is_full() {
            self.make_room(index, window);
        }
    }

    #[inline]
    pub fn prefetch(&self, group: Fingerprint) {
        let (index, within) = group.locate(self.segments.len());
        if let Some(segment) = self.segments.get(index) {
            segment.prefetch(within);
        }
    }

    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    pub fn groups(&self) -> usize {
        self.segments.iter().map(DedupSegment::groups).sum()
    }

    /// Memory in use, beside the table itself.
    pub fn bytes(&self) -> usize {
        let segments: usize = self.segments.iter().map(DedupSegment::bytes).sum();
        segments + self.segments.capacity() * size_of::<DedupSegment>()
    }

    /// Sweeps the segment whose turn it is. Behind the last one, a table that has become small is one segment again.
    pub fn sweep_next(&mut self, window: u32) {
        let count = self.segments.len();
        self.segments[self.next_to_sweep].sweep(window, count);
        self.next_to_sweep = (self.next_to_sweep + 1) % count;
        if self.next_to_sweep == 0 && count > 1 && self.groups() < SMALL_GROUPS_MAX / 4 {
            self.deal_out(1, window);
        }
    }

    #[cold]
    fn make_room(&mut self, index: usize, window: u32) {
        match self.segments.len() {
            1 if self.groups() > SMALL_GROUPS_MAX => self.deal_out(SEGMENTS, window),
            count => self.segments[index].make_room(window, count),
        }
    }

    /// Deals all groups out to another number of segments.
    fn deal_out(&mut self, count: usize, window: u32) {
        let mut segments: Vec<DedupSegment> = std::iter::repeat_with(DedupSegment::new).take(count).collect();
        self.segments.drain(..).for_each(|segment| segment.deal_out(&mut segments, window));
        self.segments = segments;
    }
}
