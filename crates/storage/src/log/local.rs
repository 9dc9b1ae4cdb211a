//! The embedded log: segment files in a directory (`tally_wal`).

use super::{Appended, Log, LogBatch, LogError, LogHandle, LogReader};
use tally_core::position::Position;
use tally_wal::{Disk, Error, RealDisk};

pub use tally_wal::{LogOptions, LostEnd, RecoveredLog};

/// The embedded node has one log.
const LOG: u32 = 0;

pub struct LocalLog<D: Disk = RealDisk>(tally_wal::WalWriter<D>);

pub struct LocalHandle<D: Disk = RealDisk>(tally_wal::Handle<D>);

pub struct LocalReader<D: Disk = RealDisk>(tally_wal::WalReader<D>);

impl LocalLog<RealDisk> {
    /// Opens or starts the log in a directory. Only one process may have it open.
    pub fn open(directory: &std::path::Path, options: LogOptions) -> Result<(Self, RecoveredLog), LogError> {
        LocalLog::open_on(open_disk(directory)?, options)
    }

    /// The id of the data directory that the log in a directory belongs to; `None` if there is no log yet.
    pub fn belongs_to(directory: &std::path::Path) -> Result<Option<u64>, LogError> {
        match directory.is_dir() {
            true => Ok(tally_wal::identity(&open_disk(directory)?)?),
            false => Ok(None),
        }
    }
}

fn open_disk(directory: &std::path::Path) -> Result<RealDisk, LogError> {
    RealDisk::open(directory)
        .map_err(|error| LogError::Failed(format!("cannot open the log in {}: {error}", directory.display())))
}

impl<D: Disk> LocalLog<D> {
    pub fn open_on(disk: D, options: LogOptions) -> Result<(Self, RecoveredLog), LogError> {
        let (log, recovered) = tally_wal::WalWriter::open(disk, options)?;
        Ok((LocalLog(log), recovered))
    }

    fn position(&self, offset: u64) -> Position {
        Position { epoch: self.0.epoch(), log: LOG, offset }
    }
}

impl<D: Disk> Log for LocalLog<D> {
    type Handle = LocalHandle<D>;

    fn append(&mut self, log_time_ms: u64, count: u32, records: &[u8]) -> Result<Appended, LogError> {
        let appended = self.0.append(log_time_ms, count, records)?;
        Ok(Appended { position: self.position(appended.base_offset), log_time_ms: appended.log_time_ms })
    }

    fn sync(&mut self) -> Result<Position, LogError> {
        self.0.sync()?;
        Ok(self.end())
    }

    fn end(&self) -> Position {
        self.position(self.0.end())
    }

    fn log_time_ms(&self) -> u64 {
        self.0.log_time_ms()
    }

    fn batch_bytes_max(&self) -> usize {
        self.0.batch_bytes_max()
    }

    fn handle(&self) -> LocalHandle<D> {
        LocalHandle(self.0.handle())
    }
}

impl<D: Disk> Clone for LocalHandle<D> {
    fn clone(&self) -> Self {
        LocalHandle(self.0.clone())
    }
}

impl<D: Disk> LocalHandle<D> {
    fn position(&self, offset: u64) -> Position {
        Position { epoch: self.0.epoch(), log: LOG, offset }
    }
}

impl<D: Disk> LogHandle for LocalHandle<D> {
    type Reader = LocalReader<D>;

    fn start(&self) -> Position {
        self.position(self.0.first_offset())
    }

    fn synced_end(&self) -> Position {
        self.position(self.0.synced_end())
    }

    fn reader(&self, from: Position) -> Result<LocalReader<D>, LogError> {
        Ok(LocalReader(self.0.reader(from.offset)?))
    }

    fn retain_from(&self, from: Position) -> Result<(), LogError> {
        Ok(self.0.retain_from(from.offset)?)
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn prepare(&self) -> Result<bool, LogError> {
        Ok(self.0.prepare_spare()?)
    }

    fn give_up_prepared(&self) -> Result<(), LogError> {
        Ok(self.0.give_up_spares()?)
    }
}

impl<D: Disk> LogReader for LocalReader<D> {
    fn next(&mut self) -> Result<Option<LogBatch<'_>>, LogError> {
        let batch = self.0.next()?;
        Ok(batch.map(|batch| LogBatch {
            position: Position { epoch: batch.epoch, log: LOG, offset: batch.base_offset },
            count: batch.count,
            log_time_ms: batch.log_time_ms,
            records: batch.records,
        }))
    }

    fn rest(&mut self) {
        self.0.rest();
    }
}

impl From<Error> for LogError {
    fn from(error: Error) -> LogError {
        match error {
            Error::TooLarge { bytes, max } => LogError::TooLarge { bytes, max },
            Error::Full { .. } => LogError::Full(error.to_string()),
            Error::Trimmed { wanted, first } => LogError::Trimmed { wanted, first },
            Error::Damaged { .. } | Error::Foreign { .. } => LogError::Damaged(error.to_string()),
            Error::Poisoned { .. } | Error::BadOption(_) | Error::Io { .. } => LogError::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::suite;
    use tally_wal::testing::FaultDisk;

    fn options() -> LogOptions {
        LogOptions { segment_bytes: 16 << 10, log_id: 7, ..LogOptions::default() }
    }

    suite::tests!(|| {
        let disk = FaultDisk::new(0);
        move || LocalLog::open_on(disk.clone(), options()).expect("the disk is healthy").0
    });

    #[test]
    fn a_log_in_a_directory_passes_the_whole_suite() {
        suite::all(|| {
            let directory = tempfile::tempdir().unwrap();
            move || LocalLog::open(directory.path(), options()).unwrap().0
        });
    }

    #[test]
    fn a_log_that_goes_on_from_another_begins_where_it_is_told_in_a_higher_epoch() {
        let disk = FaultDisk::new(0);
        let begun = LogOptions { from_offset: 70, epoch_above: 40, discard_from: Some(0), ..options() };
        let (mut log, _) = LocalLog::open_on(disk.clone(), begun).unwrap();
        assert_eq!(log.append(5, 2, b"ab").unwrap().position, Position { epoch: 41, log: 0, offset: 70 });
        log.sync().unwrap();
        drop(log);
        let (log, _) = LocalLog::open_on(disk, LogOptions { from_offset: 70, ..options() }).unwrap();
        assert_eq!(log.end(), Position { epoch: 42, log: 0, offset: 72 });
    }
}
