//! What came first under each event id that was claimed: the other half of a conflict.
//!
//! Claims are found by hash, so whatever is in their rows is rewritten with every merge of the store. What came first is
//! hardly ever asked for, and may be of any size; so it stands apart, in the order of the log, where rows only ever come behind
//! the others. It is found by what an audit row knows already: when the id was first seen, and which it is.
//!
//! It is kept in chunks of bytes, which cost the writer a copy per event. A chunk is a row of the store as it is, since a row for each
//! content would cost more than everything else that is done for an event. A reader gets chunks and searches them on a thread of its
//! own.

use super::cut::{Change, Kind, LedgerRow, Rows};
use super::row::take_array;
use super::{LedgerKey, LedgerKind};
use crate::event::{Event, copy_content};
use crate::id::CellKey;
use crate::memory::pending::{Overlay, Pending};
use crate::record::{DecodeError, put_varint, take_bytes, take_varint};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

/// What a chunk takes, as a block of the store does: some 50 contents. Whoever reads copies the open one.
const CHUNK_BYTES: usize = 4 * 1024;
/// A chunk is closed when it has so many bytes, so that the last entry hardly ever reaches beyond the end.
const CHUNK_FULL_BYTES: usize = CHUNK_BYTES - 256;
/// The first byte of a chunk in the store. A row of before is one content alone, whose first byte, its flags, is less.
const CHUNK: u8 = 0x80;

/// When an event id was first seen, in log time, and its claim key.
pub type FirstKey = (u64, CellKey);

/// Contents by what they were asked for; those that were claimed before contents were kept are not there.
pub type FirstContents = BTreeMap<FirstKey, Vec<u8>>;

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
#[derive(Clone, Debug)]
struct FirstsChunk {
    from_ms: u64,
    /// Of the last entry, and the key in the store: no other chunk has it, since an id is claimed once.
    to: FirstKey,
    bytes: Vec<u8>,
}

impl Default for FirstsChunk {
    fn default() -> FirstsChunk {
        FirstsChunk { from_ms: 0, to: (0, CellKey::NONE), bytes: Vec::new() }
    }
}

/// A copy of some chunks, to be searched by anybody.
#[derive(Clone, Debug, Default)]
pub struct FirstChunks(Vec<Arc<FirstsChunk>>);

impl Firsts {
    /// Keeps what came first under an id. `record` begins with the event, as the log has it.
    pub fn push(&mut self, (at_ms, key): FirstKey, record: &[u8]) {
        let page = &mut self.pages.recent;
        page.open.push(at_ms, key, record);
        if page.open.bytes.len() >= CHUNK_FULL_BYTES {
            page.close();
        }
    }

    /// The chunks in which any of these would be.
    pub fn chunks(&self, wanted: &BTreeSet<FirstKey>) -> FirstChunks {
        let is_wanted = |chunk: &FirstsChunk| {
            let least = CellKey::NONE;
            let mut from = wanted.range((chunk.from_ms, least)..);
            !chunk.bytes.is_empty() && from.next().is_some_and(|(at_ms, _)| *at_ms <= chunk.to.0)
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
    /// The log has chunks by time; those that end in one moment are sorted here.
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        let chunks = self.closed.iter().map(|chunk| &**chunk).chain([&self.open]);
        let mut chunks: Vec<_> = chunks.filter(|chunk| !chunk.bytes.is_empty()).collect();
        chunks.sort_unstable_by_key(|chunk| chunk.to);
        Box::new(chunks.into_iter().map(FirstsChunk::row))
    }
}

impl FirstChunks {
    /// Those of the wanted that are here, with their contents.
    pub fn find(&self, wanted: &BTreeSet<FirstKey>) -> FirstContents {
        let mut found = FirstContents::new();
        for chunk in &self.0 {
            find(chunk.iter(), wanted, &mut found).expect("`push` has written it");
        }
        found
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
            self.bytes.reserve_exact(CHUNK_BYTES);
        }
        debug_assert!(at_ms >= self.to.0, "log time never runs backwards");
        self.to = (at_ms, key);
        put_varint(&mut self.bytes, at_ms - self.from_ms);
        self.bytes.extend_from_slice(&key.to_bytes());
        copy_content(record, &mut self.bytes);
    }

