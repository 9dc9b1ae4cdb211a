//! The second log: every commit that is there can be read, begins where the one before ends and is chained to it; and each table of the
//! archive that says to be at the end of one says the same of it.

use super::Tell;
use super::fates::Fates;
use super::files::Tables;
use super::report::{Check, Finding, Fix};
use super::segments::{self, Damage, SeenBatch, Visit};
use crate::data_dir::DataDir;
use std::collections::BTreeSet;
use std::path::Path;
use tally_core::commit::{Commit, Parts, Taken};
use tally_core::position::Position;

/// What the commits say of the log.
#[derive(Default)]
pub struct CommitsSeen {
    /// Where the last one that can be read ends.
    pub to: Option<Position>,
    /// Offsets of batches that count for nothing: an embedded log has none but those of a sender who came again.
    pub voids: BTreeSet<u64>,
}

struct Following<'a> {
    check: Check,
    seen: CommitsSeen,
    parts: Parts,
    last: Option<Commit>,
    commits: u64,
    tables: &'a Tables,
    fates: Fates<'a>,
}

pub fn look<'a>(
    directory: &Path,
    viewed: Option<&DataDir>,
    tables: &'a Tables,
    fates: Fates<'a>,
    tell: Tell<'_>,
) -> (CommitsSeen, [Check; 2]) {
    let mut following = Following {
        check: Check::new("commits"),
        seen: CommitsSeen::default(),
        parts: Parts::default(),
        last: None,
        commits: 0,
        tables,
        fates,
    };
    let id = viewed.map(|viewed| viewed.identity.id);
    segments::walk(directory, id, &mut following, &mut |done, of| tell("commits", done, of));
    let Following { mut check, seen, commits, fates, .. } = following;
    check.said = format!("{commits} commits");
    (seen, [check, fates.finish()])
}

impl Following<'_> {
    fn commit(&mut self, commit: Commit, batch: &SeenBatch<'_>) {
        let find = |what: String| {
            let finding = Finding { at: Some(batch.at as u64), ..Finding::new(what, Fix::Commits) };
            finding.in_file(batch.file).at_record(commit.from.offset)
        };
        if let Some(what) = self.last.as_ref().and_then(|last| commit.unchained(last)) {
            self.check.find(find(what));
        }
        for (name, reached) in self.tables.reached.iter().filter(|(_, reached)| reached.to.offset == commit.to.offset) {
            let told = (reached.to, reached.log_time_ms, reached.digest);
            let made = (commit.to, commit.log_time_ms, commit.digest);
            if told != made {
                let what = format!(
                    "the table {name} of the archive says that it is at {}, {} ms, digest {}; the commit that ends there says {}, {} ms, {}",
                    told.0, told.1, told.2, made.0, made.1, made.2
                );
                let finding = Finding::new(what, Fix::Archive).at_record(commit.to.offset);
                self.check.find(finding);
            }
        }
        self.fates.commit(&commit);
        self.commits += 1;
        self.seen.to = Some(commit.to);
        self.seen.voids.extend(commit.voids.iter().map(|void| void.offset));
        self.last = Some(commit);
    }
}

impl Visit for Following<'_> {
    fn batch(&mut self, batch: &SeenBatch<'_>) {
        match self.parts.take(batch.header.base_offset, batch.records) {
            Taken::Part | Taken::Followed => {}
            Taken::Commit(Ok(commit)) => self.commit(*commit, batch),
            Taken::Commit(Err(error)) => {
                // Nobody knows what it said, so nothing is chained to it.
                self.last = None;
                let what = format!("a commit that ends in record {} cannot be read: {error}", batch.header.base_offset);
                let finding = Finding { at: Some(batch.at as u64), ..Finding::new(what, Fix::Commits) };
                self.check.find(finding.in_file(batch.file));
            }
        }
    }

    fn damage(&mut self, damage: Damage) {
        self.last = None;
        let what = format!("{} at byte {}: {}", damage.file.display(), damage.at, damage.what);
        let finding = Finding { at: Some(damage.at), ..Finding::new(what, Fix::Commits) };
        self.check.find(finding.in_file(&damage.file));
    }
}
