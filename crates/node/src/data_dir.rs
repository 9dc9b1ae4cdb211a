//! The data directory: who may use it, the numbers it was born with, and that all its parts are of one directory.

pub mod new;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tally_core::id::CellHasher;
use tally_storage::label;
use tally_storage::log::local::LocalLog;
use tally_storage::store::local::{self, LocalStore};

/// The version of `docs/formats/keys.md`.
const FORMAT: u64 = 5;
/// The oldest that is carried over at a start.
const FORMAT_OLDEST: u64 = 2;
/// The first version of Tally that reads this format. Whoever finds a newer format than it knows names what that says.
const READ_BY: &str = "0.1.0";
const IDENTITY: &str = "TALLY";
const LOCK: &str = "LOCK";
/// In a directory that is being filled from a backup: from which one, and how far.
const RESTORING: &str = "RESTORING";
const LOG: &str = "log";
const COMMITS: &str = "commits";
const SPILL: &str = "spill";
const STORE: &str = "store";
const ANOMALIES: &str = "ANOMALIES";

/// An open data directory. No other process can open it until this is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    pub identity: DirIdentity,
    /// There is none in a directory that is only looked at and was never used.
    _lock: Option<File>,
}

/// Drawn at random when the directory is made, and never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirIdentity {
    /// Of the directory; each of its parts has it.
    pub id: u64,
    /// Of the hash by which counters are found on disk.
    pub hash_seed: u64,
}

impl DirIdentity {
    pub fn hasher(&self) -> CellHasher {
        CellHasher::new(self.hash_seed)
    }

    /// What the store keeps of it.
    pub fn of_store(&self) -> local::StoreIdentity {
        local::StoreIdentity { id: self.id, seed_check: self.hasher().key(b"tally").to_bytes() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("another Tally is running on {0}; stop it, or choose another directory with --data")]
    InUse(PathBuf),
    #[error(
        "{path} holds no data of Tally: file {IDENTITY} says {found:?}. Restore that file from a copy, or choose another directory with --data"
    )]
    Unknown { path: PathBuf, found: String },
    #[error(
        "file {IDENTITY} in {path} was changed or damaged: its checksum does not match. Restore that file from a copy"
    )]
    Damaged { path: PathBuf },
    #[error(
        "{path} has data of format {format}; this Tally, {}, reads formats {FORMAT_OLDEST} to {FORMAT}. Start it with Tally {read_by} or newer",
        env!("CARGO_PKG_VERSION")
    )]
    Newer { path: PathBuf, format: u64, read_by: String },
    #[error(
        "{path} has data of format {format}, from before Tally {READ_BY}; this Tally, {}, reads formats {FORMAT_OLDEST} to {FORMAT}. Start it with the program that wrote it, or choose another directory with --data",
        env!("CARGO_PKG_VERSION")
    )]
    Older { path: PathBuf, format: u64 },
    #[error(
        "{path}: {what} belongs to another data directory. Put back the one that belongs here: all parts must be of one copy"
    )]
    Foreign { path: PathBuf, what: &'static str },
    #[error(
        "{path} has data but has lost its file {IDENTITY}, without which no counter can be found; restore that file from a copy"
    )]
    LostIdentity { path: PathBuf },
    #[error("{path} has data of format {format}, which could not be carried over to format {FORMAT}: {error}")]
    NotCarried { path: PathBuf, format: u64, error: tally_storage::store::Error },
    #[error(
        "{path} is being filled from the backup {backup}, and that has not come to its end: run tally restore with the same backup again, or \
         remove the directory"
    )]
    Unfinished { path: PathBuf, backup: String },
    #[error("{path} has data already: a backup is restored to a directory of its own. Name another one with --data")]
    NotNew { path: PathBuf },
    #[error("there is no data directory at {path}")]
    Missing { path: PathBuf },
    #[error("cannot use the data directory {path}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

