//! A workload, and a naive model of what must be left of it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use tally_wal::testing::FaultDisk;
use tally_wal::{Disk, Error, LogOptions, RecoveredLog, WalWriter};

pub const SEGMENT_BYTES: u64 = 16 << 10;

pub fn options() -> LogOptions {
    LogOptions { segment_bytes: SEGMENT_BYTES, spares_max: 1, log_id: 0x7a11, ..LogOptions::default() }
}

/// A batch that was handed to the log, whatever became of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Attempt {
    pub base_offset: u64,
    pub epoch: u32,
    pub count: u32,
    pub records: Vec<u8>,
}

impl Attempt {
    pub fn end(&self) -> u64 {
        self.base_offset + u64::from(self.count)
    }
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Attempt { base_offset, epoch, count, records } = self;
        write!(f, "{count} records at {epoch}-{base_offset}: {} bytes of {:?}", records.len(), records.first())
    }
}

/// What the log may and must hold.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// From record 0 on, without gaps.
    pub attempts: Vec<Attempt>,
    /// Everything before this was acknowledged.
    pub acknowledged: u64,
    /// Everything before this may be forgotten.
    pub retained_from: u64,
    /// Who got which position, ever.
    given: HashMap<(u32, u64), Vec<u8>>,
}

impl Model {
    pub fn append<D: Disk>(&mut self, log: &mut WalWriter<D>, count: u32, records: &[u8]) -> Result<(), Error> {
        let attempt = Attempt { base_offset: log.end(), epoch: log.epoch(), count, records: records.to_vec() };
        let earlier = self.given.insert((attempt.epoch, attempt.base_offset), records.to_vec());
        assert!(earlier.is_none_or(|earlier| earlier == records), "position {attempt:?} was given twice");
        self.attempts.push(attempt);
        let appended = log.append(0, count, records);
        if matches!(appended, Err(Error::Full { .. } | Error::TooLarge { .. })) {
            let unwritten = self.attempts.pop().map(|attempt| (attempt.epoch, attempt.base_offset));
            unwritten.iter().for_each(|position| drop(self.given.remove(position)));
        }
        appended.map(|_| ())
    }

    pub fn sync<D: Disk>(&mut self, log: &mut WalWriter<D>) -> Result<(), Error> {
        log.sync()?;
        self.acknowledged = log.end();
        Ok(())
    }

    pub fn retain_from<D: Disk>(&mut self, log: &WalWriter<D>, offset: u64) -> Result<(), Error> {
        self.retained_from = self.retained_from.max(offset);
        log.handle().retain_from(offset)
    }

    /// Compares a log that was just opened with what it may and must hold. What it holds is what must be there from now on.
    pub fn check_opened<D: Disk>(&mut self, log: &WalWriter<D>, recovered: &RecoveredLog) {
        let found = read_all(log);
        assert!(log.first_offset() <= self.retained_from);
        assert!(log.end() >= self.acknowledged, "{} acknowledged, but {recovered:?}", self.acknowledged);
        let expected = self.attempts.iter().skip_while(|attempt| attempt.base_offset < log.first_offset());
        let expected: Vec<&Attempt> = expected.take_while(|attempt| attempt.end() <= log.end()).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{recovered:?}");
        assert_eq!(found.last().map_or(log.first_offset(), Attempt::end), log.end());
        assert!(self.given.keys().all(|(epoch, _)| *epoch < log.epoch()), "epoch {} was used before", log.epoch());
        assert_eq!((recovered.end, recovered.epoch), (log.end(), log.epoch()));
        self.attempts.retain(|attempt| attempt.end() <= log.end());
        self.acknowledged = log.end();
    }
}

/// Every batch that a reader gives from the beginning.
pub fn read_all<D: Disk>(log: &WalWriter<D>) -> Vec<Attempt> {
    try_read_all(log).expect("what was verified can be read")
}

pub fn try_read_all<D: Disk>(log: &WalWriter<D>) -> Result<Vec<Attempt>, Error> {
    let mut reader = log.handle().reader(log.first_offset())?;
    let mut found = Vec::new();
    while let Some(batch) = reader.next()? {
        found.push(Attempt {
            base_offset: batch.base_offset,
            epoch: batch.epoch,
            count: batch.count,
            records: batch.records.to_vec(),
        });
    }
    Ok(found)
}

/// Lengths that end within a page, at a page's end, and fill most of a segment.
const LENGTHS: [usize; 8] = [10, 3000, 1, 4096 - 56, 5000, 2 * 4096 - 56, 700, 11_000];

/// Opens, appends, syncs, rolls, trims, recycles and prepares, in three lives; ends with the first error.
pub fn workload(disk: &FaultDisk, options: &LogOptions, model: &mut Model) -> Result<(), Error> {
    for life in 0..3u8 {
        let (mut log, recovered) = WalWriter::open(disk.clone(), options.clone())?;
        model.check_opened(&log, &recovered);
        for (n, length) in LENGTHS.into_iter().enumerate() {
            let records = vec![life * 50 + n as u8 + 1; length];
            model.append(&mut log, 1 + n as u32 % 3, &records)?;
            if n % 3 != 1 {
                model.sync(&mut log)?;
            }
            if n == 4 {
                log.handle().prepare_spare()?;
            }
            if n == 5 {
                let middle = log.first_offset() + (log.end() - log.first_offset()) / 2;
                model.retain_from(&log, middle)?;
            }
        }
    }
    Ok(())
}

/// Opens a log that must open, and checks it twice: a second opening finds the same, and nothing more to cut.
pub fn check_recovery(disk: &FaultDisk, options: &LogOptions, model: &mut Model) {
    let (log, recovered) = WalWriter::open(disk.clone(), options.clone()).expect("a crash is no damage");
    model.check_opened(&log, &recovered);
    let found = read_all(&log);
    drop(log);
    let (log, recovered) = WalWriter::open(disk.clone(), options.clone()).expect("what was recovered is whole");
    assert_eq!(recovered.cut, None);
    assert_eq!(read_all(&log), found);
}
