//! The very first start, stopped at any of its steps: the next one works, or says what to remove.

use crate::small_disk::SmallDisk;
use crate::support::{Running, options, start, start_with};
use std::path::Path;
use tally_node::assemble::{Options, StartError};

fn tiny(data: &Path) -> Options {
    let mut options = options(data);
    options.log.segment_bytes = 8 << 10;
    options
}

fn count(started: Result<Running, StartError>) -> Result<(), StartError> {
    let mut node = started?;
    assert_eq!(node.ask("INCR visits"), ":1");
    node.stop();
    Ok(())
}

/// One more file, or one more page, each time: so creation fails for want of it at every step that needs one.
fn sweep(limit: impl Fn(usize) -> String) -> (usize, usize) {
    let (mut failed, mut worked) = (0, 0);
    for step in 0.. {
        let Some(disk) = SmallDisk::mount(&limit(step)) else { return (1, 1) };
        let is_enough = match start_with(tiny(&disk.data())) {
            Ok(node) => {
                let _ = node.node.stop();
                true
            }
            Err(_) => false,
        };
        disk.resize("size=16m,nr_inodes=1000");
        match is_enough {
            true => worked += 1,
            false => {
                failed += 1;
                count(start_with(tiny(&disk.data()))).unwrap_or_else(|error| panic!("{}: {error}", limit(step)));
            }
        }
        if worked == 3 {
            break;
        }
    }
    (failed, worked)
}

#[test]
fn a_first_start_that_found_no_room_at_any_step_is_made_up_for_by_the_next() {
    let (failed, worked) = sweep(|step| format!("size=16m,nr_inodes={}", step + 2));
    assert!(failed == 1 && worked == 1 || failed > 10, "{failed} failed, {worked} worked");
    let (failed, worked) = sweep(|step| format!("size={},nr_inodes=1000", (step + 1) * 4096));
    assert!(failed == 1 && worked == 1 || failed > 5, "{failed} failed, {worked} worked");
}

#[test]
fn what_a_first_start_leaves_behind_when_it_is_killed_is_used_or_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let make = |data: &Path, files: &[&str]| {
        for file in files {
            let path = data.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
    };
    let whole = dir.path().join("whole");
    start(&whole).unwrap().stop();
    let identity = |data: &Path| std::fs::copy(whole.join("TALLY"), data.join("TALLY")).unwrap();
    let left: [(&str, &[&str], bool); 6] = [
        ("lock", &["LOCK"], false),
        ("label", &["LOCK", "TALLY.new"], false),
        ("store", &["LOCK", "store/gen-1.new/lock"], true),
        ("database", &["LOCK", "store/gen-1.new/version", "store/gen-1.new/keyspaces/0/tables/x"], true),
        ("current", &["LOCK", "store/CURRENT.new", "store/gen-1.new/version"], true),
        ("log", &["LOCK", "log/rewrite.tmp"], true),
    ];
    for (name, files, has_identity) in left {
        let data = dir.path().join(name);
        make(&data, files);
        if has_identity {
            identity(&data);
        }
        count(start(&data)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
