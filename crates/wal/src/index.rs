//! Where in a segment to start looking for a record: an entry about every mebibyte, in memory only.

use crate::segment::HEADER_BYTES;

const INTERVAL_BYTES: u64 = 1 << 20;

/// A batch's first record and its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub offset: u64,
    pub at: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Index(Vec<IndexEntry>);

impl Index {
    /// Remembers a batch if the last one remembered is far enough behind it.
    pub fn note(&mut self, offset: u64, at: u64) {
        if self.wants(at) {
            self.0.push(IndexEntry { offset, at });
        }
    }

    /// Remembers a batch before which nothing can be read.
    pub fn resume_at(&mut self, offset: u64, at: u64) {
        self.0.push(IndexEntry { offset, at });
    }

    pub fn wants(&self, at: u64) -> bool {
        at >= self.0.last().map_or(HEADER_BYTES as u64, |last| last.at) + INTERVAL_BYTES
    }

    /// The last remembered batch that begins at or before `offset`.
    pub fn find(&self, offset: u64) -> Option<IndexEntry> {
        let behind = self.0.partition_point(|entry| entry.offset <= offset);
        behind.checked_sub(1).map(|last| self.0[last])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_kept_per_mebibyte_and_found_by_any_offset_behind_it() {
        let mut index = Index::default();
        for n in 0..100u64 {
            index.note(1000 + n, 4096 + n * 100_000);
        }
        assert_eq!(index.0.len(), 9);
        assert_eq!(index.find(1000), None);
        assert_eq!(index.find(1010), None);
        assert_eq!(index.find(1011), Some(IndexEntry { offset: 1011, at: 4096 + 1_100_000 }));
        assert_eq!(index.find(1021), Some(IndexEntry { offset: 1011, at: 4096 + 1_100_000 }));
        assert_eq!(index.find(5000).map(|entry| entry.offset), Some(1099));
    }
}
