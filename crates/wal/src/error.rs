//! What can go wrong, by what the caller should do about it.

use std::io;
use std::sync::Arc;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Split the batch. Nothing was written.
    #[error(
        "a batch of {bytes} bytes does not fit into a log segment; at most {max} bytes do: send it in smaller parts"
    )]
    TooLarge { bytes: usize, max: usize },

    /// Free some space and append again. Nothing of the batch was written.
    #[error("the disk has no room for another log segment of {bytes} bytes; free some space and try again")]
    Full { bytes: u64 },

    /// Stop writing. Reads go on; opening the log again recovers what is durable.
    #[error("the log takes no more writes until it is opened again, because {cause}")]
    Poisoned { cause: Arc<str> },

    /// Start over from `first`, or from a base that contains what lies before it.
    #[error("record {wanted} is no longer in the log, which begins at record {first}")]
    Trimmed { wanted: u64, first: u64 },

    /// An operator has to decide; nothing was changed.
    #[error("log file {file} is damaged at byte {at}, where record {offset} is expected: {what}. {remedy}")]
    Damaged { file: String, at: u64, offset: u64, what: String, remedy: String },

    /// These are not the files of this log; nothing was changed.
    #[error("log file {file} belongs to another data directory: put back the log/ that belongs here")]
    Foreign { file: String },

    /// An option is wrong.
    #[error("{0}")]
    BadOption(String),

    /// The disk failed; see what it says.
    #[error("cannot {doing}: {source}")]
    Io { doing: String, source: Arc<io::Error> },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, source: Arc::new(source) }
    }
}

/// Whether a disk refused because there is no room, which is the one failure that passes.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
