//! `SCAN` and `KEYS`: walking through the names of all counters, page by page, while others are served.
//!
//! Names come in order, and only those with the pattern's literal prefix are looked at, so `KEYS views:*` costs what
//! there is of views. Pages are read and matched on other threads, a few at a time; the connection gives up between two
//! of them when its client has left.

use super::client::Client;
use super::encode::Encoder;
use super::fault::Fault;
use super::glob::{self, Glob};
use super::reply::Replies;
use super::server::Server;
use crate::engine::Page;
use std::sync::Arc;
use tally_core::limits;

pub struct Walk {
    /// What every name begins with.
    prefix: Vec<u8>,
    /// `None`: as in Redis, a lone `*` matches even the empty name.
    glob: Option<Arc<Glob>>,
    kind: Kind,
}

enum Kind {
    Keys,
    Scan {
        cursor: u64,
        count: usize,
        /// Counters are strings to Redis; nothing else is found here.
        of_our_type: bool,
    },
}

impl Walk {
    pub fn keys(pattern: &[u8]) -> Result<Walk, Fault> {
        Walk::new(pattern, Kind::Keys)
    }

    pub fn scan(cursor: u64, pattern: &[u8], count: usize, of_our_type: bool) -> Result<Walk, Fault> {
        Walk::new(pattern, Kind::Scan { cursor, count, of_our_type })
    }

    fn new(pattern: &[u8], kind: Kind) -> Result<Walk, Fault> {
        if pattern.len() > limits::RESP_PATTERN_BYTES_MAX {
            return Err(Fault::from(format!(
                "ERR the pattern has {} bytes, and {} are the most: use a shorter one",
                pattern.len(),
                limits::RESP_PATTERN_BYTES_MAX
            )));
        }
        let glob = (pattern != b"*").then(|| Arc::new(Glob::new(pattern)));
        Ok(Walk { prefix: glob::literal_prefix(pattern).to_vec(), glob, kind })
    }

    /// Walks and replies.
    pub async fn run(&self, server: &Server, client: &Client, replies: &mut Replies) {
        let outcome = match self.kind {
            Kind::Keys => self.run_keys(server, client, replies).await,
            Kind::Scan { cursor, count, of_our_type } => {
                self.run_scan(server, replies, cursor, count, of_our_type).await
            }
        };
        if let Err(fault) = outcome {
            replies.say(|reply| reply.error(fault.bytes()));
        }
    }

    async fn run_scan(
        &self,
        server: &Server,
        replies: &mut Replies,
        cursor: u64,
        count: usize,
        of_our_type: bool,
    ) -> Result<(), Fault> {
        let after = match cursor {
            0 => None,
            _ => Some(server.cursors.borrow().find(cursor).ok_or_else(|| unknown_cursor(cursor))?.to_vec()),
        };
        let (mut names, after) = self.page(server, after, count).await?;
        let next = after.map_or(0, |after| server.cursors.borrow_mut().advance(cursor, after));
        if !of_our_type {
            names = Names::default();
        }
        replies.say(|reply| {
            reply.array(2);
            reply.bulk(next.to_string().as_bytes());
            names.write(reply);
        });
        Ok(())
    }

    async fn run_keys(&self, server: &Server, client: &Client, replies: &mut Replies) -> Result<(), Fault> {
        let mut found = Names::default();
        let (mut after, mut seen) = (None, 0);
        loop {
            let (names, next) = self.page(server, after, limits::RESP_KEYS_PAGE).await?;
            after = next;
            seen += limits::RESP_KEYS_PAGE;
            found.append(names);
            let too_many = seen > limits::SCAN_NAMES_MAX || found.encoded.len() > limits::RESP_OUTPUT_BYTES_MAX / 2;
            // Twice: what is found is copied to the replies at the end.
            if too_many || !server.hold(client, 2 * found.encoded.capacity()) {
                return Err(too_much_for_keys());
            }
            if after.is_none() {
                break;
            }
        }
        replies.say(|reply| found.write(reply));
        Ok(())
    }

    /// The names on the next page that match, and where to go on.
    async fn page(
        &self,
        server: &Server,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<(Names, Option<Vec<u8>>), Fault> {
        let _turn = server.walks.acquire().await.expect("nobody closes it");
        let mut page = server.local.engine().scan(self.prefix.clone(), after, limit).await?;
        let next = page.next.take();
        let name_bytes: usize = page.counters.iter().map(|(name, _)| name.len()).sum();
        if name_bytes <= limits::RESP_MATCH_INLINE_BYTES {
            return Ok((Names::matching(&page, self.glob.as_deref()), next));
        }
        let glob = self.glob.clone();
        let matched = tokio::task::spawn_blocking(move || Names::matching(&page, glob.as_deref())).await;
        Ok((matched.expect("matching a pattern does not panic"), next))
    }
}

/// Names, encoded already.
#[derive(Default)]
struct Names {
    encoded: Vec<u8>,
    count: usize,
}

impl Names {
    fn matching(page: &Page, glob: Option<&Glob>) -> Names {
        let mut names = Names::default();
        for (name, _) in page.counters.iter().filter(|(name, _)| glob.is_none_or(|glob| glob.matches(name))) {
            // A bulk string is the same in every version of the protocol.
            Encoder::new(&mut names.encoded, Default::default()).bulk(name);
            names.count += 1;
        }
        names
    }

    fn append(&mut self, other: Names) {
        self.encoded.extend_from_slice(&other.encoded);
        self.count += other.count;
    }

    fn write(&self, reply: &mut Encoder<'_>) {
        reply.array(self.count);
        reply.raw(&self.encoded);
    }
}

fn unknown_cursor(cursor: u64) -> Fault {
    Fault::from(format!("ERR cursor {cursor} is unknown or has rested too long: start again with SCAN 0"))
}

fn too_much_for_keys() -> Fault {
    Fault::of("ERR KEYS finds too many counters for one reply: narrow the pattern, or use SCAN")
}
