//! What a backup is made of, as JSON. Its name says when it was made, of which data directory, at which position, and its digest.

use super::{BackupError, Target, chunk, damaged};
use crate::data_dir::DirIdentity;
use jiff::Timestamp;
use jiff::fmt::strtime;
use serde::{Deserialize, Serialize};
use std::io;
use tally_core::position::Position;
use tally_storage::store::Checkpoint;

pub const FOLDER: &str = "manifests";
pub const OBJECTS: &str = "objects";
/// The version of `docs/formats/backup.md`.
const FORMAT: u64 = 1;
/// Milliseconds are always three digits, so that names are in the order of time.
const TIME: &str = "%Y%m%dT%H%M%S%.3fZ";
/// Digits of its own digest in the name of a manifest.
const NAME_DIGITS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    pub format: u64,
    /// The version of Tally that has written it.
    pub written_by: String,
    pub time_ms: u64,
    /// Of the data directory, in hexadecimal digits: a number in JSON may lose some.
    id: String,
    hash_seed: String,
    /// Everything before it is in the backup, nothing behind it is.
    position: String,
    pub counters: u64,
    /// What the core must know beside rows: an object.
    pub state: String,
    /// Of the store, in the order of their keys.
    pub rows: Vec<ObjectEntry>,
    /// The first record of the log that is in the backup.
    pub log_from: u64,
    /// Up to the position.
    pub log: Vec<ObjectEntry>,
}

/// An object and what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectEntry {
    pub digest: String,
    pub entries: u64,
    /// Of its content, before it was compressed.
    pub bytes: u64,
}

pub fn object_name(digest: &str) -> String {
    format!("{OBJECTS}/{digest}")
}

/// What the name of a manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestName {
    /// Behind the folder.
    pub name: String,
    pub time_ms: u64,
    pub id: u64,
    pub position: Position,
    digest: String,
}

impl ManifestName {
    pub fn parse(name: &str) -> Option<ManifestName> {
        let mut parts = name.strip_suffix(".json")?.split('_');
        let time = strtime::parse("%Y%m%dT%H%M%S%.fZ", parts.next()?).ok()?.to_datetime().ok()?;
        let time_ms = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond();
        let (id, position, digest) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let id = u64::from_str_radix(id, 16).ok()?;
        let is_whole = digest.len() == NAME_DIGITS && parts.next().is_none();
        is_whole.then_some(())?;
        Some(ManifestName { name: name.to_owned(), time_ms: u64::try_from(time_ms).ok()?, id, position, digest })
    }

    pub fn object(&self) -> String {
        format!("{FOLDER}/{}", self.name)
    }

    /// Which of two is older is said by the log: its epochs and offsets only grow, and a clock may have been wrong.
    fn order(&self) -> (u64, u32, u64, u64) {
        (self.id, self.position.epoch, self.position.offset, self.time_ms)
    }
}

/// All backups that are there: those of one data directory together, the oldest first.
pub fn list(target: &dyn Target) -> io::Result<Vec<ManifestName>> {
    let names = target.list(FOLDER)?;
    let mut all: Vec<_> = names.iter().filter_map(|name| ManifestName::parse(name.rsplit('/').next()?)).collect();
    all.sort_unstable_by_key(ManifestName::order);
    Ok(all)
}

impl Manifest {
    pub fn new(identity: DirIdentity, checkpoint: &Checkpoint, time_ms: u64) -> Manifest {
        Manifest {
            format: FORMAT,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            time_ms,
            id: format!("{:016x}", identity.id),
            hash_seed: format!("{:016x}", identity.hash_seed),
            position: checkpoint.position.to_string(),
            counters: checkpoint.counters,
            state: String::new(),
            rows: Vec::new(),
            log_from: checkpoint.position.offset,
            log: Vec::new(),
        }
    }

    /// Its name and its bytes.
    pub fn encode(&self) -> (ManifestName, Vec<u8>) {
        let bytes = serde_json::to_vec_pretty(self).expect("texts and numbers can be written");
        let moment =
            Timestamp::from_millisecond(self.time_ms as i64).expect("a clock shows a time that can be written");
        let (time, digest) = (moment.strftime(TIME), chunk::digest(&bytes));
        let name = format!("{time}_{}_{}_{}.json", self.id, self.position, &digest[..NAME_DIGITS]);
        (ManifestName::parse(&name).expect("names are read as they are written"), bytes)
    }

    pub fn read(target: &dyn Target, name: &ManifestName) -> Result<Manifest, BackupError> {
        let object = name.object();
        let bytes = target.get(&object).map_err(|error| damaged(&object, format!("it cannot be read: {error}")))?;
        if !chunk::digest(&bytes).starts_with(&name.digest) {
            return Err(damaged(&object, "it does not have the digest that it is named by"));
        }
        let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| damaged(&object, error))?;
        if manifest.format != FORMAT {
            let what = format!(
                "its format is {}, and {FORMAT} is known here: use Tally {}",
                manifest.format, manifest.written_by
            );
            return Err(damaged(&object, what));
        }
        manifest.check().ok_or_else(|| damaged(&object, "a field has a value that it cannot have"))?;
        Ok(manifest)
    }

    fn check(&self) -> Option<()> {
        self.position.parse::<Position>().ok()?;
        u64::from_str_radix(&self.id, 16).ok()?;
        u64::from_str_radix(&self.hash_seed, 16).ok().map(drop)
    }

    pub fn position(&self) -> Position {
        self.position.parse().expect("it was looked at when it was read")
    }

    pub fn hash_seed(&self) -> u64 {
        u64::from_str_radix(&self.hash_seed, 16).expect("it was looked at when it was read")
    }

    /// Every object that it names.
    pub fn objects(&self) -> impl Iterator<Item = &str> {
        let entries = self.rows.iter().chain(&self.log).map(|entry| &*entry.digest);
        std::iter::once(&*self.state).chain(entries)
    }
}
