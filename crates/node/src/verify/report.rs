//! What was looked at, and what was found.

use std::path::Path;
use tally_core::limits::VERIFY_FINDINGS_MAX;

/// All checks, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    pub checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Clone, Debug)]
pub struct Check {
    pub name: &'static str,
    /// How much was looked at.
    pub said: String,
    /// Why nothing was.
    pub skipped: Option<String>,
    pub findings: Vec<Finding>,
    /// So many more were found.
    pub more: u64,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// In words: what is there, and what should be.
    pub what: String,
    pub file: Option<String>,
    /// The byte in it.
    pub at: Option<u64>,
    /// The record of the log.
    pub record: Option<u64>,
    pub counter: Option<String>,
    pub key: Option<String>,
    pub expected: Option<String>,
    pub found: Option<String>,
    pub fix: Fix,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fix {
    /// The words say it.
    #[default]
    AsSaid,
    Copy,
    Backup,
    Log,
    Commits,
    Archive,
    Reconcile,
    Total,
    Ids,
}

impl Fix {
    pub fn words(self) -> &'static str {
        match self {
            Fix::AsSaid => "as it says",
            Fix::Copy => "put the file back from a copy of this directory, or restore a backup with tally restore",
            Fix::Backup => "restore a backup with tally restore, or the whole directory from a copy",
            Fix::Log => {
                "restore a backup with tally restore, or the log's files from a copy. tally serve --discard-from N gives up record N and all \
                 behind it; what the archive has of them can be looked up there before"
            }
            Fix::Commits => {
                "restore the directory from a copy; or remove its directory commits/ while no server runs, and whoever follows begins anew from a \
                 snapshot"
            }
            Fix::Archive => {
                "restore the archive's files from a copy. Or move its directory away: a new archive begins where the log does, or with what the \
                 counters are worth now"
            }
            Fix::Reconcile => {
                "tally reconcile --apply on a running server brings the counters to what the archive says, by a correction that can be reverted"
            }
            Fix::Total => {
                "tally reconcile --apply, if its keys are compared; a correction of kind restore by hand, if it is known which key is wrong; or \
                 restore a backup with tally restore"
            }
            Fix::Ids => {
                "restore a backup with tally restore: an event with such an id would be counted once more. Until then, tally reconcile --apply puts \
                 right what repeats have added"
            }
        }
    }
}

impl Verified {
    pub fn findings(&self) -> u64 {
        self.checks.iter().map(|check| check.findings.len() as u64 + check.more).sum()
    }

    pub(super) fn skip(&mut self, name: &'static str, why: &str) {
        self.checks.push(Check { skipped: Some(why.to_owned()), ..Check::new(name) });
    }
}

impl Check {
    pub fn new(name: &'static str) -> Check {
        Check { name, said: String::new(), skipped: None, findings: Vec::new(), more: 0 }
    }

    pub(super) fn find(&mut self, finding: Finding) {
        if self.findings.len() < VERIFY_FINDINGS_MAX { self.findings.push(finding) } else { self.more += 1 }
    }
}

impl Finding {
    pub(super) fn new(what: impl Into<String>, fix: Fix) -> Finding {
        Finding { what: what.into(), fix, ..Finding::default() }
    }

    pub(super) fn in_file(self, file: impl AsRef<Path>) -> Finding {
        Finding { file: Some(file.as_ref().display().to_string()), ..self }
    }

    pub(super) fn at_record(self, record: u64) -> Finding {
        Finding { record: Some(record), ..self }
    }

    pub(super) fn instead_of(self, found: impl ToString, expected: impl ToString) -> Finding {
        Finding { found: Some(found.to_string()), expected: Some(expected.to_string()), ..self }
    }
}
