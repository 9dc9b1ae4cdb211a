//! A data directory that is being filled from a backup. It is none until it is finished: its identity is written last, and until then the
//! file `RESTORING` says what it will be, so that an interrupted restore goes on where it was.

use super::{COMMITS, DataDirError, DirIdentity, IDENTITY, LOG, RESTORING, STORE, take, write};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use tally_storage::label;

/// What a directory will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestorePlan {
    /// The name of the manifest.
    pub backup: String,
    pub identity: DirIdentity,
    /// Its log has higher epochs.
    pub epoch_above: u32,
}

/// Locked until it is dropped.
#[derive(Debug)]
pub struct NewDataDir {
    path: PathBuf,
    pub plan: RestorePlan,
    /// Objects of rows that its store has.
    pub loaded: usize,
    _lock: File,
}

impl NewDataDir {
    /// Begins one in an empty directory, as `plan` says, or goes on with one from the same backup.
    pub fn begin(
        path: &Path,
        backup: &str,
        plan: impl FnOnce() -> io::Result<RestorePlan>,
    ) -> Result<NewDataDir, DataDirError> {
        let lock = take(path)?;
        let failed = |error| DataDirError::Io { path: path.to_owned(), error };
        let has = |name: &str| path.join(name).exists();
        if has(IDENTITY) {
            return Err(DataDirError::NotNew { path: path.to_owned() });
        }
        let new = |plan, loaded| NewDataDir { path: path.to_owned(), plan, loaded, _lock: lock };
        match read(path)? {
            Some((plan, loaded)) if plan.backup == backup => Ok(new(plan, loaded)),
            Some((plan, _)) => Err(DataDirError::Unfinished { path: path.to_owned(), backup: plan.backup }),
            None if [LOG, STORE, COMMITS].into_iter().any(has) => Err(DataDirError::NotNew { path: path.to_owned() }),
            None => {
                let mut begun = new(plan().map_err(failed)?, 0);
                begun.note(0)?;
                Ok(begun)
            }
        }
    }

    /// The store has the rows of so many objects, durably.
    pub fn note(&mut self, loaded: usize) -> Result<(), DataDirError> {
        self.loaded = loaded;
        let RestorePlan { backup, identity: DirIdentity { id, hash_seed }, epoch_above } = &self.plan;
        let text =
            format!("backup {backup}\nid {id}\nhash-seed {hash_seed}\nepoch-above {epoch_above}\nloaded {loaded}\n");
        label::write(&self.path.join(RESTORING), &text).map_err(|error| self.failed(error))
    }

    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    pub fn store(&self) -> PathBuf {
        self.path.join(STORE)
    }

    /// Everything is there, durably: from here on it is a data directory.
    pub fn finish(self) -> Result<(), DataDirError> {
        // If the name stays, nobody looks at it any more.
        write(&self.path, self.plan.identity)
            .and_then(|()| fs::remove_file(self.path.join(RESTORING)))
            .map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> DataDirError {
        DataDirError::Io { path: self.path.clone(), error }
    }
}

/// A directory that is being filled is not used for anything else.
pub(super) fn refuse_unfinished(path: &Path) -> Result<(), DataDirError> {
    match unfinished(path)? {
        Some(backup) => Err(DataDirError::Unfinished { path: path.to_owned(), backup }),
        None => Ok(()),
    }
}

/// The backup that a directory is being filled from; `None` if it is not.
pub fn unfinished(path: &Path) -> Result<Option<String>, DataDirError> {
    Ok(read(path)?.map(|(plan, _)| plan.backup))
}

fn read(path: &Path) -> Result<Option<(RestorePlan, usize)>, DataDirError> {
    let text = match fs::read_to_string(path.join(RESTORING)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DataDirError::Io { path: path.to_owned(), error }),
    };
    let parsed = label::unseal(&text).and_then(|text| {
        let number = |name| label::field(text, name)?.parse::<u64>().ok();
        let identity = DirIdentity { id: number("id")?, hash_seed: number("hash-seed")? };
        let epoch_above = u32::try_from(number("epoch-above")?).ok()?;
        let plan = RestorePlan { backup: label::field(text, "backup")?.to_owned(), identity, epoch_above };
        Some((plan, usize::try_from(number("loaded")?).ok()?))
    });
    parsed.map(Some).ok_or_else(|| DataDirError::Unknown { path: path.to_owned(), found: text })
}
