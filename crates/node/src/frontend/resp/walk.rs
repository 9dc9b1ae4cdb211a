//! `SCAN` and `KEYS`: walking through the names of all counters, page by page, while others are served.
//!
//! Names come in order, and only those with the pattern's literal prefix are looked at, so `KEYS views:*` costs what
//! there is of views. Pages are read and matched on other threads, a few at a time; the connection gives up between two
//! of them when its client has left.
//!
//! A walk is made before its command replies, since it takes time; the command adds what its own transaction has done
//! to the names since.

use super::client::Client;
use super::encode::Encoder;
use super::fault::ErrorReply;
use super::glob::{self, Glob};
use super::pass::Pass;
use super::server::Server;
use crate::counters::Page;
use std::collections::BTreeMap;
use std::sync::Arc;
use tally_core::database::Space;
use tally_core::id::CellKey;
use tally_core::limits;
use tally_core::op::Answer;

pub struct Walk {
    space: Space,
    /// What every name begins with.
    prefix: Vec<u8>,
    /// `None`: as in Redis, a lone `*` matches even the empty name.
    glob: Option<Arc<Glob>>,
    kind: WalkKind,
    /// Keys that are not looked for: the transaction knows better.
    skipped: Arc<BTreeMap<Vec<u8>, CellKey>>,
}

/// What a walk has found.
#[derive(Default)]
pub struct Fetched {
    names: Arc<WalkNames>,
    /// The cursor of the next step of a `SCAN`.
    cursor: u64,
    /// It has looked behind the first and up to the second.
    range: (Option<Vec<u8>>, Option<Vec<u8>>),
    /// Everything there is, for a flush.
    pub keys: Vec<Vec<u8>>,
}

#[derive(Clone, Copy)]
enum WalkKind {
    /// All names, to delete them.
    All,
    Keys,
    /// One name: the so-many-th, modulo how many there are.
    Some(u64),
    Scan {
        cursor: u64,
        count: usize,
        /// Counters are strings to Redis; nothing else is found here.
        of_our_type: bool,
    },
}

impl Walk {
    pub fn all(space: Space) -> Walk {
        Walk { space, prefix: Vec::new(), glob: None, kind: WalkKind::All, skipped: Arc::default() }
    }

    pub fn some(space: Space, draw: u64) -> Walk {
        Walk { space, prefix: Vec::new(), glob: None, kind: WalkKind::Some(draw), skipped: Arc::default() }
    }

    pub fn keys(space: Space, pattern: &[u8]) -> Result<Walk, ErrorReply> {
        Walk::new(space, pattern, WalkKind::Keys)
    }

    pub fn scan(
        space: Space,
        cursor: u64,
        pattern: &[u8],
        count: usize,
        of_our_type: bool,
    ) -> Result<Walk, ErrorReply> {
        Walk::new(space, pattern, WalkKind::Scan { cursor, count, of_our_type })
    }

    fn new(space: Space, pattern: &[u8], kind: WalkKind) -> Result<Walk, ErrorReply> {
        if pattern.len() > limits::RESP_PATTERN_BYTES_MAX {
            return Err(ErrorReply::from(format!(
                "ERR the pattern has {} bytes, and {} are the most: use a shorter one",
                pattern.len(),
                limits::RESP_PATTERN_BYTES_MAX
            )));
        }
        let glob = (pattern != b"*").then(|| Arc::new(Glob::new(pattern)));
        let prefix = glob::literal_prefix(pattern).to_vec();
        Ok(Walk { space, prefix, glob, kind, skipped: Arc::default() })
    }

    pub fn space(&self) -> Space {
        self.space
    }

    pub fn skip(&mut self, keys: BTreeMap<Vec<u8>, CellKey>) {
        self.skipped = Arc::new(keys);
    }

    /// Walks, for a client that holds so much already.
    pub async fn fetch(&self, server: &Server, client: &Client, held_bytes: usize) -> Result<Fetched, ErrorReply> {
        match self.kind {
            WalkKind::All => self.fetch_all(server, client, held_bytes).await,
            WalkKind::Keys => self.fetch_keys(server, client, held_bytes).await,
            WalkKind::Some(draw) => self.fetch_some(server, draw).await,
            WalkKind::Scan { cursor, count, of_our_type } => self.fetch_step(server, cursor, count, of_our_type).await,
        }
    }

