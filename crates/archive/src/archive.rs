//! The tables of an archive together, and the one who writes to them.

use crate::catalog::SqliteCatalog;
use crate::rows::{BaseRows, CorrectionRows, EventRows, FateRows, Place, Under};
use crate::schema::{Table, dimension_columns};
use crate::sweep::{self, Used};
use crate::table::TableWriter;
use crate::{ArchiveError, Reached};
use iceberg::spec::Literal;
use std::path::{Path, PathBuf};
use tally_core::commit::Commit;
use tally_core::counter::Declarations;
use tally_core::event::Event;
use tally_core::ledger::Correction;
use tally_core::op::Stream;

/// Rows that are handed on to a file at once.
const BATCH_ROWS: usize = 8192;

/// An archive that is written to.
pub struct Archive {
    root: PathBuf,
    catalog: SqliteCatalog,
    events: TableWriter,
    fates: TableWriter,
    corrections: TableWriter,
    base: TableWriter,
    /// Events on their way, by stream.
    lanes: Vec<Lane>,
    base_rows: BaseRows,
    fate_rows: FateRows,
    correction_rows: CorrectionRows,
}

/// Events of one stream that are no batch yet, all of one hour.
struct Lane {
    stream: Stream,
    hour: i32,
    rows: EventRows,
}

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// The log whose events these are: an archive has those of one.
    pub log_id: u64,
    /// Another one each time that an archive is opened.
    pub nonce: u64,
}

/// What an archive has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events that can be read.
    pub events: u64,
    pub files: u64,
    pub bytes: u64,
}

impl Archive {
    /// Opens the archive of a log in a directory, or makes one. Called inside a runtime, and by one at a time: of two writers only one
    /// gets on.
    pub async fn open(root: &Path, writer: Writer) -> Result<Archive, ArchiveError> {
        let catalog = SqliteCatalog::open(root)?;
        let [events, fates, corrections, base] = [
            TableWriter::open(&catalog, Table::Events, writer).await?,
            TableWriter::open(&catalog, Table::Fates, writer).await?,
            TableWriter::open(&catalog, Table::Corrections, writer).await?,
            TableWriter::open(&catalog, Table::Base, writer).await?,
        ];
        let mut archive = Archive {
            root: root.to_owned(),
            catalog,
            events,
            fates,
            corrections,
            base,
            lanes: Vec::new(),
            base_rows: BaseRows::new()?,
            fate_rows: FateRows::new()?,
            correction_rows: CorrectionRows::new()?,
        };
        archive.begin_lanes()?;
        Ok(archive)
    }

    fn begin_lanes(&mut self) -> Result<(), ArchiveError> {
        let schema = self.events.schema();
        let lane = |stream| Ok(Lane { stream, hour: 0, rows: EventRows::new(schema, stream)? });
        self.lanes = Stream::ALL.into_iter().map(lane).collect::<Result<_, ArchiveError>>()?;
        Ok(())
    }

    /// How far all tables have come; `None` if it has not begun.
    ///
    /// A crash between the commits of two tables leaves one behind the other. Whoever goes on begins where the last of them is, and
    /// the others pass over what they have.
    pub fn reached(&self) -> Result<Option<Reached>, ArchiveError> {
        let mut least: Option<Reached> = None;
        for table in [&self.events, &self.fates, &self.corrections] {
            let Some(reached) = table.reached()? else { return Ok(None) };
            least = Some(least.filter(|least| least.to.offset <= reached.to.offset).unwrap_or(reached));
        }
        Ok(least)
    }

    /// What a counter is worth where the archive begins: what comes behind it is added to that.
    pub async fn base(&mut self, at: &Reached, id: &[u8], value: i64) -> Result<(), ArchiveError> {
        self.base_rows.push(Place { position: at.to, log_time_ms: at.log_time_ms }, id, value);
        if self.base_rows.len() < BATCH_ROWS {
            return Ok(());
        }
        self.base.write(vec![], self.base_rows.take()?).await
    }

    /// Begins here.
    pub async fn begin(&mut self, at: &Reached) -> Result<(), ArchiveError> {
        self.base.write(vec![], self.base_rows.take()?).await?;
        self.base.commit(&self.catalog, at).await?;
        self.commit(at).await
    }

