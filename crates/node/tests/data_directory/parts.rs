//! A data directory that was put together from several is refused, with a word about what belongs elsewhere.

use crate::support::{copy, start};
use std::fs;
use std::path::Path;

/// A directory with a counter in its store and one in its log.
fn counted(dir: &Path, value: i64) {
    let mut node = start(dir).unwrap();
    assert_eq!(node.ask(&format!("INCRBY visits {value}")), format!(":{value}"));
    node.stop();
}

fn exchange(ours: &Path, theirs: &Path, part: &str) {
    let (ours, theirs) = (ours.join(part), theirs.join(part));
    if ours.is_dir() {
        fs::remove_dir_all(&ours).unwrap();
        copy(&theirs, &ours);
    } else {
        fs::copy(theirs, ours).unwrap();
    }
}

#[test]
fn a_part_of_another_data_directory_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    counted(&ours, 7);
    counted(&theirs, 9);
    for (part, named) in [("log", "log/ belongs"), ("store", "store/ belongs"), ("TALLY", "file TALLY belongs")] {
        let mixed = dir.path().join(part);
        copy(&ours, &mixed);
        exchange(&mixed, &theirs, part);
        let refused = start(&mixed).err().unwrap().to_string();
        assert!(refused.contains(named), "{part}: {refused}");
        // Nothing was changed: the right part makes it whole.
        exchange(&mixed, &ours, part);
        let mut node = start(&mixed).unwrap();
        assert_eq!(node.ask("GET visits"), "7");
        node.stop();
    }
}

#[test]
fn another_hash_seed_is_refused_although_its_checksum_is_right() {
    let dir = tempfile::tempdir().unwrap();
    counted(dir.path(), 7);
    let path = dir.path().join("TALLY");
    let sealed = fs::read_to_string(&path).unwrap();
    let text = tally_storage::label::unseal(&sealed).unwrap();
    let seed = tally_storage::label::field(text, "hash-seed").unwrap();
    tally_storage::label::write(&path, &text.replace(seed, "12345")).unwrap();
    let refused = start(dir.path()).err().unwrap().to_string();
    assert!(refused.contains("another hash-seed"), "{refused}");
    fs::write(&path, &sealed).unwrap();
    assert_eq!(start(dir.path()).unwrap().ask("GET visits"), "7");
}
