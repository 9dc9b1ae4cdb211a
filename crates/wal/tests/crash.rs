//! The log against a disk that fails: at every call, in every way, with many outcomes of what survives.

mod common;

use common::{Model, check_recovery, options, read_all, workload};
use tally_wal::testing::{Fault, FaultDisk};
use tally_wal::{Disk, Error, WalWriter};

/// Runs the workload with a fault at one call; answers the disk as it is then, and what the model knows.
fn run_with_fault(call: u64, fault: Fault, seed: u64) -> (FaultDisk, Model, Error) {
    let disk = FaultDisk::new(seed);
    disk.fail_at(call, fault);
    let mut model = Model::default();
    let error = workload(&disk, &options(), &mut model).expect_err("a fault ends the workload");
    assert!(!matches!(error, Error::Damaged { .. }), "{fault:?} at call {call}: {error}");
    (disk, model, error)
}

fn calls_of_the_workload() -> u64 {
    let disk = FaultDisk::new(0);
    workload(&disk, &options(), &mut Model::default()).expect("the disk is healthy");
    disk.calls()
}

#[test]
fn the_workload_rolls_trims_recycles_and_prepares() {
    let disk = FaultDisk::new(0);
    let mut model = Model::default();
    workload(&disk, &options(), &mut model).unwrap();
    let names = disk.list().unwrap();
    assert!(!names.contains(&"000000000001.seg".to_owned()), "{names:?}");
    let newest = names.iter().filter(|name| name.ends_with(".seg")).max().unwrap();
    assert!(newest.as_str() > "000000000009.seg", "{names:?}");
    assert!(model.retained_from > 0);
    check_recovery(&disk, &options(), &mut model);
}

#[test]
fn a_power_cut_at_any_call_loses_nothing_acknowledged_and_invents_nothing() {
    for call in 0..calls_of_the_workload() {
        for fault in [Fault::CrashBefore, Fault::CrashDuring, Fault::CrashAfter] {
            for seed in 0..4 {
                let (disk, model, _) = run_with_fault(call, fault, seed);
                for outcome in 0..4 {
                    let disk = disk.power_cut(seed * 100 + outcome);
                    check_recovery(&disk, &options(), &mut model.clone());
                }
            }
        }
    }
}

#[test]
fn life_goes_on_after_a_power_cut_and_survives_the_next_one() {
    for call in 0..calls_of_the_workload() {
        let (disk, mut model, _) = run_with_fault(call, Fault::CrashDuring, call);
        for round in 0..3 {
            let disk = disk.power_cut(call + round);
            let mut model = model.clone();
            let more = workload(&disk, &options(), &mut model);
            more.unwrap_or_else(|error| panic!("call {call}, round {round}: {error}"));
            check_recovery(&disk.power_cut(round), &options(), &mut model);
        }
        // A second crash, now within the recovery from the first.
        let disk = disk.power_cut(call);
        disk.fail_at(disk.calls() + call % 8, Fault::CrashDuring);
        if workload(&disk, &options(), &mut model).is_err() {
            check_recovery(&disk.power_cut(call), &options(), &mut model);
        }
    }
}

#[test]
fn after_an_io_error_at_any_call_the_log_is_poisoned_or_unchanged_and_a_restart_recovers() {
    for call in 0..calls_of_the_workload() {
        let (disk, model, error) = run_with_fault(call, Fault::Error, call);
        assert!(matches!(error, Error::Poisoned { .. } | Error::Io { .. }), "call {call}: {error}");
        // The machine lives on, and the kernel still shows what it failed to write.
        let after = disk.process_end();
        let mut lived_on = model.clone();
        check_recovery(&after, &options(), &mut lived_on);
        // What was recovered is durable by now, even what had only been clean.
        check_recovery(&after.power_cut(call), &options(), &mut lived_on);
        // The machine dies with the process.
        for outcome in 0..4 {
            check_recovery(&disk.power_cut(outcome), &options(), &mut model.clone());
        }
    }
}

#[test]
fn a_failed_sync_stops_writes_for_ever_while_reads_go_on() {
    let disk = FaultDisk::new(1);
    let (mut log, _) = WalWriter::open(disk.clone(), options()).unwrap();
    let mut model = Model::default();
    model.append(&mut log, 1, b"durable").unwrap();
    model.sync(&mut log).unwrap();
    model.append(&mut log, 1, b"not durable").unwrap();
    disk.fail_at(disk.calls(), Fault::Error);
    let error = log.sync().unwrap_err();
    assert!(error.to_string().contains("it could not sync the log: input/output error"), "{error}");
    for _ in 0..3 {
        assert!(matches!(log.sync(), Err(Error::Poisoned { .. })));
        assert!(matches!(log.append(0, 1, b"x"), Err(Error::Poisoned { .. })));
        assert!(matches!(log.handle().retain_from(1), Err(Error::Poisoned { .. })));
    }
    assert_eq!(log.synced_end(), 1);
    assert_eq!(read_all(&log), model.attempts[..1]);
    check_recovery(&disk.power_cut(0), &options(), &mut model);
}

