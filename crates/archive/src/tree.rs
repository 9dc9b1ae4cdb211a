//! The tree of an hour as it grows: rows to commits, commits to a root, roots to a chain (`docs/formats/roots.md`).
//!
//! What is held of it is a frontier, which is written down with the position of `events` in one step. So it always has exactly the
//! commits before that position, and whoever goes on after a crash makes the same roots.

use crate::ArchiveError;
use crate::rows::hour_of;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use tally_core::commit::Commit;
use tally_core::proof::{CommitLeaf, Counts, Frontier, Hash, Root, Signature, hex};

/// Where the tree is written down: a property of `events`.
pub const TREE: &str = "tally.tree";

/// Puts a name to an anchor.
pub trait Sign: Send + Sync {
    fn sign(&self, anchor: &Hash) -> Signature;
}

/// What became of the entries of each counter, by its name.
pub type Counted<'a> = [(&'a str, Counts)];

/// The root that is next, and the commit that is next in it.
pub struct Tree {
    open: Open,
    /// Of the commit on its way.
    events: Frontier,
    /// Roots that were closed already: the rest of a commit that was not made in full says where.
    known: VecDeque<Root>,
}

/// A root that is not closed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    /// All that it says by now, but for the root of its commits.
    root: Root,
    commits: Frontier,
}

impl Tree {
    /// Goes on where the property says, or begins.
    pub fn read(property: Option<&str>, log_id: u64) -> Result<Tree, ArchiveError> {
        let open = match property {
            None => Open { root: first(log_id), commits: Frontier::default() },
            Some(text) => serde_json::from_str::<Open>(text)
                .ok()
                .filter(|open| open.commits.is_whole())
                .ok_or_else(|| ArchiveError::Damaged(format!("the table events: its property {TREE} is damaged")))?,
        };
        Ok(Tree { open, events: Frontier::default(), known: VecDeque::new() })
    }

    pub fn property(&self) -> String {
        serde_json::to_string(&self.open).expect("it is made of texts and numbers")
    }

    /// The number of the root that is next.
    pub fn number(&self) -> u64 {
        self.open.root.number
    }

    /// Roots that a table has already, from that number on.
    pub fn expect(&mut self, known: Vec<Root>) {
        self.known = known.into();
    }

    /// Whether there is a commit that no root has, and of which hour it is.
    pub fn hour(&self) -> Option<i64> {
        (!self.open.commits.is_empty()).then_some(self.open.root.hour)
    }

    /// A row of `events` of the commit on its way.
    pub fn event(&mut self, leaf: Hash) {
        self.events.push(leaf);
    }

    /// Ends the commit on its way. The leaves of its other rows are in any order: here they get the one that they have for everybody.
    pub fn commit(
        &mut self,
        commit: &Commit,
        head: Hash,
        fates: Vec<(u64, Hash)>,
        corrections: Vec<(u64, Hash)>,
    ) -> CommitLeaf {
        let (events, fates, corrections) = (std::mem::take(&mut self.events), tree_of(fates), tree_of(corrections));
        let leaf = CommitLeaf {
            log: commit.to.log,
            epoch: commit.to.epoch,
            from: commit.from.offset,
            to: commit.to.offset,
            log_time_ms: commit.log_time_ms as i64,
            head,
            events: events.len(),
            events_root: events.root(),
            fates: fates.len(),
            fates_root: fates.root(),
            corrections: corrections.len(),
            corrections_root: corrections.root(),
        };
        self.add(&leaf, commit);
        leaf
    }

    fn add(&mut self, leaf: &CommitLeaf, commit: &Commit) {
        let root = &mut self.open.root;
        if self.open.commits.is_empty() {
            root.from = leaf.from;
            root.hour = i64::from(hour_of(commit.log_time_ms));
        }
        assert_eq!(root.hour, i64::from(hour_of(commit.log_time_ms)), "a root has commits of one hour");
        (root.log, root.epoch, root.to) = (leaf.log, leaf.epoch, leaf.to);
        (root.log_time_ms, root.digest) = (leaf.log_time_ms, commit.digest.to_string());
        root.events += leaf.events;
        self.open.commits.push(leaf.hash());
    }

    /// Adds to what the root says of counters.
    pub fn count(&mut self, counted: &Counted<'_>) {
        let counts = &mut self.open.root.counts;
        for (counter, more) in counted.iter().filter(|(_, more)| *more != Counts::default()) {
            match counts.get_mut(*counter) {
                Some(known) => known.add(more),
                None => {
                    counts.insert((*counter).to_owned(), *more);
                }
            }
        }
    }

    /// Whether a root ends here that was closed before a crash.
    pub fn is_known_to_end(&self) -> bool {
        self.known.front().is_some_and(|known| known.to == self.open.root.to)
    }

    /// Closes the root and begins the next; `None` if it has no commits, or if it was closed further on before a crash. One that was
    /// closed here before must come out the same.
    pub fn close(&mut self) -> Result<Option<Closed>, ArchiveError> {
        let goes_on = self.known.front().is_some_and(|known| known.to > self.open.root.to);
        if self.open.commits.is_empty() || goes_on {
            return Ok(None);
        }
        let mut root = self.open.root.clone();
        root.commits = self.open.commits.len();
        root.root = std::mem::take(&mut self.open.commits).root();
        let known = self.known.pop_front();
        if let Some(known) = known.as_ref().filter(|known| **known != root) {
            let (number, there, made) = (known.number, known.anchor(), root.anchor());
            return Err(ArchiveError::Damaged(format!(
                "the table roots: root {number} has the anchor {there}, and what was archived since comes to {made}"
            )));
        }
        let next = &mut self.open.root;
        (next.number, next.before) = (root.number + 1, root.anchor());
        (next.from, next.events) = (root.to, 0);
        next.counts.clear();
        Ok(Some(Closed { root, is_new: known.is_none() }))
    }
}

/// A root that has just been closed.
pub struct Closed {
    pub root: Root,
    /// The table does not have it.
    pub is_new: bool,
}

/// Rows that may share an offset, in the order that they have for everybody: by it, and by their hashes.
pub fn tree_of(mut leaves: Vec<(u64, Hash)>) -> Frontier {
    leaves.sort_unstable();
    let mut tree = Frontier::default();
    leaves.into_iter().for_each(|(_, leaf)| tree.push(leaf));
    tree
}

fn first(log_id: u64) -> Root {
    Root {
        number: 0,
        log_id: hex(&log_id.to_be_bytes()),
        hour: 0,
        log: 0,
        epoch: 0,
        from: 0,
        to: 0,
        log_time_ms: 0,
        digest: String::new(),
        commits: 0,
        events: 0,
        root: Hash::default(),
        counts: Default::default(),
        before: Hash::default(),
    }
}
