//! Small files of hours that are over, put together: what is in them stays the same, whoever reads meanwhile goes on, and whatever is
//! damaged stays as it is.

use super::*;
use crate::bounds::SMALL_MANIFESTS;
use crate::merge::{Candidates, Group};
use crate::{EventsInOrder, Reader};
use iceberg::spec::{DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, Literal, Struct};
use std::collections::HashMap;
use std::path::PathBuf;

/// Records of an hour, two to a commit: one of each stream.
const RECORDS: u64 = 8;
/// Files of a base and of two roots.
const OTHERS: u64 = 3;

async fn commit_each(archive: &mut Archive, commits: std::ops::Range<u64>) -> Result<(), ArchiveError> {
    for number in commits {
        let to = 2 * number + 2;
        let log_time_ms = START_MS + (to - 1) / RECORDS * HOUR_MS;
        for offset in to - 2..to {
            let place = Place { position: at(offset), log_time_ms };
            let mut event = Event::new("video.viewed", log_time_ms);
            event.event_id = Some(format!("e{offset}").into());
            event.dimensions = vec![("video".into(), "v".into()), ("extra".into(), format!("x{offset}").into())];
            let stream = if offset % 2 == 0 { Stream::Display } else { Stream::Transition };
            archive.event(stream, place, Under { config_version: 1, ..Under::default() }, &event).await?;
        }
        let commit = Commit { from: at(to - 2), log_time_ms, ..fates_of(to - 1) };
        archive.told(told(&commit, &[], &[None])).await?;
        archive.commit(&reached_at(to, log_time_ms)).await?;
    }
    Ok(())
}

/// Every event, as it is read in the order of the log, and how many files of events there are.
async fn seen(root: &Path) -> Result<(Vec<String>, Vec<PathBuf>), ArchiveError> {
    let files = Reader::new(root.to_owned()).table(Table::Events).await?.unwrap().files;
    let paths = files.iter().map(|file| file.path.clone()).collect();
    let (mut events, mut all) = (EventsInOrder::new(files), Vec::new());
    while let Some(event) = events.get() {
        all.push(format!("{event:?}"));
        events.pass();
    }
    assert_eq!(events.take_faults(), []);
    Ok((all, paths))
}

/// Twelve commits in three hours, of which one began to tell another dimension apart.
async fn filled(root: &Path) -> Result<Archive, ArchiveError> {
    let mut archive = begun(root).await?;
    commit_each(&mut archive, 0..2).await?;
    let more = CONFIG.replace("dimensions: [video]", "dimensions: [video, extra]");
    archive.declare(&Declarations::parse(&more).unwrap()).await?;
    commit_each(&mut archive, 2..12).await?;
    Ok(archive)
}

#[test]
fn small_files_of_an_hour_that_is_over_are_put_together_and_say_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = filled(root).await?;
        let (before, files) = seen(root).await?;
        assert_eq!((before.len(), files.len(), archive.visible()), (24, 24, (24, 24 + 12 + 12 + OTHERS)));
        archive.merge().await?;
        // Of each stream one of the first hour and one of the second; the last is not over.
        let (merged, merged_files) = seen(root).await?;
        assert_eq!((&merged, merged_files.len()), (&before, 2 + 2 + 8));
        assert_eq!(archive.visible(), (24, 12 + 6 + 6 + OTHERS), "and so are fates and the chain");
        check_offsets(&read(root, Table::Events).await?, 0..24);
        assert_eq!(numbers(&read(root, Table::Fates).await?, "offset").len(), 12);
        assert_eq!(texts(&read(root, Table::Events).await?, "extra").iter().flatten().count(), 20, "a column since");
        // Again nothing changes.
        archive.merge().await?;
        assert_eq!(seen(root).await?.1, merged_files);

        archive.sweep().await?;
        assert!(files.iter().all(|file| file.exists()), "somebody may still be reading them");
        archive.forget_what_was_let_go().await?;
        archive.sweep().await?;
        assert_eq!(archive.visible().0, 24);
        assert_eq!(files.iter().filter(|file| file.exists()).count(), 8, "those of the last hour");
        drop(archive);
        let mut archive = begun(root).await?;
        commit_each(&mut archive, 12..16).await?;
        archive.merge().await?;
        let (after, after_files) = seen(root).await?;
        assert_eq!((&after[..24], after.len(), after_files.len()), (&before[..], 32, 6 + 8));
        Ok(())
    });
}

