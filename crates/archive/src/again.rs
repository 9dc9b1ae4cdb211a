//! Reads rows again, as they are in the files: commit by commit, with the hashes that they come to. Whoever checks the archive and
//! whoever proves something from it read the same way.

mod columns;
mod merged;

use crate::ArchiveError;
use crate::read::{ReadableFile, Reader};
use crate::schema::Table;
use columns::{Columns, chain_leaf, corrections, events, fates, signed_root};
use merged::Merged;
pub use merged::Row;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tally_core::proof::{CommitLeaf, CorrectionLeaf, EventLeaf, FateLeaf, Hash, Root, Signature};

/// The files of the tables that a root is made of.
#[derive(Default)]
pub struct Tables {
    /// Behind the last event that is there. `events` is committed last, so commits and roots may be ahead of it; they are passed over.
    to: u64,
    roots: Vec<ReadableFile>,
    chain: Vec<ReadableFile>,
    events: Vec<ReadableFile>,
    fates: Vec<ReadableFile>,
    corrections: Vec<ReadableFile>,
    base: Vec<ReadableFile>,
    configurations: Vec<ReadableFile>,
}

/// A root as the table has it.
#[derive(Clone, Debug)]
pub struct SignedRoot {
    pub root: Root,
    /// As it is written there.
    pub anchor: Hash,
    pub signature: Option<Signature>,
    pub file: PathBuf,
}

/// What was declared under a version.
#[derive(Clone, Debug)]
pub struct Declared {
    /// It is in force for what comes behind this offset.
    pub from: u64,
    pub yaml: String,
}

