//! What an archive must stand: a crash between the commits of two tables, clocks that leap, names that nobody foresaw, files of others.

use super::*;
use crate::bounds::BATCH_BYTES;
use crate::walk::FileRows;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rusqlite::{Connection, params};

fn catalog(root: &Path) -> Connection {
    Connection::open(root.join(crate::catalog::FILE)).unwrap()
}

/// The metadata file of a table that is in force.
fn in_force(root: &Path, table: Table) -> String {
    let select = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?1";
    catalog(root).query_row(select, [table.name()], |row| row.get(0)).unwrap()
}

pub fn put_version_before_in_force(root: &Path, table: Table) {
    let update = "UPDATE iceberg_tables SET metadata_location = previous_metadata_location WHERE table_name = ?1";
    assert_eq!(catalog(root).execute(update, [table.name()]).unwrap(), 1);
}

#[test]
fn a_table_that_is_ahead_of_the_others_stays_there_and_has_each_row_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = begun(root).await?;
        write(&mut archive, 0..4).await?;
        archive.commit(&reached(4)).await?;
        let before = in_force(root, Table::Events);
        let tell = async |archive: &mut Archive| -> Result<(), ArchiveError> {
            write(archive, 4..8).await?;
            archive.told(told(&fates_of(7), &[], &[None])).await?;
            archive.probe(Place { position: at(7), log_time_ms: START_MS }, "p7").await?;
            archive.commit(&reached(8)).await
        };
        tell(&mut archive).await?;
        drop(archive);
        // As if it was killed before the last of the tables was committed.
        let back = "UPDATE iceberg_tables SET metadata_location = ?1 WHERE table_name = 'events'";
        assert_eq!(catalog(root).execute(back, params![before]).unwrap(), 1);
        let mut archive = begun(root).await?;
        assert_eq!(archive.reached()?.map(|reached| reached.to), Some(at(4)));
        // Other declarations were in force in between: what is on its way is committed where they begin.
        archive.commit(&reached(5)).await?;
        tell(&mut archive).await?;
        check_offsets(&read(root, Table::Events).await?, 0..8);
        assert_eq!(numbers(&read(root, Table::Fates).await?, "offset"), [7]);
        assert_eq!(numbers(&read(root, Table::Chain).await?, "from_offset"), [7]);
        assert_eq!(numbers(&read(root, Table::Probes).await?, "offset"), [7]);
        Ok(())
    });
}

/// Has a version of a table be of later, as if the clock had been ahead when it was made.
fn move_ahead(root: &Path, table: Table, by_ms: i64) {
    let file = in_force(root, table);
    let file = file.strip_prefix("file://").unwrap();
    let mut metadata: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let later = |time: &mut serde_json::Value| *time = (time.as_i64().unwrap() + by_ms).into();
    later(&mut metadata["last-updated-ms"]);
    for name in ["metadata-log", "snapshot-log", "snapshots"] {
        for entry in metadata[name].as_array_mut().into_iter().flatten() {
            later(&mut entry["timestamp-ms"]);
        }
    }
    std::fs::write(file, metadata.to_string()).unwrap();
}

#[test]
fn a_clock_that_was_years_ahead_does_not_stop_the_archive() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = begun(root).await?;
        write(&mut archive, 0..10).await?;
        archive.commit(&reached(10)).await?;
        drop(archive);
        for table in [Table::Events, Table::Fates, Table::Base] {
            move_ahead(root, table, 10 * 365 * 24 * HOUR_MS as i64);
        }
        let mut archive = begun(root).await?;
        for offset in 10..60 {
            write(&mut archive, offset..offset + 1).await?;
            archive.commit(&reached(offset + 1)).await?;
        }
        let at = reached_at(8, START_MS + 4 * HOUR_MS);
        archive.close_base(&at).await?;
        archive.let_go_before(BaseAt { offset: 8, log_time_ms: at.log_time_ms }).await?;
        archive.forget_what_was_let_go().await?;
        let wider = CONFIG.replace("[[country]]", "[[country], [extra]]");
        archive.declare(&Declarations::parse(&wider).unwrap()).await?;
        archive.sweep().await?;
        assert_eq!(archive.visible().0, 52);
        drop(archive);
        begun(root).await?;
        check_offsets(&read(root, Table::Events).await?, 8..60);
        Ok(())
    });
}

