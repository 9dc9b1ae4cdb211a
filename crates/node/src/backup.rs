//! Backups: all that a node is at one position, in a place of its own, from which another node goes on ([`restore`]).
//!
//! A backup is *logical*: the rows of the store as of a checkpoint, and the part of the log that a start from there reads. Both are cut into
//! [`chunk`]s whose boundaries follow from what is in them, each kept as an object under the digest of its content. So what has not changed
//! since the last backup is there already, and one that was interrupted goes on where it was. A [`manifest`] names all of them and is written
//! last: a backup without one does not exist. (`docs/formats/backup.md`)

mod bucket;
pub mod chunk;
mod directory;
pub mod manifest;
mod place;
pub mod restore;
mod take;
mod work;

pub use manifest::ManifestName;
pub use place::{Place, PlaceError};
pub use work::{BackupHandle, BackupStatus, Backups, EndedBackup, Progress};

use crate::data_dir::DirIdentity;
use crate::engine::{Engine, Refusal};
use std::io::{self, ErrorKind};
use take::Taking;
use tally_storage::log::LogError;
use tally_storage::store;

/// Where objects are kept: a directory or a store of objects elsewhere. Names are short texts of letters, digits, `-`, `.` and `/`.
///
/// - [`Target::put`] leaves nothing or the whole object behind, whatever happens meanwhile. One that is there already is left alone.
/// - After [`Target::settle`] everything that was put is there for everybody, and survives a power cut. Before, only [`Target::has`] is sure to
///   know of it.
pub trait Target: Send {
    fn has(&self, name: &str) -> io::Result<bool>;
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    fn get(&self, name: &str) -> io::Result<Vec<u8>>;
    /// The names that begin with a folder's, in ascending order.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
    fn delete(&self, name: &str) -> io::Result<()>;
    /// Only whoever may still write can have it settled.
    fn settle(&self) -> io::Result<()>;
    /// Deletes what nobody else has written, whether one may still write or not.
    fn withdraw(&self, name: &str) -> io::Result<()>;

    /// Puts what names everything that was put before, when all of that is there. If somebody else may have begun to write before it was there
    /// itself, they may have removed what it names, so it goes again.
    fn publish(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.settle()?;
        let published = self.put(name, bytes).and_then(|()| self.settle());
        published.inspect_err(|_| match self.withdraw(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, name, "a backup that failed may be listed and not be whole: remove it");
            }
            _ => {}
        })
    }
}

/// Why a backup was not made, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Try again later.
    #[error("the backups in {place}: {error}")]
    Io { place: String, error: io::Error },
    #[error("somebody else writes or reads the backups in {0}: only one may write to them, and nobody else meanwhile")]
    InUse(String),
    /// Free some space, and take another.
    #[error(
        "there was no room for the part of the log that the backup was still to copy: the disk of the data directory is or was full"
    )]
    Lapsed,
    /// Take another backup.
    #[error("{object} is damaged: {what}. {remedy}")]
    Damaged { object: String, what: String, remedy: &'static str },
    #[error("{0}")]
    NotThere(String),
    /// Choose one.
    #[error(
        "{place} has backups of several servers, and nobody says which one is meant. The newest of each: {}",
        listed(newest)
    )]
    Several { place: String, newest: Vec<ManifestName> },
    /// Name another directory.
    #[error("{0}")]
    NotEmpty(String),
    #[error("{0}")]
    Store(#[from] store::Error),
    #[error("{0}")]
    Log(#[from] LogError),
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{0}")]
    DataDir(#[from] crate::data_dir::DataDirError),
}

/// Takes a backup of a node that nobody else waits for. `taken_ms` is what it is named by.
pub fn take_at_once(
    engine: &Engine,
    identity: DirIdentity,
    place: &Place,
    taken_ms: u64,
    random: impl FnOnce() -> io::Result<u64>,
    mut tell: impl FnMut(&Progress),
) -> Result<(ManifestName, Progress), BackupError> {
    let target = place.open(random)?;
    let mut taking = pollster::block_on(Taking::begin(engine, identity, target, place.clone(), taken_ms))?;
    loop {
        let made = taking.step()?;
        tell(&taking.progress);
        if let Some(name) = made {
            return Ok((name, taking.progress));
        }
    }
}

fn listed(names: &[ManifestName]) -> String {
    let shown = names.iter().map(|name| format!("{:016x}: {}", name.id, name.name));
    shown.collect::<Vec<_>>().join(", ")
}

/// What can be done about an object that is not what it was.
const OTHER_BACKUP: &str = "A backup that does not name it may be whole: choose one with --at. Remove the object, and the next backup \
                            writes it again if it is needed";

fn damaged(object: &str, what: impl std::fmt::Display) -> BackupError {
    BackupError::Damaged { object: object.to_owned(), what: what.to_string(), remedy: OTHER_BACKUP }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    /// A place that somebody else takes when it has been settled so many times.
    struct Lent {
        settles: Cell<u32>,
        there: RefCell<BTreeSet<String>>,
    }

    impl Target for Lent {
        fn has(&self, name: &str) -> io::Result<bool> {
            Ok(self.there.borrow().contains(name))
        }

        fn put(&self, name: &str, _: &[u8]) -> io::Result<()> {
            self.there.borrow_mut().insert(name.to_owned());
            Ok(())
        }

        fn get(&self, _: &str) -> io::Result<Vec<u8>> {
            Ok(Vec::new())
        }

        fn list(&self, _: &str) -> io::Result<Vec<String>> {
            Ok(self.there.borrow().iter().cloned().collect())
        }

        fn delete(&self, _: &str) -> io::Result<()> {
            Err(io::Error::other("somebody else writes"))
        }

        fn settle(&self) -> io::Result<()> {
            let left = self.settles.get().checked_sub(1).ok_or_else(|| io::Error::other("somebody else writes"))?;
            self.settles.set(left);
            Ok(())
        }

        fn withdraw(&self, name: &str) -> io::Result<()> {
            self.there.borrow_mut().remove(name);
            Ok(())
        }
    }

    #[test]
    fn a_manifest_stays_only_if_nobody_else_has_begun_to_write_before_it_was_there() {
        for (settles, is_there) in [(0, false), (1, false), (2, true)] {
            let place = Lent { settles: Cell::new(settles), there: RefCell::default() };
            assert_eq!(place.publish("manifests/a", b"").is_ok(), is_there, "{settles}");
            assert_eq!(place.has("manifests/a").unwrap(), is_there, "{settles}");
        }
    }
}
