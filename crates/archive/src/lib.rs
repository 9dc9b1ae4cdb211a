//! The archive: every copy of every event once, and what became of those that were not simply counted, as Parquet files in Apache
//! Iceberg tables that Spark, Trino, DuckDB or a notebook read without us (`docs/formats/archive.md`).
//!
//! One writer follows the log, commit by commit, and puts rows into files; [`Archive::commit`] makes them visible. Each table says in
//! the same step how far it has come, so a crash at any point neither loses nor repeats a row. It does not know where commits and
//! batches come from, nor when it is time for a commit.

mod again;
mod archive;
mod bounds;
pub mod catalog;
mod disk;
mod error;
mod merge;
mod reached;
mod read;
mod replace;
mod rows;
mod schema;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod times;
mod tree;
mod verify;
mod walk;

pub use again::{CommitRows, Declared, Keep, Row, SignedRoot, Tables};
pub use archive::{Archive, BaseAt, LOCK, Told, Writer};
pub use error::ArchiveError;
pub use reached::Reached;
pub use read::{Bounds, Readable, ReadableFile, Reader};
pub use rows::{ArchivedEvent, Differing, Place, Reasons, Under};
pub use schema::{Table, stays_in_map};
pub use tree::{Counted, Sign};
pub use verify::{Different, Verified, verify_roots};
pub use walk::{ArchivedFate, EventsInOrder, FatesInOrder, FileFault, configurations, look_through};