    /// Replies with what was found, and with those of the skipped keys that are there by then.
    pub fn reply(&self, fetched: &Fetched, pass: &mut Pass<'_>) {
        let asked: Vec<Vec<u8>> = self.skipped.keys().filter(|key| self.wants(key, fetched)).cloned().collect();
        asked.iter().for_each(|key| pass.pending.get(self.skipped[key]));
        if matches!(self.kind, WalkKind::Some(_)) {
            return reply_some(fetched.keys.first().cloned(), asked, pass);
        }
        let cursor = matches!(self.kind, WalkKind::Scan { .. }).then_some(fetched.cursor);
        let found = fetched.names.clone();
        pass.replies.expect_made(asked.len(), move |reply, answers| {
            let there = asked.iter().zip(answers).filter(|(_, answer)| matches!(answer, Answer::Value(_)));
            if let Some(cursor) = cursor {
                reply.array(2);
                reply.bulk(cursor.to_string().as_bytes());
            }
            reply.array(found.count + there.clone().count());
            reply.raw(&found.encoded);
            there.for_each(|(key, _)| reply.bulk(key));
        });
    }

    /// Whether it would have found a key.
    fn wants(&self, key: &Vec<u8>, fetched: &Fetched) -> bool {
        let (after, to) = &fetched.range;
        after.as_ref().is_none_or(|after| key > after)
            && to.as_ref().is_none_or(|to| key <= to)
            && self.glob.as_ref().is_none_or(|glob| glob.matches(key))
            && !matches!(self.kind, WalkKind::Scan { of_our_type: false, .. })
    }

    async fn fetch_step(
        &self,
        server: &Server,
        cursor: u64,
        count: usize,
        of_our_type: bool,
    ) -> Result<Fetched, ErrorReply> {
        let after = match cursor {
            0 => None,
            _ => Some(server.cursors.borrow().find(cursor).ok_or_else(|| unknown_cursor(cursor))?.to_vec()),
        };
        let (mut names, to) = self.page(server, after.clone(), count).await?;
        let next = to.clone().map_or(0, |after| server.cursors.borrow_mut().advance(cursor, after));
        if !of_our_type {
            names = WalkNames::default();
        }
        Ok(Fetched { names: Arc::new(names), cursor: next, range: (after, to), keys: Vec::new() })
    }

    async fn fetch_keys(&self, server: &Server, client: &Client, held_bytes: usize) -> Result<Fetched, ErrorReply> {
        let mut found = WalkNames::default();
        let (mut after, mut seen) = (None, 0);
        loop {
            let (names, next) = self.page(server, after, limits::RESP_KEYS_PAGE).await?;
            after = next;
            seen += limits::RESP_KEYS_PAGE;
            found.append(names);
            let too_many = seen > limits::SCAN_NAMES_MAX || found.encoded.len() > limits::RESP_OUTPUT_BYTES_MAX / 2;
            // Twice: what is found is copied to the replies at the end.
            if too_many || !server.hold(client, held_bytes + 2 * found.encoded.capacity()) {
                return Err(too_much_for_keys());
            }
            if after.is_none() {
                return Ok(Fetched { names: Arc::new(found), ..Fetched::default() });
            }
        }
    }

    async fn fetch_all(&self, server: &Server, client: &Client, held_bytes: usize) -> Result<Fetched, ErrorReply> {
        let (mut keys, mut after, mut bytes) = (Vec::new(), None, held_bytes);
        loop {
            let _turn = server.walks.acquire().await.expect("nobody closes it");
            let page = self.names(server, after, limits::RESP_KEYS_PAGE).await?;
            after = page.next;
            // Twice: each of them becomes an operation as well.
            bytes += page.counters.iter().map(|(key, _)| 2 * (key.len() + size_of::<Vec<u8>>())).sum::<usize>();
            keys.extend(page.counters.into_iter().map(|(key, _)| key));
            if keys.len() > limits::RESP_FLUSH_KEYS_MAX || !server.hold(client, bytes) {
                return Err(too_much_to_flush());
            }
            if after.is_none() {
                return Ok(Fetched { keys, ..Fetched::default() });
            }
        }
    }

