//! Tally's embedded log: ordered batches of opaque records in segment files.
//!
//! One [`WalWriter`] appends and syncs; any number of [`WalReader`]s, opened from a cloneable [`Handle`], follow it up to the synced
//! end and see nothing that a power cut could take away. A record is known by its offset, its ordinal since the beginning
//! of the log. The invariant that everything here serves: what [`WalWriter::sync`] has acknowledged is read back unchanged and in
//! order after any crash, or opening the log is refused by name; it is never silently different.
//!
//! The bytes are described in `docs/formats/wal.md`. In the flow of the data this stands between collect (which fills
//! batches) and aggregate (which applies them once they are durable). It knows neither clock nor threads nor records.

pub mod batch;
pub mod disk;
mod error;
mod files;
mod handle;
mod index;
mod options;
mod pages;
mod reader;
mod recovery;
mod retention;
mod scan;
pub mod segment;
pub mod testing;
mod writer;

pub use disk::{Disk, DiskFile, RealDisk};
pub use error::Error;
pub use files::identity;
pub use handle::Handle;
pub use options::LogOptions;
pub use reader::{ReadBatch, WalReader};
pub use recovery::{LostEnd, RecoveredLog};
pub use writer::{AppendedBatch, WalWriter};