impl DataDir {
    /// Opens a data directory or makes one; `random` is asked for numbers only when it is made.
    pub fn open(path: &Path, random: impl FnMut() -> io::Result<u64>) -> Result<DataDir, DataDirError> {
        let failed = |error| DataDirError::Io { path: path.to_owned(), error };
        let lock = take(path)?;
        let data_dir = |identity| DataDir { path: path.to_owned(), identity, _lock: Some(lock) };
        let Some((format, identity)) = read(path)? else {
            new::refuse_unfinished(path)?;
            return Ok(data_dir(create(path, random).map_err(failed)?));
        };
        check_parts(path, identity)?;
        if format < FORMAT {
            carry_over(path, format, identity)?;
        }
        Ok(data_dir(identity))
    }

    /// Looks at a data directory of any known format. Nothing in it is changed.
    pub fn view(path: &Path) -> Result<DataDir, DataDirError> {
        let LookLock(lock) = LookLock::take(path)?;
        let Some((_, identity)) = read(path)? else {
            new::refuse_unfinished(path)?;
            return Err(DataDirError::Missing { path: path.to_owned() });
        };
        check_parts(path, identity)?;
        Ok(DataDir { path: path.to_owned(), identity, _lock: lock })
    }

    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// What questions put aside that does not fit into memory.
    pub fn spill(&self) -> PathBuf {
        self.path.join(SPILL)
    }

    pub fn commits(&self) -> PathBuf {
        self.path.join(COMMITS)
    }

    /// What is kept of anomalies; nothing depends on it.
    pub fn anomalies(&self) -> PathBuf {
        self.path.join(ANOMALIES)
    }

    pub fn store(&self) -> PathBuf {
        self.path.join(STORE)
    }
}

/// Keeps everybody from a data directory who would change it, and lets others look at it.
#[derive(Debug)]
pub struct LookLock(Option<File>);

impl LookLock {
    /// There need not be anything to lock in a directory that was never used.
    pub fn take(path: &Path) -> Result<LookLock, DataDirError> {
        if !path.is_dir() {
            return Err(DataDirError::Missing { path: path.to_owned() });
        }
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(DataDirError::Io { path: path.to_owned(), error }),
        };
        if let Some(lock) = &lock {
            locked(path, lock.try_lock_shared())?;
        }
        Ok(LookLock(lock))
    }
}

/// Makes the directory if it is not there, and locks it.
fn take(path: &Path) -> Result<File, DataDirError> {
    let failed = |error| DataDirError::Io { path: path.to_owned(), error };
    create_durably(path, 0o700).map_err(failed)?;
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600).open(path.join(LOCK)).map_err(failed)?;
    locked(path, lock.try_lock())?;
    Ok(lock)
}

fn locked(path: &Path, result: Result<(), TryLockError>) -> Result<(), DataDirError> {
    result.map_err(|error| match error {
        TryLockError::WouldBlock => DataDirError::InUse(path.to_owned()),
        TryLockError::Error(error) => DataDirError::Io { path: path.to_owned(), error },
    })
}

/// Makes a directory and those above it, so that a power cut finds them.
fn create_durably(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_durably(parent, 0o777)?;
    DirBuilder::new().mode(mode).create(path)?;
    File::open(parent)?.sync_all()
}

fn create(path: &Path, mut random: impl FnMut() -> io::Result<u64>) -> io::Result<DirIdentity> {
    let identity = DirIdentity { id: random()?, hash_seed: random()? };
    write(path, identity)?;
    Ok(identity)
}

fn write(path: &Path, identity: DirIdentity) -> io::Result<()> {
    let DirIdentity { id, hash_seed } = identity;
    let text = format!("format {FORMAT}\nread-by {READ_BY}\nid {id}\nhash-seed {hash_seed}\n");
    label::write(&path.join(IDENTITY), &text)
}

