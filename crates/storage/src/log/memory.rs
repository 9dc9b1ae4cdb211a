//! A log in memory: for tests, and as the plainest statement of the contract. "Durable" means that it outlives the writer.

use super::{Appended, Log, LogBatch, LogError, LogHandle, LogReader};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tally_core::position::Position;

/// As large a batch as the embedded log takes by default, near enough.
const BATCH_BYTES_MAX: usize = 63 << 20;

/// What remains when a writer is gone; opening it again is a restart, in which whatever was not synced is lost.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<MemoryLogState>>);

#[derive(Default)]
struct MemoryLogState {
    batches: Vec<KeptBatch>,
    epoch: u32,
    /// How many batches, and how many records, are synced.
    synced: usize,
    synced_offset: u64,
    first_offset: u64,
}

#[derive(Clone)]
struct KeptBatch {
    position: Position,
    count: u32,
    log_time_ms: u64,
    records: Arc<[u8]>,
}

impl KeptBatch {
    fn end(&self) -> u64 {
        self.position.offset + u64::from(self.count)
    }
}

pub struct MemoryLog {
    disk: MemoryDisk,
    epoch: u32,
    end: u64,
    log_time_ms: u64,
}

#[derive(Clone)]
pub struct MemoryHandle {
    disk: MemoryDisk,
    epoch: u32,
}

pub struct MemoryReader {
    disk: MemoryDisk,
    from: u64,
    current: Option<KeptBatch>,
}

impl MemoryDisk {
    fn state(&self) -> MutexGuard<'_, MemoryLogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryLog {
    pub fn open(disk: &MemoryDisk) -> MemoryLog {
        let mut state = disk.state();
        let synced = state.synced;
        state.batches.truncate(synced);
        state.epoch += 1;
        let log_time_ms = state.batches.last().map_or(0, |batch| batch.log_time_ms);
        MemoryLog { disk: disk.clone(), epoch: state.epoch, end: state.synced_offset, log_time_ms }
    }

    fn position(&self, offset: u64) -> Position {
        Position { epoch: self.epoch, log: 0, offset }
    }
}

impl Log for MemoryLog {
    type Handle = MemoryHandle;

    fn append(&mut self, log_time_ms: u64, count: u32, records: &[u8]) -> Result<Appended, LogError> {
        assert!(count > 0 && !records.is_empty(), "a batch has at least one record");
        if records.len() > BATCH_BYTES_MAX {
            return Err(LogError::TooLarge { bytes: records.len(), max: BATCH_BYTES_MAX });
        }
        self.log_time_ms = self.log_time_ms.max(log_time_ms);
        let position = self.end();
        let stored = KeptBatch { position, count, log_time_ms: self.log_time_ms, records: records.into() };
        self.end = stored.end();
        self.disk.state().batches.push(stored);
        Ok(Appended { position, log_time_ms: self.log_time_ms })
    }

    fn sync(&mut self) -> Result<Position, LogError> {
        let mut state = self.disk.state();
        (state.synced, state.synced_offset) = (state.batches.len(), self.end);
        drop(state);
        Ok(self.end())
    }

    fn end(&self) -> Position {
        self.position(self.end)
    }

    fn log_time_ms(&self) -> u64 {
        self.log_time_ms
    }

    fn batch_bytes_max(&self) -> usize {
        BATCH_BYTES_MAX
    }

    fn handle(&self) -> MemoryHandle {
        MemoryHandle { disk: self.disk.clone(), epoch: self.epoch }
    }
}

impl LogHandle for MemoryHandle {
    type Reader = MemoryReader;

    fn start(&self) -> Position {
        Position { epoch: self.epoch, log: 0, offset: self.disk.state().first_offset }
    }

    fn synced_end(&self) -> Position {
        Position { epoch: self.epoch, log: 0, offset: self.disk.state().synced_offset }
    }

    fn reader(&self, from: Position) -> Result<MemoryReader, LogError> {
        let first = self.disk.state().first_offset;
        if from.offset < first {
            return Err(LogError::Trimmed { wanted: from.offset, first });
        }
        Ok(MemoryReader { disk: self.disk.clone(), from: from.offset, current: None })
    }

    fn retain_from(&self, from: Position) -> Result<(), LogError> {
        let mut state = self.disk.state();
        // The last synced batch stays: it remembers the log time.
        let before = |batch: &&KeptBatch| batch.end() <= from.offset;
        let freed = state.batches[..state.synced].iter().take_while(before).count().min(state.synced.saturating_sub(1));
        state.batches.drain(..freed);
        state.synced -= freed;
        state.first_offset = state.batches.first().map_or(state.first_offset, |batch| batch.position.offset);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.disk.state().batches.iter().map(|batch| batch.records.len() as u64).sum()
    }

    fn prepare(&self) -> Result<bool, LogError> {
        Ok(false)
    }

    fn give_up_prepared(&self) -> Result<(), LogError> {
        Ok(())
    }
}

impl LogReader for MemoryReader {
    fn next(&mut self) -> Result<Option<LogBatch<'_>>, LogError> {
        let state = self.disk.state();
        if self.from < state.first_offset {
            return Err(LogError::Trimmed { wanted: self.from, first: state.first_offset });
        }
        let at = state.batches.partition_point(|batch| batch.end() <= self.from);
        self.current = state.batches[..state.synced].get(at).cloned();
        drop(state);
        let Some(batch) = &self.current else { return Ok(None) };
        self.from = batch.end();
        let KeptBatch { position, count, log_time_ms, ref records } = *batch;
        Ok(Some(LogBatch { position, count, log_time_ms, records }))
    }

    fn rest(&mut self) {
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::suite;

    suite::tests!(|| {
        let disk = MemoryDisk::default();
        move || MemoryLog::open(&disk)
    });
}
