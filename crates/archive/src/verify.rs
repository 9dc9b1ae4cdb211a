//! Makes every root again from the files of the archive, and names what differs: the hour, the table, the files.
//!
//! A row that was changed is found by its commit, a commit by its root, a root by the one behind it. What this cannot find is an
//! archive that was made anew as a whole: for that somebody else must have kept an anchor, or a signature.

use crate::again::{CommitRows, Keep, Row, SignedRoot, Tables};
use crate::schema::Table;
use std::fmt;
use std::path::PathBuf;
use tally_core::limits::VERIFY_DIFFERENCES_MAX;
use tally_core::proof::{CommitLeaf, CorrectionLeaf, EventLeaf, FateLeaf, Frontier, Hash, Root};

/// What all roots of an archive came to when they were made again.
#[derive(Debug, Default)]
pub struct Verified {
    /// Roots whose rows are all there.
    pub roots: u64,
    /// Roots of which only they themselves are left.
    pub let_go: u64,
    pub commits: u64,
    pub events: u64,
    /// The first of them, in the order of the log.
    pub different: Vec<Different>,
    pub has_more: bool,
}

/// Something that is not as it was when it was archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Different {
    pub table: Table,
    /// Hours of log time since 1970, if it is known which.
    pub hour: Option<i64>,
    /// The number of the root, if there is one.
    pub root: Option<u64>,
    pub files: Vec<PathBuf>,
    pub what: String,
}

impl fmt::Display for Different {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.table.name())?;
        if let Some(hour) = self.hour {
            write!(f, ", hour {hour} since 1970")?;
        }
        if let Some(root) = self.root {
            write!(f, ", root {root}")?;
        }
        write!(f, ": {}", self.what)?;
        for file in &self.files {
            write!(f, "; file {}", file.display())?;
        }
        Ok(())
    }
}

/// Makes all roots again. Reads every file of the archive that has rows of them, and waits for the disk.
pub fn verify_roots(tables: &Tables) -> Verified {
    let mut verifying = Verifying { tables, found: Verified::default() };
    let roots = verifying.roots();
    let kept_from = tables.chain_from().unwrap_or(u64::MAX);
    let mut before: Option<&SignedRoot> = None;
    for signed in &roots {
        verifying.look_at_root(signed, before);
        if signed.root.to < kept_from {
            verifying.found.let_go += 1;
        } else {
            verifying.look_at_rows(signed);
        }
        before = Some(signed);
    }
    // What no root has yet can be held against its commits at least.
    verifying.look_at_commits(None, before.map_or(0, |last| last.root.to), tables.to());
    verifying.found
}

struct Verifying<'t> {
    tables: &'t Tables,
    found: Verified,
}

/// Rows that have to be looked at, and not to be held.
struct Nothing;

impl Keep for Nothing {
    type Event = ();
    type Fate = ();
    type Correction = ();

    fn event(&self, _: &EventLeaf<'_>) -> Option<()> {
        None
    }

    fn fate(&self, _: &FateLeaf<'_>) -> Option<()> {
        None
    }

    fn correction(&self, _: &CorrectionLeaf<'_>) -> Option<()> {
        None
    }
}

