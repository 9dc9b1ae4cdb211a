//! One tumbling window: the groups that it saw, in segments by the top bits of their hash.
//!
//! A window starts with nothing, is one segment while it is small, and then many, so that no step of its growth moves more
//! than a small part of a large one.

use super::segment::{Fingerprint, Place, Segment, locate};

/// Segments of a window that is not small.
const SEGMENTS: usize = 256;
/// A window of more groups than this is not small: from here on, the list of segments costs less than two bytes per group.
const SMALL_GROUPS_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Window {
    /// None, one, or [`SEGMENTS`].
    segments: Vec<Segment>,
    groups: usize,
}

/// What was known about an entry when it was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    Again,
    NewSeq,
    NewGroup,
}

impl Window {
    #[inline]
    pub fn note(&mut self, group: Fingerprint, seq: u64) -> Noted {
        let (index, within) = locate(group, self.segments.len());
        let Some(segment) = self.segments.get_mut(index) else {
            self.segments.push(Segment::new());
            return self.note(group, seq);
        };
        match segment.place(group, within) {
            Place::Found(at) if segment.note(at, seq) => Noted::Again,
            Place::Found(_) => Noted::NewSeq,
            Place::Free(at) => {
                segment.fill(at, group, seq);
                self.groups += 1;
                if segment.is_full() {
                    self.make_room(index);
                }
                Noted::NewGroup
            }
        }
    }

    /// Whether the window saw this seq; `None` if it never saw the group.
    #[inline]
    pub fn contains(&self, group: Fingerprint, seq: u64) -> Option<bool> {
        let (index, within) = locate(group, self.segments.len());
        let segment = self.segments.get(index)?;
        match segment.place(group, within) {
            Place::Found(at) => Some(segment.contains(at, seq)),
            Place::Free(_) => None,
        }
    }

    #[inline]
    pub fn prefetch(&self, group: Fingerprint) {
        let (index, within) = locate(group, self.segments.len());
        if let Some(segment) = self.segments.get(index) {
            segment.prefetch(within);
        }
    }

    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Memory in use, beside the window itself.
    pub fn bytes(&self) -> usize {
        let segments: usize = self.segments.iter().map(Segment::bytes).sum();
        segments + self.segments.capacity() * size_of::<Segment>()
    }

    pub fn into_segments(self) -> Vec<Segment> {
        self.segments
    }

    #[cold]
    fn make_room(&mut self, index: usize) {
        match self.segments.len() {
            1 if self.groups > SMALL_GROUPS_MAX => self.split(),
            segments => self.segments[index].grow(segments),
        }
    }

    /// Deals the groups of a small window out to many segments.
    fn split(&mut self) {
        let mut many: Vec<Segment> = std::iter::repeat_with(Segment::new).take(SEGMENTS).collect();
        self.segments.drain(..).for_each(|small| small.deal_out(&mut many));
        self.segments = many;
    }
}
