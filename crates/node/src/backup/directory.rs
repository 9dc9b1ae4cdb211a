//! Backups in a directory: a file for each object. Whoever writes holds its lock alone, whoever reads holds it with others.
//!
//! A file has another name until it is durable: under its own there is only what a power cut leaves whole. Some are made durable together, as
//! each sync of a new file is a commit of the file system's journal, and the log may be on the same disk and wait for it.

use super::{BackupError, Target};
use rustix::fs::{Advice, fadvise};
use std::cell::RefCell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const LOCK: &str = "LOCK";
/// What a file is called until it is whole. Nothing that is kept has such a name.
const UNFINISHED: &str = ".new";
/// So many objects are synced and named together: a megabyte or two.
const TOGETHER: usize = 16;

pub struct Directory {
    root: PathBuf,
    unnamed: RefCell<Vec<Unnamed>>,
    /// There is none where nobody could write one.
    _lock: Option<File>,
}

/// What was written and has not got its name yet.
struct Unnamed {
    name: String,
    file: File,
}

impl Directory {
    fn new(root: &Path, lock: Option<File>) -> Directory {
        Directory { root: root.to_owned(), unnamed: RefCell::default(), _lock: lock }
    }

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
        let directory = Directory::new(root, Some(lock));
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
        Ok(Directory::new(root, lock))
    }

    /// To see what is there, and keep nobody from it.
    pub fn look(root: &Path) -> Directory {
        Directory::new(root, None)
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

    fn unfinished(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}{UNFINISHED}"))
    }

    /// Gives what was written its names, when all of it is durable. What cannot be synced never gets one.
    fn name_written(&self) -> io::Result<()> {
        let written = self.unnamed.take();
        written.iter().try_for_each(|Unnamed { file, .. }| file.sync_data())?;
        written.iter().try_for_each(|Unnamed { name, .. }| fs::rename(self.unfinished(name), self.root.join(name)))
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
        let is_unnamed = self.unnamed.borrow().iter().any(|written| written.name == name);
        Ok(is_unnamed || self.root.join(name).try_exists()?)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if self.has(name)? {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(self.unfinished(name))?;
        file.write_all(bytes)?;
        // Nobody reads it soon, so the system begins to write it now: one commit of the journal has all that are synced together.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        self.unnamed.borrow_mut().push(Unnamed { name: name.to_owned(), file });
        let is_enough = self.unnamed.borrow().len() >= TOGETHER;
        if is_enough { self.name_written() } else { Ok(()) }
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
        self.name_written()?;
        for folder in [super::manifest::OBJECTS, super::manifest::FOLDER, "."] {
            File::open(self.root.join(folder))?.sync_all()?;
        }
        Ok(())
    }

    /// Whoever writes holds the lock until they are done.
    fn withdraw(&self, name: &str) -> io::Result<()> {
        self.delete(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(root: &Path) -> Vec<String> {
        let names = fs::read_dir(root.join("objects")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn objects_get_their_names_together_when_all_of_them_are_durable() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::open(root.path()).unwrap();
        let name = |n: usize| format!("objects/{n:02}");
        (1..TOGETHER).for_each(|n| directory.put(&name(n), &[n as u8]).unwrap());
        assert!(files(root.path()).iter().all(|file| file.ends_with(UNFINISHED)), "{:?}", files(root.path()));
        assert!(directory.has(&name(1)).unwrap(), "it is not written twice");
        directory.put(&name(1), b"again").unwrap();
        directory.put(&name(TOGETHER), &[TOGETHER as u8]).unwrap();
        let named: Vec<_> = (1..=TOGETHER).map(name).collect();
        assert_eq!(directory.list("objects").unwrap(), named);
        assert_eq!(directory.get(&name(1)).unwrap(), [1]);
        assert_eq!(files(root.path()).len(), TOGETHER);
    }

    #[test]
    fn what_was_put_has_its_name_when_the_directory_has_settled_and_is_gone_if_it_never_did() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::open(root.path()).unwrap();
        directory.put("objects/a", b"a").unwrap();
        directory.settle().unwrap();
        assert_eq!(files(root.path()), ["a"]);
        directory.put("objects/b", b"b").unwrap();
        drop(directory);
        assert_eq!(files(root.path()), ["a", "b.new"]);
        Directory::open(root.path()).unwrap();
        assert_eq!(files(root.path()), ["a"]);
    }
}
