//! The chain of commits and roots: that it is the same after a crash, and that whatever is changed is found and named.

use super::*;
use crate::again::{SignedRoot, Tables};
use crate::verify::{Different, verify_roots};
use crate::{Reader, Sign};
use arrow_array::{ArrayRef, Int64Array, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use tally_core::proof::{Counts, Signature};

/// Commits of half an hour each.
const COMMITS: u64 = 8;
const EVENTS_OF_A_COMMIT: u64 = 3;

fn commit(number: u64) -> Commit {
    let (from, to) = (number * EVENTS_OF_A_COMMIT, (number + 1) * EVENTS_OF_A_COMMIT);
    let mut commit = commit_of(to);
    commit.from = at(from);
    commit.log_time_ms = START_MS + number * HOUR_MS / 2;
    commit.digest = Digest(to.into());
    commit.exceptions = vec![NamedException { offset: from, counter: b"views"[..].into(), fate: BoxKind::Duplicate }];
    commit
}

/// Hands over the commits with these numbers.
async fn hand_over(archive: &mut Archive, numbers: std::ops::Range<u64>) -> Result<(), ArchiveError> {
    for number in numbers {
        let commit = commit(number);
        for offset in commit.from.offset..commit.to.offset {
            let mut event = Event::new("video.viewed", commit.log_time_ms);
            event.event_id = Some(format!("e{offset}").into());
            event.payload = Some("{\"a\": 1}");
            event.occurred_at_ms = Some(i64::MAX);
            event.dimensions =
                vec![("video".into(), "v".into()), ("extra".into(), "x".into()), ("b".into(), "y".into())];
            let place = Place { position: at(offset), log_time_ms: commit.log_time_ms };
            let stream = if offset % 2 == 0 { Stream::Display } else { Stream::Persistent };
            archive.event(stream, place, Under { rules: 2, ..Under::default() }, &event).await?;
        }
        let counts = Counts { received: EVENTS_OF_A_COMMIT, duplicate: 1, ..Counts::default() };
        let head = Hash::of(&commit.head());
        let counted = [("views", counts)];
        archive.told(Told { commit: &commit, head, corrections: &[], reasons: &[None], counted: &counted }).await?;
    }
    Ok(())
}

fn reached_by(number: u64) -> Reached {
    let commit = commit(number);
    Reached { log_time_ms: commit.log_time_ms, digest: commit.digest, ..reached(commit.to.offset) }
}

async fn archived(root: &Path) -> Result<(), ArchiveError> {
    let mut archive = begun(root).await?;
    hand_over(&mut archive, 0..5).await?;
    archive.commit(&reached_by(4)).await?;
    hand_over(&mut archive, 5..COMMITS).await?;
    archive.commit(&reached_by(COMMITS - 1)).await
}

async fn tables(root: &Path) -> Result<Tables, ArchiveError> {
    Tables::read(&Reader::new(root.to_owned())).await
}

fn roots(tables: &Tables) -> Vec<SignedRoot> {
    let mut roots: Vec<SignedRoot> = tables.roots_newest_first().map(Result::unwrap).collect();
    roots.reverse();
    roots
}

#[test]
fn every_hour_that_is_over_has_a_root_that_is_chained_to_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        archived(directory.path()).await?;
        let tables = tables(directory.path()).await?;
        let (roots, mut before) = (roots(&tables), Hash::default());
        assert_eq!(roots.len() as u64, COMMITS / 2 - 1, "the last hour is not over");
        for (number, SignedRoot { root, anchor, signature, .. }) in roots.into_iter().enumerate() {
            assert_eq!((root.number, root.hour), (number as u64, 490_000 + number as i64));
            assert_eq!((root.before, root.anchor(), signature), (before, anchor, None));
            let per_root = 2 * EVENTS_OF_A_COMMIT;
            assert_eq!((root.from, root.to), (number as u64 * per_root, (number as u64 + 1) * per_root));
            assert_eq!((root.commits, root.events, &*root.log_id), (2, per_root, "0000000000000001"));
            let counts = Counts { received: per_root, duplicate: 2, ..Counts::default() };
            assert_eq!(root.counts.into_iter().collect::<Vec<_>>(), [("views".to_owned(), counts)]);
            before = anchor;
        }
        let verified = verify_roots(&tables);
        assert_eq!(verified.different, []);
        assert_eq!((verified.roots, verified.let_go), (3, 0));
        assert_eq!((verified.commits, verified.events), (COMMITS, COMMITS * EVENTS_OF_A_COMMIT));
        Ok(())
    });
}

#[test]
fn hours_that_are_let_go_of_in_part_are_no_difference() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        archived(root).await?;
        let mut archive = begun(root).await?;
        let at = reached_by(4);
        archive.close_base(&at).await?;
        // It goes no further than the fates, as if it was killed there.
        let manifest = some_manifest(&root.join("fates/metadata"));
        let bytes = std::fs::read(&manifest).unwrap();
        std::fs::write(&manifest, "half a manifest").unwrap();
        let base = BaseAt { offset: at.to.offset, log_time_ms: at.log_time_ms };
        assert!(archive.let_go_before(base).await.is_err());
        std::fs::write(&manifest, bytes).unwrap();
        let verified = verify_roots(&tables(root).await?);
        assert_eq!(verified.different, []);
        assert_eq!((verified.roots, verified.let_go), (1, 2));
        Ok(())
    });
}

