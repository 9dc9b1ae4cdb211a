//! What every log must do, written once against the contract on the traits.
//!
//! A check is given an opener: it makes a fresh log, and each call of what it answers opens that log, again after the first
//! time. [`all`] runs every check; [`tests`](crate::log_suite_tests) turns them into tests of the module that invokes it.

#![allow(clippy::unwrap_used, reason = "what does not go well fails the check")]

use super::{Log, LogError, LogHandle, LogReader};
use tally_core::position::Position;

/// Everything a reader gives, as owned values: position, log time, count and records.
fn read_all<L: Log>(log: &L, from: u64) -> Vec<(Position, u64, u32, Vec<u8>)> {
    let mut reader = log.handle().reader(at(from)).unwrap();
    let mut read = Vec::new();
    while let Some(batch) = reader.next().unwrap() {
        read.push((batch.position, batch.log_time_ms, batch.count, batch.records.to_vec()));
    }
    read
}

fn offsets<L: Log>(log: &L, from: u64) -> Vec<u64> {
    read_all(log, from).iter().map(|(position, ..)| position.offset).collect()
}

fn at(offset: u64) -> Position {
    Position { epoch: 0, log: 0, offset }
}

pub fn batches_are_read_as_they_were_appended<L: Log, O: FnMut() -> L>(fresh: impl Fn() -> O) {
    let mut open = fresh();
    let mut log = open();
    let first = log.append(1000, 2, b"ab").unwrap();
    let second = log.append(1001, 1, b"c").unwrap();
    let end = log.sync().unwrap();
    assert_eq!((first.position.offset, second.position.offset, end.offset), (0, 2, 3));
    let expected = vec![(first.position, 1000, 2, b"ab".to_vec()), (second.position, 1001, 1, b"c".to_vec())];
    assert_eq!(read_all(&log, 0), expected);
    assert_eq!(log.handle().synced_end(), end);
}

pub fn readers_see_a_batch_only_when_it_is_synced<L: Log, O: FnMut() -> L>(fresh: impl Fn() -> O) {
    let mut open = fresh();
    let mut log = open();
    let mut reader = log.handle().reader(at(0)).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    log.append(1, 1, b"a").unwrap();
    assert_eq!(reader.next().unwrap(), None);
    assert_eq!(log.handle().synced_end().offset, 0);
    log.sync().unwrap();
    assert_eq!(reader.next().unwrap().unwrap().records, b"a");
    assert_eq!(reader.next().unwrap(), None);
    log.append(2, 1, b"b").unwrap();
    log.sync().unwrap();
    assert_eq!(reader.next().unwrap().unwrap().records, b"b");
}

pub fn log_time_never_runs_backwards<L: Log, O: FnMut() -> L>(fresh: impl Fn() -> O) {
    let mut open = fresh();
    let mut log = open();
    assert_eq!(log.log_time_ms(), 0);
    log.append(50, 1, b"a").unwrap();
    assert_eq!(log.append(40, 1, b"b").unwrap().log_time_ms, 50);
    log.sync().unwrap();
    drop(log);
    let mut log = open();
    assert_eq!(log.log_time_ms(), 50);
    assert_eq!(log.append(45, 1, b"c").unwrap().log_time_ms, 50);
    log.sync().unwrap();
    assert_eq!(read_all(&log, 0).iter().map(|batch| batch.1).collect::<Vec<_>>(), [50, 50, 50]);
}

pub fn synced_batches_outlive_the_writer_and_each_opening_has_a_higher_epoch<L: Log, O: FnMut() -> L>(
    fresh: impl Fn() -> O,
) {
    let mut open = fresh();
    let mut epochs = Vec::new();
    for round in 0..5u64 {
        let mut log = open();
        epochs.push(log.end().epoch);
        assert_eq!(log.end().offset, round * 3);
        log.append(round, 3, &[round as u8; 30]).unwrap();
        log.sync().unwrap();
        let read = read_all(&log, 0);
        assert_eq!(read.iter().map(|batch| batch.0.epoch).collect::<Vec<_>>(), epochs);
        assert!(read.iter().enumerate().all(|(n, batch)| batch.3 == [n as u8; 30]));
    }
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
}

