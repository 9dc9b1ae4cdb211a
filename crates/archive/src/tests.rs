//! The archive as its writer and its readers see it.

mod anchored;
mod edges;
mod merged;
mod size;

use crate::{Archive, ArchiveError, BaseAt, Place, Reached, Reasons, Table, Told, Under, Writer};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use futures_util::TryStreamExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tally_core::commit::{Commit, Digest, NamedException};
use tally_core::counter::Declarations;
use tally_core::event::Event;
use tally_core::ledger::{BoxKind, Cause, Correction, Delta, Purpose};
use tally_core::op::Stream;
use tally_core::position::Position;
use tally_core::proof::Hash;

const CONFIG: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rollups: [[country]]
    rules: [{on: video.viewed, op: increment}]
  - counterName: likes
    mode: transition
    dimensions: [video]
    entity: [user, video]
    rules: [{on: liked, op: increment}]
";
const HOUR_MS: u64 = 3_600_000;
const START_MS: u64 = 490_000 * HOUR_MS;

fn run(test: impl Future<Output = Result<(), ArchiveError>>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test).unwrap();
}

fn at(offset: u64) -> Position {
    Position { epoch: 1, log: 0, offset }
}

fn reached(offset: u64) -> Reached {
    Reached { to: at(offset), log_time_ms: START_MS, digest: Digest(offset.into()), config_version: 1 }
}

fn told<'a>(commit: &'a Commit, corrections: &'a [Correction], reasons: &'a Reasons) -> Told<'a> {
    Told { commit, head: Hash::of(&commit.head()), corrections, reasons, counted: &[] }
}

static OPENED: AtomicU64 = AtomicU64::new(0);

async fn opened(root: &Path) -> Result<Archive, ArchiveError> {
    Archive::open(root, Writer { log_id: 1, nonce: OPENED.fetch_add(1, Ordering::Relaxed), now_ms: START_MS }).await
}

async fn begun(root: &Path) -> Result<Archive, ArchiveError> {
    let mut archive = opened(root).await?;
    if archive.reached()?.is_none() {
        archive.begin(&reached(0)).await?;
    }
    archive.declare(&Declarations::parse(CONFIG).unwrap()).await?;
    Ok(archive)
}

/// An event for each offset, an hour after each other, in both streams in turn.
async fn write(archive: &mut Archive, offsets: std::ops::Range<u64>) -> Result<(), ArchiveError> {
    for offset in offsets {
        let log_time_ms = START_MS + offset * HOUR_MS / 2;
        let mut event = Event::new("video.viewed", log_time_ms - 5);
        event.session = Some("s".into());
        event.seq = Some(offset);
        event.dimensions = vec![("video".into(), format!("v{offset}").into()), ("extra".into(), "x".into())];
        let stream = if offset % 2 == 0 { Stream::Display } else { Stream::Transition };
        let under = Under { rules: 2, config_version: 1, ..Under::default() };
        archive.event(stream, Place { position: at(offset), log_time_ms }, under, &event).await?;
    }
    Ok(())
}

/// What a reader finds who opens the directory.
async fn read(root: &Path, table: Table) -> Result<Vec<RecordBatch>, ArchiveError> {
    let catalog = crate::catalog::SqliteCatalog::open(root)?;
    let table = catalog.open_table(table.name()).await?.expect("it was made");
    let rows = table.scan().select_all().build()?.to_arrow().await?;
    Ok(rows.try_collect().await?)
}

fn numbers(rows: &[RecordBatch], column: &str) -> Vec<i64> {
    let values =
        |rows: &RecordBatch| rows.column_by_name(column).unwrap().as_primitive::<Int64Type>().values().to_vec();
    let mut all: Vec<i64> = rows.iter().flat_map(values).collect();
    all.sort_unstable();
    all
}

fn texts(rows: &[RecordBatch], column: &str) -> Vec<Option<String>> {
    let values = |rows: &RecordBatch| {
        let column = rows.column_by_name(column).unwrap().as_string::<i32>().clone();
        (0..column.len()).map(|row| column.is_valid(row).then(|| column.value(row).to_owned())).collect::<Vec<_>>()
    };
    let mut all: Vec<Option<String>> = rows.iter().flat_map(values).collect();
    all.sort_unstable();
    all
}

