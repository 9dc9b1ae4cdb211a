//! The log with damaged files: every bit flipped, every truncation, files missing or exchanged.
//! Either everything is read as it was, or opening is refused by name, or the very last batch is cut and reported.

#![allow(clippy::unwrap_used, reason = "in tests, helpers included")]

mod common;

use common::{Attempt, Model, read_all};
use tally_wal::testing::{Fault, FaultDisk};
use tally_wal::{Disk, Error, LogOptions, RecoveredLog, WalWriter};

const SEGMENT_BYTES: u64 = 8 << 10;
const FIRST: &str = "000000000001.seg";
const MIDDLE: &str = "000000000002.seg";
const LAST: &str = "000000000003.seg";

fn options() -> LogOptions {
    LogOptions { segment_bytes: SEGMENT_BYTES, spares_max: 1, log_id: 1, ..LogOptions::default() }
}

/// Three segments; every batch was acknowledged on its own. The last segment has room left.
fn written(log_id: u64) -> (FaultDisk, Vec<Attempt>) {
    let disk = FaultDisk::new(0);
    let mut model = Model::default();
    let (mut log, _) = WalWriter::open(disk.clone(), LogOptions { log_id, ..options() }).unwrap();
    for n in 0..9u8 {
        model.append(&mut log, 2, &vec![n + 1; 1000 + n as usize]).unwrap();
        model.sync(&mut log).unwrap();
    }
    assert_eq!(disk.list().unwrap(), [FIRST, MIDDLE, LAST]);
    (disk.process_end(), model.attempts)
}

fn open(disk: &FaultDisk) -> Result<(WalWriter<FaultDisk>, RecoveredLog), Error> {
    WalWriter::open(disk.process_end(), options())
}

/// A small disk with the same files, one of them changed.
fn with_file(disk: &FaultDisk, name: &str, contents: Option<Vec<u8>>) -> FaultDisk {
    let copy = FaultDisk::new(0);
    for other in disk.list().unwrap() {
        copy.replace(&other, disk.contents(&other));
    }
    copy.replace(name, contents);
    copy
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Exact,
    Refused,
    LastBatchCut,
}

fn outcome(disk: &FaultDisk, name: &str, all: &[Attempt]) -> Outcome {
    match WalWriter::open(disk.clone(), options()) {
        Err(Error::Damaged { file, remedy, .. }) => {
            assert!(file == name && remedy.contains("Restore the log's files from a copy"));
            Outcome::Refused
        }
        Err(error) => panic!("{name}: {error}"),
        Ok((log, recovered)) if read_all(&log) == all => {
            assert!(recovered.cut.is_none_or(|cut| cut.offset == log.end()));
            Outcome::Exact
        }
        Ok((log, recovered)) => {
            let last = all.len() - 1;
            assert_eq!(read_all(&log), all[..last]);
            let cut = recovered.cut.expect("what was cut is reported");
            assert_eq!((cut.file.as_str(), cut.offset), (name, all[last].base_offset));
            Outcome::LastBatchCut
        }
    }
}

/// Flips every bit of a file; answers how many ended exact, refused, and cut.
fn flip_every_bit(name: &str) -> [usize; 3] {
    let (disk, all) = written(1);
    let image = disk.contents(name).unwrap();
    let mut counts = [0; 3];
    for bit in 0..image.len() * 8 {
        let mut flipped = image.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let outcome = outcome(&with_file(&disk, name, Some(flipped)), name, &all);
        counts[outcome as usize] += 1;
    }
    counts
}

#[test]
fn no_flipped_bit_of_a_segment_that_is_followed_by_another_goes_unnoticed() {
    let [exact, refused, cut] = flip_every_bit(MIDDLE);
    // Header, and three batches of 56 + 1000 bytes and some; only padding and what lies behind them carries nothing.
    assert!(refused > (4096 + 3 * 1056) * 8, "{refused}");
    assert!(exact > 0 && cut == 0, "{exact} {cut}");
}

#[test]
fn a_flipped_bit_of_the_last_segment_is_refused_unless_it_is_in_the_very_last_batch() {
    let [exact, refused, cut] = flip_every_bit(LAST);
    // The last of three batches has a header of 56 bytes and a payload of 1008.
    assert_eq!(cut, (56 + 1008) * 8);
    assert!(refused > (4096 + 2 * 1056) * 8 && exact > 0, "{refused} {exact}");
}

#[test]
fn every_truncation_of_a_segment_is_refused() {
    let (disk, all) = written(1);
    for name in [FIRST, MIDDLE, LAST] {
        let image = disk.contents(name).unwrap();
        for bytes in 0..image.len() {
            let disk = with_file(&disk, name, Some(image[..bytes].to_vec()));
            assert_eq!(outcome(&disk, name, &all), Outcome::Refused, "{name} truncated to {bytes}");
        }
        let longer = [image, vec![0]].concat();
        assert_eq!(outcome(&with_file(&disk, name, Some(longer)), name, &all), Outcome::Refused);
    }
}

