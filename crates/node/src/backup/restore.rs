//! Makes a data directory of a backup, while no server runs on it.
//!
//! The new directory has the hash seed of the old one, by which rows are found, and an id of its own; the epochs of its log are far above. So
//! nothing that the old node wrote behind the backup, in its log, its archive or what followers know of it, is ever taken for the new one's.
//! Every object is compared with its digest. One that was interrupted goes on with the rows that are not there yet.

use super::chunk::{self, Kind};
use super::manifest::{self, Manifest, ManifestName, ObjectEntry};
use super::{BackupError, Place, Target, damaged};
use crate::data_dir::DirIdentity;
use crate::data_dir::new::{self, NewDataDir, RestorePlan};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tally_core::position::Position;
use tally_storage::log::Log;
use tally_storage::log::local::{LocalLog, LogOptions};
use tally_storage::store::Checkpoint;
use tally_storage::store::local::{LocalStore, StoredRow};

/// What is loaded in one step, from which an interrupted restore goes on.
const STRETCH_BYTES: u64 = 64 << 20;
const CACHE_BYTES: u64 = 8 << 20;
/// Epochs that are left to the old node, should it go on; and steps of as many from which those of the new one are drawn.
const EPOCH_STEP: u32 = 1 << 10;
const EPOCH_STEPS: u32 = 1 << 10;

/// Where from and where to.
#[derive(Clone, Debug)]
pub struct Restoring {
    pub backups: Place,
    /// The name of a backup; `None` for the newest, or the one that an interrupted restore was of.
    pub at: Option<String>,
    /// The id of the data directory whose newest it is; need not be said where there are backups of one alone.
    pub of: Option<u64>,
    /// `None` only looks whether all of it could be read.
    pub data: Option<PathBuf>,
}

/// What was restored, or looked at.
#[derive(Clone, Debug)]
pub struct RestoredBackup {
    pub name: ManifestName,
    pub counters: u64,
    pub objects: usize,
}

/// How far it is: objects of how many.
pub type Tell<'a> = &'a mut dyn FnMut(usize, usize);

/// Restores a backup; `random` gives another number each time.
pub fn restore(
    what: &Restoring,
    mut random: impl FnMut() -> io::Result<u64>,
    tell: Tell<'_>,
) -> Result<RestoredBackup, BackupError> {
    let target = what.backups.view()?;
    let name = choose(&*target, what)?;
    let manifest = Manifest::read(&*target, &name)?;
    let objects = manifest.objects().count();
    let mut reading = Reading { target: &*target, tell, read: 0, objects };
    match &what.data {
        Some(data) => fill(&mut reading, &name, &manifest, data, &mut random)?,
        None => check(&mut reading, &manifest)?,
    }
    Ok(RestoredBackup { name, counters: manifest.counters, objects })
}

fn choose(target: &dyn Target, what: &Restoring) -> Result<ManifestName, BackupError> {
    let place = &what.backups;
    let all = manifest::list(target).map_err(|error| place.failed(error))?;
    let (at, gone) = match (&what.at, begun(what)?) {
        (Some(at), _) => (at.clone(), "; see which there are with tally restore --list"),
        (None, Some(begun)) => (begun, ", from which the directory is half restored; remove that, and restore another"),
        (None, None) => return newest(all, what),
    };
    let found = all.into_iter().find(|name| name.name == at || name.name.strip_suffix(".json") == Some(&at));
    found.ok_or_else(|| BackupError::NotThere(format!("there is no backup {at} in {place}{gone}")))
}

/// What an interrupted restore was of. The same command goes on with that, whatever was backed up since.
fn begun(what: &Restoring) -> Result<Option<String>, BackupError> {
    let begun = what.data.as_deref().map(new::unfinished).transpose()?.flatten();
    let is_of = |of| move |name: ManifestName| name.id == of;
    Ok(begun.filter(|name| what.of.is_none_or(|of| ManifestName::parse(name).is_some_and(is_of(of)))))
}