fn check_offsets(rows: &[RecordBatch], expected: std::ops::Range<u64>) {
    assert_eq!(numbers(rows, "offset"), expected.map(|offset| offset as i64).collect::<Vec<_>>());
}

#[test]
fn what_was_committed_is_read_once_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        write(&mut archive, 0..10).await?;
        archive.commit(&reached(10)).await?;
        write(&mut archive, 10..15).await?;
        let rows = read(directory.path(), Table::Events).await?;
        check_offsets(&rows, 0..10);
        assert_eq!(texts(&rows, "video")[9].as_deref(), Some("v9"));
        assert_eq!(texts(&rows, "country"), vec![None; 10]);
        // Whoever was killed here begins again where the archive says.
        drop(archive);
        let mut archive = begun(directory.path()).await?;
        assert_eq!(archive.reached()?.map(|reached| reached.to), Some(at(10)));
        write(&mut archive, 10..20).await?;
        archive.commit(&reached(20)).await?;
        check_offsets(&read(directory.path(), Table::Events).await?, 0..20);
        Ok(())
    });
}

#[test]
fn what_somebody_else_has_changed_is_not_written_over() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        write(&mut archive, 0..4).await?;
        archive.commit(&reached(4)).await?;
        write(&mut archive, 4..8).await?;
        // Somebody on another machine, where no lock keeps it away.
        edges::put_version_before_in_force(directory.path(), Table::Events);
        let error = archive.commit(&reached(8)).await.unwrap_err();
        assert!(matches!(&error, ArchiveError::Fenced { table, .. } if table == "events"), "{error}");
        check_offsets(&read(directory.path(), Table::Events).await?, 0..0);
        Ok(())
    });
}

#[test]
fn while_somebody_writes_to_an_archive_nobody_else_can_and_everybody_reads() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = begun(root).await?;
        write(&mut archive, 0..4).await?;
        let error = opened(root).await.err().unwrap();
        assert!(error.to_string().contains(&*root.to_string_lossy()), "{error}");
        assert!(matches!(error, ArchiveError::InUse { directory } if directory == root));
        check_offsets(&read(root, Table::Events).await?, 0..0);
        archive.commit(&reached(4)).await?;
        drop(archive);
        opened(root).await?.sweep().await?;
        check_offsets(&read(root, Table::Events).await?, 0..4);
        Ok(())
    });
}

#[test]
fn an_archive_of_another_log_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        write(&mut archive, 0..4).await?;
        archive.commit(&reached(4)).await?;
        drop(archive);
        let other = Archive::open(directory.path(), Writer { log_id: 2, nonce: 9, now_ms: START_MS })
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(other.contains("another data directory"), "{other}");
        let other = crate::Reader::of_log(directory.path().to_owned(), 2).table(Table::Events).await;
        assert!(matches!(other, Err(ArchiveError::Foreign { .. })), "nor is it read");
        assert!(crate::Reader::of_log(directory.path().to_owned(), 1).table(Table::Events).await?.is_some());
        check_offsets(&read(directory.path(), Table::Events).await?, 0..4);
        Ok(())
    });
}

#[test]
fn a_dimension_that_is_declared_later_is_a_column_from_there_on() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        write(&mut archive, 0..2).await?;
        archive.commit(&reached(2)).await?;
        let wider = CONFIG.replace("[[country]]", "[[country], [extra], [Type]]");
        archive.declare(&Declarations::parse(&wider).unwrap()).await?;
        write(&mut archive, 2..4).await?;
        archive.commit(&reached(4)).await?;
        let rows = read(directory.path(), Table::Events).await?;
        assert_eq!(texts(&rows, "extra"), [None, None, Some("x".to_owned()), Some("x".to_owned())]);
        assert!(rows[0].column_by_name("Type").is_none(), "a column is called so already");
        Ok(())
    });
}

