//! What the archive writes down of commits: their rows, their place in the tree, and the roots of hours that are over.

use super::Archive;
use crate::again::{SignedRoot, Tables};
use crate::bounds::BATCH_ROWS;
use crate::rows::{Place, Reasons, each_correction, hour_of, root_row, with_fate};
use crate::table::TableWriter;
use crate::tree::{Closed, Counted, Sign};
use crate::{ArchiveError, Reader};
use iceberg::spec::Literal;
use std::path::Path;
use std::sync::Arc;
use tally_core::commit::Commit;
use tally_core::ledger::Correction;
use tally_core::proof::{Hash, Root};

/// A commit of the log, as far as tables know of it.
pub struct Told<'a> {
    /// Without the entries that need not be told.
    pub commit: &'a Commit,
    /// Why each of those that it tells of was not counted.
    pub reasons: &'a Reasons,
    /// The hash of its head, as it was made.
    pub head: Hash,
    /// Those that it names, with all their deltas.
    pub corrections: &'a [Correction],
    /// What became of its entries, those that need not be told among them.
    pub counted: &'a Counted<'a>,
}

impl Archive {
    /// Has anchors signed from here on.
    pub fn sign_with(&mut self, signer: Arc<dyn Sign>) {
        self.signer = Some(signer);
    }

    /// What a commit of the log says of its entries and corrections. All of its events were handed over.
    pub async fn told(&mut self, told: Told<'_>) -> Result<(), ArchiveError> {
        let hour = i64::from(hour_of(told.commit.log_time_ms));
        if self.tree.hour().is_some_and(|open| open != hour) && !self.close_root().await? {
            let what = "the table roots: a root goes on behind the end of its hour";
            return Err(ArchiveError::Damaged(what.to_owned()));
        }
        let fates = self.tell_fates(&told).await?;
        let corrections = self.tell_corrections(&told).await?;
        let leaf = self.tree.commit(told.commit, told.head, fates, corrections);
        self.tree.count(told.counted);
        if is_new(&self.chain, told.commit)? {
            let place = place(told.commit);
            if self.chain_rows.len() > 0
                && (self.chain_rows.hour != place.hour() || self.chain_rows.len() >= BATCH_ROWS)
            {
                self.write_chain().await?;
            }
            self.chain_rows.push(place, &leaf);
        }
        if self.tree.is_known_to_end() {
            self.close_root().await?;
        }
        Ok(())
    }

    async fn tell_fates(&mut self, told: &Told<'_>) -> Result<Vec<(u64, Hash)>, ArchiveError> {
        let Told { commit, reasons, .. } = *told;
        let (is_new, hour) = (is_new(&self.fates, commit)?, place(commit).hour());
        let mut leaves = Vec::with_capacity(commit.exceptions.len());
        assert_eq!(commit.exceptions.len(), reasons.len(), "each has a place for its reason");
        for (exception, reason) in commit.exceptions.iter().zip(reasons) {
            with_fate(commit, exception, reason.as_deref(), |row| {
                leaves.push((row.position.offset, row.hash()));
                if is_new {
                    self.fate_rows.push(&row);
                }
            });
            if self.fate_rows.len() >= BATCH_ROWS {
                self.write_fates(hour).await?;
            }
        }
        self.write_fates(hour).await?;
        Ok(leaves)
    }

    async fn write_fates(&mut self, hour: i32) -> Result<(), ArchiveError> {
        if self.fate_rows.len() == 0 {
            return Ok(());
        }
        self.fates.write(vec![Literal::int(hour)], self.fate_rows.take()?).await
    }

    async fn tell_corrections(&mut self, told: &Told<'_>) -> Result<Vec<(u64, Hash)>, ArchiveError> {
        let (is_new, mut leaves) = (is_new(&self.corrections, told.commit)?, Vec::new());
        let place = place(told.commit);
        for correction in told.corrections {
            each_correction(place, correction, |row| {
                leaves.push((row.position.offset, row.hash()));
                if is_new {
                    self.correction_rows.push(&row);
                }
            });
        }
        if self.correction_rows.len() > 0 {
            self.corrections.write(vec![Literal::int(place.hour())], self.correction_rows.take()?).await?;
        }
        Ok(leaves)
    }

    pub(super) async fn write_chain(&mut self) -> Result<(), ArchiveError> {
        if self.chain_rows.len() == 0 {
            return Ok(());
        }
        let hour = Literal::int(self.chain_rows.hour);
        self.chain.write(vec![hour], self.chain_rows.take()?).await
    }

    /// Closes the root of all commits since the last one, whether their hour is over or not. Answers whether there were any.
    pub async fn close_root(&mut self) -> Result<bool, ArchiveError> {
        let Some(Closed { root, is_new }) = self.tree.close()? else { return Ok(false) };
        if is_new {
            let signature = self.signer.as_ref().map(|signer| signer.sign(&root.anchor()));
            self.roots.write(vec![], root_row(&root, signature.as_ref())?).await?;
        }
        Ok(true)
    }

    /// The hour of the root that is not closed yet, if it has commits.
    pub fn open_hour(&self) -> Option<i64> {
        self.tree.hour()
    }

    /// Commits and roots that nobody can read yet.
    pub fn pending_commits(&self) -> u64 {
        self.chain.rows() + self.chain_rows.len() as u64
    }

    /// Whether no file has rows that nobody can read yet.
    pub fn is_at_rest(&self) -> bool {
        self.pending() + self.chain.rows() + self.roots.rows() == 0
    }

    pub fn pending_roots(&self) -> u64 {
        self.roots.rows()
    }
}

/// The roots of an archive that were closed, from a number on, the oldest first.
pub async fn roots_from(directory: &Path, number: u64) -> Result<Vec<Root>, ArchiveError> {
    let tables = Tables::roots_only(&Reader::new(directory.to_owned())).await?;
    let mut all = Vec::new();
    for found in tables.closed_newest_first() {
        match found? {
            SignedRoot { root, .. } if root.number >= number => all.push(root),
            _ => break,
        }
    }
    all.reverse();
    Ok(all)
}

fn place(commit: &Commit) -> Place {
    Place { position: commit.to, log_time_ms: commit.log_time_ms }
}

fn is_new(table: &TableWriter, commit: &Commit) -> Result<bool, ArchiveError> {
    Ok(table.reached()?.is_none_or(|reached| reached.to.offset < commit.to.offset))
}
