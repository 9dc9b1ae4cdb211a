//! What goes wrong with the archive, by what to do about it.

use std::error::Error;
use std::path::PathBuf;

/// Whatever it is: what was not committed was never there, so the archive is opened again and goes on from its position.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Try again later.
    #[error("the archive: {0}")]
    Failed(String),
    /// Stop writing: somebody else does.
    #[error(
        "the archive: somebody else has written to the table {table}: it stands at {found}, and was left at {expected}. Only one \
         server may write to an archive"
    )]
    Fenced { table: String, expected: String, found: String },
    /// Try again when that process has ended.
    #[error(
        "the archive: another process writes to {}. Only one may: stop it, or choose another directory with --archive",
        directory.display()
    )]
    InUse { directory: PathBuf },
    /// Give the archive a directory of its own.
    #[error(
        "the archive has the events of another data directory ({found}, this one is {expected}): name a directory that is empty, or its own"
    )]
    Foreign { expected: String, found: String },
    /// The same.
    #[error("the archive: {} is there and not its own: name a directory that is empty", file.display())]
    NotEmpty { file: PathBuf },
    /// Ask an operator; the text says what is where, and what can be done.
    #[error("the archive: {0}")]
    Damaged(String),
}

impl From<iceberg::Error> for ArchiveError {
    fn from(error: iceberg::Error) -> ArchiveError {
        // What the catalog says of this has come through the library.
        if let Some(ArchiveError::Fenced { table, expected, found }) = error.source().and_then(|of| of.downcast_ref()) {
            let (table, expected, found) = (table.clone(), expected.clone(), found.clone());
            return ArchiveError::Fenced { table, expected, found };
        }
        ArchiveError::Failed(error.to_string())
    }
}

impl From<rusqlite::Error> for ArchiveError {
    fn from(error: rusqlite::Error) -> ArchiveError {
        ArchiveError::Failed(format!("its catalog: {error}"))
    }
}

impl From<std::io::Error> for ArchiveError {
    fn from(error: std::io::Error) -> ArchiveError {
        ArchiveError::Failed(error.to_string())
    }
}