#[test]
fn files_of_commits_that_were_not_made_are_removed_and_all_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        for commit in 0..50 {
            write(&mut archive, commit..commit + 1).await?;
            archive.commit(&reached(commit + 1)).await?;
        }
        archive.sweep().await?;
        assert_eq!(archive.visible(), (50, 51), "of events, and of the base that it begins with");
        let stray = directory.path().join("events/data/stream=display/stray.parquet");
        std::fs::write(&stray, "half a file").unwrap();
        archive.sweep().await?;
        assert_eq!(archive.visible().0, 50);
        assert!(!stray.exists());
        check_offsets(&read(directory.path(), Table::Events).await?, 0..50);
        let versions = std::fs::read_dir(directory.path().join("events/metadata")).unwrap().count();
        assert!(versions < 150, "{versions} files of versions that nobody asks for");
        Ok(())
    });
}

#[test]
fn nothing_is_removed_of_a_table_that_cannot_be_read_in_full_and_all_the_others_are_swept() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = begun(root).await?;
        for commit in 0..3 {
            write(&mut archive, commit..commit + 1).await?;
            archive.commit(&reached(commit + 1)).await?;
        }
        let strays = ["events/data/stray.parquet", "fates/data/stray.parquet"].map(|stray| root.join(stray));
        for stray in &strays {
            std::fs::create_dir_all(stray.parent().unwrap()).unwrap();
            std::fs::write(stray, "half a file").unwrap();
        }
        let manifest = some_manifest(&root.join("events/metadata"));
        let bytes = std::fs::read(&manifest).unwrap();
        std::fs::write(&manifest, "half a manifest").unwrap();
        let error = archive.sweep().await.unwrap_err().to_string();
        assert!(error.contains(&*manifest.to_string_lossy()), "{error}");
        assert_eq!(strays.each_ref().map(|stray| stray.exists()), [true, false]);
        // Nor has it kept anything from going on.
        write(&mut archive, 3..4).await?;
        archive.commit(&reached(4)).await?;
        std::fs::write(&manifest, bytes).unwrap();
        archive.sweep().await?;
        assert!(!strays[0].exists());
        check_offsets(&read(root, Table::Events).await?, 0..4);
        Ok(())
    });
}

fn some_manifest(metadata: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(metadata).unwrap().map(|entry| entry.unwrap().path());
    let is_manifest = |file: &std::path::PathBuf| file.to_string_lossy().ends_with("-m0.avro");
    files.filter(is_manifest).min().expect("each commit makes one")
}

#[test]
fn a_base_that_could_not_be_ended_is_no_part_of_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        write(&mut archive, 0..4).await?;
        archive.commit(&reached(4)).await?;
        for counter in 0..10_000 {
            archive.base(&reached(2), format!("views:{counter}").as_bytes(), 1).await?;
        }
        archive.sweep().await?;
        archive.begin_base()?;
        archive.base(&reached(4), b"views:a", 4).await?;
        archive.close_base(&reached(4)).await?;
        assert_eq!(bases(directory.path()).await?, [(0, 0), (4, 4)]);
        Ok(())
    });
}

#[test]
fn an_archive_that_was_moved_goes_on_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    run(async {
        let mut archive = begun(&old).await?;
        write(&mut archive, 0..3).await?;
        archive.commit(&reached(3)).await?;
        drop(archive);
        std::fs::rename(&old, &new).unwrap();
        let mut archive = begun(&new).await?;
        write(&mut archive, 3..6).await?;
        archive.commit(&reached(6)).await?;
        archive.sweep().await?;
        assert_eq!(archive.visible().0, 6);
        check_offsets(&read(&new, Table::Events).await?, 0..6);
        assert!(!old.exists());
        Ok(())
    });
}