/// The newest, if it is clear of which data directory.
fn newest(all: Vec<ManifestName>, what: &Restoring) -> Result<ManifestName, BackupError> {
    let place = &what.backups;
    let wanted: Vec<_> = all.into_iter().filter(|name| what.of.is_none_or(|of| name.id == of)).collect();
    let mut newest: Vec<_> = wanted.chunk_by(|one, next| one.id == next.id).filter_map(<[_]>::last).cloned().collect();
    match (newest.len(), what.of) {
        (0, None) => Err(BackupError::NotThere(format!("there is no backup in {place}"))),
        (0, Some(of)) => Err(BackupError::NotThere(format!("there is no backup of {of:016x} in {place}"))),
        (1, _) => Ok(newest.remove(0)),
        _ => Err(BackupError::Several { place: place.to_string(), newest }),
    }
}

fn check(reading: &mut Reading<'_>, manifest: &Manifest) -> Result<(), BackupError> {
    state(reading, manifest)?;
    manifest.rows.iter().try_for_each(|entry| reading.content(Kind::Rows, entry).map(drop))?;
    manifest.log.iter().try_for_each(|entry| reading.content(Kind::Log, entry).map(drop))
}

fn fill(
    reading: &mut Reading<'_>,
    name: &ManifestName,
    manifest: &Manifest,
    data: &Path,
    random: &mut dyn FnMut() -> io::Result<u64>,
) -> Result<(), BackupError> {
    let mut new = NewDataDir::begin(data, &name.name, || {
        let identity = DirIdentity { id: random()?, hash_seed: manifest.hash_seed() };
        Ok(RestorePlan {
            backup: name.name.clone(),
            identity,
            epoch_above: epoch_above(manifest.position(), random()?)?,
        })
    })?;
    load_store(reading, manifest, &mut new)?;
    write_log(reading, manifest, &new)?;
    Ok(new.finish()?)
}

/// Above all epochs of the old node, and most likely of every other that was restored from it.
fn epoch_above(at: Position, random: u64) -> io::Result<u32> {
    let steps = 1 + random as u32 % EPOCH_STEPS;
    let above = at.epoch.checked_add(EPOCH_STEP * steps);
    above.ok_or_else(|| io::Error::other("its log has no epochs left: it was restored too often"))
}

fn load_store(reading: &mut Reading<'_>, manifest: &Manifest, new: &mut NewDataDir) -> Result<(), BackupError> {
    let store = LocalStore::open(&new.store(), new.plan.identity.of_store(), CACHE_BYTES)?;
    reading.skip(new.loaded.min(manifest.rows.len()));
    while new.loaded < manifest.rows.len() {
        let mut bytes = 0;
        let rest = &manifest.rows[new.loaded..];
        let stretch = rest.iter().take_while(|entry| {
            let begins = bytes < STRETCH_BYTES;
            bytes += entry.bytes;
            begins
        });
        let stretch = &rest[..stretch.count()];
        load_stretch(reading, stretch, &store)?;
        new.note(new.loaded + stretch.len())?;
    }
    let checkpoint = state(reading, manifest)?;
    Ok(store.finish_load(&checkpoint)?)
}

fn load_stretch(reading: &mut Reading<'_>, stretch: &[ObjectEntry], store: &LocalStore) -> Result<(), BackupError> {
    let mut failed = None;
    let mut rows = stretch.iter().flat_map(|entry| match rows_of(reading, entry) {
        Ok(rows) => rows,
        Err(error) => {
            failed = Some(error);
            vec![Err(tally_storage::store::Error::Abandoned)]
        }
    });
    let loaded = store.load(&mut rows);
    drop(rows);
    failed.map_or(Ok(()), Err)?;
    Ok(loaded?)
}

fn rows_of(
    reading: &mut Reading<'_>,
    entry: &ObjectEntry,
) -> Result<Vec<Result<StoredRow, tally_storage::store::Error>>, BackupError> {
    let content = reading.content(Kind::Rows, entry)?;
    let rows = chunk::entries(Kind::Rows, &content).expect("its entries were counted");
    Ok(rows.flatten().map(|(key, value)| Ok((key.to_vec(), value.to_vec()))).collect())
}

