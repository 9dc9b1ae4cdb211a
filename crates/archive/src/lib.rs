//! The archive: every copy of every event once, and what became of those that were not simply counted, as Parquet files in Apache
//! Iceberg tables that Spark, Trino, DuckDB or a notebook read without us (`docs/formats/archive.md`).
//!
//! One writer follows the log, commit by commit, and puts rows into files; [`Archive::commit`] makes them visible. Each table says in
//! the same step how far it has come, so a crash at any point neither loses nor repeats a row. It does not know where commits and
//! batches come from, nor when it is time for a commit.

mod archive;
pub mod catalog;
mod disk;
mod error;
mod reached;
mod rows;
mod schema;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

pub use archive::{Archive, Tally, Writer};
pub use error::ArchiveError;
pub use reached::Reached;
pub use rows::{Place, Under};
pub use schema::Table;