#[test]
fn files_of_roots_are_put_together_and_say_the_same_with_the_newest_first() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = begun(root).await?;
        let mut newest_first = Vec::new();
        for (commits, files) in [(0..20, 20), (20..30, 1), (30..40, 11), (40..60, 1)] {
            for number in commits {
                hand_over(&mut archive, number..number + 1).await?;
                archive.close_root().await?;
                archive.commit(&reached_by(number)).await?;
            }
            newest_first = roots(&tables(root).await?);
            archive.merge().await?;
            assert_eq!(tables(root).await?.files_of(Table::Roots, 0, u64::MAX - 1).len(), files);
        }
        let tables = tables(root).await?;
        let told = |roots: &[SignedRoot]| -> Vec<_> { roots.iter().map(|it| (it.root.number, it.anchor)).collect() };
        let after: Vec<SignedRoot> = tables.roots_newest_first().map(Result::unwrap).collect();
        newest_first.reverse();
        assert_eq!(told(&after), told(&newest_first));
        assert_eq!(after.len(), 60);
        assert_eq!(verify_roots(&tables).different, []);
        // A start goes on behind them.
        drop(archive);
        let mut archive = begun(root).await?;
        hand_over(&mut archive, 60..61).await?;
        archive.commit(&reached_by(60)).await
    });
}

/// Which metadata of a table is in force.
fn in_force(root: &Path, table: Table) -> String {
    let catalog = rusqlite::Connection::open(root.join(crate::catalog::FILE)).unwrap();
    let name = table.name();
    catalog
        .query_row("SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", [name], |row| row.get(0))
        .unwrap()
}

fn put_in_force(root: &Path, table: Table, location: &str) {
    let catalog = rusqlite::Connection::open(root.join(crate::catalog::FILE)).unwrap();
    let update = "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?";
    assert_eq!(catalog.execute(update, [location, table.name()]).unwrap(), 1);
}

#[test]
fn after_a_crash_between_two_tables_the_same_roots_end_where_they_did() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = begun(root).await?;
        hand_over(&mut archive, 0..2).await?;
        archive.commit(&reached_by(1)).await?;
        let before = in_force(root, Table::Events);
        hand_over(&mut archive, 2..3).await?;
        archive.close_root().await?;
        hand_over(&mut archive, 3..5).await?;
        archive.commit(&reached_by(4)).await?;
        let made: Vec<Hash> = roots(&tables(root).await?).iter().map(|found| found.anchor).collect();
        assert_eq!(made.len(), 3, "one of an hour, one that was closed within, and the rest of its hour");
        drop(archive);
        // All tables but the last were committed. Nobody asks for a root within the hour this time.
        put_in_force(root, Table::Events, &before);
        // Commits and roots whose events are not there yet are nobody's loss, and nothing to prove anything from.
        let ahead = tables(root).await?;
        assert_eq!(roots(&ahead).len(), 1, "of the hour whose events are there");
        let verified = verify_roots(&ahead);
        assert_eq!((verified.different, verified.commits), (vec![], 2));
        let mut archive = begun(root).await?;
        assert_eq!(archive.reached()?.map(|reached| reached.to), Some(at(2 * EVENTS_OF_A_COMMIT)));
        hand_over(&mut archive, 2..COMMITS).await?;
        archive.commit(&reached_by(COMMITS - 1)).await?;
        let tables = tables(root).await?;
        let again: Vec<Hash> = roots(&tables).iter().map(|found| found.anchor).collect();
        assert_eq!((again.len(), &again[..3]), (4, &made[..]));
        assert_eq!(verify_roots(&tables).different, []);
        Ok(())
    });
}

struct Name;

impl Sign for Name {
    fn sign(&self, anchor: &Hash) -> Signature {
        Signature::new(b"key", &anchor.0)
    }
}

#[test]
fn a_root_that_is_closed_here_is_signed_and_one_without_commits_is_none() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        archive.sign_with(Arc::new(Name));
        assert!(!archive.close_root().await?);
        hand_over(&mut archive, 0..1).await?;
        assert!(archive.close_root().await?);
        archive.commit(&reached_by(0)).await?;
        let [found] = &roots(&tables(directory.path()).await?)[..] else { panic!("one was closed") };
        assert_eq!(found.signature, Some(Name.sign(&found.anchor)));
        assert!(!archive.close_root().await?);
        Ok(())
    });
}

