//! What came first under each event id that was claimed: the other half of a conflict.
//!
//! Claims are found by hash, so whatever is in their rows is rewritten with every merge of the store. What came first is
//! hardly ever asked for, and may be of any size; so it stands apart, in the order of the log, where rows only ever come behind
//! the others. Its key is what an audit row knows already: when the id was first seen, and which it is.
//!
//! Memory holds it in chunks of bytes, which cost the writer a copy per event. A reader gets the chunks and searches them on a
//! thread of its own.

use super::LedgerKey;
use super::cut::{Change, Kind, LedgerRow, Rows};
use super::row::take_array;
use crate::event::{Event, copy_content};
use crate::id::CellKey;
use crate::memory::pending::{Overlay, Pending};
use crate::record::{DecodeError, put_varint, take_bytes, take_varint};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A chunk is closed when it has so many bytes. Whoever reads copies the open one.
const CHUNK_BYTES: usize = 64 * 1024;

/// When an event id was first seen, in log time, and its claim key.
pub type FirstKey = (u64, CellKey);

/// First contents since the last cut.
#[derive(Default)]
pub struct Firsts {
    pages: Pending<FirstsPage>,
}

#[derive(Clone, Default)]
struct FirstsPage {
    closed: Vec<Arc<FirstsChunk>>,
    open: FirstsChunk,
    /// What the closed ones take.
    closed_bytes: usize,
}

/// Entries in the order of the log, each: ms since `from_ms` (varint), claim key, content (bytes).
#[derive(Clone, Debug, Default)]
struct FirstsChunk {
    from_ms: u64,
    to_ms: u64,
    bytes: Vec<u8>,
}

/// A copy of some chunks, to be searched by anybody.
#[derive(Clone, Debug, Default)]
pub struct FirstChunks(Vec<Arc<FirstsChunk>>);

impl Firsts {
    /// Keeps what came first under an id. `record` begins with the event, as the log has it.
    pub fn push(&mut self, (at_ms, key): FirstKey, record: &[u8]) {
        let page = &mut self.pages.recent;
        page.open.push(at_ms, key, record);
        if page.open.bytes.len() >= CHUNK_BYTES {
            page.close();
        }
    }

    /// The chunks in which any of these would be.
    pub fn chunks(&self, wanted: &BTreeSet<FirstKey>) -> FirstChunks {
        let is_wanted = |chunk: &FirstsChunk| {
            let least = CellKey::NONE;
            let mut from = wanted.range((chunk.from_ms, least)..);
            !chunk.bytes.is_empty() && from.next().is_some_and(|(at_ms, _)| *at_ms <= chunk.to_ms)
        };
        let mut chunks = Vec::new();
        for page in self.pages.oldest_first() {
            chunks.extend(page.closed.iter().filter(|chunk| is_wanted(chunk)).cloned());
            chunks.extend(is_wanted(&page.open).then(|| Arc::new(page.open.clone())));
        }
        FirstChunks(chunks)
    }
}

impl Kind for Firsts {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        self.pages.begin_cut()
    }

    fn finish_cut(&mut self) {
        self.pages.finish_cut();
    }

    fn abort_cut(&mut self) {
        self.pages.abort_cut();
    }

    fn clear(&mut self) {
        *self = Firsts::default();
    }

    /// They are not counted: there is one for each new claim.
    fn changed(&self) -> usize {
        0
    }

    fn unsettled_bytes(&self) -> usize {
        self.bytes()
    }

    fn bytes(&self) -> usize {
        self.pages.newest_first().map(FirstsPage::bytes).sum()
    }
}

impl Rows for FirstsPage {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        Box::new(self.sorted().map(|((at_ms, event_id), content)| {
            LedgerRow::new(LedgerKey::First(at_ms, event_id), Change::Put(content.to_vec()))
        }))
    }
}

impl FirstChunks {
    /// Those of the wanted that are here, with their contents.
    pub fn find(&self, wanted: &BTreeSet<FirstKey>) -> BTreeMap<FirstKey, Vec<u8>> {
        let entries = self.0.iter().flat_map(|chunk| chunk.iter());
        entries.filter(|(key, _)| wanted.contains(key)).map(|(key, content)| (key, content.to_vec())).collect()
    }
}

impl FirstsPage {
    fn close(&mut self) {
        let chunk = std::mem::take(&mut self.open);
        self.closed_bytes += chunk.bytes.capacity();
        self.closed.push(Arc::new(chunk));
    }

    fn bytes(&self) -> usize {
        self.closed_bytes + self.open.bytes.capacity() + self.closed.capacity() * size_of::<Arc<FirstsChunk>>()
    }