#[test]
fn a_missing_segment_is_noticed() {
    let (disk, _) = written(1);
    let refused = |name: &str| open(&with_file(&disk, name, None)).err().map(|error| error.to_string());
    assert!(refused(MIDDLE).unwrap().contains("segment 2 is expected here"));
    // The first may have been trimmed and the last not begun: only who has read them knows better.
    assert_eq!(refused(FIRST), None);
    let options = LogOptions { from_offset: 18, ..options() };
    assert!(WalWriter::open(disk.process_end(), options.clone()).is_ok());
    let error = WalWriter::open(with_file(&disk, LAST, None), options.clone()).err().unwrap().to_string();
    assert!(error.contains("the log ends here, but record 18 has been reached"), "{error}");
    let error = WalWriter::open(FaultDisk::new(0), options).err().unwrap().to_string();
    assert!(error.contains("the log's files are missing"), "{error}");
}

#[test]
fn exchanged_segments_and_segments_of_another_log_are_refused() {
    let (disk, all) = written(1);
    let (other, _) = written(2);
    for (name, contents) in [(MIDDLE, disk.contents(LAST)), (LAST, disk.contents(MIDDLE)), (LAST, other.contents(LAST))]
    {
        assert_eq!(outcome(&with_file(&disk, name, contents), name, &all), Outcome::Refused);
    }
}

#[test]
fn batches_of_another_log_are_never_taken_for_ones_of_this() {
    let (disk, all) = written(1);
    let (other, _) = written(2);
    let mut mixed = disk.contents(LAST).unwrap();
    mixed[4096..].copy_from_slice(&other.contents(LAST).unwrap()[4096..]);
    let (log, recovered) = open(&with_file(&disk, LAST, Some(mixed))).unwrap();
    assert_eq!(read_all(&log), all[..6]);
    assert!(recovered.cut.is_some());
}

#[test]
fn damage_before_the_place_where_reading_starts_is_found_by_the_reader_that_gets_there() {
    let (disk, all) = written(1);
    let mut image = disk.contents(FIRST).unwrap();
    image[5000] ^= 1;
    let disk = with_file(&disk, FIRST, Some(image));
    let (log, _) = WalWriter::open(disk, LogOptions { from_offset: 18, ..options() }).unwrap();
    let mut reader = log.handle().reader(0).unwrap();
    for _ in 0..2 {
        let error = reader.next().unwrap_err();
        assert!(matches!(&error, Error::Damaged { file, at: 4096, offset: 0, .. } if file == FIRST), "{error}");
    }
    let mut reader = log.handle().reader(all[3].base_offset).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().records, all[3].records);
}

#[test]
fn damage_that_no_start_needs_is_passed_over_and_everything_behind_it_is_kept() {
    let (disk, all) = written(1);
    let from_offset = all[5].base_offset;
    let in_batch = |name: &str| {
        let mut image = disk.contents(name).unwrap();
        image[5000] ^= 1;
        with_file(&disk, name, Some(image))
    };
    let in_header = |name: &str| {
        let mut image = disk.contents(name).unwrap();
        image[40] ^= 1;
        with_file(&disk, name, Some(image))
    };
    let truncated = with_file(&disk, FIRST, Some(vec![0; 100]));
    let damaged = [(in_batch(MIDDLE), 1, 0), (in_header(FIRST), 1, 1), (truncated, 1, 1), (in_batch(FIRST), 0, 0)];
    for (disk, told, aside) in damaged {
        for _ in 0..2 {
            let options = LogOptions { from_offset, discard_from: Some(0), ..options() };
            let (mut log, recovered) = WalWriter::open(disk.clone(), options).unwrap();
            assert!(recovered.passed_over.len() <= told, "{recovered:?}");
            assert!(recovered.discarded.len() <= aside, "{recovered:?}");
            assert!(log.end() >= all[8].end(), "{recovered:?}");
            let mut reader = log.handle().reader(from_offset).unwrap();
            for batch in &all[5..] {
                assert_eq!(reader.next().unwrap().unwrap().records, batch.records);
            }
            log.append(0, 1, b"life goes on").unwrap();
            log.sync().unwrap();
            assert_eq!(reader.next().unwrap().unwrap().records, b"life goes on");
        }
    }
    let (_, recovered) = WalWriter::open(in_batch(MIDDLE), LogOptions { from_offset, ..options() }).unwrap();
    assert!(recovered.passed_over[0].contains(MIDDLE), "{recovered:?}");
    let (_, recovered) = WalWriter::open(in_header(FIRST), LogOptions { from_offset, ..options() }).unwrap();
    assert_eq!(recovered.discarded, ["000000000001.seg.discarded"]);
    // What is needed is still refused.
    for disk in [in_batch(LAST), in_header(LAST), in_header(MIDDLE)] {
        assert!(matches!(WalWriter::open(disk, LogOptions { from_offset, ..options() }), Err(Error::Damaged { .. })));
    }
}

