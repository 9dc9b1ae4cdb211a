//! A topic of logs of one's own, one for each partition: in memory for simulations, in files for one machine.

use super::{Appender, Source};
use crate::log::{Appended, Log, LogError, LogHandle};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tally_core::position::Position;

/// Tells the time of whoever keeps a partition: the append time of its batches.
pub type AppendTime = dyn Fn(u32) -> u64 + Send + Sync;

pub struct Partitions<L: Log> {
    logs: Vec<Mutex<L>>,
    handles: Vec<L::Handle>,
    now_ms: Box<AppendTime>,
}

impl<L: Log> Partitions<L> {
    pub fn new(logs: Vec<L>, now_ms: Box<AppendTime>) -> Partitions<L> {
        let handles = logs.iter().map(Log::handle).collect();
        Partitions { handles, logs: logs.into_iter().map(Mutex::new).collect(), now_ms }
    }

    fn log(&self, partition: u32) -> MutexGuard<'_, L> {
        self.logs[partition as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, partition: u32) -> &L::Handle {
        &self.handles[partition as usize]
    }
}

impl<L: Log> Appender for Partitions<L> {
    fn partitions(&self) -> u32 {
        self.logs.len() as u32
    }

    fn append(&self, partition: u32, count: u32, records: &[u8]) -> Result<Appended, LogError> {
        let mut log = self.log(partition);
        let appended = log.append((self.now_ms)(partition), count, records);
        let synced = appended.and_then(|appended| log.sync().map(|_| appended));
        // Only an opening can tell.
        synced.map_err(|error| match error {
            LogError::Failed(reason) => LogError::Unknown(reason),
            other => other,
        })
    }
}

impl<L: Log> Source for Partitions<L> {
    type Reader = <L::Handle as LogHandle>::Reader;

    fn assigned(&self) -> Vec<u32> {
        (0..self.partitions()).collect()
    }

    fn batches(&self, partition: u32, from: Position) -> Result<Self::Reader, LogError> {
        self.handle(partition).reader(from)
    }

    fn high_water(&self, partition: u32) -> Result<Position, LogError> {
        Ok(self.handle(partition).synced_end())
    }

    fn release(&self, partition: u32, to: Position) -> Result<(), LogError> {
        self.handle(partition).retain_from(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::local::{LocalLog, LogOptions};
    use crate::log::memory::{MemoryDisk, MemoryLog};
    use crate::topic::suite;
    use tally_wal::testing::FaultDisk;

    mod memory {
        use super::*;

        suite::tests!(|n, now_ms| {
            let logs = (0..n).map(|_| MemoryLog::open(&MemoryDisk::default())).collect();
            Partitions::new(logs, now_ms)
        });
    }

    mod local {
        use super::*;

        suite::tests!(|n, now_ms| {
            let options = |n| LogOptions { segment_bytes: 8 << 10, log_id: n, ..LogOptions::default() };
            let open = |n| LocalLog::open_on(FaultDisk::new(n), options(n)).unwrap().0;
            Partitions::new((0..u64::from(n)).map(open).collect(), now_ms)
        });
    }
}