    fn iter(&self) -> impl Iterator<Item = Result<(FirstKey, &[u8]), DecodeError>> {
        entries(self.from_ms, &self.bytes)
    }

    fn row(&self) -> LedgerRow {
        let (at_ms, event_id) = self.to;
        let mut value = Vec::with_capacity(self.bytes.len() + 1 + size_of::<u64>());
        value.push(CHUNK);
        put_varint(&mut value, at_ms - self.from_ms);
        value.extend_from_slice(&self.bytes);
        LedgerRow::new(LedgerKey::First(at_ms, event_id), Change::Put(value))
    }
}

fn entries(from_ms: u64, mut rest: &[u8]) -> impl Iterator<Item = Result<(FirstKey, &[u8]), DecodeError>> {
    std::iter::from_fn(move || {
        let entry = |rest: &mut &'_ [u8]| {
            let at_ms = from_ms.wrapping_add(take_varint(rest)?);
            Ok((at_ms, CellKey::from_bytes(take_array(rest)?)))
        };
        (!rest.is_empty()).then(|| Ok((entry(&mut rest)?, take_bytes(&mut rest)?)))
    })
}

/// Looks for what memory does not have in the rows of a store, which come in the order of their keys.
#[derive(Debug)]
pub struct StoredFirsts {
    wanted: BTreeSet<FirstKey>,
    found: FirstContents,
    /// What is looked for now, and where the row before ended.
    sought: Option<FirstKey>,
    before_ms: Option<u64>,
}

impl StoredFirsts {
    /// `found` is what memory has.
    pub fn new(wanted: BTreeSet<FirstKey>, found: FirstContents) -> StoredFirsts {
        StoredFirsts { wanted, found, sought: None, before_ms: None }
    }

    /// The keys among which the next one that is missing would be; `None` if there is none any more.
    pub fn seek(&mut self) -> Option<Range<Vec<u8>>> {
        let behind = self.sought.map_or(Bound::Unbounded, Bound::Excluded);
        let mut others = self.wanted.range((behind, Bound::Unbounded));
        self.sought = others.find(|key| !self.found.contains_key(*key)).copied();
        self.before_ms = None;
        let from = LedgerKey::First(self.sought?.0, CellKey::NONE).encode();
        Some(from..LedgerKey::range(LedgerKind::First).end)
    }