#[test]
fn damage_can_be_given_up_by_name_and_what_lies_behind_is_set_aside() {
    let (disk, all) = written(1);
    let mut image = disk.contents(MIDDLE).unwrap();
    let (_, batches) = tally_wal::segment::batches(&image).unwrap();
    image[batches[1].0 + 100] ^= 1;
    let disk = with_file(&disk, MIDDLE, Some(image));
    let Err(Error::Damaged { offset, remedy, .. }) = open(&disk) else { panic!("the damage was overlooked") };
    assert_eq!(offset, all[4].base_offset);
    assert!(remedy.contains(&format!("--discard-from {offset}")), "{remedy}");
    assert!(WalWriter::open(disk.clone(), LogOptions { discard_from: Some(offset + 1), ..options() }).is_err());

    let discard = LogOptions { discard_from: Some(offset), ..options() };
    let (mut log, recovered) = WalWriter::open(disk.clone(), discard.clone()).unwrap();
    assert_eq!(read_all(&log), all[..4]);
    assert_eq!(recovered.discarded, ["000000000003.seg.discarded"]);
    assert_eq!(recovered.cut.unwrap().offset, offset);
    assert!(log.epoch() > all[8].epoch);
    log.append(0, 1, b"life goes on").unwrap();
    log.sync().unwrap();
    drop(log);
    // Where nothing is damaged, the option does nothing.
    let (log, recovered) = WalWriter::open(disk, discard).unwrap();
    assert_eq!((read_all(&log).len(), recovered.cut), (5, None));
}

#[test]
fn a_log_given_up_behind_what_the_store_has_reached_starts_over_there() {
    let (disk, all) = written(1);
    let mut image = disk.contents(MIDDLE).unwrap();
    // Up to the record that was reached nothing can be read.
    for (at, _) in &tally_wal::segment::batches(&disk.contents(MIDDLE).unwrap()).unwrap().1 {
        image[at + 100] ^= 1;
    }
    let damaged = with_file(&disk, MIDDLE, Some(image));
    let missing = [MIDDLE, LAST, FIRST].iter().fold(disk, |disk, name| with_file(&disk, name, None));
    for (disk, offset) in [(damaged, all[3].base_offset), (missing, 0)] {
        let reached = LogOptions { from_offset: all[5].base_offset, ..options() };
        let Err(Error::Damaged { offset: named, .. }) = WalWriter::open(disk.clone(), reached.clone()) else {
            panic!()
        };
        assert_eq!(named, offset);
        let discard = LogOptions { discard_from: Some(offset), ..reached.clone() };
        let (mut log, recovered) = WalWriter::open(disk.clone(), discard).unwrap();
        assert_eq!((log.first_offset(), log.end()), (all[5].base_offset, all[5].base_offset));
        assert!(recovered.discarded.is_empty() || log.epoch() > all[8].epoch);
        log.append(0, 1, b"life goes on").unwrap();
        log.sync().unwrap();
        drop(log);
        let (log, _) = WalWriter::open(disk, reached).unwrap();
        assert_eq!(read_all(&log).len(), 1);
    }
}

#[test]
fn a_crash_while_segments_are_set_aside_gives_no_position_twice() {
    let (disk, all) = written(1);
    // Only the last segment knows of the second epoch.
    drop(WalWriter::open(disk.clone(), options()).unwrap());
    let mut image = disk.contents(MIDDLE).unwrap();
    image[5000] ^= 1;
    let disk = with_file(&disk, MIDDLE, Some(image));
    let discard = LogOptions { discard_from: Some(all[3].base_offset), ..options() };
    disk.fail_at(disk.calls() + 1, Fault::CrashAfter);
    assert!(WalWriter::open(disk.clone(), discard.clone()).is_err());
    let disk = disk.power_cut(0);
    assert_eq!(disk.list().unwrap(), [FIRST, MIDDLE, "000000000003.seg.discarded"]);
    assert_eq!(WalWriter::open(disk, discard).unwrap().0.epoch(), 3);
}

#[test]
fn a_damaged_or_short_spare_is_harmless() {
    let (disk, all) = written(1);
    for contents in [vec![], vec![0xff; 100], vec![0xff; SEGMENT_BYTES as usize]] {
        let disk = with_file(&disk, "000000000009.spare", Some(contents));
        let (mut log, _) = WalWriter::open(disk.clone(), options()).unwrap();
        for _ in 0..6 {
            log.append(0, 1, &[1; 2000]).unwrap();
            log.sync().unwrap();
        }
        drop(log);
        let (log, recovered) = WalWriter::open(disk, options()).unwrap();
        assert_eq!((&read_all(&log)[..9], read_all(&log).len(), recovered.cut), (&all[..], 15, None));
    }
}
