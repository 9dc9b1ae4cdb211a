//! Readers: from any record, while the log is written and trimmed, on a real disk, and round trips of any batches.

#![allow(clippy::unwrap_used, reason = "in tests, helpers included")]

mod common;

use common::{Attempt, read_all};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use tally_wal::testing::{Fault, FaultDisk};
use tally_wal::{Disk, Error, Handle, LogOptions, RealDisk, WalWriter};

/// The records that stand at an offset: told by the offset alone.
fn records_at(offset: u64) -> (u32, Vec<u8>) {
    let mixed = (offset + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let length = 1 + (mixed >> 33) as usize % 3000;
    (1 + (mixed >> 60) as u32, mixed.to_le_bytes().iter().cycle().take(length).copied().collect())
}

#[test]
fn readers_follow_while_the_log_is_written_trimmed_and_recycled() {
    follow_what_is_written(LogOptions::default());
}

#[test]
fn readers_have_the_cache_and_see_what_is_written_past_it() {
    follow_what_is_written(LogOptions { bypass_cache: true, ..LogOptions::default() });
}

fn follow_what_is_written(options: LogOptions) {
    const RECORDS: u64 = 30_000;
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(directory.path().join("log")).unwrap();
    let options = LogOptions { segment_bytes: 128 << 10, spares_max: 2, log_id: 3, ..options };
    let (mut log, _) = WalWriter::open(disk.clone(), options.clone()).unwrap();
    let handle = log.handle();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| follow(&handle, RECORDS))).collect();
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                handle.prepare_spare().unwrap();
                handle.retain_from(handle.synced_end().saturating_sub(500)).unwrap();
            }
        });
        while log.end() < RECORDS {
            for _ in 0..4 {
                let (count, records) = records_at(log.end());
                log.append(0, count, &records).unwrap();
            }
            log.sync().unwrap();
        }
        let batches: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        done.store(true, Ordering::Release);
        assert!(batches.into_iter().all(|batches| batches.unwrap() > 0));
    });
    let first = log.first_offset();
    assert!(first > 0);
    drop(log);
    let (log, recovered) = WalWriter::open(disk, options).unwrap();
    assert_eq!((log.first_offset(), recovered.cut), (first, None));
    assert!(read_all(&log).iter().all(|batch| (batch.count, batch.records.clone()) == records_at(batch.base_offset)));
}

/// Reads until `end`, starting over where the log was trimmed; answers how many batches came.
fn follow<D: Disk>(handle: &Handle<D>, end: u64) -> u64 {
    let mut reader = handle.reader(handle.first_offset()).or_else(|_| handle.reader(handle.first_offset())).unwrap();
    let (mut next, mut batches) = (0, 0);
    while next < end {
        match reader.next() {
            Ok(Some(batch)) => {
                assert!(batch.base_offset >= next, "{} after {next}", batch.base_offset);
                assert_eq!((batch.count, batch.records.to_vec()), records_at(batch.base_offset));
                next = batch.base_offset + u64::from(batch.count);
                batches += 1;
            }
            Ok(None) => std::thread::yield_now(),
            Err(Error::Trimmed { wanted, first }) => {
                assert!(first > wanted);
                next = next.max(first);
                reader = match handle.reader(first) {
                    Ok(reader) => reader,
                    Err(Error::Trimmed { .. }) => continue,
                    Err(error) => panic!("{error}"),
                };
            }
            Err(error) => panic!("{error}"),
        }
    }
    batches
}

#[test]
fn a_reader_starts_anywhere_also_in_the_middle_of_large_segments() {
    let disk = FaultDisk::new(0);
    let options = LogOptions { segment_bytes: 4 << 20, log_id: 3, ..LogOptions::default() };
    let (mut log, _) = WalWriter::open(disk.clone(), options.clone()).unwrap();
    while log.end() < 60_000 {
        let (count, records) = records_at(log.end());
        log.append(0, count, &records).unwrap();
    }
    log.sync().unwrap();
    check_starts(&log);
    drop(log);
    let (log, _) = WalWriter::open(disk.clone(), options.clone()).unwrap();
    check_starts(&log);
    let from_the_end = LogOptions { from_offset: log.end(), ..options };
    drop(log);
    check_starts(&WalWriter::open(disk, from_the_end).unwrap().0);
}