#[test]
fn versions_are_of_the_log_time_that_they_reach_and_later_than_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    run(async {
        let mut archive = begun(root).await?;
        for offset in 0..30 {
            write(&mut archive, offset..offset + 1).await?;
            archive.commit(&reached_at(offset + 1, START_MS + offset / 2 * HOUR_MS)).await?;
        }
        let opened = crate::catalog::SqliteCatalog::open(root)?.open_table(Table::Events.name()).await?.unwrap();
        let metadata = opened.metadata();
        assert_eq!(metadata.last_updated_ms() as u64, START_MS + 14 * HOUR_MS + 1);
        let snapshots: Vec<i64> = metadata.history().iter().map(|entry| entry.timestamp_ms).collect();
        assert!(snapshots.is_sorted_by(|one, next| one < next), "{snapshots:?}");
        let of_its_own = metadata.snapshots().map(|snapshot| snapshot.timestamp_ms());
        assert_eq!(of_its_own.max(), snapshots.last().copied());
        let versions = metadata.metadata_log();
        assert_eq!(versions.len(), crate::times::VERSIONS_KEPT);
        assert!(versions.is_sorted_by(|one, next| one.timestamp_ms < next.timestamp_ms), "{versions:?}");
        Ok(())
    });
}

#[test]
fn dimensions_that_no_column_can_be_called_by_stay_in_the_map() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        let wider = CONFIG.replace("[[country]]", "[[hour], [a.b], [Hour], [city]]");
        archive.declare(&Declarations::parse(&wider).unwrap()).await?;
        let mut event = Event::new("video.viewed", START_MS);
        event.dimensions = ["hour", "a.b", "city"].map(|name| (name.into(), "x".into())).into();
        let place = Place { position: at(0), log_time_ms: START_MS };
        archive.event(Stream::Display, place, Under::default(), &event).await?;
        archive.commit(&reached(1)).await?;
        let rows = read(directory.path(), Table::Events).await?;
        assert_eq!(texts(&rows, "city"), [Some("x".to_owned())]);
        let keys = rows[0].column_by_name("dimensions").unwrap().as_map().keys().as_string::<i32>();
        assert_eq!(keys.iter().flatten().collect::<Vec<_>>(), ["hour", "a.b"]);
        Ok(())
    });
}

#[test]
fn files_of_others_are_never_removed_and_a_table_is_not_made_among_them() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let (taken, own) = (directory.path().join("taken"), directory.path().join("own"));
        let theirs = taken.join("events/2024/mine.txt");
        std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
        std::fs::write(&theirs, "mine").unwrap();
        let error = begun(&taken).await.err().unwrap().to_string();
        assert!(error.contains("events/2024/mine.txt is there and not its own"), "{error}");
        assert!(theirs.exists());

        // Who was stopped while making a table goes on.
        let left = own.join("fates/metadata/00000-left.metadata.json");
        std::fs::create_dir_all(left.parent().unwrap()).unwrap();
        std::fs::write(&left, "half a fi").unwrap();
        let mut archive = begun(&own).await?;
        let notes = [own.join("events/notes.txt"), own.join("events/data/notes.txt")];
        write(&mut archive, 0..2).await?;
        archive.commit(&reached(2)).await?;
        notes.iter().for_each(|note| std::fs::write(note, "mine").unwrap());
        archive.sweep().await?;
        assert!(notes.iter().all(|note| note.exists()) && !left.exists());
        Ok(())
    });
}

