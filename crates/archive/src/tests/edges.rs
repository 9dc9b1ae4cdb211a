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