pub fn reading_starts_at_the_batch_that_holds_the_record<L: Log, O: FnMut() -> L>(fresh: impl Fn() -> O) {
    let mut open = fresh();
    let mut log = open();
    for n in 0..100u32 {
        log.append(n.into(), 10, &[n as u8; 1000]).unwrap();
    }
    log.sync().unwrap();
    for from in [0, 1, 9, 10, 11, 555, 990, 999] {
        let expected: Vec<u64> = (from / 10..100).map(|n| n * 10).collect();
        assert_eq!(offsets(&log, from), expected, "from {from}");
    }
    assert_eq!(offsets(&log, 1000), Vec::<u64>::new());
}

pub fn what_is_retained_stays_and_what_is_forgotten_is_refused<L: Log, O: FnMut() -> L>(fresh: impl Fn() -> O) {
    let mut open = fresh();
    let mut log = open();
    for n in 0..100u32 {
        log.append(n.into(), 10, &[n as u8; 1000]).unwrap();
    }
    log.sync().unwrap();
    let mut late = log.handle().reader(at(0)).unwrap();
    log.handle().retain_from(at(505)).unwrap();
    let start = log.handle().start().offset;
    assert!(start > 0 && start <= 500, "{start}");
    assert_eq!(offsets(&log, start), (start / 10..100).map(|n| n * 10).collect::<Vec<_>>());
    assert!(matches!(log.handle().reader(at(start - 1)), Err(LogError::Trimmed { first, .. }) if first == start));
    assert!(matches!(late.next(), Err(LogError::Trimmed { first, .. }) if first == start));
    drop(log);
    let log = open();
    assert_eq!(log.handle().start().offset, start);
    assert_eq!(offsets(&log, start).last(), Some(&990));
}

pub fn retaining_nothing_keeps_what_is_not_synced<L: Log, O: FnMut() -> L>(fresh: impl Fn() -> O) {
    let mut open = fresh();
    let mut log = open();
    for n in 0..50u32 {
        log.append(n.into(), 1, &[n as u8; 1000]).unwrap();
        if n == 20 {
            log.sync().unwrap();
        }
    }
    log.handle().retain_from(at(u64::MAX)).unwrap();
    log.sync().unwrap();
    let start = log.handle().start().offset;
    assert_eq!(offsets(&log, start), (start..50).collect::<Vec<_>>());
    assert_eq!(log.append(99, 1, b"x").unwrap().position.offset, 50);
}

pub fn a_batch_that_is_too_large_is_refused_and_the_largest_is_taken<L: Log, O: FnMut() -> L>(fresh: impl Fn() -> O) {
    let mut open = fresh();
    let mut log = open();
    let max = log.batch_bytes_max();
    let records = vec![7; max + 1];
    assert!(matches!(log.append(1, 1, &records), Err(LogError::TooLarge { .. })));
    assert_eq!(log.end().offset, 0);
    log.append(1, 1, &records[..max]).unwrap();
    log.sync().unwrap();
    assert_eq!(read_all(&log, 0)[0].3.len(), max);
}

pub fn preparing_ahead_changes_nothing_that_can_be_read<L: Log, O: FnMut() -> L>(fresh: impl Fn() -> O) {
    let mut open = fresh();
    let mut log = open();
    for n in 0..60u32 {
        while log.handle().prepare().unwrap() {}
        log.append(n.into(), 1, &[n as u8; 1000]).unwrap();
        log.sync().unwrap();
    }
    assert_eq!(offsets(&log, 0), (0..60).collect::<Vec<_>>());
}

macro_rules! checks {
    ($dollar:tt $($name:ident)*) => {
        /// Runs every check.
        pub fn all<L: Log, O: FnMut() -> L>(fresh: impl Fn() -> O) {
            $($name(&fresh);)*
        }

        /// A test per check, for the log that the opener opens.
        #[macro_export]
        macro_rules! log_suite_tests {
            ($dollar fresh:expr) => {
                $(#[test]
                fn $name() {
                    $dollar crate::log::suite::$name($dollar fresh);
                })*
            };
        }
    };
}

checks! {
    $
    batches_are_read_as_they_were_appended
    readers_see_a_batch_only_when_it_is_synced
    log_time_never_runs_backwards
    synced_batches_outlive_the_writer_and_each_opening_has_a_higher_epoch
    reading_starts_at_the_batch_that_holds_the_record
    what_is_retained_stays_and_what_is_forgotten_is_refused
    retaining_nothing_keeps_what_is_not_synced
    a_batch_that_is_too_large_is_refused_and_the_largest_is_taken
    preparing_ahead_changes_nothing_that_can_be_read
}

pub use log_suite_tests as tests;
