//! What a data directory takes and what it refuses.

use super::*;

fn numbers() -> impl FnMut() -> io::Result<u64> {
    let mut next = 0;
    move || {
        next += 1;
        Ok(next)
    }
}

fn refusal(path: &Path) -> String {
    DataDir::open(path, numbers()).unwrap_err().to_string()
}

#[test]
fn a_directory_keeps_its_identity() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = numbers();
    let first = DataDir::open(dir.path(), &mut random).unwrap().identity;
    let second = DataDir::open(dir.path(), &mut random).unwrap().identity;
    assert_eq!(first, second);
    assert_eq!(first, DirIdentity { id: 1, hash_seed: 2 });
    let text = fs::read_to_string(dir.path().join(IDENTITY)).unwrap();
    assert_eq!(text, "format 5\nread-by 0.1.0\nid 1\nhash-seed 2\nchecksum 0975a4c6\n");
}

#[test]
fn a_new_directory_is_for_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    drop(DataDir::open(&path, numbers()).unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!((mode(&path.join(IDENTITY)), mode(&path.join(LOCK))), (0o600, 0o600));
}

#[test]
fn a_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _open = DataDir::open(dir.path(), numbers()).unwrap();
    assert!(matches!(DataDir::open(dir.path(), numbers()), Err(DataDirError::InUse(_))));
    assert!(matches!(DataDir::view(dir.path()), Err(DataDirError::InUse(_))));
}

#[test]
fn every_flipped_bit_and_every_truncation_of_the_identity_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(DataDir::open(dir.path(), numbers()).unwrap());
    let path = dir.path().join(IDENTITY);
    let whole = fs::read(&path).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, flipped).unwrap();
        DataDir::open(dir.path(), numbers()).unwrap_err();
    }
    for end in 0..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        DataDir::open(dir.path(), numbers()).unwrap_err();
    }
}

#[test]
fn another_format_is_refused_with_the_version_that_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(IDENTITY);
    label::write(&path, "format 6\nread-by 0.9.0\nsomething else\n").unwrap();
    let newer = refusal(dir.path());
    assert!(newer.contains("format 6") && newer.contains("Start it with Tally 0.9.0 or newer"), "{newer}");
    fs::write(&path, "format 1\n").unwrap();
    let older = refusal(dir.path());
    assert!(older.contains("format 1") && older.contains("the program that wrote it"), "{older}");
    fs::write(&path, "shopping list\n").unwrap();
    assert!(refusal(dir.path()).contains("holds no data of Tally"));
}

#[test]
fn a_directory_of_format_2_is_carried_over_and_keeps_its_numbers() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(IDENTITY), "format 2\nhash-seed 5\nlog-id 7\n").unwrap();
    for _ in 0..2 {
        let data = DataDir::open(dir.path(), numbers()).unwrap();
        assert_eq!(data.identity, DirIdentity { id: 7, hash_seed: 5 });
    }
    assert!(fs::read_to_string(dir.path().join(IDENTITY)).unwrap().starts_with("format 5\n"));
}

#[test]
fn a_directory_that_has_data_and_no_identity_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(DataDir::open(dir.path(), numbers()).unwrap());
    fs::create_dir(dir.path().join(STORE)).unwrap();
    fs::remove_file(dir.path().join(IDENTITY)).unwrap();
    assert!(matches!(DataDir::open(dir.path(), numbers()), Err(DataDirError::LostIdentity { .. })));
    assert!(!dir.path().join(IDENTITY).exists());
}

#[test]
fn a_look_at_a_directory_changes_nothing_in_it() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(DataDir::view(dir.path()), Err(DataDirError::Missing { .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fs::write(dir.path().join(IDENTITY), "format 2\nhash-seed 5\nlog-id 7\n").unwrap();
    assert_eq!(DataDir::view(dir.path()).unwrap().identity, DirIdentity { id: 7, hash_seed: 5 });
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