#[test]
fn corrections_and_the_base_have_a_row_for_each_counter() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = opened(directory.path()).await?;
        let values = [(b"views:a".to_vec(), 5), (b"views:b".to_vec(), -2)];
        for (id, value) in values {
            archive.base(&reached(7), &id, value).await?;
        }
        archive.begin(&reached(7)).await?;
        assert_eq!(archive.reached()?, Some(reached(7)));
        let delta = |id: &str, delta| Delta { id: id.into(), bucket_ms: None, delta };
        let correction = Correction {
            number: 1,
            generation: 1,
            cause: Cause::Proposal(3),
            purpose: Purpose::Adjust,
            reason: "fraud".to_owned(),
            author: "ann".to_owned(),
            at_ms: START_MS,
            deltas: vec![delta("views:a", -3), delta("views:b", 1)],
            applied_by: "bob".to_owned(),
            proposed_ms: None,
            reverted_generation: None,
        };
        let commit = commit_of(8);
        archive.told(told(&commit, std::slice::from_ref(&correction), &[])).await?;
        archive.commit(&reached(8)).await?;
        // Told again, as after a crash between the commits of two tables: the table has it.
        archive.told(told(&commit, &[correction], &[])).await?;
        archive.commit(&reached(9)).await?;
        assert_eq!(numbers(&read(directory.path(), Table::Base).await?, "value"), [-2, 2, 5], "and how many there are");
        assert_eq!(numbers(&read(directory.path(), Table::Corrections).await?, "delta"), [-3, 1]);
        Ok(())
    });
}

/// What each base says: its offset, and what its counters come to. The row that ends one says how many there are.
async fn bases(root: &Path) -> Result<Vec<(i64, i64)>, ArchiveError> {
    let mut found: std::collections::BTreeMap<i64, (i64, i64)> = Default::default();
    for rows in read(root, Table::Base).await? {
        let (offsets, values) = (rows.column_by_name("offset").unwrap(), rows.column_by_name("value").unwrap());
        let counters = rows.column_by_name("counter").unwrap().as_string::<i32>();
        for row in 0..rows.num_rows() {
            let value = values.as_primitive::<Int64Type>().value(row);
            let (sum, missing) = found.entry(offsets.as_primitive::<Int64Type>().value(row)).or_default();
            let is_last = counters.value(row).is_empty();
            (*sum, *missing) = if is_last { (*sum, *missing + value) } else { (*sum + value, *missing - 1) };
        }
    }
    assert!(found.values().all(|(_, missing)| *missing == 0), "{found:?}");
    Ok(found.into_iter().map(|(offset, (sum, _))| (offset, sum)).collect())
}

fn reached_at(offset: u64, log_time_ms: u64) -> Reached {
    Reached { log_time_ms, ..reached(offset) }
}

#[test]
fn whole_hours_before_a_base_are_let_go_of_and_everything_else_stays() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        // Two events an hour, of two streams; in one commit those of five hours.
        write(&mut archive, 0..10).await?;
        let reasons = [Some("of this".into())];
        archive.told(told(&fates_of(3), &[], &reasons)).await?;
        archive.commit(&reached(10)).await?;
        assert_eq!(texts(&read(directory.path(), Table::Fates).await?, "reason"), [Some("of this".to_owned())]);
        archive.base(&reached_at(7, START_MS + 6 * HOUR_MS / 2), b"views:a", 7).await?;
        archive.close_base(&reached_at(7, START_MS + 6 * HOUR_MS / 2)).await?;
        archive.base(&reached_at(10, START_MS + 9 * HOUR_MS / 2), b"views:a", 10).await?;
        archive.close_base(&reached_at(10, START_MS + 9 * HOUR_MS / 2)).await?;
        assert_eq!(bases(directory.path()).await?, [(0, 0), (7, 7), (10, 10)]);
        let all = archive.bases().await?;
        assert_eq!(all.iter().map(|base| base.offset).collect::<Vec<_>>(), [0, 7, 10]);
        assert!(archive.let_go_before(all[1]).await?);
        // The base is in the middle of an hour, which stays whole.
        check_offsets(&read(directory.path(), Table::Events).await?, 6..10);
        assert_eq!(bases(directory.path()).await?, [(7, 7), (10, 10)]);
        check_offsets(&read(directory.path(), Table::Fates).await?, 0..0);
        assert!(!archive.let_go_before(all[1]).await?, "there is nothing left to let go of");
        // And it goes on.
        write(&mut archive, 10..14).await?;
        archive.commit(&reached(14)).await?;
        check_offsets(&read(directory.path(), Table::Events).await?, 6..14);
        drop(archive);
        let mut archive = begun(directory.path()).await?;
        assert!(archive.let_go_before(all[2]).await?);
        check_offsets(&read(directory.path(), Table::Events).await?, 8..14);
        Ok(())
    });
}

