//! Proves, while no server runs, that log, commits, store and archive of a data directory say the same, key by key; or says what differs.
//!
//! Nothing of the directory is changed: files are read where they are, and a node is started on a clone of it (`scratch`), so that everything
//! that a start looks at is looked at, and every key is counted again from the archive. Beyond that it makes the checks that nobody makes
//! while running: files that a start passes over, rows of the archive against records of the log, event ids against the store, parts and
//! totals against keys. What is found is never the end of it: each check says what it finds, and the next one is made where it can be.

mod claims;
mod commits;
mod events;
mod fates;
mod files;
mod report;
mod running;
mod scratch;
mod segments;

pub use report::{Check, Finding, Fix, Verified};
pub use scratch::remove_clones;

use crate::data_dir::{DataDir, DataDirError, LookLock};
use crate::sql::MakeSql;
use claims::Claims;
use commits::CommitsSeen;
use events::Comparing;
use fates::Fates;
use files::Tables;
use scratch::Scratch;
use std::io;
use std::path::{Path, PathBuf};
use tally_archive::{Reader, verify_roots};
use tally_storage::store::local::{self, LocalStore};

/// What the store may keep in memory while it is looked at.
const CACHE_BYTES: u64 = 16 << 20;

/// What is verified.
pub struct Verifying {
    pub data: PathBuf,
    /// Where the archive is; one that is not there is not looked at.
    pub archive: Option<PathBuf>,
    /// Where the clone is made; beside the data directory if it is left out.
    pub scratch: Option<PathBuf>,
    pub memory_bytes: u64,
    /// Who counts again.
    pub sql: MakeSql,
}

/// Why there is nothing to say.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("{0}")]
    DataDir(#[from] DataDirError),
    #[error("no clone of it could be made in {place}: {error}")]
    Scratch { place: PathBuf, error: io::Error },
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Hears what is looked at, and how much of how much was.
pub type Tell<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// Looks at all of a data directory.
pub fn verify(what: &Verifying, tell: Tell<'_>) -> Result<Verified, VerifyError> {
    let _lock = LookLock::take(&what.data)?;
    check_is_one(&what.data)?;
    let within = what.scratch_directory();
    tell("cloning", 0, 1);
    let archive = what.archive.clone().filter(|archive| archive.is_dir());
    let scratch = Scratch::of(&what.data, archive.as_deref(), &within)
        .map_err(|error| VerifyError::Scratch { place: within, error })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut looking = Looking { data: &what.data, scratch: &scratch, verified: Verified::default() };
    let viewed = looking.identity();
    let tables = runtime.block_on(looking.tables(tell));
    runtime.block_on(looking.roots());
    let commits = looking.commits(viewed.as_ref(), &tables, tell);
    let store = looking.store(viewed.as_ref(), tell);
    looking.log(viewed.as_ref(), &commits, store, tables, tell);
    running::run(&runtime, what, &scratch, &mut looking.verified, tell);
    Ok(looking.verified)
}

/// Refuses a directory that has nothing of a data directory. One that has lost a part of it is looked at.
fn check_is_one(data: &Path) -> Result<(), VerifyError> {
    let has_any = ["TALLY", "log", "commits", "store"].iter().any(|part| data.join(part).exists());
    if has_any { Ok(()) } else { Err(DataDirError::Missing { path: data.to_owned() }.into()) }
}

impl Verifying {
    /// Where the clone is made.
    pub fn scratch_directory(&self) -> PathBuf {
        self.scratch.clone().unwrap_or_else(|| beside(&self.data))
    }
}

fn beside(data: &Path) -> PathBuf {
    let parent = data.canonicalize().ok().and_then(|data| data.parent().map(Path::to_owned));
    parent.unwrap_or_else(|| PathBuf::from("."))
}

/// The checks that need no node, in their order: each knows what those before it have seen.
struct Looking<'a> {
    data: &'a Path,
    scratch: &'a Scratch,
    verified: Verified,
}

impl Looking<'_> {
    /// Whose the directory is.
    fn identity(&mut self) -> Option<DataDir> {
        let mut check = Check::new("identity");
        let viewed = DataDir::view(self.data);
        match &viewed {
            Ok(viewed) => check.said = format!("data directory {:016x}", viewed.identity.id),
            Err(error) => check.find(Finding::new(error.to_string(), Fix::Copy).in_file("TALLY")),
        }
        self.verified.checks.push(check);
        viewed.ok()
    }

    async fn tables(&mut self, tell: Tell<'_>) -> Tables {
        let Some(root) = self.scratch.archive() else {
            self.verified.skip("archive", "there is none");
            return Tables::default();
        };
        let (tables, check) = files::look(root, self.scratch, tell).await;
        self.verified.checks.push(check);
        tables
    }

    /// The roots of hours, made again from the rows they are of.
    async fn roots(&mut self) {
        let Some(root) = self.scratch.archive() else {
            return self.verified.skip("roots", "there is no archive");
        };
        let mut check = Check::new("roots");
        match tally_archive::Tables::read(&Reader::new(root)).await {
            Ok(tables) => {
                let made = verify_roots(&tables);
                let (roots, commits, events) = (made.roots, made.commits, made.events);
                check.said = format!("{roots} made again of {commits} commits and {events} events");
                for different in &made.different {
                    check.find(Finding::new(self.scratch.meant(&different.to_string()), Fix::Archive));
                }
                check.more += u64::from(made.has_more);
            }
            Err(error) => check.find(Finding::new(self.scratch.meant(&error.to_string()), Fix::Archive)),
        }
        self.verified.checks.push(check);
    }

    fn commits(&mut self, viewed: Option<&DataDir>, tables: &Tables, tell: Tell<'_>) -> CommitsSeen {
        let fates = Fates::new(tables, self.scratch);
        let (seen, checks) = commits::look(&self.data.join("commits"), viewed, tables, fates, tell);
        self.verified.checks.extend(checks);
        seen
    }

    /// Every byte of it; and a view of it, if it can be opened.
    fn store(&mut self, viewed: Option<&DataDir>, tell: Tell<'_>) -> Option<LocalStore> {
        let (mut check, mut read) = (Check::new("store"), 0);
        let examined = local::examine(&self.data.join("store"), &mut |bytes| {
            read += bytes;
            tell("store", read, read);
        });
        check.said = format!("{} tables, {} bytes", examined.tables, examined.bytes);
        examined.damages.iter().for_each(|damage| check.find(Finding::new(damage.clone(), Fix::Backup)));
        let opened = viewed.map(|viewed| LocalStore::view(&viewed.store(), viewed.identity.of_store(), CACHE_BYTES));
        let store = match opened {
            Some(Ok(store)) => store,
            // What was said of its files says why.
            Some(Err(_)) if !check.findings.is_empty() => None,
            Some(Err(error)) => {
                check.find(Finding::new(error.to_string(), Fix::Backup));
                None
            }
            None => None,
        };
        self.verified.checks.push(check);
        store
    }

    fn log(
        &mut self,
        viewed: Option<&DataDir>,
        commits: &CommitsSeen,
        store: Option<LocalStore>,
        tables: Tables,
        tell: Tell<'_>,
    ) {
        let claims = store.zip(viewed).map(|(store, viewed)| Claims::new(store, viewed.identity.hasher(), &tables));
        let checkpoint = claims.as_ref().and_then(Claims::checkpoint);
        let comparing = Comparing::new(tables, claims, self.scratch);
        let id = viewed.map(|viewed| viewed.identity.id);
        let checks = events::look(&self.data.join("log"), id, commits, checkpoint, comparing, tell);
        self.verified.checks.extend(checks);
    }
}
