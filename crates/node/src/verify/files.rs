//! The tables of the archive: their catalog, what they name, and each data file to its end. Events are read once, in the order of the log, when
//! the log is (`events`).

use super::Tell;
use super::report::{Check, Finding, Fix};
use super::scratch::Scratch;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tally_archive::{FileFault, Reached, ReadableFile, Reader, Table, catalog, configurations, look_through};
use tally_core::counter::Declarations;

/// What the archive says of itself.
#[derive(Default)]
pub struct Tables {
    /// How far each of those that follow the log is.
    pub reached: Vec<(&'static str, Reached)>,
    /// Files of events.
    pub events: Vec<ReadableFile>,
    /// Files of fates.
    pub fates: Vec<ReadableFile>,
    /// Every event from here on is in the archive, up to where `events` is.
    pub from: Option<u64>,
    /// What was declared, by version.
    pub declared: BTreeMap<u64, Arc<Declarations>>,
}

impl Tables {
    /// How far a table is.
    pub fn reached(&self, table: Table) -> u64 {
        let found = self.reached.iter().find(|(name, _)| *name == table.name());
        found.map_or(0, |(_, reached)| reached.to.offset)
    }
}

pub async fn look(root: PathBuf, scratch: &Scratch, tell: Tell<'_>) -> (Tables, Check) {
    let mut looking = Looking { check: Check::new("archive"), scratch, tables: Tables::default(), files: 0, rows: 0 };
    if let Err(error) = catalog::check(&root) {
        looking.find(&error.to_string());
    }
    let reader = Reader::new(root.clone());
    let mut missing = Vec::new();
    let all = Table::ALL.into_iter().chain([Table::Probes]);
    for (index, table) in all.enumerate() {
        tell("archive", index as u64, Table::ALL.len() as u64 + 1);
        match reader.table(table).await {
            Ok(Some(readable)) => looking.table(table, readable.files, readable.reached),
            // Where none was ever sent there is none.
            Ok(None) if table == Table::Probes => {}
            Ok(None) => missing.push(table.name()),
            Err(error) => looking.find(&format!("the table {}: {error}", table.name())),
        }
    }
    // Tables are made one after the other, and have nothing before all of them are there.
    let has_begun =
        !looking.tables.reached.is_empty() || !root.join(catalog::FILE).exists() && root.join("events").exists();
    for name in missing.into_iter().filter(|_| has_begun) {
        looking.find(&format!("it has lost its table {name}"));
    }
    let Looking { mut check, tables, files, rows, .. } = looking;
    check.said = format!("{files} files, {rows} rows beside events");
    (tables, check)
}

struct Looking<'a> {
    check: Check,
    scratch: &'a Scratch,
    tables: Tables,
    files: u64,
    rows: u64,
}

impl Looking<'_> {
    fn table(&mut self, table: Table, files: Vec<ReadableFile>, reached: Option<Reached>) {
        self.files += files.len() as u64;
        if let (Table::Events | Table::Fates | Table::Corrections, Some(reached)) = (table, reached) {
            self.tables.reached.push((table.name(), reached));
        }
        if table == Table::Events {
            self.tables.events = files;
            return;
        }
        for file in &files {
            match look_through(file) {
                Ok(rows) => self.rows += rows,
                Err(fault) => self.check.find(of_fault(fault, self.scratch)),
            }
        }
        match table {
            Table::Fates => self.tables.fates = files,
            Table::Base => self.tables.from = first_base(&files),
            Table::Configurations => self.declared(&files),
            _ => {}
        }
    }

    fn declared(&mut self, files: &[ReadableFile]) {
        // What cannot be read was told already.
        for (version, yaml) in configurations(files).unwrap_or_default() {
            match Declarations::parse(&yaml) {
                Ok(declarations) => {
                    self.tables.declared.insert(version, Arc::new(declarations));
                }
                Err(error) => self.find(&format!("configuration {version} cannot be read: {error}")),
            }
        }
    }

    fn find(&mut self, what: &str) {
        self.check.find(Finding::new(self.scratch.meant(what), Fix::Archive));
    }
}

/// Where the oldest base is.
fn first_base(files: &[ReadableFile]) -> Option<u64> {
    let offsets = files.iter().flat_map(|file| file.bounds.iter().filter(|bounds| bounds.column == "offset"));
    offsets.map(|bounds| bounds.least as u64).min()
}

pub fn of_fault(fault: FileFault, scratch: &Scratch) -> Finding {
    let file = scratch.meant(&fault.path.display().to_string());
    let unread = fault.unread.map_or(String::new(), |unread| {
        format!(" (it has what came with records {} to {})", unread.start(), unread.end())
    });
    Finding::new(format!("{file}: {}{unread}", scratch.meant(&fault.what)), Fix::Archive).in_file(&file)
}
