//! The log of a process that has no descriptors left. Alone in its file, since the limit is that of the process.

#![allow(clippy::unwrap_used, reason = "in tests, helpers included")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use tally_wal::{LogOptions, RealDisk, WalWriter};

/// Takes every descriptor there is.
fn take_all(taken: &mut Vec<File>) {
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
}

#[test]
fn a_log_goes_on_through_its_segments_while_others_take_every_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum: limit.maximum }).unwrap();
    let options = LogOptions { segment_bytes: 8 << 10, spares_max: 2, log_id: 1, ..LogOptions::default() };
    let (mut log, _) = WalWriter::open(RealDisk::open(dir.path()).unwrap(), options.clone()).unwrap();
    let handle = log.handle();
    let mut taken = Vec::new();
    for n in 0..200u8 {
        // Whoever wants descriptors is always there, and takes what is given up even for a moment.
        take_all(&mut taken);
        log.append(1, 1, &[n; 1500]).unwrap();
        log.sync().unwrap();
        if n % 3 == 0 {
            handle.prepare_spare().unwrap();
        }
        if n % 50 == 0 {
            handle.retain_from(log.end()).unwrap();
        }
    }
    // Readers have no part in the reserve: they are refused and harm nobody.
    assert!(handle.reader(handle.first_offset()).is_err());
    log.append(1, 1, b"life goes on").unwrap();
    drop(taken);
    drop(log);
    let (log, recovered) = WalWriter::open(RealDisk::open(dir.path()).unwrap(), options).unwrap();
    assert_eq!((log.end(), recovered.cut), (201, None));
}
