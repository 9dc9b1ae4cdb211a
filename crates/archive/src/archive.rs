//! The tables of an archive together, and the one who writes to them.

mod anchoring;

pub use anchoring::Told;

use crate::bounds::BATCH_ROWS;
use crate::catalog::SqliteCatalog;
use crate::rows::{
    BaseRows, ChainRows, CorrectionRows, EventRows, FateRows, Place, ProbeRows, Under, configuration, event_leaf,
    hour_of,
};
use crate::schema::{Table, dimension_columns, stays_in_map};
use crate::sweep;
use crate::table::TableWriter;
use crate::tree::{Sign, TREE, Tree};
use crate::{ArchiveError, Reached, Reader, again};
use iceberg::spec::{DataFile, Datum, Literal, PrimitiveLiteral};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tally_core::counter::Declarations;
use tally_core::event::Event;
use tally_core::op::Stream;

/// Locked by who writes, for as long as it does. Somebody else would take its files that no commit names yet for files of nobody.
pub const LOCK: &str = "LOCK";

/// An archive that is written to.
pub struct Archive {
    _lock: File,
    root: PathBuf,
    catalog: SqliteCatalog,
    events: TableWriter,
    fates: TableWriter,
    corrections: TableWriter,
    base: TableWriter,
    configurations: TableWriter,
    chain: TableWriter,
    roots: TableWriter,
    /// There is none where none was ever sent.
    probes: Option<TableWriter>,
    writer: Writer,
    /// Events on their way, by stream.
    lanes: Vec<Lane>,
    base_rows: BaseRows,
    fate_rows: FateRows,
    correction_rows: CorrectionRows,
    chain_rows: ChainRows,
    tree: Tree,
    signer: Option<Arc<dyn Sign>>,
    probe_rows: ProbeRows,
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
    /// The node's time, which tables that are made now are of.
    pub now_ms: u64,
}

/// Where a base is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BaseAt {
    pub offset: u64,
    /// Of the last record before it.
    pub log_time_ms: u64,
}