fn check_starts<D: Disk>(log: &WalWriter<D>) {
    for from in (0..log.end()).step_by(1009).chain([0, 1, log.end() - 1]) {
        let mut reader = log.handle().reader(from).unwrap();
        let batch = reader.next().unwrap().unwrap();
        let end = batch.base_offset + u64::from(batch.count);
        assert!((batch.base_offset..end).contains(&from), "{from} is not in {}..{end}", batch.base_offset);
        assert_eq!((batch.count, batch.records.to_vec()), records_at(batch.base_offset));
    }
    assert_eq!(log.handle().reader(log.end()).unwrap().next().unwrap(), None);
}

#[test]
fn segments_keep_their_size_when_the_option_changes() {
    let disk = FaultDisk::new(0);
    let mut all = Vec::new();
    for segment_bytes in [16 << 10, 32 << 10, 8 << 10, 16 << 10] {
        let (mut log, _) = WalWriter::open(disk.clone(), LogOptions { segment_bytes, ..common::options() }).unwrap();
        assert_eq!(read_all(&log), all);
        while log.handle().prepare_spare().unwrap() {}
        for n in 0..12u8 {
            log.append(0, 1, &vec![n; log.batch_bytes_max() / 3]).unwrap();
        }
        log.sync().unwrap();
        all = read_all(&log);
        while log.handle().prepare_spare().unwrap() {}
    }
    assert_eq!(all.len(), 48);
}

#[test]
fn unfinished_files_are_removed_at_the_next_opening() {
    let disk = FaultDisk::new(0);
    disk.replace("000000000001.spare.tmp", Some(vec![1; 100]));
    disk.replace("rewrite.tmp", Some(vec![2; 100]));
    disk.replace("somebody's.txt", Some(vec![3; 100]));
    drop(WalWriter::open(disk.clone(), common::options()).unwrap());
    assert_eq!(disk.list().unwrap(), ["000000000001.seg", "somebody's.txt"]);
}

#[test]
fn log_time_goes_on_where_it_was_even_if_no_batch_is_read_at_opening() {
    let disk = FaultDisk::new(0);
    let (mut log, _) = WalWriter::open(disk.clone(), common::options()).unwrap();
    let largest = vec![1; log.batch_bytes_max()];
    log.append(500, 1, &largest).unwrap();
    log.sync().unwrap();
    // The next segment is begun, but its batch never arrives.
    disk.fail_at(disk.calls() + 8, Fault::CrashBefore);
    assert!(log.append(600, 1, &largest).is_err());
    let disk = disk.power_cut(0);
    assert_eq!(disk.list().unwrap(), ["000000000001.seg", "000000000002.seg"]);
    let (mut log, recovered) = WalWriter::open(disk, LogOptions { from_offset: 1, ..common::options() }).unwrap();
    assert_eq!((recovered.end, recovered.log_time_ms, log.log_time_ms()), (1, 500, 500));
    assert_eq!(log.append(100, 1, b"earlier").unwrap().log_time_ms, 500);
}

#[test]
fn wrong_options_are_refused_by_name() {
    for segment_bytes in [0, 4096, 10_000, 1 << 31] {
        let error =
            WalWriter::open(FaultDisk::new(0), LogOptions { segment_bytes, ..LogOptions::default() }).err().unwrap();
        assert!(error.to_string().starts_with(&format!("segment_bytes is {segment_bytes}: it must be")), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_batches_are_read_back_as_they_were_appended_also_after_a_restart(
        batches in prop::collection::vec((1u32..50, prop::collection::vec(0u8..4, 1..9000), any::<bool>()), 1..40),
    ) {
        let disk = FaultDisk::new(0);
        let options = common::options();
        let mut log = WalWriter::open(disk.clone(), options.clone()).unwrap().0;
        let mut expected = Vec::new();
        for (count, records, restart) in batches {
            let base_offset = log.append(0, count, &records).unwrap().base_offset;
            expected.push(Attempt { base_offset, epoch: log.epoch(), count, records });
            log.sync().unwrap();
            if restart {
                drop(log);
                log = WalWriter::open(disk.clone(), options.clone()).unwrap().0;
            }
        }
        prop_assert_eq!(read_all(&log), expected);
    }
}
