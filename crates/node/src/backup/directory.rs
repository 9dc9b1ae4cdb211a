//! Backups in a directory: a file for each object. Whoever writes holds its lock alone, whoever reads holds it with others.

use super::{BackupError, Target};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const LOCK: &str = "LOCK";
/// What a file is called until it is whole. Nothing that is kept has such a name.
const UNFINISHED: &str = ".new";

pub struct Directory {
    root: PathBuf,
    /// There is none where nobody could write one.
    _lock: Option<File>,
}

impl Directory {
    /// To write to; it is made if it is not there. What others have left unfinished goes.
    pub fn open(root: &Path) -> Result<Directory, BackupError> {
        let failed = |error| failed(root, error);
        for folder in [root.to_owned(), root.join(super::manifest::FOLDER), root.join(super::manifest::OBJECTS)] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(root.join(LOCK));
        let lock = lock.map_err(failed)?;
        locked(root, lock.try_lock())?;
        let directory = Directory { root: root.to_owned(), _lock: Some(lock) };
        for folder in [super::manifest::FOLDER, super::manifest::OBJECTS] {
            directory.remove_unfinished(folder).map_err(failed)?;
        }
        Ok(directory)
    }

    /// To read from.
    pub fn view(root: &Path) -> Result<Directory, BackupError> {
        if !root.is_dir() {
            return Err(BackupError::NotThere(format!("there is no directory {}", root.display())));
        }
        let lock = match File::open(root.join(LOCK)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(root, error)),
        };
        if let Some(lock) = &lock {
            locked(root, lock.try_lock_shared())?;
        }
        Ok(Directory { root: root.to_owned(), _lock: lock })
    }

    /// To see what is there, and keep nobody from it.
    pub fn look(root: &Path) -> Directory {
        Directory { root: root.to_owned(), _lock: None }
    }

    fn remove_unfinished(&self, folder: &str) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join(folder))? {
            let path = entry?.path();
            if path.as_os_str().as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn failed(root: &Path, error: io::Error) -> BackupError {
    BackupError::Io { place: root.display().to_string(), error }
}

fn locked(root: &Path, result: Result<(), TryLockError>) -> Result<(), BackupError> {
    result.map_err(|error| match error {
        TryLockError::WouldBlock => BackupError::InUse(root.display().to_string()),
        TryLockError::Error(error) => failed(root, error),
    })
}

impl Target for Directory {
    fn has(&self, name: &str) -> io::Result<bool> {
        self.root.join(name).try_exists()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if self.has(name)? {
            return Ok(());
        }
        let (path, unfinished) = (self.root.join(name), self.root.join(format!("{name}{UNFINISHED}")));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(bytes)?;
        // Under its name there is only what a power cut leaves whole.
        file.sync_data()?;
        fs::rename(unfinished, path)
    }

    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.root.join(name))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.root.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.ends_with(UNFINISHED) {
                names.push(format!("{folder}/{name}"));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.root.join(name))
    }

    fn settle(&self) -> io::Result<()> {
        for folder in [super::manifest::OBJECTS, super::manifest::FOLDER, "."] {
            File::open(self.root.join(folder))?.sync_all()?;
        }
        Ok(())
    }
}
