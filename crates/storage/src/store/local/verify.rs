//! Looks at a database's own files before fjall opens them. Pure reading.
//!
//! fjall trusts some of its files: a flipped bit in one makes it panic, a missing one makes it delete what it takes for
//! unfinished. All of them have checksums that it does not look at. So this does, and refuses in words. Before a cut is final
//! it also reads the tables back that the cut has written, every byte of them.
//!
//! ```text
//! version                   four bytes
//! keyspaces/N/current       number of a version, xxh3 of its file, 00
//! keyspaces/N/vNUMBER       sections, a table of them (TOC), a trailer with the place and the xxh3 of the TOC
//! keyspaces/N/tables/ID     the same; the version names those that belong to it, with the xxh3 of each file. Their blocks have checksums that fjall checks
//! ```

use super::pace::ReadPace;
use crate::store::Error;
use rustix::fs::{Advice, fadvise};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

const VERSION: [u8; 4] = *b"FJL\x03";
const TRAILER_BYTES: usize = 38;
const TRAILER_MAGIC: [u8; 6] = *b"SFA!\x01\x00";
/// What is read at a time.
const PIECE_BYTES: usize = 256 * 1024;
/// Looks at a version that merges replace meanwhile.
const LOOKS_MAX: usize = 100;

/// The tables that are in force, by path, and the checksum of each file.
pub(super) type Tables = BTreeMap<PathBuf, u128>;

/// Refuses a database that fjall could not open, or would open as another than it was.
pub(super) fn check(database: &Path) -> Result<(), Error> {
    let version = database.join("version");
    if read(&version)? != VERSION {
        return Err(damaged(&version, "it does not say that this is a database of a version that is known here"));
    }
    for keyspace in keyspaces(database)? {
        for table in tables_of(&keyspace)?.keys() {
            check_table(table)?;
        }
    }
    Ok(())
}

/// Reads every table back that was written since `before`. Others may merge tables meanwhile: those that are gone by then were
/// read by them.
pub(super) fn read_back(database: &Path, before: &Tables) -> Result<(), Error> {
    for (table, checksum) in tables(database)?.iter().filter(|(table, _)| !before.contains_key(*table)) {
        match whole_checksum(table) {
            Ok(found) if found == *checksum => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !tables(database)?.contains_key(table) => {}
            Ok(_) => {
                return Err(Error::Retry(format!("{}: what was written is not what is read back", table.display())));
            }
            Err(error) => return Err(Error::Retry(format!("{}: it cannot be read back: {error}", table.display()))),
        }
    }
    Ok(())
}

/// The checksum of a file as the disk has it, and not as the system remembers it where that can be helped. The system does not read ahead
/// for it: some read megabytes at once, and the log's next write stands behind them.
pub(super) fn whole_checksum(path: &Path) -> io::Result<u128> {
    let mut file = File::open(path)?;
    // Only advice: where it is not taken, what is read is what would be written.
    for advice in [Advice::DontNeed, Advice::Random] {
        let _ = fadvise(&file, 0, None, advice);
    }
    let mut hash = Xxh3::new();
    let (mut piece, mut pace) = (vec![0; PIECE_BYTES], ReadPace::default());
    loop {
        let bytes = file.read(&mut piece)?;
        if bytes == 0 {
            return Ok(hash.digest128());
        }
        hash.update(&piece[..bytes]);
        pace.read(bytes);
    }
}

/// The tables of all keyspaces of a database that may be in use.
pub(super) fn tables(database: &Path) -> Result<Tables, Error> {
    let mut tables = Tables::new();
    for keyspace in keyspaces(database)? {
        tables.extend(tables_in_use(&keyspace)?);
    }
    Ok(tables)
}

/// A merge puts a new version in force and removes the one before: then it is looked at again.
fn tables_in_use(keyspace: &Path) -> Result<Tables, Error> {
    let current = keyspace.join("current");
    let mut looks = 1..LOOKS_MAX;
    loop {
        let before = read(&current)?;
        match tables_of(keyspace) {
            Err(_) if read(&current)? != before && looks.next().is_some() => {}
            tables => return tables,
        }
    }
}

pub(super) fn keyspaces(database: &Path) -> Result<Vec<PathBuf>, Error> {
    let keyspaces = database.join("keyspaces");
    let entries = fs::read_dir(&keyspaces).map_err(|error| unreadable(&keyspaces, &error))?;
    let mut found = Vec::new();
    for entry in entries {
        let keyspace = entry.map_err(|error| unreadable(&keyspaces, &error))?.path();
        let is_numbered =
            keyspace.file_name().is_some_and(|name| name.to_str().is_some_and(|n| n.parse::<u64>().is_ok()));
        if !is_numbered || !keyspace.is_dir() {
            return Err(damaged(&keyspace, "this is none of the database's files; move it away"));
        }
        found.push(keyspace);
    }
    Ok(found)
}

fn tables_of(keyspace: &Path) -> Result<Tables, Error> {
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
    let listed = listed(&image).ok_or_else(|| damaged(&version, "it has no list of tables"))?;
    let folder = keyspace.join("tables");
    Ok(listed.into_iter().map(|(id, checksum)| (folder.join(id.to_string()), checksum)).collect())
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

/// The tables that a version is made of: their ids and checksums.
fn listed(version: &[u8]) -> Option<Vec<(u64, u128)>> {
    let (body, trailer) = version.split_at_checked(version.len().checked_sub(TRAILER_BYTES)?)?;
    let toc = Toc::from_trailer(trailer)?;
    let mut toc = Bytes(body.get(usize::try_from(toc.at).ok()?..)?.strip_prefix(b"TOC!")?);
    for _ in 0..toc.u32()? {
        let (at, bytes) = (toc.u64()?, toc.u64()?);
        let name_bytes = toc.u16()?;
        if toc.take(name_bytes.into())? == b"tables" {
            let section = body.get(usize::try_from(at).ok()?..usize::try_from(at + bytes).ok()?)?;
            return listed_in(Bytes(section));
        }
    }
    None
}

/// Levels of runs of tables, each with its id, kind of checksum, checksum and sequence number.
fn listed_in(mut section: Bytes<'_>) -> Option<Vec<(u64, u128)>> {
    let mut listed = Vec::new();
    for _level in 0..section.u8()? {
        for _run in 0..section.u8()? {
            for _table in 0..section.u32()? {
                let (id, _kind) = (section.u64()?, section.u8()?);
                listed.push((id, u128::from_le_bytes(*section.take(16)?.first_chunk()?)));
                section.take(8)?;
            }
        }
    }
    Some(listed)
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
        _ => Error::Retry(format!("{}: {error}", path.display())),
    }
}

pub(super) fn damaged(path: &Path, what: &str) -> Error {
    Error::Damaged(format!("{}: {what}. Restore the data directory from a copy", path.display()))
}
