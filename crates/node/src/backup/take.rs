//! Takes a backup, a chunk at a time.

use super::chunk::{self, Filling, Kind};
use super::manifest::{self, Manifest, ManifestName, ObjectEntry};
use super::{BackupError, Place, Progress, Target};
use crate::data_dir::DirIdentity;
use crate::engine::{Engine, LogHold, Whole};
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use tally_core::position::Position;
use tally_storage::log::{LogBatch, LogError, LogReader};
use tally_storage::store::key::Key;
use tally_storage::store::{self, Checkpoint, Reads};

/// Rows that are read at a time, a millisecond of work or so. Whoever wakes up meanwhile waits for the next tick of the system otherwise.
const TURN_ROWS: u64 = 1024;

/// A backup under way.
pub struct Taking {
    target: Box<dyn Target>,
    /// How it is called in errors.
    place: Place,
    rows: Box<dyn Reads>,
    checkpoint: Checkpoint,
    manifest: Manifest,
    stage: Stage,
    pub progress: Progress,
}

enum Stage {
    /// The log first, which is kept from where it was copied to.
    Log {
        reader: Box<dyn LogReader>,
        hold: LogHold,
        from: u64,
        copied_to: u64,
    },
    /// Everything behind a key.
    Rows {
        behind: Vec<u8>,
    },
    Rest,
}

impl Taking {
    pub async fn begin(
        engine: &Engine,
        identity: DirIdentity,
        target: Box<dyn Target>,
        place: Place,
        taken_ms: u64,
    ) -> Result<Taking, BackupError> {
        let Whole { rows, checkpoint, read_from, hold } = engine.whole().await?;
        let manifest = Manifest::new(identity, &checkpoint, taken_ms);
        let reader = engine.log().reader(Position { offset: read_from, ..checkpoint.position }).map_err(of_log)?;
        let progress = Progress { counters: checkpoint.counters, ..Progress::default() };
        let stage = Stage::Log { reader, hold, from: read_from, copied_to: read_from };
        Ok(Taking { target, place, rows, checkpoint, manifest, stage, progress })
    }

    /// One chunk; answers the backup when it is there.
    pub fn step(&mut self) -> Result<Option<ManifestName>, BackupError> {
        match &mut self.stage {
            Stage::Log { reader, hold, copied_to, .. } => {
                let to = self.checkpoint.position.offset;
                let (chunk, reached) = next_of_log(&mut **reader, to, &mut self.manifest)?;
                hold.only_from(reached);
                *copied_to = reached;
                if reached == to {
                    self.stage = Stage::Rows { behind: Vec::new() };
                }
                self.keep(Kind::Log, chunk)?;
            }
            Stage::Rows { behind } => {
                let (chunk, last) = next_of_rows(&*self.rows, behind)?;
                match last {
                    Some(last) => *behind = last,
                    None => self.stage = Stage::Rest,
                }
                self.keep(Kind::Rows, chunk)?;
            }
            Stage::Rest => return self.finish().map(Some),
        }
        Ok(None)
    }

    /// Whether the log has grown by more than was copied of it, when so much is applied: then what is kept for this grows as well.
    pub fn is_behind(&self, applied: u64) -> bool {
        let grown = applied.saturating_sub(self.checkpoint.position.offset);
        matches!(self.stage, Stage::Log { from, copied_to, .. } if copied_to - from < grown)
    }

    fn keep(&mut self, kind: Kind, mut chunk: Filling) -> Result<(), BackupError> {
        if chunk.is_empty() {
            return Ok(());
        }
        let entry = self.keep_object(&mut chunk)?;
        match kind {
            Kind::Log => self.manifest.log.push(entry),
            Kind::Rows => {
                self.progress.rows += entry.entries;
                self.manifest.rows.push(entry);
            }
        }
        Ok(())
    }