impl Archive {
    /// Opens the archive of a log in a directory, or makes one. Nobody else can until it is dropped. Called inside a runtime.
    pub async fn open(root: &Path, writer: Writer) -> Result<Archive, ArchiveError> {
        let lock = lock(root)?;
        let catalog = SqliteCatalog::open(root)?;
        let [events, fates, corrections, base, configurations, chain, roots] = [
            TableWriter::open(&catalog, Table::Events, writer).await?,
            TableWriter::open(&catalog, Table::Fates, writer).await?,
            TableWriter::open(&catalog, Table::Corrections, writer).await?,
            TableWriter::open(&catalog, Table::Base, writer).await?,
            TableWriter::open(&catalog, Table::Configurations, writer).await?,
            TableWriter::open(&catalog, Table::Chain, writer).await?,
            TableWriter::open(&catalog, Table::Roots, writer).await?,
        ];
        let has_to = events.reached()?.map_or(0, |reached| reached.to.offset);
        let mut tree = Tree::read(events.property(TREE), writer.log_id)?;
        if roots.reached()?.is_some_and(|reached| reached.to.offset > has_to) {
            tree.expect(anchoring::roots_from(root, tree.number()).await?);
        }
        let probes = match catalog.open_table(Table::Probes.name()).await? {
            Some(_) => Some(TableWriter::open(&catalog, Table::Probes, writer).await?),
            None => None,
        };
        let mut archive = Archive {
            _lock: lock,
            root: root.to_owned(),
            catalog,
            probes,
            writer,
            events,
            fates,
            corrections,
            base,
            configurations,
            chain,
            roots,
            lanes: Vec::new(),
            base_rows: BaseRows::new()?,
            fate_rows: FateRows::new()?,
            correction_rows: CorrectionRows::new()?,
            chain_rows: ChainRows::new()?,
            tree,
            signer: None,
            probe_rows: ProbeRows::new()?,
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
        let all: Option<Vec<Reached>> = self.each_reached()?.into_iter().collect();
        Ok(all.and_then(|all| all.into_iter().min_by_key(|reached| reached.to.offset)))
    }

    /// The same for each of them.
    pub fn each_reached(&self) -> Result<[Option<Reached>; 3], ArchiveError> {
        Ok([self.events.reached()?, self.fates.reached()?, self.corrections.reached()?])
    }

    /// What was told of a base that could not be ended is none of the next one.
    pub fn begin_base(&mut self) -> Result<(), ArchiveError> {
        self.base_rows.take()?;
        self.base.discard();
        Ok(())
    }

    /// What a counter is worth at a position: what comes behind it is added to that. [`Self::close_base`] ends it.
    pub async fn base(&mut self, at: &Reached, id: &[u8], value: i64) -> Result<(), ArchiveError> {
        self.base_rows.push(Place { position: at.to, log_time_ms: at.log_time_ms }, id, value);
        if self.base_rows.len() < BATCH_ROWS {
            return Ok(());
        }
        self.base.write(vec![], self.base_rows.take()?).await
    }

    /// Ends a base with a row of its own, that has no counter and says how many there are; then it can be read.
    pub async fn close_base(&mut self, at: &Reached) -> Result<(), ArchiveError> {
        let counters = self.base.rows() + self.base_rows.len() as u64;
        self.base_rows.push(Place { position: at.to, log_time_ms: at.log_time_ms }, b"", counters as i64);
        self.base.write(vec![], self.base_rows.take()?).await?;
        self.base.commit(&self.catalog, at, None).await
    }

    /// The bases that can be read, the oldest first. Every event behind the oldest one is there.
    pub async fn bases(&self) -> Result<Vec<BaseAt>, ArchiveError> {
        let column = |name| self.base.schema().field_by_name(name).expect("every table has a place").id;
        let (offset, log_time) = (column("offset"), column("log_time"));
        let base_at = |file: &DataFile| {
            let (offset, log_time_us) = (least(file, offset)?, least(file, log_time)?);
            Ok(BaseAt { offset: offset as u64, log_time_ms: log_time_us as u64 / 1000 })
        };
        let mut bases = Vec::new();
        self.base.each_file(|file| bases.push(base_at(file))).await?;
        let mut bases = bases.into_iter().collect::<Result<Vec<BaseAt>, ArchiveError>>()?;
        bases.sort_unstable();
        bases.dedup();
        Ok(bases)
    }

    /// Begins here, behind a base that has been told and not closed. If there is something from before, there is a gap between it and
    /// what comes, which no older base is good for.
    pub async fn begin(&mut self, at: &Reached) -> Result<(), ArchiveError> {
        let rows = self.base_rows.take()?;
        self.base.write(vec![], rows).await?;
        self.base.remove(&self.catalog, |_| true).await?;
        self.close_base(at).await?;
        // A root has no gap within.
        self.close_root().await?;
        self.commit(at).await
    }

    /// Lets go of whole hours that end before a base, which has what they came to, and of older bases. Nothing is on its way.
    /// Answers whether there was anything.
    pub async fn let_go_before(&mut self, base: BaseAt) -> Result<bool, ArchiveError> {
        assert_eq!(self.pending(), 0, "what is let go of is seen between two commits");
        let offset = self.base.schema().field_by_name("offset").expect("every table has a place").id;
        let is_older = |file: &DataFile| least(file, offset).is_ok_and(|offset| (offset as u64) < base.offset);
        // Bases first: whoever finds one finds every event behind it. Then the chain: whoever finds a commit there finds its rows.
        let mut any = self.base.remove(&self.catalog, is_older).await?;
        let hour = hour_of(base.log_time_ms);
        let aged = [&mut self.chain, &mut self.events, &mut self.fates, &mut self.corrections];
        for table in aged.into_iter().chain(&mut self.probes) {
            // Log time never goes back, so everything of an earlier hour is before the base.
            any |= table.remove(&self.catalog, |file| hour_of_file(file).is_some_and(|its| its < hour)).await?;
        }
        Ok(any)
    }

    /// Puts small files together of hours that are over, as far as there is time for it. Nothing is on its way.
    pub async fn merge(&mut self) -> Result<(), ArchiveError> {
        assert!(self.is_at_rest(), "files are put together between two commits");
        let Some(reached) = self.reached()? else { return Ok(()) };
        let hour = hour_of(reached.log_time_ms);
        let all = [&mut self.events, &mut self.fates, &mut self.corrections, &mut self.chain, &mut self.roots];
        for table in all.into_iter().chain(&mut self.probes) {
            table.merge_before(&self.catalog, hour).await?;
        }
        Ok(())
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
        if (lane.hour != place.hour() && !lane.rows.is_empty()) || lane.rows.is_full() {
            let (partition, rows) = (lane.partition(), lane.rows.take()?);
            self.events.write(partition, rows).await?;
        }
        let lane = &mut self.lanes[stream as usize];
        lane.hour = place.hour();
        lane.rows.push(place, under, event);
        self.tree.event(event_leaf(place, under, event).hash());
        Ok(())
    }

    /// A probe, if its table does not have it. It stands apart from events, so that whoever reads those never meets one.
    pub async fn probe(&mut self, place: Place, event_id: &str) -> Result<(), ArchiveError> {
        if self.probes.is_none() {
            self.probes = Some(TableWriter::open(&self.catalog, Table::Probes, self.writer).await?);
        }
        let probes = self.probes.as_mut().expect("it was just opened");
        // It is committed first, so it may be ahead of the others.
        if probes.reached()?.is_some_and(|reached| reached.to.offset > place.position.offset) {
            return Ok(());
        }
        self.probe_rows.push(place, event_id);
        // They are few: a batch of one is written to the file that is open.
        probes.write(vec![Literal::int(place.hour())], self.probe_rows.take()?).await
    }

    /// Behind the last record whose events the table has.
    pub fn has_events_to(&self) -> Result<u64, ArchiveError> {
        Ok(self.events.reached()?.map_or(0, |reached| reached.to.offset))
    }

    /// Rows that no commit has made visible.
    pub fn pending(&self) -> u64 {
        let waiting: usize = self.lanes.iter().map(|lane| lane.rows.len()).sum();
        let probes = self.probes.as_ref().map_or(0, TableWriter::rows);
        waiting as u64 + self.events.rows() + self.fates.rows() + self.corrections.rows() + probes
    }

    /// How many events can be read, and in how many files all rows are.
    pub fn visible(&self) -> (u64, u64) {
        let files: u64 = self.tables().map(|table| table.visible().1).sum();
        (self.events.visible().0, files)
    }

    fn tables(&self) -> impl Iterator<Item = &TableWriter> {
        let all = [&self.events, &self.fates, &self.corrections, &self.base, &self.configurations];
        all.into_iter().chain([&self.chain, &self.roots]).chain(&self.probes)
    }

    /// Makes everything visible that was handed over, which is everything before `to`, and durable.
    pub async fn commit(&mut self, to: &Reached) -> Result<(), ArchiveError> {
        for lane in &mut self.lanes {
            if !lane.rows.is_empty() {
                let (partition, rows) = (lane.partition(), lane.rows.take()?);
                self.events.write(partition, rows).await?;
            }
        }
        self.write_chain().await?;
        let others = [&mut self.fates, &mut self.corrections, &mut self.chain];
        for table in self.probes.iter_mut().chain(others) {
            table.commit(&self.catalog, to, None).await?;
        }
        if self.roots.rows() > 0 {
            self.roots.commit(&self.catalog, to, None).await?;
        }
        // What says how the log and the tree go on comes last, so nobody finds events whose fates are not there.
        self.events.commit(&self.catalog, to, Some((TREE, self.tree.property()))).await
    }

    /// Sees to it that every dimension of declarations has a column. Nothing is on its way.
    pub async fn declare(&mut self, declarations: &Declarations) -> Result<(), ArchiveError> {
        assert_eq!(self.pending(), 0, "columns are added between two commits");
        let mut names: Vec<String> = Vec::new();
        for name in declarations.counters().iter().flat_map(|counter| counter.named_dimensions()) {
            let mut known = dimension_columns(self.events.schema()).chain(names.iter().map(String::as_str));
            let is_taken = stays_in_map(name) || known.any(|known| known.eq_ignore_ascii_case(name));
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

    /// The last version of the declarations that is written down.
    pub fn configured(&self) -> Result<u64, ArchiveError> {
        Ok(self.configurations.reached()?.map_or(0, |reached| reached.config_version))
    }

    /// What was declared under a version, if it is written down.
    pub async fn configuration(&self, version: u64) -> Result<Option<String>, ArchiveError> {
        let files = Reader::new(self.root.clone()).table(Table::Configurations).await?.map(|table| table.files);
        Ok(again::configurations(&files.unwrap_or_default())?.remove(&version).map(|declared| declared.yaml))
    }

    /// Writes down what is declared from a position on, whose version is that of `at`.
    pub async fn configure(&mut self, at: &Reached, yaml: &str) -> Result<(), ArchiveError> {
        let place = Place { position: at.to, log_time_ms: at.log_time_ms };
        self.configurations.write(vec![], configuration(place, at.config_version, yaml)?).await?;
        self.configurations.commit(&self.catalog, at, None).await
    }

    /// Forgets the versions that still have what was let go of: whoever was reading one then has had time since the last sweep.
    pub async fn forget_what_was_let_go(&mut self) -> Result<(), ArchiveError> {
        let all = [&mut self.events, &mut self.fates, &mut self.corrections, &mut self.base, &mut self.chain];
        for table in all.into_iter().chain([&mut self.roots]).chain(&mut self.probes) {
            table.forget_before_removal(&self.catalog).await?;
        }
        Ok(())
    }

    /// Removes files that no table names any more: of commits that were not made, and of versions that are forgotten. Nothing is on its
    /// way. What cannot be removed of one table, or not be told, keeps nothing of the others; it answers the first such error.
    pub async fn sweep(&self) -> Result<(), ArchiveError> {
        assert!(self.is_at_rest(), "files of rows that are on their way are named by nobody yet");
        let mut swept = Ok(());
        for writer in self.tables() {
            let directory = self.root.join(writer.kind().name());
            swept = swept.and(sweep::sweep(writer.table(), self.catalog.disk(), &directory).await);
        }
        swept
    }
}

/// Makes the directory if it is not there, and locks it.
fn lock(root: &Path) -> Result<File, ArchiveError> {
    fs::create_dir_all(root)?;
    let lock = File::options().append(true).create(true).open(root.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(ArchiveError::InUse { directory: root.to_owned() }),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// The least number in a column of a file.
pub fn least(file: &DataFile, column: i32) -> Result<i64, ArchiveError> {
    match file.lower_bounds().get(&column).map(Datum::literal) {
        Some(PrimitiveLiteral::Long(least)) => Ok(*least),
        _ => Err(ArchiveError::Damaged(format!("{} does not say where its rows are from", file.file_path()))),
    }
}

/// The hour that a file has rows of, which is the last that it is partitioned by.
pub fn hour_of_file(file: &DataFile) -> Option<i32> {
    match file.partition().fields().last() {
        Some(Some(Literal::Primitive(PrimitiveLiteral::Int(hour)))) => Some(*hour),
        _ => None,
    }
}

impl Lane {
    fn partition(&self) -> Vec<Literal> {
        vec![Literal::string(self.stream.mode().name()), Literal::int(self.hour)]
    }
}