#[test]
fn what_was_let_go_of_leaves_the_disk_when_its_versions_are_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        write(&mut archive, 0..10).await?;
        archive.commit(&reached(10)).await?;
        let at = reached_at(8, START_MS + 4 * HOUR_MS);
        archive.close_base(&at).await?;
        archive.forget_what_was_let_go().await?;
        archive.sweep().await?;
        assert_eq!(archive.visible().0, 10);
        archive.let_go_before(BaseAt { offset: 8, log_time_ms: at.log_time_ms }).await?;
        archive.sweep().await?;
        let files = || parquet_files(&directory.path().join("events"));
        assert_eq!((archive.visible().0, files()), (2, 10), "an older version may still be read");
        archive.forget_what_was_let_go().await?;
        archive.sweep().await?;
        assert_eq!(files(), 2);
        check_offsets(&read(directory.path(), Table::Events).await?, 8..10);
        Ok(())
    });
}

fn parquet_files(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let count = |path: std::path::PathBuf| match path.is_dir() {
        true => parquet_files(&path),
        false => usize::from(path.extension().is_some_and(|extension| extension == "parquet")),
    };
    entries.map(count).sum()
}

#[test]
fn an_archive_that_begins_again_has_no_base_from_before_the_gap() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        write(&mut archive, 0..4).await?;
        archive.commit(&reached(4)).await?;
        archive.base(&reached(20), b"views:a", 20).await?;
        archive.begin(&reached(20)).await?;
        write(&mut archive, 20..22).await?;
        archive.commit(&reached(22)).await?;
        assert_eq!(bases(directory.path()).await?, [(20, 20)]);
        assert_eq!(numbers(&read(directory.path(), Table::Events).await?, "offset"), [0, 1, 2, 3, 20, 21]);
        Ok(())
    });
}

fn fates_of(offset: u64) -> Commit {
    let duplicate = NamedException { offset, counter: b"views".as_slice().into(), fate: BoxKind::Duplicate };
    Commit { exceptions: vec![duplicate], ..commit_of(offset + 1) }
}

fn commit_of(offset: u64) -> Commit {
    Commit {
        from: at(offset - 1),
        to: at(offset),
        log_time_ms: START_MS,
        generation: 1,
        exceptions: vec![],
        corrections: vec![],
        rules: 2,
        voids: vec![],
        audit: Default::default(),
        digest: Digest(1),
        deltas: None,
    }
}

#[test]
fn probes_are_found_by_their_ids_once_and_are_no_events() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let reader = crate::Reader::new(directory.path().to_owned());
        let probe = |offset: u64| (Place { position: at(offset), log_time_ms: START_MS }, format!("p{offset}"));
        let found = async |from| {
            let mut ids: Vec<String> = reader.probes(from).await.unwrap().into_iter().collect();
            ids.sort_unstable();
            ids
        };
        let mut archive = begun(directory.path()).await?;
        assert!(found(0).await.is_empty());
        for offset in [3, 5] {
            let (place, id) = probe(offset);
            archive.probe(place, &id).await?;
        }
        assert_eq!(archive.pending(), 2, "they are a reason to commit");
        assert!(found(0).await.is_empty(), "nothing can be read before it is committed");
        archive.commit(&reached(6)).await?;
        drop(archive);
        let mut archive = begun(directory.path()).await?;
        // Its table may be ahead of the others: what it has comes again then.
        for offset in [5, 8] {
            let (place, id) = probe(offset);
            archive.probe(place, &id).await?;
        }
        archive.commit(&reached(9)).await?;
        assert_eq!(found(0).await, ["p3", "p5", "p8"]);
        assert_eq!(found(4).await, ["p5", "p8"]);
        assert_eq!(numbers(&read(directory.path(), Table::Probes).await?, "offset"), [3, 5, 8]);
        archive.sweep().await?;
        assert_eq!(archive.visible().0, 0);
        check_offsets(&read(directory.path(), Table::Events).await?, 0..0);
        Ok(())
    });
}