    /// Looks into a row of that range. Breaks off when what was sought has been found, or is in none of those behind: chunks that end in one
    /// moment are in no order, but only one of them reaches further back.
    pub fn visit(&mut self, key: &[u8], row: &[u8]) -> Result<ControlFlow<()>, DecodeError> {
        let LedgerKey::First(to_ms, event_id) = LedgerKey::decode(key)? else {
            return Err(DecodeError::BadValue { field: "kind of a first content", value: key[0].into() });
        };
        let Some(sought) = self.sought else { return Ok(ControlFlow::Break(())) };
        if self.before_ms.is_some_and(|before_ms| sought.0 < before_ms && before_ms < to_ms) {
            return Ok(ControlFlow::Break(()));
        }
        self.before_ms = Some(to_ms);
        self.take((to_ms, event_id), row)?;
        let is_found = self.found.contains_key(&sought);
        Ok(if is_found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn take(&mut self, to: FirstKey, row: &[u8]) -> Result<(), DecodeError> {
        let Some((&CHUNK, mut chunk)) = row.split_first() else {
            return find([Ok((to, row))], &self.wanted, &mut self.found);
        };
        let from_ms = to.0.wrapping_sub(take_varint(&mut chunk)?);
        find(entries(from_ms, chunk), &self.wanted, &mut self.found)
    }

    pub fn found(self) -> FirstContents {
        self.found
    }
}

/// Keeps those of the wanted that are among these.
fn find<'a>(
    entries: impl IntoIterator<Item = Result<(FirstKey, &'a [u8]), DecodeError>>,
    wanted: &BTreeSet<FirstKey>,
    found: &mut FirstContents,
) -> Result<(), DecodeError> {
    for entry in entries {
        let (key, content) = entry?;
        if wanted.contains(&key) {
            found.insert(key, content.to_vec());
        }
    }
    Ok(())
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
        assert!(cut.rows().count() < keys.len() / 50);
        assert_eq!(found, search(cut.rows(), wanted));
        assert!(firsts.chunks(&[(20_000, CellKey::NONE)].into()).0.is_empty());
    }

    /// What a store with these rows has.
    fn search(rows: impl Iterator<Item = LedgerRow>, wanted: BTreeSet<FirstKey>) -> FirstContents {
        let value = |row: LedgerRow| match row.change {
            Change::Put(value) => (row.key, value),
            other => panic!("{other:?}"),
        };
        let store: BTreeMap<_, _> = rows.map(value).collect();
        let mut search = StoredFirsts::new(wanted, FirstContents::new());
        while let Some(keys) = search.seek() {
            let _ = store.range(keys).try_for_each(|(key, row)| search.visit(key, row).unwrap());
        }
        search.found()
    }

    #[test]
    fn a_content_is_found_in_whichever_of_the_chunks_that_end_with_its_own() {
        let mut record = Vec::new();
        Event::new("t", 1).encode(&mut record);
        let [first, early, late] = [9, 2, 5].map(CellKey::from_u128);
        for ends in [[early, late], [late, early]] {
            let mut firsts = Firsts::default();
            firsts.push((1, first), &record);
            for end in ends {
                firsts.push((2, end), &record);
                firsts.pages.recent.close();
            }
            firsts.push((3, first), &record);
            let found = search(firsts.pages.recent.rows(), [(1, first), (3, first)].into());
            assert_eq!(found.len(), 2, "{ends:?}");
        }
    }

    #[test]
    fn a_content_in_a_row_of_its_own_is_found_beside_chunks() {
        let mut firsts = Firsts::default();
        let chunked: Vec<_> = (0..9).map(|n| push(&mut firsts, n)).collect();
        let alone = (2, CellKey::from_u128(7));
        let content = b"\x10\xac\x02\x01t\xd8\x04";
        let row = LedgerRow::new(LedgerKey::First(alone.0, alone.1), Change::Put(content.to_vec()));
        let rows = || firsts.pages.recent.rows().chain([row.clone()]);
        let found = search(rows(), [chunked[1], chunked[8], alone].into());
        assert_eq!(found.len(), 3);
        assert_eq!(found[&alone], content);
        let mut strange = StoredFirsts::new([alone].into(), FirstContents::new());
        strange.seek();
        assert!(strange.visit(&row.key, &[CHUNK, 0, 0]).is_err());
    }

    #[test]
    fn the_bytes_of_a_first_content_are_pinned() {
        let mut firsts = Firsts::default();
        let key = push(&mut firsts, 300);
        let found = firsts.chunks(&[key].into()).find(&[key].into());
        assert_eq!(found[&key], b"\x10\xac\x02\x01t\xd8\x04");
        let row = firsts.pages.recent.rows().next().unwrap();
        assert_eq!(row.key, LedgerKey::First(key.0, key.1).encode());
        let entry = [b"\x80\x00\x00", &key.1.to_bytes()[..], b"\x07", &found[&key]].concat();
        assert_eq!(row.change, Change::Put(entry));
        assert!(read_first(&found[&key][..5]).is_err());
        assert!(read_first(&[&found[&key][..], b"x"].concat()).is_err());
    }
}