    /// Goes through the names, as far as the one that was drawn.
    async fn fetch_some(&self, server: &Server, draw: u64) -> Result<Fetched, ErrorReply> {
        let (mut after, mut first, mut seen) = (None, None, 0);
        let mut wanted = None;
        loop {
            let _turn = server.walks.acquire().await.expect("nobody closes it");
            let mut page = self.names(server, after, limits::RESP_KEYS_PAGE).await?;
            after = page.next.take();
            page.counters.retain(|(key, _)| !self.skipped.contains_key(key));
            first = first.or_else(|| page.counters.first().map(|(key, _)| key.clone()));
            let here = page.counters.len();
            // A first page that is the last says how many there are; otherwise somebody has counted.
            let names = if after.is_none() && seen == 0 { here } else { server.names_in(self.space) };
            let wanted = *wanted.get_or_insert((draw % names.max(1) as u64) as usize);
            let key = wanted.checked_sub(seen).and_then(|at| page.counters.into_iter().nth(at)).map(|(key, _)| key);
            seen += here;
            if key.is_some() || after.is_none() || seen > limits::SCAN_NAMES_MAX {
                return Ok(Fetched { keys: key.or(first).into_iter().collect(), ..Fetched::default() });
            }
        }
    }

    async fn names(&self, server: &Server, after: Option<Vec<u8>>, limit: usize) -> Result<Page, ErrorReply> {
        Ok(server.counters.scan(self.space, self.prefix.clone(), after, limit).await?)
    }

    /// The names on the next page that match, and where to go on.
    async fn page(
        &self,
        server: &Server,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<(WalkNames, Option<Vec<u8>>), ErrorReply> {
        let _turn = server.walks.acquire().await.expect("nobody closes it");
        let mut page = self.names(server, after, limit).await?;
        if !self.skipped.is_empty() {
            page.counters.retain(|(key, _)| !self.skipped.contains_key(key));
        }
        let next = page.next.take();
        let name_bytes: usize = page.counters.iter().map(|(name, _)| name.len()).sum();
        if name_bytes <= limits::RESP_MATCH_INLINE_BYTES {
            return Ok((WalkNames::matching(&page, self.glob.as_deref()), next));
        }
        let glob = self.glob.clone();
        let spawner = server.host.spawner;
        let matched = spawner.blocking(move || WalkNames::matching(&page, glob.as_deref())).await;
        Ok((matched.expect("matching a pattern does not panic"), next))
    }
}

/// Replies with a name, or with one of those that were asked for and are there.
fn reply_some(found: Option<Vec<u8>>, asked: Vec<Vec<u8>>, pass: &mut Pass<'_>) {
    pass.replies.expect_made(asked.len(), move |reply, answers| {
        let there = |(_, answer): &(&Vec<u8>, &Answer)| matches!(answer, Answer::Value(_));
        let own = asked.iter().zip(answers).find(there).map(|(key, _)| key);
        match found.as_ref().or(own) {
            Some(key) => reply.bulk(key),
            None => reply.null(),
        }
    });
}

/// Names, encoded already.
#[derive(Default)]
struct WalkNames {
    encoded: Vec<u8>,
    count: usize,
}

impl WalkNames {
    fn matching(page: &Page, glob: Option<&Glob>) -> WalkNames {
        let mut names = WalkNames::default();
        for (name, _) in page.counters.iter().filter(|(name, _)| glob.is_none_or(|glob| glob.matches(name))) {
            // A bulk string is the same in every version of the protocol.
            Encoder::new(&mut names.encoded, Default::default()).bulk(name);
            names.count += 1;
        }
        names
    }

    fn append(&mut self, other: WalkNames) {
        self.encoded.extend_from_slice(&other.encoded);
        self.count += other.count;
    }
}

fn unknown_cursor(cursor: u64) -> ErrorReply {
    ErrorReply::from(format!("ERR cursor {cursor} is unknown or has rested too long: start again with SCAN 0"))
}

fn too_much_for_keys() -> ErrorReply {
    ErrorReply::of("ERR KEYS finds too many counters for one reply: narrow the pattern, or use SCAN")
}

fn too_much_to_flush() -> ErrorReply {
    ErrorReply::from(format!(
        "ERR database 0 has more than {} counters and other databases have some: use FLUSHALL, which clears them all, or DEL",
        limits::RESP_FLUSH_KEYS_MAX
    ))
}