#[test]
fn whoever_reads_files_from_before_has_its_time_however_many_commits_are_made_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = filled(root).await?;
        archive.sweep().await?;
        let files = seen(root).await?.1;
        archive.merge().await?;
        commit_each(&mut archive, 12..100).await?;
        drop(archive);
        let mut archive = begun(root).await?;
        archive.sweep().await?;
        assert!(files.iter().all(|file| file.exists()));
        let table = crate::catalog::SqliteCatalog::open(root)?.open_table("events").await?.unwrap();
        let kept = table.metadata().snapshots().len();
        assert!(kept <= 44, "what was only added to is forgotten: {kept}");
        archive.forget_what_was_let_go().await?;
        archive.sweep().await?;
        assert_eq!(files.iter().filter(|file| file.exists()).count(), 8);
        check_offsets(&read(root, Table::Events).await?, 0..200);
        Ok(())
    });
}

#[test]
fn files_of_a_table_that_somebody_else_has_changed_are_not_put_together() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = filled(directory.path()).await?;
        edges::put_version_before_in_force(directory.path(), Table::Events);
        let error = archive.merge().await.unwrap_err();
        assert!(matches!(error, ArchiveError::Fenced { .. }), "{error}");
        Ok(())
    });
}

#[test]
fn a_file_that_is_damaged_stays_as_it_is_and_keeps_nothing_from_going_on() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = filled(root).await?;
        let file = seen(root).await?.1.into_iter().min().unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        let end = bytes.len() - 6;
        bytes[end] ^= 4;
        std::fs::write(&file, bytes).unwrap();
        archive.merge().await?;
        let files = Reader::new(root.to_owned()).table(Table::Events).await?.unwrap().files;
        assert_eq!(files.len(), 4 + 3 + 8, "its stream and hour are as they were");
        assert!(files.iter().any(|it| it.path == file));
        commit_each(&mut archive, 12..13).await
    });
}

#[test]
fn only_neighbours_are_put_together_so_that_files_never_overlap() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        drop(begun(directory.path()).await?);
        let catalog = crate::catalog::SqliteCatalog::open(directory.path())?;
        let table = catalog.open_table(Table::Fates.name()).await?.unwrap();
        let column = table.metadata().current_schema().field_by_name("offset").unwrap().id;
        let file = |offset: i64, hour: i32, bytes: u64| -> DataFile {
            let mut file = DataFileBuilder::default();
            file.content(DataContentType::Data).file_format(DataFileFormat::Parquet).file_path(offset.to_string());
            file.partition(Struct::from_iter([Some(Literal::int(hour))])).partition_spec_id(0);
            file.lower_bounds(HashMap::from([(column, Datum::long(offset))]));
            file.record_count(10).file_size_in_bytes(bytes).build().unwrap()
        };
        let (small, large) = (1 << 10, 8 << 20);
        let mut candidates = Candidates::new(table.metadata(), catalog.disk(), 3);
        for (offset, hour, bytes) in [
            (40, 1, small),
            (0, 1, small),
            (10, 1, small),
            (20, 1, large),
            (30, 1, small),
            (50, 2, small),
            (60, 2, large),
            (70, 2, small),
            (80, 3, small),
            (90, 3, small),
        ] {
            candidates.take(&file(offset, hour, bytes));
        }
        let groups = candidates.groups();
        assert_eq!(groups.iter().map(Group::name).collect::<Vec<_>>(), ["merged-0-20", "merged-30-20"]);
        assert_eq!(groups[1].locations().collect::<Vec<_>>(), ["30", "40"]);
        Ok(())
    });
}

#[test]
fn manifests_that_name_few_files_are_put_together_and_no_file_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = begun(root).await?;
        // One for each commit, all but a few of hours that are over.
        let commits = SMALL_MANIFESTS as u64 + 2;
        commit_each(&mut archive, 0..commits).await?;
        let before = seen(root).await?.0;
        assert_eq!((before.len() as u64, manifests(root).await?), (2 * commits, commits as usize));
        archive.merge().await?;
        assert_eq!(manifests(root).await?, 2, "one of what was there, one of what was put together");
        assert_eq!(seen(root).await?.0, before);
        commit_each(&mut archive, commits..commits + 1).await?;
        assert_eq!(seen(root).await?.0.len() as u64, 2 * commits + 2);
        // Files of the last hour stand in a manifest with others that go.
        let base = BaseAt { offset: 2 * commits, log_time_ms: START_MS + (2 * commits - 1) / RECORDS * HOUR_MS };
        archive.forget_what_was_let_go().await?;
        assert!(archive.let_go_before(base).await?);
        let left = seen(root).await?.0;
        let gone = (2 * commits / RECORDS * RECORDS) as usize;
        assert_eq!((left.len(), &left[..before.len() - gone]), (before.len() + 2 - gone, &before[gone..]));
        Ok(())
    });
}

/// How many manifests the table of events has.
async fn manifests(root: &Path) -> Result<usize, ArchiveError> {
    let catalog = crate::catalog::SqliteCatalog::open(root)?;
    let table = catalog.open_table(Table::Events.name()).await?.expect("it is there");
    let current = table.metadata().current_snapshot().expect("it has events");
    Ok(table.manifest_list_reader(current).load().await?.entries().len())
}
