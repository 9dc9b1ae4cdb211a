//! The unwritten end of a segment, as whole pages.
//!
//! Every write begins at a page boundary and ends at one: the part of the last page that is on disk already is kept here
//! and written again, byte for byte, in front of what is new. So the kernel never has to read a page before it can change
//! it, and a torn write cannot harm older batches, because it only puts the same bytes in their place.

use crate::segment::PAGE_BYTES;

/// A buffer that a huge batch made larger than this is not kept.
const KEPT_BYTES_MAX: usize = 16 << 20;

pub(crate) struct Pages {
    bytes: Vec<u8>,
    /// Where in `bytes` the pages begin: memory aligned like the page cache is copied fastest.
    start: usize,
    len: usize,
}

impl Pages {
    pub fn new() -> Pages {
        let mut pages = Pages { bytes: Vec::new(), start: 0, len: 0 };
        pages.reserve(16 * PAGE_BYTES);
        pages
    }

    /// Makes room for `more` bytes and two pages of padding.
    fn reserve(&mut self, more: usize) {
        let needed = self.len + more + 2 * PAGE_BYTES;
        if self.bytes.len() - self.start >= needed {
            return;
        }
        let mut bytes = vec![0; needed.next_power_of_two() + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        bytes[start..start + self.len].copy_from_slice(self.filled());
        (self.bytes, self.start) = (bytes, start);
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let at = self.start + self.len;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub fn pad_to(&mut self, align: usize) {
        let padding = self.len.next_multiple_of(align) - self.len;
        self.push(&[0; PAGE_BYTES][..padding]);
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// What to write: whole pages with at least one zero behind the content, but never more than `max` bytes.
    pub fn padded(&mut self, max: usize) -> &[u8] {
        self.reserve(0);
        let end = (self.len / PAGE_BYTES + 1) * PAGE_BYTES;
        self.bytes[self.start + self.len..self.start + end].fill(0);
        &self.bytes[self.start..self.start + end.min(max)]
    }

    /// Forgets all whole pages and answers how many bytes those were.
    pub fn drain_whole(&mut self) -> usize {
        let whole = self.len / PAGE_BYTES * PAGE_BYTES;
        if self.bytes.len() > KEPT_BYTES_MAX {
            let mut smaller = Pages::new();
            smaller.push(&self.filled()[whole..]);
            *self = smaller;
        } else {
            self.bytes.copy_within(self.start + whole..self.start + self.len, self.start);
            self.len -= whole;
        }
        whole
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_padded_and_the_partial_one_is_kept() {
        let mut pages = Pages::new();
        pages.push(&[7; 5000]);
        let written = pages.padded(usize::MAX);
        assert_eq!(written.len(), 2 * PAGE_BYTES);
        assert!(written[..5000].iter().all(|byte| *byte == 7) && written[5000..].iter().all(|byte| *byte == 0));
        assert_eq!(pages.drain_whole(), PAGE_BYTES);
        assert_eq!(pages.padded(usize::MAX)[..905], [[7; 904].as_slice(), &[0]].concat());
    }

    #[test]
    fn a_full_page_is_followed_by_a_page_of_zeros_where_there_is_room() {
        let mut pages = Pages::new();
        pages.push(&[7; PAGE_BYTES]);
        assert_eq!(pages.padded(usize::MAX).len(), 2 * PAGE_BYTES);
        assert_eq!(pages.padded(PAGE_BYTES).len(), PAGE_BYTES);
    }

    #[test]
    fn stale_bytes_of_a_longer_write_never_show_in_the_padding() {
        let mut pages = Pages::new();
        pages.push(&[7; 3 * PAGE_BYTES]);
        pages.clear();
        pages.push(&[8; 10]);
        assert!(pages.padded(usize::MAX)[10..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_huge_buffer_is_given_back_with_the_partial_page_kept() {
        let mut pages = Pages::new();
        pages.push(&vec![7; 3 * KEPT_BYTES_MAX + 5]);
        assert_eq!(pages.drain_whole(), 3 * KEPT_BYTES_MAX);
        assert!(pages.bytes.len() < KEPT_BYTES_MAX);
        assert_eq!(pages.filled(), [7; 5]);
    }

    #[test]
    fn a_grown_buffer_is_still_page_aligned() {
        let mut pages = Pages::new();
        for _ in 0..50 {
            pages.push(&[1; 10_000]);
            assert_eq!(pages.padded(usize::MAX).as_ptr().align_offset(PAGE_BYTES), 0);
        }
    }
}