/// The files of a table, in the order of their names.
fn files(root: &Path, table: Table) -> Vec<PathBuf> {
    let (mut files, mut directories) = (Vec::new(), vec![root.join(table.name()).join("data")]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { directories.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

/// Changes the first value in a column of a file, and leaves everything else as it is.
fn change(file: &Path, column: &str, changed: impl Fn(&ArrayRef) -> ArrayRef) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
    let batches: Vec<RecordBatch> = builder.build().unwrap().map(Result::unwrap).collect();
    let mut writer = ArrowWriter::try_new(File::create(file).unwrap(), batches[0].schema(), None).unwrap();
    for batch in batches {
        let mut columns = batch.columns().to_vec();
        let index = batch.schema().index_of(column).unwrap();
        columns[index] = changed(&columns[index]);
        writer.write(&RecordBatch::try_new(batch.schema(), columns).unwrap()).unwrap();
    }
    writer.close().unwrap();
}

fn one_more(column: &ArrayRef) -> ArrayRef {
    let values = column.as_primitive::<Int64Type>().values();
    Arc::new(Int64Array::from_iter_values(values.iter().enumerate().map(|(row, value)| value + i64::from(row == 0))))
}

fn other_text(column: &ArrayRef) -> ArrayRef {
    let texts = column.as_string::<i32>();
    let other = |(row, text): (usize, Option<&str>)| {
        text.map(|text| if row == 0 { text.replace('6', "7") } else { text.to_owned() })
    };
    Arc::new(texts.iter().enumerate().map(other).collect::<StringArray>())
}

/// What is found after a file of a table was changed.
fn found_after(table: Table, column: &str, changed: impl Fn(&ArrayRef) -> ArrayRef) -> (PathBuf, Vec<Different>) {
    let directory = tempfile::tempdir().unwrap();
    let mut result = None;
    run(async {
        archived(directory.path()).await?;
        let file = files(directory.path(), table).into_iter().next().unwrap();
        change(&file, column, &changed);
        result = Some((file, verify_roots(&tables(directory.path()).await?).different));
        Ok(())
    });
    result.unwrap()
}

#[test]
fn a_changed_row_is_found_and_its_table_hour_and_file_are_named() {
    for (table, column) in [(Table::Events, "delta"), (Table::Events, "generation"), (Table::Events, "received_at")] {
        let more = |column: &ArrayRef| -> ArrayRef {
            match column.as_primitive_opt::<Int64Type>() {
                Some(_) => one_more(column),
                None => {
                    let times = column.as_primitive::<arrow_array::types::TimestampMicrosecondType>();
                    let later = times.values().iter().map(|value| value + 1000);
                    Arc::new(arrow_array::TimestampMicrosecondArray::from_iter_values(later).with_timezone("+00:00"))
                }
            }
        };
        let (file, different) = found_after(table, column, more);
        let first = &different[0];
        assert_eq!((first.table, first.hour, first.root), (table, Some(490_000), Some(0)), "{first}");
        assert!(first.files.contains(&file) && first.to_string().contains("table events"), "{first}");
        assert!(different.iter().all(|found| found.table == table), "{different:?}");
    }
    for (table, column) in [(Table::Events, "event_id"), (Table::Events, "payload"), (Table::Fates, "counter")] {
        let text = |column: &ArrayRef| -> ArrayRef {
            let texts = column.as_string::<i32>().iter().map(|text| text.map(|text| format!("{text}!")));
            Arc::new(texts.collect::<StringArray>())
        };
        let (file, different) = found_after(table, column, text);
        assert_eq!(different[0].table, table, "{different:?}");
        assert!(different[0].files.contains(&file), "{different:?}");
    }
}

#[test]
fn a_changed_commit_is_found_and_its_hour_is_named() {
    let (file, different) = found_after(Table::Chain, "head_hash", |column| {
        let texts = column.as_string::<i32>();
        let other = texts.iter().map(|text| text.map(|text| text.chars().rev().collect::<String>()));
        Arc::new(other.collect::<StringArray>())
    });
    let [only] = &different[..] else { panic!("{different:?}") };
    assert_eq!((only.table, only.hour), (Table::Chain, Some(490_000)), "{only}");
    assert_eq!(only.files, [file]);
}

#[test]
fn a_changed_root_is_found_and_so_is_one_that_is_missing() {
    let (file, different) = found_after(Table::Roots, "counts", other_text);
    let [only] = &different[..] else { panic!("{different:?}") };
    assert_eq!((only.table, only.root, &only.files), (Table::Roots, Some(0), &vec![file]), "{only}");
    let (_, different) = found_after(Table::Roots, "number", one_more);
    assert!(different.iter().any(|found| found.what.contains("root 0 is missing")), "{different:?}");
}

#[test]
fn a_file_that_is_gone_or_cut_is_found_and_named() {
    for table in [Table::Events, Table::Chain, Table::Roots] {
        let directory = tempfile::tempdir().unwrap();
        run(async {
            archived(directory.path()).await?;
            let file = files(directory.path(), table).into_iter().next().unwrap();
            let bytes = std::fs::read(&file)?;
            std::fs::write(&file, &bytes[..bytes.len() / 2])?;
            let different = verify_roots(&tables(directory.path()).await?).different;
            let name = file.display().to_string();
            assert!(
                different.iter().any(|found| found.table == table && found.to_string().contains(&name)),
                "{different:?}"
            );
            Ok(())
        });
    }
}
