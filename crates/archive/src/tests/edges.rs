//! What an archive must stand: a crash between the commits of two tables, clocks that leap, names that nobody foresaw, files of others.

use super::*;
use rusqlite::{Connection, params};

fn catalog(root: &Path) -> Connection {
    Connection::open(root.join(crate::catalog::FILE)).unwrap()
}

/// The metadata file of a table that is in force.
fn in_force(root: &Path, table: Table) -> String {
    let select = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?1";
    catalog(root).query_row(select, [table.name()], |row| row.get(0)).unwrap()
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
            archive.told(told(&fates_of(7), &[], &Reasons::default())).await?;
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