    /// In ascending order of keys. The log has them by time; those of one moment are sorted here.
    fn sorted(&self) -> impl Iterator<Item = (FirstKey, &[u8])> {
        let chunks = self.closed.iter().map(|chunk| &**chunk).chain([&self.open]);
        let mut entries = chunks.flat_map(FirstsChunk::iter).peekable();
        let moment = move || {
            let first = entries.next()?;
            let at_ms = first.0.0;
            let mut moment = vec![first];
            while let Some(next) = entries.next_if(|((other_ms, _), _)| *other_ms == at_ms) {
                moment.push(next);
            }
            moment.sort_unstable_by_key(|(key, _)| *key);
            Some(moment)
        };
        std::iter::from_fn(moment).flatten()
    }
}

impl Overlay for FirstsPage {
    fn overlay(&mut self, newer: FirstsPage) {
        if !self.open.bytes.is_empty() {
            self.close();
        }
        self.closed.extend(newer.closed);
        self.closed_bytes += newer.closed_bytes;
        self.open = newer.open;
    }
}

impl FirstsChunk {
    #[inline]
    fn push(&mut self, at_ms: u64, key: CellKey, record: &[u8]) {
        if self.bytes.is_empty() {
            self.from_ms = at_ms;
            // The last entry may reach beyond the end.
            self.bytes.reserve_exact(CHUNK_BYTES + 1024);
        }
        debug_assert!(at_ms >= self.to_ms, "log time never runs backwards");
        self.to_ms = at_ms;
        put_varint(&mut self.bytes, at_ms - self.from_ms);
        self.bytes.extend_from_slice(&key.to_bytes());
        copy_content(record, &mut self.bytes);
    }

    fn iter(&self) -> impl Iterator<Item = (FirstKey, &[u8])> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || (!rest.is_empty()).then(|| self.take(&mut rest).expect("`push` has written it")))
    }

    fn take<'a>(&self, rest: &mut &'a [u8]) -> Result<(FirstKey, &'a [u8]), DecodeError> {
        let at_ms = self.from_ms + take_varint(rest)?;
        let key = CellKey::from_bytes(take_array(rest)?);
        Ok(((at_ms, key), take_bytes(rest)?))
    }
}

/// The event whose content these bytes are: what it counted for, and when it happened. Who sent it and what else came with it
/// is not kept.
pub fn read_first(content: &[u8]) -> Result<Event<'_>, DecodeError> {
    super::row::whole(content, Event::decode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CellHasher;

    fn push(firsts: &mut Firsts, n: u64) -> FirstKey {
        let key = (n / 3, CellHasher::new(1).key(&n.to_le_bytes()));
        let event = Event { delta: n as i64, event_id: Some("e".into()), payload: Some("1"), ..Event::new("t", n) };
        let mut record = Vec::new();
        event.encode(&mut record);
        firsts.push(key, &[record, b"the next record".to_vec()].concat());
        key
    }

    fn delta(content: &[u8]) -> i64 {
        let first = read_first(content).unwrap();
        assert_eq!((&*first.event_type, &first.event_id, first.payload), ("t", &None, None));
        first.delta
    }

    #[test]
    fn contents_of_many_chunks_are_found_and_go_to_the_store_in_order() {
        let mut firsts = Firsts::default();
        let keys: Vec<_> = (0..20_000).map(|n| push(&mut firsts, n)).collect();
        assert!(firsts.pages.recent.closed.len() > 3, "{} bytes", firsts.bytes());
        let wanted: BTreeSet<_> = [3, 4, 9_999, 19_999].map(|n| keys[n]).into();
        let chunks = firsts.chunks(&wanted);
        assert!(chunks.0.len() <= 3, "only those that can have them");
        let found = chunks.find(&wanted);
        assert_eq!(found.iter().map(|(key, content)| (*key, delta(content))).collect::<BTreeMap<_, _>>(), {
            [3, 4, 9_999, 19_999].map(|n| (keys[n], n as i64)).into()
        });
        let cut = firsts.begin_cut();
        assert!(cut.rows().map(|row| row.key).is_sorted_by(|a, b| a < b));
        assert_eq!(cut.rows().count(), keys.len());
        assert!(firsts.chunks(&[(20_000, CellKey::NONE)].into()).0.is_empty());
    }

    #[test]
    fn the_bytes_of_a_first_content_are_pinned() {
        let mut firsts = Firsts::default();
        let key = push(&mut firsts, 300);
        let found = firsts.chunks(&[key].into()).find(&[key].into());
        assert_eq!(found[&key], b"\x10\xac\x02\x01t\xd8\x04");
        assert!(read_first(&found[&key][..5]).is_err());
        assert!(read_first(&[&found[&key][..], b"x"].concat()).is_err());
    }
}
