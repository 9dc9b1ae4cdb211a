//! Files of the archive on a directory: what was written is on the disk before anybody is told of it.
//!
//! Iceberg's own local files are not synced when they are written at once, nor are the directories they are in. The log is freed
//! once the archive has it, so both have to be. Tables name their files by where they were made; if the directory was moved since,
//! they are found where it is now.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt};
use iceberg::io::{
    FileMetadata, FileRead, FileWrite, InputFile, LocalFsStorage, OutputFile, Storage, StorageConfig, StorageFactory,
};
use iceberg::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Disk {
    files: LocalFsStorage,
    /// Where it is.
    root: PathBuf,
    /// What its tables call that place.
    recorded: String,
}

impl Disk {
    /// `recorded` is where the tables say that they are, if they were made somewhere else.
    pub fn new(root: &Path, recorded: Option<String>) -> Disk {
        let recorded = recorded.unwrap_or_else(|| location(root));
        Disk { files: LocalFsStorage::new(), root: root.to_owned(), recorded }
    }

    /// What tables call the directory.
    pub fn location(&self) -> &str {
        &self.recorded
    }

    /// Where something is that a table names.
    pub fn path(&self, location: &str) -> PathBuf {
        match location.strip_prefix(&self.recorded) {
            Some(below) => self.root.join(below.trim_start_matches('/')),
            None => PathBuf::from(location.strip_prefix("file://").unwrap_or(location)),
        }
    }

    fn text(&self, location: &str) -> Result<String> {
        let path = self.path(location);
        path.to_str().map(str::to_owned).ok_or_else(|| failed(&path, "name", "it is not UTF-8"))
    }
}

/// A directory as tables name it.
fn location(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

fn failed(path: &Path, what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unexpected, format!("cannot {what} {}: {error}", path.display()))
}

/// Makes the directory of a file, and those above it, so that they are there after a power cut, too.
fn make_room(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    if parent.is_dir() {
        return Ok(());
    }
    make_room(parent)?;
    match fs::create_dir(parent) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(parent, "make", error)),
        _ => sync_directory(parent),
    }
}

/// Makes durable which files a file's directory has.
fn sync_directory(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(|error| failed(parent, "sync", error))
}

/// A file that is on the disk once it is closed.
struct SyncedFile {
    path: PathBuf,
    file: Option<File>,
}

impl SyncedFile {
    fn create(path: PathBuf) -> Result<SyncedFile> {
        make_room(&path)?;
        // Never over another: whoever has been fenced off must not harm what is named by somebody's commit.
        let file = File::create_new(&path).map_err(|error| failed(&path, "create", error))?;
        Ok(SyncedFile { path, file: Some(file) })
    }
}

#[async_trait]
impl FileWrite for SyncedFile {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let file = self.file.as_mut().ok_or_else(|| failed(&self.path, "write", "it is closed"))?;
        file.write_all(&bytes).map_err(|error| failed(&self.path, "write", error))
    }

    async fn close(&mut self) -> Result<()> {
        let file = self.file.take().ok_or_else(|| failed(&self.path, "close", "it is closed"))?;
        file.sync_all().map_err(|error| failed(&self.path, "sync", error))?;
        sync_directory(&self.path)
    }
}

#[async_trait]
#[typetag::serde]
impl Storage for Disk {
    async fn exists(&self, path: &str) -> Result<bool> {
        self.files.exists(&self.text(path)?).await
    }

    async fn metadata(&self, path: &str) -> Result<FileMetadata> {
        self.files.metadata(&self.text(path)?).await
    }

    async fn read(&self, path: &str) -> Result<Bytes> {
        self.files.read(&self.text(path)?).await
    }

    async fn reader(&self, path: &str) -> Result<Box<dyn FileRead>> {
        self.files.reader(&self.text(path)?).await
    }

    async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        let mut file = SyncedFile::create(self.path(path))?;
        file.write(bytes).await?;
        file.close().await
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWrite>> {
        Ok(Box::new(SyncedFile::create(self.path(path))?))
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.files.delete(&self.text(path)?).await
    }

    async fn delete_prefix(&self, path: &str) -> Result<()> {
        self.files.delete_prefix(&self.text(path)?).await
    }

    async fn delete_stream(&self, mut paths: BoxStream<'static, String>) -> Result<()> {
        while let Some(path) = paths.next().await {
            self.delete(&path).await?;
        }
        Ok(())
    }

    fn new_input(&self, path: &str) -> Result<InputFile> {
        Ok(InputFile::new(Arc::new(self.clone()), path.to_owned()))
    }

    fn new_output(&self, path: &str) -> Result<OutputFile> {
        Ok(OutputFile::new(Arc::new(self.clone()), path.to_owned()))
    }
}

#[typetag::serde]
impl StorageFactory for Disk {
    fn build(&self, _: &StorageConfig) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_moved_directory_has_is_found_where_it_is_now() {
        let disk = Disk::new(Path::new("/new/place"), Some("file:///old/place".to_owned()));
        assert_eq!(disk.path("file:///old/place/events/data/1.parquet"), Path::new("/new/place/events/data/1.parquet"));
        assert_eq!(disk.location(), "file:///old/place");
        let disk = Disk::new(Path::new("/new/place"), None);
        assert_eq!(disk.path("file:///new/place/a"), Path::new("/new/place/a"));
    }
}