/// The checkpoint that the rows are of.
fn state(reading: &mut Reading<'_>, manifest: &Manifest) -> Result<Checkpoint, BackupError> {
    let object = manifest::object_name(&manifest.state);
    let content = reading.open(&manifest.state)?;
    let wrong = |what: String| damaged(&object, what);
    let mut entries = chunk::entries(Kind::Rows, &content).map_err(wrong)?;
    let Some(Ok((_, bytes))) = entries.next() else { return Err(damaged(&object, "it has no checkpoint")) };
    let checkpoint = Checkpoint::decode(bytes).map_err(|error| damaged(&object, error))?;
    match checkpoint.position == manifest.position() {
        true => Ok(checkpoint),
        false => Err(damaged(&object, format!("it is of position {}", checkpoint.position))),
    }
}

/// Writes the part of the log that a start from the checkpoint reads. It is not long beside the rows, and is written anew each time.
fn write_log(reading: &mut Reading<'_>, manifest: &Manifest, new: &NewDataDir) -> Result<(), BackupError> {
    let directory = new.log();
    let failed = |error| BackupError::Io { place: directory.display().to_string(), error };
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(failed)?;
    }
    let options = LogOptions {
        log_id: new.plan.identity.id,
        from_offset: manifest.log_from,
        epoch_above: new.plan.epoch_above,
        // What came before is in the store.
        discard_from: Some(0),
        ..LogOptions::default()
    };
    let (mut log, _) = LocalLog::open(&directory, options)?;
    for entry in &manifest.log {
        let content = reading.content(Kind::Log, entry)?;
        for (key, records) in chunk::entries(Kind::Log, &content).expect("its entries were counted").flatten() {
            let (offset, count, log_time_ms) = batch_of(key).ok_or_else(|| reading.strange(entry))?;
            if offset != log.end().offset || count == 0 || records.is_empty() {
                return Err(reading.strange(entry));
            }
            log.append(log_time_ms, count, records)?;
        }
        log.sync()?;
    }
    match log.end().offset == manifest.position().offset {
        true => Ok(()),
        false => Err(BackupError::NotThere(format!(
            "the backup's log ends at record {}, and not at its position {}",
            log.end().offset,
            manifest.position()
        ))),
    }
}

/// Offset, number of records and log time of a batch.
fn batch_of(key: &[u8]) -> Option<(u64, u32, u64)> {
    let key: &[u8; 24] = key.try_into().ok()?;
    let long = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().expect("8 bytes"));
    Some((long(8), u32::from_le_bytes(key[4..8].try_into().expect("4 bytes")), long(16)))
}

/// Reads objects and tells how far it is.
struct Reading<'a> {
    target: &'a dyn Target,
    tell: Tell<'a>,
    read: usize,
    objects: usize,
}

impl Reading<'_> {
    fn skip(&mut self, objects: usize) {
        self.read += objects;
        (self.tell)(self.read, self.objects);
    }

    /// The content of an object, if it is what was written.
    fn open(&mut self, digest: &str) -> Result<Vec<u8>, BackupError> {
        let name = manifest::object_name(digest);
        let object = self.target.get(&name).map_err(|error| damaged(&name, format!("it cannot be read: {error}")))?;
        let content = chunk::open(&object, digest).map_err(|what| damaged(&name, what))?;
        self.skip(1);
        Ok(content)
    }

    /// The same, with as many entries as the manifest says.
    fn content(&mut self, kind: Kind, entry: &ObjectEntry) -> Result<Vec<u8>, BackupError> {
        let content = self.open(&entry.digest)?;
        let counted = chunk::entries(kind, &content)
            .and_then(|entries| entries.map(|entry| entry.map(|_| 1)).sum::<Result<u64, String>>());
        match counted {
            Ok(entries) if entries == entry.entries => Ok(content),
            Ok(_) => Err(self.strange(entry)),
            Err(what) => Err(damaged(&manifest::object_name(&entry.digest), what)),
        }
    }

    fn strange(&self, entry: &ObjectEntry) -> BackupError {
        damaged(&manifest::object_name(&entry.digest), "it is whole, but not what its manifest says")
    }
}