/// What the identity file says, and in which format; `None` if the directory is new.
fn read(path: &Path) -> Result<Option<(u64, DirIdentity)>, DataDirError> {
    match fs::read(path.join(IDENTITY)) {
        Ok(bytes) => parse(path, &String::from_utf8_lossy(&bytes)).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound && path.join(RESTORING).exists() => Ok(None),
        // Everything else comes later, so whoever has data has had an identity. A new one would not find the counters.
        Err(error) if error.kind() == ErrorKind::NotFound && (path.join(LOG).exists() || path.join(STORE).exists()) => {
            Err(DataDirError::LostIdentity { path: path.to_owned() })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DataDirError::Io { path: path.to_owned(), error }),
    }
}

fn parse(path: &Path, text: &str) -> Result<(u64, DirIdentity), DataDirError> {
    if let Some(identity) = of_format_2(text) {
        return Ok((2, identity));
    }
    let path = path.to_owned();
    let format = label::field(text, "format").and_then(|format| format.parse::<u64>().ok());
    let Some(format) = format else { return Err(DataDirError::Unknown { path, found: text.to_owned() }) };
    if format < FORMAT_OLDEST {
        return Err(DataDirError::Older { path, format });
    }
    let Some(text) = label::unseal(text) else { return Err(DataDirError::Damaged { path }) };
    if format > FORMAT {
        let read_by = label::field(text, "read-by").unwrap_or("of the version that wrote it").to_owned();
        return Err(DataDirError::Newer { path, format, read_by });
    }
    let number = |name| label::field(text, name)?.parse().ok();
    match (number("id"), number("hash-seed")) {
        (Some(id), Some(hash_seed)) => Ok((format, DirIdentity { id, hash_seed })),
        _ => Err(DataDirError::Unknown { path, found: text.to_owned() }),
    }
}

/// Three lines, without a checksum.
fn of_format_2(text: &str) -> Option<DirIdentity> {
    let rest = text.strip_prefix("format 2\nhash-seed ")?;
    let (hash_seed, rest) = rest.split_once("\nlog-id ")?;
    Some(DirIdentity { id: rest.strip_suffix('\n')?.parse().ok()?, hash_seed: hash_seed.parse().ok()? })
}

/// Refuses a directory that was put together from several.
fn check_parts(path: &Path, identity: DirIdentity) -> Result<(), DataDirError> {
    // What cannot be read now is refused, with all that can be said about it, when it is opened.
    let log = LocalLog::belongs_to(&path.join(LOG)).unwrap_or_default().map(|id| id == identity.id);
    let store = LocalStore::belongs_to(&path.join(STORE)).unwrap_or_default().map(|id| id == identity.id);
    let what = match (log, store) {
        (None | Some(true), None | Some(true)) => return Ok(()),
        (Some(false), Some(true)) => "log/",
        (Some(true), Some(false)) => "store/",
        (Some(false), Some(false)) => "file TALLY",
        (Some(false), None) => "log/ or file TALLY",
        (None, Some(false)) => "store/ or file TALLY",
    };
    Err(DataDirError::Foreign { path: path.to_owned(), what })
}

/// The identity file changes last: until then everything is done again after a crash. In format 3 batches had no heads, and are
/// read without; in format 4 answers to idempotency keys stood elsewhere, and are looked for there as long as they are known. So there is
/// nothing to do but to keep older programs, which would not read what comes next, from it.
fn carry_over(path: &Path, format: u64, identity: DirIdentity) -> Result<(), DataDirError> {
    if format == 2 {
        let hasher = identity.hasher();
        local::carry_over(&path.join(STORE), identity.of_store(), |id| hasher.key(id))
            .map_err(|error| DataDirError::NotCarried { path: path.to_owned(), format, error })?;
    }
    let written = fs::set_permissions(path, Permissions::from_mode(0o700)).and_then(|()| write(path, identity));
    written.map_err(|error| DataDirError::Io { path: path.to_owned(), error })?;
    tracing::info!("the data directory was carried over from format {format} to {FORMAT}");
    Ok(())
}