#[test]
fn large_events_are_written_and_read_a_few_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        // What cannot be made smaller, so that what is in a file is what was held.
        let mut payload = String::from("\"");
        let mut digits = 1u64;
        while payload.len() < 200 << 10 {
            digits = digits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            payload.push_str(&format!("{digits:016x}"));
        }
        payload.push('"');
        for offset in 0..300 {
            let mut event = Event::new("video.viewed", START_MS);
            event.payload = Some(&payload);
            let place = Place { position: at(offset), log_time_ms: START_MS };
            archive.event(Stream::Display, place, Under::default(), &event).await?;
        }
        archive.commit(&reached(300)).await?;
        let readable = crate::Reader::new(directory.path().to_owned()).table(Table::Events).await?.unwrap();
        let mut rows = 0;
        for file in &readable.files {
            let parquet = SerializedFileReader::new(std::fs::File::open(&file.path).unwrap()).unwrap();
            let groups = (0..parquet.num_row_groups()).map(|group| parquet.get_row_group(group).unwrap());
            for group in groups {
                // A page is what was handed over at once, or a part of it.
                let pages = (0..group.num_columns()).flat_map(|column| group.get_column_page_reader(column).unwrap());
                let largest = pages.map(|page| page.unwrap().buffer().len()).max().unwrap();
                assert!(largest <= 2 * BATCH_BYTES, "a page of {largest} bytes");
            }
            let mut reading = FileRows::open(file).unwrap();
            while let Some(batch) = reading.next().unwrap() {
                rows += batch.num_rows();
                assert!(batch.num_rows() * payload.len() <= 2 * BATCH_BYTES, "{} rows at a time", batch.num_rows());
            }
        }
        assert_eq!(rows, 300);
        Ok(())
    });
}

#[test]
fn a_long_text_that_many_rows_have_is_read_a_few_times_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        let long = "t".repeat(200 << 10);
        for offset in 0..300 {
            let mut event = Event::new(long.as_str(), START_MS);
            event.dimensions = vec![("video".into(), long.as_str().into()), ("extra".into(), long.as_str().into())];
            let place = Place { position: at(offset), log_time_ms: START_MS };
            archive.event(Stream::Display, place, Under::default(), &event).await?;
        }
        archive.commit(&reached(300)).await?;
        let readable = crate::Reader::new(directory.path().to_owned()).table(Table::Events).await?.unwrap();
        let [file] = &readable.files[..] else { panic!("{:?}", readable.files) };
        assert!(file.bytes < 1 << 20, "it has the text once: {} bytes", file.bytes);
        let mut reading = FileRows::open(file).unwrap();
        while let Some(batch) = reading.next().unwrap() {
            let held = batch.num_rows() * 3 * long.len();
            assert!(held <= BATCH_BYTES, "{} rows at a time", batch.num_rows());
        }
        Ok(())
    });
}

#[test]
fn whoever_holds_the_catalog_keeps_nobody_from_reading() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let reader = crate::Reader::new(directory.path().to_owned());
        assert!(reader.table(Table::Events).await?.is_none());
        let mut archive = begun(directory.path()).await?;
        write(&mut archive, 0..3).await?;
        archive.commit(&reached(3)).await?;
        let holder = catalog(directory.path());
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        // Who writes to it as well would wait, and then be turned away.
        assert_eq!(reader.table(Table::Events).await?.unwrap().reached.map(|reached| reached.to), Some(at(3)));
        holder.execute_batch("ROLLBACK").unwrap();
        Ok(())
    });
}

/// Of long texts they would be wrong where a file has several groups of rows.
#[test]
fn files_are_told_apart_by_numbers_and_times_and_never_by_texts() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = begun(directory.path()).await?;
        write(&mut archive, 0..3).await?;
        archive.commit(&reached(3)).await?;
        let table = crate::catalog::SqliteCatalog::open(directory.path())?.open_table("events").await?.unwrap();
        let snapshot = table.metadata().current_snapshot().unwrap();
        let schema = table.metadata().current_schema();
        let mut told = std::collections::BTreeSet::new();
        for manifest in table.manifest_list_reader(snapshot).load().await?.entries() {
            for entry in manifest.load_manifest(table.file_io()).await?.entries() {
                let file = entry.data_file();
                told.extend(file.lower_bounds().keys().chain(file.upper_bounds().keys()).copied());
            }
        }
        let fields: Vec<_> = told.into_iter().map(|id| schema.field_by_id(id).unwrap()).collect();
        assert!(
            fields.iter().any(|field| field.name == "offset") && fields.iter().any(|field| field.name == "log_time")
        );
        assert!(fields.iter().all(|field| field.field_type.to_string() != "string"), "{fields:?}");
        Ok(())
    });
}