impl Verifying<'_> {
    fn report(&mut self, table: Table, root: Option<&Root>, files: Vec<PathBuf>, what: String) {
        if self.found.different.len() >= VERIFY_DIFFERENCES_MAX {
            self.found.has_more = true;
            return;
        }
        let (hour, root) = (root.map(|root| root.hour), root.map(|root| root.number));
        self.found.different.push(Different { table, hour, root, files, what });
    }

    /// All that can be read, the oldest first.
    fn roots(&mut self) -> Vec<SignedRoot> {
        let mut roots = Vec::new();
        for found in self.tables.roots_newest_first() {
            match found {
                Ok(root) => roots.push(root),
                Err(error) => self.report(Table::Roots, None, Vec::new(), error.to_string()),
            }
        }
        roots.sort_by_key(|signed| signed.root.number);
        roots
    }

    /// Whether a root is what it says, and behind the one before it.
    fn look_at_root(&mut self, signed: &SignedRoot, before: Option<&SignedRoot>) {
        let root = &signed.root;
        let mut wrong = |what: String| self.report(Table::Roots, Some(root), vec![signed.file.clone()], what);
        let (expected_number, expected_before) =
            before.map_or((0, Hash::default()), |before| (before.root.number + 1, before.anchor));
        if root.number != expected_number {
            wrong(format!("root {expected_number} is missing before it, or it is there twice"));
        } else if root.before != expected_before {
            wrong(format!("it is chained to {}, and the root before it has the anchor {expected_before}", root.before));
        }
        if root.anchor() != signed.anchor {
            wrong(format!("what it says comes to the anchor {}, and it has {}", root.anchor(), signed.anchor));
        }
    }

    /// Whether the commits of a root are those that it was made of, and their rows likewise.
    fn look_at_rows(&mut self, signed: &SignedRoot) {
        let root = &signed.root;
        let commits = self.look_at_commits(Some(root), root.from, root.to);
        self.found.roots += 1;
        if commits.as_ref().is_some_and(|commits| commits.root() != root.root || commits.len() != root.commits) {
            let what = format!(
                "its {} commits come to {}, and the root has {} that came to {}",
                commits.as_ref().map_or(0, Frontier::len),
                commits.as_ref().map_or_else(Hash::default, Frontier::root),
                root.commits,
                root.root
            );
            let files = self.tables.files_of(Table::Chain, root.from, root.to);
            self.report(Table::Chain, Some(root), files, what);
        }
    }

    /// Looks at the rows of commits; `None` if they could not be read.
    fn look_at_commits(&mut self, root: Option<&Root>, from: u64, to: u64) -> Option<Frontier> {
        let (tables, mut commits, mut events) = (self.tables, Frontier::default(), 0);
        let mut wrong = Vec::new();
        let read = tables.commits(from, to, &Nothing, |rows| {
            commits.push(rows.leaf.hash());
            events += rows.events.len() as u64;
            wrong.extend(differences(tables, &rows));
            wrong.truncate(VERIFY_DIFFERENCES_MAX + 1);
            Ok(())
        });
        self.found.commits += commits.len();
        self.found.events += events;
        for (table, files, what) in wrong {
            self.report(table, root, files, what);
        }
        match read {
            Ok(()) => Some(commits),
            Err(error) => {
                let (table, file) = tables.named_in(&error);
                self.report(table, root, file, error.to_string());
                None
            }
        }
    }
}

type Wrong = (Table, Vec<PathBuf>, String);

/// Tables whose rows of a commit are not those that it was made of.
fn differences(tables: &Tables, commit: &CommitRows<Nothing>) -> Vec<Wrong> {
    let CommitLeaf { events, events_root, fates, fates_root, corrections, corrections_root, .. } = commit.leaf;
    let found = [
        (Table::Events, tree(&commit.events), events, events_root),
        (Table::Fates, tree(&commit.fates), fates, fates_root),
        (Table::Corrections, tree(&commit.corrections), corrections, corrections_root),
    ];
    let is_other = |(_, rows, count, root): &(Table, Frontier, u64, Hash)| rows.len() != *count || rows.root() != *root;
    let wrong = found.into_iter().filter(is_other).map(|(table, rows, count, root)| {
        let (from, to) = (commit.leaf.from, commit.leaf.to);
        let what = if rows.len() == count {
            format!("a row of the commit from {from} to {to} was changed: they come to {}, not {root}", rows.root())
        } else {
            format!("the commit from {from} to {to} has {} rows, and had {count}", rows.len())
        };
        (table, tables.files_of(table, from, to), what)
    });
    wrong.collect()
}

fn tree<T>(rows: &[Row<T>]) -> Frontier {
    let mut tree = Frontier::default();
    rows.iter().for_each(|row| tree.push(row.leaf));
    tree
}