    /// An event of the log, which the table does not have.
    pub async fn event(
        &mut self,
        stream: Stream,
        place: Place,
        under: Under,
        event: &Event<'_>,
    ) -> Result<(), ArchiveError> {
        let lane = &mut self.lanes[stream as usize];
        if (lane.hour != place.hour() && !lane.rows.is_empty()) || lane.rows.len() >= BATCH_ROWS {
            let (partition, rows) = (lane.partition(), lane.rows.take()?);
            self.events.write(partition, rows).await?;
        }
        let lane = &mut self.lanes[stream as usize];
        lane.hour = place.hour();
        lane.rows.push(place, under, event);
        Ok(())
    }

    /// Behind the last record whose events the table has.
    pub fn has_events_to(&self) -> Result<u64, ArchiveError> {
        Ok(self.events.reached()?.map_or(0, |reached| reached.to.offset))
    }

    /// What a commit of the log says of its entries and corrections. `corrections` are those it names, with all their deltas.
    pub async fn told(&mut self, commit: &Commit, corrections: &[Correction]) -> Result<(), ArchiveError> {
        let place = Place { position: commit.to, log_time_ms: commit.log_time_ms };
        let is_new = |table: &TableWriter| {
            table.reached().map(|reached| reached.is_none_or(|reached| reached.to.offset < commit.to.offset))
        };
        if is_new(&self.fates)? {
            self.fate_rows.push(commit);
            if self.fate_rows.len() > 0 {
                self.fates.write(vec![Literal::int(place.hour())], self.fate_rows.take()?).await?;
            }
        }
        if is_new(&self.corrections)? {
            corrections.iter().for_each(|correction| self.correction_rows.push(place, correction));
            if self.correction_rows.len() > 0 {
                self.corrections.write(vec![Literal::int(place.hour())], self.correction_rows.take()?).await?;
            }
        }
        Ok(())
    }

    /// Rows that no commit has made visible.
    pub fn pending(&self) -> u64 {
        let waiting: usize = self.lanes.iter().map(|lane| lane.rows.len()).sum();
        waiting as u64 + self.events.rows() + self.fates.rows() + self.corrections.rows()
    }

    /// Makes everything visible that was handed over, which is everything before `to`, and durable.
    pub async fn commit(&mut self, to: &Reached) -> Result<(), ArchiveError> {
        for lane in &mut self.lanes {
            if !lane.rows.is_empty() {
                let (partition, rows) = (lane.partition(), lane.rows.take()?);
                self.events.write(partition, rows).await?;
            }
        }
        // What says how the log goes on comes last, so nobody finds events whose fates are not there.
        for table in [&mut self.fates, &mut self.corrections, &mut self.events] {
            table.commit(&self.catalog, to).await?;
        }
        Ok(())
    }

    /// Sees to it that every dimension of declarations has a column. Nothing is on its way.
    pub async fn declare(&mut self, declarations: &Declarations) -> Result<(), ArchiveError> {
        assert_eq!(self.pending(), 0, "columns are added between two commits");
        let mut names: Vec<String> = Vec::new();
        for name in declarations.counters().iter().flat_map(|counter| counter.named_dimensions()) {
            let mut known = dimension_columns(self.events.schema()).chain(names.iter().map(String::as_str));
            let is_taken = Table::Events.has_column(name) || known.any(|known| known.eq_ignore_ascii_case(name));
            drop(known);
            if !is_taken {
                names.push(name.to_owned());
            }
        }
        if !names.is_empty() {
            self.events.add_columns(&self.catalog, &names).await?;
            self.begin_lanes()?;
        }
        Ok(())
    }

    /// Removes files that no table names any more: of commits that were not made, and of versions that are forgotten. Answers what
    /// there is. Nothing is on its way.
    pub async fn sweep(&self) -> Result<Tally, ArchiveError> {
        assert_eq!(self.pending(), 0, "files of rows that are on their way are named by nobody yet");
        let mut tally = Tally::default();
        for writer in [&self.events, &self.fates, &self.corrections, &self.base] {
            let used = Used::of(writer.table(), self.catalog.disk()).await?;
            if std::ptr::eq(writer, &self.events) {
                tally.events = used.rows;
            }
            tally.files += used.data_files;
            let directory = self.root.join(writer.kind().name());
            tally.bytes += sweep::remove_others(&directory, &used)?;
        }
        Ok(tally)
    }
}

impl Lane {
    fn partition(&self) -> Vec<Literal> {
        vec![Literal::string(self.stream.mode().name()), Literal::int(self.hour)]
    }
}
