//! The data directory: who may use it, and the numbers it was born with.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The version of `docs/formats/keys.md`.
const FORMAT: u64 = 2;
const IDENTITY: &str = "TALLY";
const LOCK: &str = "LOCK";
const LOG: &str = "log";
const STORE: &str = "store";

/// An open data directory. No other process can open it until this is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    pub identity: Identity,
    _lock: File,
}

/// Drawn at random when the directory is made, and never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of the hash by which counters are found on disk.
    pub hash_seed: u64,
    /// Marks the log's files as belonging here.
    pub log_id: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("another Tally is running on {0}; stop it, or choose another directory with --data")]
    InUse(PathBuf),
    #[error("{path} holds no data of this version of Tally: file {IDENTITY} says {found:?}")]
    Unknown { path: PathBuf, found: String },
    #[error(
        "{path} has data but has lost its file {IDENTITY}, without which no counter can be found; restore that file from a copy"
    )]
    LostIdentity { path: PathBuf },
    #[error("cannot use the data directory {path}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

impl DataDir {
    /// Opens a data directory or makes one; `random` is asked for numbers only when it is made.
    pub fn open(path: &Path, random: impl FnMut() -> io::Result<u64>) -> Result<DataDir, DataDirError> {
        let failed = |error| DataDirError::Io { path: path.to_owned(), error };
        create_durably(path).map_err(failed)?;
        let lock = File::create(path.join(LOCK)).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => DataDirError::InUse(path.to_owned()),
            TryLockError::Error(error) => failed(error),
        })?;
        let identity = match fs::read_to_string(path.join(IDENTITY)) {
            Ok(text) => {
                parse(&text).ok_or_else(|| DataDirError::Unknown { path: path.to_owned(), found: text.clone() })?
            }
            // Everything else comes later, so whoever has data has had an identity. A new one would not find the counters.
            Err(error)
                if error.kind() == ErrorKind::NotFound && (path.join(LOG).exists() || path.join(STORE).exists()) =>
            {
                return Err(DataDirError::LostIdentity { path: path.to_owned() });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => create(path, random).map_err(failed)?,
            Err(error) => return Err(failed(error)),
        };
        Ok(DataDir { path: path.to_owned(), identity, _lock: lock })
    }

    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    pub fn store(&self) -> PathBuf {
        self.path.join(STORE)
    }
}

/// Makes a directory and those above it, so that a power cut finds them.
fn create_durably(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_durably(parent)?;
    fs::create_dir(path)?;
    File::open(parent)?.sync_all()
}

fn create(path: &Path, mut random: impl FnMut() -> io::Result<u64>) -> io::Result<Identity> {
    let identity = Identity { hash_seed: random()?, log_id: random()? };
    let temporary = path.join("TALLY.new");
    let mut file = File::create(&temporary)?;
    write!(file, "format {FORMAT}\nhash-seed {}\nlog-id {}\n", identity.hash_seed, identity.log_id)?;
    file.sync_all()?;
    fs::rename(temporary, path.join(IDENTITY))?;
    File::open(path)?.sync_all()?;
    Ok(identity)
}

fn parse(text: &str) -> Option<Identity> {
    let mut lines = text.lines();
    let mut number = |name: &str| lines.next()?.strip_prefix(name)?.trim().parse::<u64>().ok();
    if number("format ")? != FORMAT {
        return None;
    }
    Some(Identity { hash_seed: number("hash-seed ")?, log_id: number("log-id ")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_identity() {
        let dir = tempfile::tempdir().unwrap();
        let mut next = 0;
        let mut random = || {
            next += 1;
            Ok(next)
        };
        let first = DataDir::open(dir.path(), &mut random).unwrap().identity;
        let second = DataDir::open(dir.path(), &mut random).unwrap().identity;
        assert_eq!(first, second);
        assert_eq!(first, Identity { hash_seed: 1, log_id: 2 });
    }

    #[test]
    fn a_directory_in_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _open = DataDir::open(dir.path(), || Ok(1)).unwrap();
        assert!(matches!(DataDir::open(dir.path(), || Ok(1)), Err(DataDirError::InUse(_))));
    }

    #[test]
    fn a_directory_of_another_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(IDENTITY), "format 1\n").unwrap();
        assert!(matches!(DataDir::open(dir.path(), || Ok(1)), Err(DataDirError::Unknown { .. })));
    }

    #[test]
    fn a_directory_that_has_data_and_no_identity_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), || Ok(1)).unwrap());
        fs::create_dir(dir.path().join(STORE)).unwrap();
        fs::remove_file(dir.path().join(IDENTITY)).unwrap();
        assert!(matches!(DataDir::open(dir.path(), || Ok(2)), Err(DataDirError::LostIdentity { .. })));
        assert!(!dir.path().join(IDENTITY).exists());
    }
}