    /// Writes an object, unless it is there already.
    fn keep_object(&mut self, chunk: &mut Filling) -> Result<ObjectEntry, BackupError> {
        let (entries, content) = (chunk.entries, chunk.take());
        let entry = ObjectEntry { digest: chunk::digest(&content), entries, bytes: content.len() as u64 };
        let name = manifest::object_name(&entry.digest);
        let put = || -> io::Result<u64> {
            if self.target.has(&name)? {
                return Ok(0);
            }
            let object = chunk::compress(&content)?;
            self.target.put(&name, &object)?;
            Ok(object.len() as u64)
        };
        let written = put().map_err(|error| self.failed(error))?;
        self.progress.objects += 1;
        self.progress.bytes += entry.bytes;
        self.progress.written_objects += u64::from(written > 0);
        self.progress.written_bytes += written;
        Ok(entry)
    }

    /// What is left: the checkpoint, and the manifest when all else is durable.
    fn finish(&mut self) -> Result<ManifestName, BackupError> {
        let mut state = Filling::new(Kind::Rows);
        state.add(&Key::Checkpoint.encode(), &self.checkpoint.encode());
        self.manifest.state = self.keep_object(&mut state)?.digest;
        let (name, bytes) = self.manifest.encode();
        self.target.publish(&name.object(), &bytes).map_err(|error| self.failed(error))?;
        Ok(name)
    }

    /// Removes older backups of the same data directory until so many are left with this one, and then objects that no backup names.
    pub fn prune(&self, made: &ManifestName, keep: usize) -> Result<(), BackupError> {
        let failed = |error| self.failed(error);
        let all = manifest::list(&*self.target).map_err(failed)?;
        let others: Vec<_> = all.iter().filter(|name| name.id == made.id && *name != made).collect();
        let (gone, _) = others.split_at(others.len().saturating_sub(keep.saturating_sub(1)));
        for name in gone {
            self.target.delete(&name.object()).map_err(failed)?;
        }
        let mut named = BTreeSet::new();
        // What one that cannot be read names is not known, so nothing goes.
        for name in all.iter().filter(|name| !gone.contains(name)) {
            named.extend(Manifest::read(&*self.target, name)?.objects().map(manifest::object_name));
        }
        self.target.settle().map_err(failed)?;
        for object in self.target.list(manifest::OBJECTS).map_err(failed)? {
            if !named.contains(&object) {
                self.target.delete(&object).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// All backups that are there.
    pub fn list(&self) -> Result<Vec<ManifestName>, BackupError> {
        manifest::list(&*self.target).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> BackupError {
        self.place.failed(error)
    }
}

/// The next chunk of the log before `to`, and how far it goes.
fn next_of_log(reader: &mut dyn LogReader, to: u64, manifest: &mut Manifest) -> Result<(Filling, u64), BackupError> {
    let mut chunk = Filling::new(Kind::Log);
    while let Some(batch) = reader.next().map_err(of_log)? {
        if batch.position.offset >= to {
            break;
        }
        assert!(batch.end_offset() <= to, "a checkpoint stands between two batches");
        manifest.log_from = manifest.log_from.min(batch.position.offset);
        if chunk.add(&batch_key(&batch), batch.records) {
            return Ok((chunk, batch.end_offset()));
        }
    }
    Ok((chunk, to))
}

fn of_log(error: LogError) -> BackupError {
    match error {
        LogError::Trimmed { .. } => BackupError::Lapsed,
        error => error.into(),
    }
}

/// Where a batch stands: epoch, number of records, offset, log time.
fn batch_key(batch: &LogBatch<'_>) -> [u8; 24] {
    let mut key = [0; 24];
    key[..4].copy_from_slice(&batch.position.epoch.to_le_bytes());
    key[4..8].copy_from_slice(&batch.count.to_le_bytes());
    key[8..16].copy_from_slice(&batch.position.offset.to_le_bytes());
    key[16..].copy_from_slice(&batch.log_time_ms.to_le_bytes());
    key
}

/// The next chunk of the rows behind a key, and its last key if there may be more.
fn next_of_rows(rows: &dyn Reads, behind: &[u8]) -> Result<(Filling, Option<Vec<u8>>), BackupError> {
    let (mut chunk, mut last) = (Filling::new(Kind::Rows), None);
    store::walk(rows, behind, &mut |key, value| {
        if chunk.entries % TURN_ROWS == 0 {
            std::thread::yield_now();
        }
        if key == behind || !chunk.add(key, value) {
            return ControlFlow::Continue(());
        }
        last = Some(key.to_vec());
        ControlFlow::Break(())
    })?;
    Ok((chunk, last))
}
