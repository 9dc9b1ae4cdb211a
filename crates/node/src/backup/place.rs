//! Where backups are kept: a directory, or a prefix in a bucket of an object store.

use super::bucket::Bucket;
use super::directory::Directory;
use super::manifest::{self, ManifestName};
use super::{BackupError, Target};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// What a bucket is written as.
const S3: &str = "s3";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Directory(PathBuf),
    /// `s3://bucket/prefix`; the prefix may be empty.
    Bucket {
        bucket: String,
        prefix: String,
    },
}

/// Why a text names no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    #[error("backups cannot be kept under {0}://; name a directory, or a bucket as s3://bucket/prefix")]
    Scheme(String),
    #[error("it has no bucket; write s3://bucket or s3://bucket/prefix")]
    NoBucket,
    #[error("backups cannot be kept in {place}: {file} is no directory")]
    File { place: String, file: String },
    #[error("what is kept in {place} would be lost with the data in {data}: one directory is in the other")]
    WithData { place: String, data: String },
}

impl Place {
    /// Refuses what no backup could be kept in, or none that outlives the data. What may be mended meanwhile, such as a disk that is not
    /// there, is not looked at.
    pub fn check(&self, data: &Path) -> Result<(), PlaceError> {
        let Place::Directory(directory) = self else { return Ok(()) };
        let (place, data) = (Found::of(directory), Found::of(data));
        if !place.there.is_dir() {
            return Err(PlaceError::File { place: self.to_string(), file: place.there.display().to_string() });
        }
        match place.whole.starts_with(&data.whole) || data.whole.starts_with(&place.whole) {
            true => Err(PlaceError::WithData { place: self.to_string(), data: data.whole.display().to_string() }),
            false => Ok(()),
        }
    }

    /// To write to, alone. What others have left unfinished goes. `random` gives another number each time.
    pub(super) fn open(&self, random: impl FnOnce() -> io::Result<u64>) -> Result<Box<dyn Target>, BackupError> {
        Ok(match self {
            Place::Directory(directory) => Box::new(Directory::open(directory)?),
            Place::Bucket { bucket, prefix } => Box::new(Bucket::open(bucket, prefix, &self.to_string(), random)?),
        })
    }

    /// To read from.
    pub fn view(&self) -> Result<Box<dyn Target>, BackupError> {
        Ok(match self {
            Place::Directory(directory) => Box::new(Directory::view(directory)?),
            Place::Bucket { bucket, prefix } => Box::new(Bucket::view(bucket, prefix, &self.to_string())?),
        })
    }

    /// Which backups there are, whoever writes or reads them meanwhile: each is there as a whole or not at all.
    pub fn list(&self) -> Result<Vec<ManifestName>, BackupError> {
        let target: Box<dyn Target> = match self {
            Place::Directory(directory) => Box::new(Directory::look(directory)),
            Place::Bucket { .. } => self.view()?,
        };
        manifest::list(&*target).map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: io::Error) -> BackupError {
        BackupError::Io { place: self.to_string(), error }
    }
}

/// A path that need not be there yet, without links.
struct Found {
    whole: PathBuf,
    /// As much of it as is there.
    there: PathBuf,
}

impl Found {
    fn of(path: &Path) -> Found {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let there = path.ancestors().find(|path| path.exists()).unwrap_or(&path);
        let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
        let there = there.canonicalize().unwrap_or_else(|_| there.to_owned());
        let mut whole = there.clone();
        for part in rest.components() {
            // What is not there is no link, so what is above it is what its name says.
            if part == Component::ParentDir {
                whole.pop();
            } else {
                whole.push(part);
            }
        }
        Found { whole, there }
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(Place::Directory(text.into())) };
        if !scheme.eq_ignore_ascii_case(S3) {
            return Err(PlaceError::Scheme(scheme.to_owned()));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        match bucket {
            "" => Err(PlaceError::NoBucket),
            bucket => Ok(Place::Bucket { bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() }),
        }
    }
}

impl From<&Path> for Place {
    fn from(directory: &Path) -> Place {
        Place::Directory(directory.to_owned())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(directory) => directory.display().fmt(f),
            Place::Bucket { bucket, prefix } if prefix.is_empty() => write!(f, "{S3}://{bucket}"),
            Place::Bucket { bucket, prefix } => write!(f, "{S3}://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_or_a_bucket_and_is_shown_as_it_is_written() {
        let bucket = |bucket: &str, prefix: &str| Place::Bucket { bucket: bucket.into(), prefix: prefix.into() };
        for (text, place, shown) in [
            ("backups", Place::Directory("backups".into()), "backups"),
            ("/srv/a:b", Place::Directory("/srv/a:b".into()), "/srv/a:b"),
            ("s3://b", bucket("b", ""), "s3://b"),
            ("s3://b/", bucket("b", ""), "s3://b"),
            ("S3://b/x/y/", bucket("b", "x/y"), "s3://b/x/y"),
        ] {
            assert_eq!(text.parse(), Ok(place.clone()), "{text}");
            assert_eq!(place.to_string(), shown);
        }
    }

    #[test]
    fn backups_are_kept_in_a_directory_apart_from_the_data() {
        let dir = tempfile::tempdir().unwrap();
        let (data, file, link) = (dir.path().join("data"), dir.path().join("file"), dir.path().join("link"));
        let check = |path: &Path| Place::from(path).check(&data);
        for at in 0..2 {
            assert_eq!(check(&dir.path().join("backups/new")), Ok(()));
            assert_eq!(check(&dir.path().join("data/../backups")), Ok(()));
            for with_data in [&data, &data.join("backups"), dir.path(), &dir.path().join("data/../data")] {
                assert!(matches!(check(with_data), Err(PlaceError::WithData { .. })), "{at}: {with_data:?}");
            }
            std::fs::create_dir_all(&data).unwrap();
        }
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        assert!(matches!(check(&link), Err(PlaceError::WithData { .. })));
        for path in [&file, &file.join("x")] {
            assert!(matches!(check(path), Err(PlaceError::File { .. })), "{path:?}");
        }
        assert_eq!("s3://b/data".parse::<Place>().unwrap().check(&data), Ok(()));
    }

    #[test]
    fn what_is_no_place_is_refused_with_what_to_write() {
        let refused = |text: &str| text.parse::<Place>().unwrap_err();
        assert_eq!(refused("s3:///x"), PlaceError::NoBucket);
        assert_eq!(refused("gs://b/x"), PlaceError::Scheme("gs".to_owned()));
        assert_eq!(refused("redis://h"), PlaceError::Scheme("redis".to_owned()));
    }
}
