//! Looks at a database's own files before fjall opens them. Pure reading.
//!
//! fjall trusts some of its files: a flipped bit in one makes it panic, a missing one makes it delete what it takes for
//! unfinished. All of them have checksums that it does not look at. So this does, and refuses in words:
//!
//! ```text
//! version                   four bytes
//! keyspaces/N/current       number of a version, xxh3 of its file, 00
//! keyspaces/N/vNUMBER       sections, a table of them (TOC), a trailer with the place and the xxh3 of the TOC
//! keyspaces/N/tables/ID     the same; the version names those that belong to it. Their blocks have checksums that fjall checks
//! ```

use crate::store::Error;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

const VERSION: [u8; 4] = *b"FJL\x03";
const TRAILER_BYTES: usize = 38;
const TRAILER_MAGIC: [u8; 6] = *b"SFA!\x01\x00";

/// Refuses a database that fjall could not open, or would open as another than it was.
pub(super) fn check(database: &Path) -> Result<(), Error> {
    let version = database.join("version");
    if read(&version)? != VERSION {
        return Err(damaged(&version, "it does not say that this is a database of a version that is known here"));
    }
    let keyspaces = database.join("keyspaces");
    let entries = fs::read_dir(&keyspaces).map_err(|error| unreadable(&keyspaces, &error))?;
    for entry in entries {
        let keyspace = entry.map_err(|error| unreadable(&keyspaces, &error))?.path();
        let is_numbered =
            keyspace.file_name().is_some_and(|name| name.to_str().is_some_and(|n| n.parse::<u64>().is_ok()));
        if !is_numbered || !keyspace.is_dir() {
            return Err(damaged(&keyspace, "this is none of the database's files; move it away"));
        }
        check_keyspace(&keyspace)?;
    }
    Ok(())
}

fn check_keyspace(keyspace: &Path) -> Result<(), Error> {
    let current = keyspace.join("current");
    let bytes = read(&current)?;
    let (Some((number, checksum)), 25, Some(0)) = (split_current(&bytes), bytes.len(), bytes.last()) else {
        return Err(damaged(&current, "it does not name a version of the database"));
    };
    let version = keyspace.join(format!("v{number}"));
    let image = read(&version)?;
    if xxh3_128(&image) != checksum {
        return Err(damaged(&version, "its checksum does not match"));
    }
    let tables = tables(&image).ok_or_else(|| damaged(&version, "it has no list of tables"))?;
    for id in tables {
        let table = keyspace.join("tables").join(id.to_string());
        check_table(&table)?;
    }
    Ok(())
}

fn split_current(bytes: &[u8]) -> Option<(u64, u128)> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), u128::from_le_bytes(*rest.first_chunk()?)))
}

/// The TOC of a table must be whole; what it points to has checksums that are looked at when it is read.
fn check_table(path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let bytes = file.metadata().map_err(|error| unreadable(path, &error))?.len();
    let mut trailer = [0; TRAILER_BYTES];
    let Some(trailer_at) = bytes.checked_sub(TRAILER_BYTES as u64) else {
        return Err(damaged(path, "it was truncated"));
    };
    file.read_exact_at(&mut trailer, trailer_at).map_err(|error| unreadable(path, &error))?;
    let place = Toc::from_trailer(&trailer).filter(|toc| toc.at.checked_add(toc.bytes) == Some(trailer_at));
    let Some(place) = place else { return Err(damaged(path, "its end is not that of a table")) };
    let mut toc = vec![0; place.bytes as usize];
    file.read_exact_at(&mut toc, place.at).map_err(|error| unreadable(path, &error))?;
    if xxh3_128(&toc) != place.checksum {
        return Err(damaged(path, "the checksum of its contents does not match"));
    }
    Ok(())
}

/// Where a file has its table of contents.
struct Toc {
    checksum: u128,
    at: u64,
    bytes: u64,
}

impl Toc {
    fn from_trailer(trailer: &[u8]) -> Option<Toc> {
        let rest = trailer.strip_prefix(&TRAILER_MAGIC)?;
        let (checksum, rest) = rest.split_first_chunk()?;
        let (at, rest) = rest.split_first_chunk()?;
        let bytes = rest.first_chunk()?;
        Some(Toc {
            checksum: u128::from_le_bytes(*checksum),
            at: u64::from_le_bytes(*at),
            bytes: u64::from_le_bytes(*bytes),
        })
    }
}

/// The ids of the tables that a version is made of.
fn tables(version: &[u8]) -> Option<Vec<u64>> {
    let (body, trailer) = version.split_at_checked(version.len().checked_sub(TRAILER_BYTES)?)?;
    let toc = Toc::from_trailer(trailer)?;
    let mut toc = Bytes(body.get(usize::try_from(toc.at).ok()?..)?.strip_prefix(b"TOC!")?);
    for _ in 0..toc.u32()? {
        let (at, bytes) = (toc.u64()?, toc.u64()?);
        let name_bytes = toc.u16()?;
        if toc.take(name_bytes.into())? == b"tables" {
            let section = body.get(usize::try_from(at).ok()?..usize::try_from(at + bytes).ok()?)?;
            return table_ids(Bytes(section));
        }
    }
    None
}

/// Levels of runs of tables, each with its id, kind of checksum, checksum and sequence number.
fn table_ids(mut section: Bytes<'_>) -> Option<Vec<u64>> {
    let mut ids = Vec::new();
    for _level in 0..section.u8()? {
        for _run in 0..section.u8()? {
            for _table in 0..section.u32()? {
                ids.push(section.u64()?);
                section.take(1 + 16 + 8)?;
            }
        }
    }
    Some(ids)
}

/// Takes numbers from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(*self.take(2)?.first_chunk()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => damaged(path, "the file is missing"),
        _ => Error::Io(format!("{}: {error}", path.display())),
    }
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::Damaged(format!("{}: {what}. Restore the data directory from a copy", path.display()))
}
