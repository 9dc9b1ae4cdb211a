//! The log on a disk that runs full: at every byte, and with room again later.

#![allow(clippy::unwrap_used, reason = "in tests, helpers included")]

mod common;

use common::{Model, check_recovery, read_all};
use tally_wal::testing::FaultDisk;
use tally_wal::{Disk, Error, LogOptions, WalWriter};

const SEGMENT_BYTES: u64 = 8 << 10;

fn options() -> LogOptions {
    LogOptions { segment_bytes: SEGMENT_BYTES, spares_max: 1, log_id: 1, ..LogOptions::default() }
}

/// Fills about three segments, then restarts.
fn workload(disk: &FaultDisk, model: &mut Model) -> Result<(), Error> {
    let (mut log, recovered) = WalWriter::open(disk.clone(), options())?;
    model.check_opened(&log, &recovered);
    for n in 0..6u8 {
        model.append(&mut log, 1, &[n + 1; 1500])?;
        model.sync(&mut log)?;
    }
    drop(log);
    let (log, recovered) = WalWriter::open(disk.clone(), options())?;
    model.check_opened(&log, &recovered);
    Ok(())
}

#[test]
fn a_disk_full_at_any_byte_refuses_cleanly_and_goes_on_when_there_is_room() {
    let needed = 3 * SEGMENT_BYTES;
    let mut refused = 0;
    for bytes_max in 0..=needed {
        let disk = FaultDisk::new(bytes_max);
        disk.set_bytes_max(Some(bytes_max));
        let mut model = Model::default();
        match workload(&disk, &mut model) {
            Ok(()) => assert_eq!(bytes_max, needed, "three segments take {needed} bytes"),
            Err(Error::Full { bytes: SEGMENT_BYTES }) => refused += 1,
            Err(error) => panic!("{bytes_max} bytes: {error}"),
        }
        if bytes_max % 7 == 0 {
            disk.set_bytes_max(None);
            check_recovery(&disk.power_cut(bytes_max), &options(), &mut model);
        }
    }
    assert_eq!(refused, needed);
}

#[test]
fn an_append_that_found_the_disk_full_succeeds_once_there_is_room() {
    for bytes_max in (SEGMENT_BYTES..2 * SEGMENT_BYTES).step_by(97) {
        let disk = FaultDisk::new(bytes_max);
        disk.set_bytes_max(Some(bytes_max));
        let (mut log, _) = WalWriter::open(disk.clone(), options()).unwrap();
        let mut model = Model::default();
        let full = loop {
            if let Err(error) = model.append(&mut log, 1, &[1; 1500]) {
                break error;
            }
        };
        assert!(matches!(full, Error::Full { .. }), "{full}");
        assert_eq!(log.synced_end(), log.end(), "the full segment was synced on the way");
        for _ in 0..3 {
            assert!(matches!(model.append(&mut log, 1, &[2; 1500]), Err(Error::Full { .. })));
        }
        disk.set_bytes_max(None);
        model.append(&mut log, 1, &[3; 1500]).unwrap();
        model.sync(&mut log).unwrap();
        assert_eq!(read_all(&log), model.attempts);
        check_recovery(&disk.power_cut(1), &options(), &mut model);
    }
}

#[test]
fn preparing_a_spare_on_a_full_disk_harms_nothing() {
    let disk = FaultDisk::new(0);
    disk.set_bytes_max(Some(SEGMENT_BYTES + 100));
    let (mut log, _) = WalWriter::open(disk.clone(), options()).unwrap();
    assert!(matches!(log.handle().prepare_spare(), Err(Error::Full { .. })));
    log.append(0, 1, b"goes on").unwrap();
    log.sync().unwrap();
    assert_eq!(read_all(&log).len(), 1);
    disk.set_bytes_max(None);
    assert!(log.handle().prepare_spare().unwrap());
    assert!(!log.handle().prepare_spare().unwrap(), "one is enough");
}

#[test]
fn a_log_opened_on_a_full_disk_is_read_and_takes_writes_once_there_is_room() {
    for seed in 0..20 {
        let disk = FaultDisk::new(seed);
        let mut model = Model::default();
        workload(&disk, &mut model).unwrap();
        // The same disk, full to the last byte.
        disk.set_bytes_max(Some(
            disk.list().unwrap().iter().map(|name| disk.contents(name).unwrap().len() as u64).sum(),
        ));
        let (mut log, recovered) = WalWriter::open(disk.clone(), options()).unwrap();
        assert!(recovered.waits_for_room);
        model.check_opened(&log, &recovered);
        let mut reader = log.handle().reader(model.attempts[5].base_offset).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().records, model.attempts[5].records);
        for _ in 0..3 {
            assert!(matches!(model.append(&mut log, 1, &[7; 100]), Err(Error::Full { .. })));
            assert!(reader.next().unwrap().is_none());
        }
        if seed % 2 == 0 {
            check_recovery(&disk.power_cut(seed), &options(), &mut model);
            continue;
        }
        // Room for a spare, which becomes the copy; or for the copy alone.
        disk.set_bytes_max(None);
        if seed % 3 == 0 {
            assert!(log.handle().prepare_spare().unwrap());
        }
        model.append(&mut log, 1, &[8; 100]).unwrap();
        assert!(reader.next().unwrap().is_none(), "it is not synced");
        model.sync(&mut log).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().records, [8; 100]);
        assert_eq!(read_all(&log), model.attempts);
        check_recovery(&disk.power_cut(seed), &options(), &mut model);
    }
}
