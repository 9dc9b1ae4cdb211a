//! Looks at every byte of a store that nobody uses: what a start looks at, and beyond that each table against its checksum. Pure reading.

use super::current;
use super::verify;
use crate::store::Error;
use std::path::Path;

/// What was looked at, and what is not as it was written.
#[derive(Debug, Default)]
pub struct Examined {
    pub tables: u64,
    pub bytes: u64,
    /// Each in words, with its file and what to do.
    pub damages: Vec<String>,
}

/// Reads the store in `dir` from one end to the other; `tell` hears of the bytes of each table.
pub fn examine(dir: &Path, tell: &mut dyn FnMut(u64)) -> Examined {
    let mut examined = Examined::default();
    let looked = current::read(dir).and_then(|named| match named {
        Some(named) => examined.database(&dir.join(named.directory), tell),
        None => Ok(()),
    });
    if let Err(error) = looked {
        examined.damages.push(error.to_string());
    }
    examined
}

impl Examined {
    fn database(&mut self, database: &Path, tell: &mut dyn FnMut(u64)) -> Result<(), Error> {
        verify::check(database)?;
        for (table, checksum) in verify::tables(database)? {
            self.table(&table, checksum, tell);
        }
        Ok(())
    }

    fn table(&mut self, table: &Path, checksum: u128, tell: &mut dyn FnMut(u64)) {
        let bytes = std::fs::metadata(table).map_or(0, |metadata| metadata.len());
        (self.tables, self.bytes) = (self.tables + 1, self.bytes + bytes);
        let what = match verify::whole_checksum(table) {
            Ok(found) if found == checksum => None,
            Ok(_) => Some("what it holds is not what was written: its checksum does not match".to_owned()),
            Err(error) => Some(format!("it cannot be read: {error}")),
        };
        let damage = what.map(|what| verify::damaged(table, &what).to_string());
        self.damages.extend(damage);
        tell(bytes);
    }
}