#[test]
fn every_failed_step_of_an_append_or_a_trim_stops_writes_for_ever() {
    // The write of a batch; then the four steps to a new segment, and the write.
    for (length, steps) in [(10, 1), (12_000, 5)] {
        for step in 0..steps {
            let (disk, mut log) = about_to_roll_into_a_recycled_segment(step);
            disk.fail_at(disk.calls() + step, Fault::Error);
            assert!(matches!(log.append(0, 1, &vec![8; length]), Err(Error::Poisoned { .. })), "step {step}");
            assert!(matches!(log.append(0, 1, b"x"), Err(Error::Poisoned { .. })), "step {step}");
            assert!(matches!(log.sync(), Err(Error::Poisoned { .. })), "step {step}");
        }
    }
    for step in 0..2 {
        let (disk, mut log) = about_to_roll_into_a_recycled_segment(step);
        log.append(0, 1, &[8; 12_000]).and_then(|_| log.sync()).unwrap();
        disk.fail_at(disk.calls() + step, Fault::Error);
        assert!(matches!(log.handle().retain_from(log.end()), Err(Error::Poisoned { .. })));
        assert!(matches!(log.append(0, 1, b"x"), Err(Error::Poisoned { .. })), "step {step}");
    }
}

#[test]
fn a_later_sync_does_not_make_durable_what_a_failed_one_dropped() {
    // The fault disk itself: the trap that poisoning and rewriting are there for must really be set.
    use tally_wal::DiskFile;
    let lost = (0..50).any(|seed| {
        let disk = FaultDisk::new(seed);
        let file = disk.create("f").unwrap();
        disk.sync_dir().unwrap();
        file.write_at(b"abc", 0).unwrap();
        disk.fail_at(disk.calls(), Fault::Error);
        file.sync().unwrap_err();
        file.sync().unwrap();
        assert_eq!(disk.contents("f").unwrap(), b"abc");
        disk.power_cut(seed).contents("f").unwrap() != b"abc"
    });
    assert!(lost);
}

#[test]
fn an_unsynced_tail_is_cut_and_reported_with_file_offset_and_bytes() {
    let cuts = (0..100).filter_map(|seed| {
        let disk = FaultDisk::new(seed);
        let (mut log, _) = WalWriter::open(disk.clone(), options()).unwrap();
        log.append(0, 1, b"durable").unwrap();
        log.sync().unwrap();
        log.append(0, 1, &[9; 5000]).unwrap();
        let (log, recovered) = WalWriter::open(disk.power_cut(seed), options()).unwrap();
        let cut = recovered.cut?;
        assert_eq!((cut.file.as_str(), cut.at, cut.offset, log.end()), ("000000000001.seg", 4096 + 64, 1, 1));
        assert!(cut.bytes > 0 && cut.bytes <= 5056, "{cut:?}");
        Some(cut.bytes)
    });
    assert!(cuts.count() > 10, "a torn write is not that rare");
}

/// A log whose active segment is nearly full of batches, with a recycled spare to go on with.
fn about_to_roll_into_a_recycled_segment(seed: u64) -> (FaultDisk, WalWriter<FaultDisk>) {
    let disk = FaultDisk::new(seed);
    let (mut log, _) = WalWriter::open(disk.clone(), options()).expect("the disk is healthy");
    for _ in 0..9 {
        log.append(0, 1, &[7; 4096 - 56]).and_then(|_| log.sync()).expect("the disk is healthy");
    }
    log.handle().retain_from(log.end()).expect("the disk is healthy");
    assert!(disk.list().expect("the disk is healthy").iter().any(|name| name.ends_with(".spare")));
    (disk, log)
}

#[test]
fn what_lies_in_a_recycled_segment_is_not_taken_for_a_torn_write() {
    for length in [4096 - 56, 100, 2 * 4096 - 56, 4096 - 64] {
        let (disk, mut log) = about_to_roll_into_a_recycled_segment(0);
        for _ in 0..10 {
            log.append(0, 1, &vec![8; length]).unwrap();
            log.sync().unwrap();
            let (reopened, recovered) = WalWriter::open(disk.process_end(), options()).unwrap();
            assert_eq!((reopened.end(), recovered.cut), (log.end(), None));
        }
    }
}

#[test]
fn a_crash_between_the_steps_to_a_new_segment_leaves_nothing_to_cut() {
    for steps in 0..5 {
        let (disk, mut log) = about_to_roll_into_a_recycled_segment(steps);
        disk.fail_at(disk.calls() + steps, Fault::CrashBefore);
        assert!(log.append(0, 1, &[8; 12_000]).is_err(), "{steps} steps are not all");
        let (reopened, recovered) = WalWriter::open(disk.power_cut(steps), options()).unwrap();
        assert_eq!((reopened.end(), recovered.cut), (log.end(), None), "after {steps} steps");
    }
}