/// What of rows somebody wants to hold beside their hashes.
pub trait Keep {
    type Event;
    type Fate;
    type Correction;
    fn event(&self, row: &EventLeaf<'_>) -> Option<Self::Event>;
    fn fate(&self, row: &FateLeaf<'_>) -> Option<Self::Fate>;
    fn correction(&self, row: &CorrectionLeaf<'_>) -> Option<Self::Correction>;
}

/// A commit and its rows, each table's in the order of its tree.
pub struct CommitRows<K: Keep> {
    /// As `chain` has it.
    pub leaf: CommitLeaf,
    pub events: Vec<Row<K::Event>>,
    pub fates: Vec<Row<K::Fate>>,
    pub corrections: Vec<Row<K::Correction>>,
}

impl Tables {
    /// As of now; without files if there is no archive yet. Called inside a runtime.
    pub async fn read(reader: &Reader) -> Result<Tables, ArchiveError> {
        let mut tables = Tables::roots_only(reader).await?;
        tables.chain = files(reader, Table::Chain).await?;
        tables.events = files(reader, Table::Events).await?;
        tables.fates = files(reader, Table::Fates).await?;
        tables.corrections = files(reader, Table::Corrections).await?;
        tables.base = files(reader, Table::Base).await?;
        tables.configurations = files(reader, Table::Configurations).await?;
        Ok(tables)
    }

    pub async fn roots_only(reader: &Reader) -> Result<Tables, ArchiveError> {
        // First: what the others have up to here stays as it is.
        let to = reader.reached(Table::Events).await?.map_or(0, |reached| reached.to.offset);
        Ok(Tables { to, roots: files(reader, Table::Roots).await?, ..Tables::default() })
    }

    /// Behind the last event that is there.
    pub fn to(&self) -> u64 {
        self.to
    }

    /// All roots whose rows are there, the newest first.
    pub fn roots_newest_first(&self) -> impl Iterator<Item = Result<SignedRoot, ArchiveError>> {
        self.closed_newest_first().filter(|found| found.as_ref().map_or(true, |signed| signed.root.to <= self.to))
    }

    /// All roots that were ever closed, the newest first: those that are ahead of their events end where they do when these are there again.
    pub(crate) fn closed_newest_first(&self) -> impl Iterator<Item = Result<SignedRoot, ArchiveError>> {
        let mut files: Vec<&ReadableFile> = self.roots.iter().collect();
        files.sort_by_key(|file| std::cmp::Reverse(offsets(file).1));
        files.into_iter().flat_map(|file| {
            let mut found = roots_of(file);
            found.reverse();
            found
        })
    }

    /// Commits from one offset to another, one after the other. Stops at the first error.
    pub fn commits<K: Keep>(
        &self,
        from: u64,
        to: u64,
        keep: &K,
        mut each: impl FnMut(CommitRows<K>) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let mut chain = Merged::new(between(&self.chain, from, to + 1), |columns: &Columns<'_>| chain_leaf(columns))?;
        let mut events = Merged::new(between(&self.events, from, to), |columns: &Columns<'_>| events(columns, keep))?;
        let mut fates = Merged::new(between(&self.fates, from, to), |columns: &Columns<'_>| fates(columns, keep))?;
        let corrections = between(&self.corrections, from, to + 1);
        let mut corrections = Merged::new(corrections, |columns: &Columns<'_>| corrections_of(columns, keep))?;
        while let Some(row) = chain.next(to)? {
            let leaf = row.kept.expect("each commit is kept");
            if leaf.to <= from {
                continue;
            }
            let mut rows = CommitRows::<K> {
                events: events.between(leaf.from, leaf.to)?,
                fates: fates.between(leaf.from, leaf.to)?,
                corrections: corrections.between(leaf.from, leaf.to)?,
                leaf,
            };
            rows.fates.sort_by_key(|row| (row.offset, row.leaf));
            rows.corrections.sort_by_key(|row| (row.offset, row.leaf));
            each(rows)?;
        }
        Ok(())
    }

    /// Where the oldest base is, and what a counter was worth there.
    pub fn oldest_base(&self, id: &str) -> Result<Option<(u64, i64)>, ArchiveError> {
        oldest_base(&self.base, id)
    }

    /// What was declared, by its version.
    pub fn configurations(&self) -> Result<BTreeMap<u64, Declared>, ArchiveError> {
        configurations(&self.configurations)
    }

    fn all(&self) -> [(Table, &[ReadableFile]); 5] {
        [
            (Table::Events, &self.events),
            (Table::Fates, &self.fates),
            (Table::Corrections, &self.corrections),
            (Table::Chain, &self.chain),
            (Table::Roots, &self.roots),
        ]
    }

    /// The files of a table that may have rows of commits between two offsets.
    pub fn files_of(&self, table: Table, from: u64, to: u64) -> Vec<PathBuf> {
        let to = if matches!(table, Table::Events | Table::Fates) { to } else { to + 1 };
        let files = self.all().into_iter().find(|(kind, _)| *kind == table).map_or(&[][..], |(_, files)| files);
        between(files, from, to).into_iter().map(Path::to_owned).collect()
    }

    /// The table and the file that an error names; the commits if it names none.
    pub fn named_in(&self, error: &ArchiveError) -> (Table, Vec<PathBuf>) {
        let words = error.to_string();
        let named = |file: &&ReadableFile| words.contains(&*file.path.to_string_lossy());
        let found =
            |(table, files): (Table, &[ReadableFile])| Some((table, vec![files.iter().find(named)?.path.clone()]));
        self.all().into_iter().find_map(found).unwrap_or((Table::Chain, Vec::new()))
    }

    /// Where the first commit that is still there begins.
    pub fn chain_from(&self) -> Option<u64> {
        // A row is where its commit ends, so the first is behind that.
        self.chain.iter().map(|file| offsets(file).0).min()
    }
}

/// A correction stands where its commit ends; to be between where that begins and ends, as everything else, it is moved by one.
fn corrections_of<K: Keep>(columns: &Columns<'_>, keep: &K) -> Result<Vec<Row<K::Correction>>, ArchiveError> {
    let mut rows = corrections(columns, keep)?;
    rows.iter_mut().for_each(|row| row.offset = row.offset.saturating_sub(1));
    Ok(rows)
}

async fn files(reader: &Reader, table: Table) -> Result<Vec<ReadableFile>, ArchiveError> {
    Ok(reader.table(table).await?.map(|readable| readable.files).unwrap_or_default())
}

/// The least and the greatest offset of a file; if it does not say, it may have any.
fn offsets(file: &ReadableFile) -> (u64, u64) {
    let bounds = file.bounds.iter().find(|bounds| bounds.column == "offset");
    bounds.map_or((0, u64::MAX), |bounds| (bounds.least as u64, bounds.greatest as u64))
}

fn between(files: &[ReadableFile], from: u64, to: u64) -> Vec<&Path> {
    let overlaps = |file: &&ReadableFile| {
        let (least, greatest) = offsets(file);
        least < to && greatest >= from
    };
    files.iter().filter(overlaps).map(|file| file.path.as_path()).collect()
}

/// What was declared, by its version.
pub fn configurations(files: &[ReadableFile]) -> Result<BTreeMap<u64, Declared>, ArchiveError> {
    let mut all = BTreeMap::new();
    for file in files {
        for batch in merged::batches(&file.path)? {
            all.extend(columns::declared(&Columns { batch: &batch?, file: &file.path })?);
        }
    }
    Ok(all)
}

/// Where the oldest base is, and what a counter was worth there: nothing, if it is not in it.
fn oldest_base(files: &[ReadableFile], id: &str) -> Result<Option<(u64, i64)>, ArchiveError> {
    let Some(oldest) = files.iter().map(|file| offsets(file).0).min() else { return Ok(None) };
    let mut value = 0;
    for file in files.iter().filter(|file| offsets(file).0 == oldest) {
        for batch in merged::batches(&file.path)? {
            let batch = batch?;
            value += columns::worth(&Columns { batch: &batch, file: &file.path }, oldest, id)?;
        }
    }
    Ok(Some((oldest, value)))
}

fn roots_of(file: &ReadableFile) -> Vec<Result<SignedRoot, ArchiveError>> {
    let read = || -> Result<Vec<SignedRoot>, ArchiveError> {
        let mut all = Vec::new();
        for batch in merged::batches(&file.path)? {
            let batch = batch?;
            let columns = Columns { batch: &batch, file: &file.path };
            for row in 0..batch.num_rows() {
                all.push(signed_root(&columns, row)?);
            }
        }
        Ok(all)
    };
    match read() {
        Ok(all) => all.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    }
}
