//! `SCAN` and `KEYS`: walking through the names of all counters, page by page, while others are served.
//!
//! Names come in order, and only those with the pattern's literal prefix are looked at, so `KEYS views:*` costs what
//! there is of views. Pages are read on other threads; so is the matching, once it is more than a moment's work.

use super::encode::Encoder;
use super::fault::Fault;
use super::glob;
use super::reply::Replies;
use super::server::Server;
use crate::engine::Page;
use tally_core::limits;

pub struct Walk {
    pattern: Vec<u8>,
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
    pub fn keys(pattern: &[u8]) -> Walk {
        Walk { pattern: pattern.to_vec(), kind: Kind::Keys }
    }

    pub fn scan(cursor: u64, pattern: &[u8], count: usize, of_our_type: bool) -> Walk {
        Walk { pattern: pattern.to_vec(), kind: Kind::Scan { cursor, count, of_our_type } }
    }

    /// Walks and replies.
    pub async fn run(&self, server: &Server, replies: &mut Replies) {
        let outcome = match self.kind {
            Kind::Keys => self.run_keys(server, replies).await,
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
        let mut page = self.page(server, after, count).await?;
        let next = page.next.take().map_or(0, |after| server.cursors.borrow_mut().advance(cursor, after));
        let names = if of_our_type { self.matching(page).await } else { Names::default() };
        replies.say(|reply| {
            reply.array(2);
            reply.bulk(next.to_string().as_bytes());
            names.write(reply);
        });
        Ok(())
    }

    async fn run_keys(&self, server: &Server, replies: &mut Replies) -> Result<(), Fault> {
        let mut found = Names::default();
        let (mut after, mut seen) = (None, 0);
        loop {
            let mut page = self.page(server, after, limits::RESP_KEYS_PAGE).await?;
            after = page.next.take();
            seen += page.counters.len();
            found.append(self.matching(page).await);
            if seen > limits::SCAN_NAMES_MAX || found.encoded.len() > limits::RESP_OUTPUT_BYTES_MAX / 2 {
                return Err(too_much_for_keys());
            }
            if after.is_none() {
                break;
            }
        }
        replies.say(|reply| found.write(reply));
        Ok(())
    }

    async fn page(&self, server: &Server, after: Option<Vec<u8>>, limit: usize) -> Result<Page, Fault> {
        let prefix = glob::literal_prefix(&self.pattern).to_vec();
        Ok(server.local.engine().scan(prefix, after, limit).await?)
    }

    /// The names on a page that match.
    async fn matching(&self, page: Page) -> Names {
        let name_bytes: usize = page.counters.iter().map(|(name, _)| name.len()).sum();
        if name_bytes.saturating_mul(self.pattern.len()) <= limits::RESP_MATCH_INLINE {
            return Names::matching(&page, &self.pattern);
        }
        let pattern = self.pattern.clone();
        let matched = tokio::task::spawn_blocking(move || Names::matching(&page, &pattern)).await;
        matched.expect("matching a pattern does not panic")
    }
}

/// Names, encoded already.
#[derive(Default)]
struct Names {
    encoded: Vec<u8>,
    count: usize,
}

impl Names {
    fn matching(page: &Page, pattern: &[u8]) -> Names {
        let mut names = Names::default();
        // As in Redis, a lone `*` matches even the empty name.
        let any = pattern == b"*";
        for (name, _) in page.counters.iter().filter(|(name, _)| any || glob::matches(pattern, name)) {
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
