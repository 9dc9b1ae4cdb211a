//! From the log and its commits to rows of the archive, commit by commit.

use super::Stop;
use crate::engine::{CommitReader, Engine, FoundCorrection};
use std::sync::Arc;
use tally_archive::{Archive, Place, Reached, Under};
use tally_core::commit::{Commit, Digest};
use tally_core::counter::Declarations;
use tally_core::event::Event;
use tally_core::head::Head;
use tally_core::ledger::Correction;
use tally_core::op::Stream;
use tally_core::position::Position;
use tally_core::record::Record;
use tally_storage::log::LogReader;

/// Counters of the base that are read at a time.
const BASE_COUNTERS: usize = 10_000;

/// An archive and where it is in the log.
pub struct Following {
    engine: Engine,
    pub archive: Archive,
    log: Box<dyn LogReader>,
    /// `None` until there is a commit behind what was reached.
    commits: Option<CommitReader>,
    /// What was handed to the archive, visible or not.
    pub reached: Reached,
    declarations: Arc<Declarations>,
    /// Of the log, since the last commit of the archive.
    pub log_bytes: u64,
}

impl Following {
    /// Goes on where the archive is, or begins one here.
    pub async fn begin(engine: &Engine, mut archive: Archive) -> Result<Following, Stop> {
        let reached = match archive.reached()? {
            Some(reached) => reached,
            None => {
                let at = begin_archive(engine, &mut archive).await?;
                archive.begin(&at).await?;
                at
            }
        };
        let start = engine.log().start();
        if start.offset > reached.to.offset {
            return Err(Stop::Gap { archived: reached.to, log: start });
        }
        let declarations = engine.declarations();
        archive.declare(&declarations).await?;
        let log = engine.log().reader(reached.to)?;
        Ok(Following { engine: engine.clone(), archive, log, commits: None, reached, declarations, log_bytes: 0 })
    }

    /// Takes in the next commit of the log; answers whether there was one.
    pub async fn advance(&mut self) -> Result<bool, Stop> {
        let Some(commit) = self.next_commit()? else { return Ok(false) };
        // The first that is found may have begun before the archive did.
        if commit.to.offset > self.reached.to.offset {
            self.take_batches(&commit).await?;
            let corrections = self.corrections(&commit).await?;
            self.archive.told(&commit, &corrections).await?;
            let Commit { to, log_time_ms, digest, .. } = commit;
            self.reached = Reached { to, log_time_ms, digest, ..self.reached };
        }
        Ok(true)
    }

    fn next_commit(&mut self) -> Result<Option<Commit>, Stop> {
        if self.commits.is_none() {
            self.commits = self.engine.commits().find(self.reached.to.offset)?.map(|(_, reader)| reader);
        }
        self.commits.as_mut().map_or(Ok(None), |commits| Ok(commits.read()?))
    }

    async fn take_batches(&mut self, commit: &Commit) -> Result<(), Stop> {
        let (had, mut at) = (self.archive.has_events_to()?, self.reached.to.offset);
        while at < commit.to.offset {
            let Some(batch) = self.log.next()? else { return Err(Stop::LogEnds { at, commit: commit.to }) };
            let end = batch.end_offset();
            if end <= at {
                continue; // Reading begins with a whole batch, or before.
            }
            assert!(end <= commit.to.offset, "a commit is of whole batches");
            self.log_bytes += batch.records.len() as u64;
            at = end;
            // A batch that stood before counts for nothing, here as everywhere.
            let is_void = commit.voids.iter().any(|void| void.offset == batch.position.offset);
            if is_void || end <= had {
                continue;
            }
            let mut bytes = batch.records;
            let head = Head::take(&mut bytes)?;
            let mut under = Under {
                group: head.map_or(0, |head| head.group.0),
                rules: head.map_or(0, |head| head.rules),
                config_version: self.reached.config_version,
                generation: commit.generation,
            };
            for index in 0..u64::from(batch.count) {
                let offset = batch.position.offset + index;
                let place = Place { position: Position { offset, ..batch.position }, log_time_ms: batch.log_time_ms };
                match Record::decode(&mut bytes)? {
                    Record::Event(event) => {
                        let stream = stream_of(&self.declarations, &event);
                        self.archive.event(stream, place, under, &event).await?;
                    }
                    Record::Config { version, .. } => under.config_version = version,
                    _ => {}
                }
            }
            if under.config_version != self.reached.config_version {
                self.declare(under.config_version).await?;
            }
        }
        Ok(())
    }

    /// Other declarations are in force from here on, which is where a commit begins: a configuration is alone in its batch. So
    /// everything on its way is from before, and what follows finds a column for each dimension.
    async fn declare(&mut self, version: u64) -> Result<(), Stop> {
        self.commit().await?;
        self.reached.config_version = version;
        self.declarations = self.engine.declarations();
        Ok(self.archive.declare(&self.declarations).await?)
    }

    /// The corrections that a commit names, with all their deltas: it tells only the first of many.
    async fn corrections(&self, commit: &Commit) -> Result<Vec<Correction>, Stop> {
        let mut all = Vec::with_capacity(commit.corrections.len());
        for told in &commit.corrections {
            let whole = told.delta_count == told.correction.deltas.len() as u64;
            all.push(if whole { told.correction.clone() } else { self.whole(told.correction.number).await? });
        }
        Ok(all)
    }

    async fn whole(&self, number: u64) -> Result<Correction, Stop> {
        match self.engine.correction(number).await? {
            Some(FoundCorrection::Applied { correction, .. }) => Ok(correction),
            _ => Err(Stop::Unknown { correction: number }),
        }
    }

    /// Makes everything visible that was taken in.
    pub async fn commit(&mut self) -> Result<(), Stop> {
        self.archive.commit(&self.reached).await?;
        self.log_bytes = 0;
        Ok(())
    }
}

/// Where the log begins, if all of it is still there. Otherwise here: what the counters are worth now is what everything behind is
/// added to.
async fn begin_archive(engine: &Engine, archive: &mut Archive) -> Result<Reached, Stop> {
    let (log_from, commits_from) = (engine.log().start(), engine.commits().oldest()?.map(|oldest| oldest.from));
    if log_from.offset == 0 && commits_from.unwrap_or(engine.commits().end()).offset == 0 {
        return Ok(Reached { to: log_from, log_time_ms: 0, digest: Digest::default(), config_version: 0 });
    }
    let (base, declarations) = (engine.base().await?, engine.declarations());
    let holding = engine.commits().holding(base.position().offset)?;
    let reached = Reached {
        to: base.position(),
        log_time_ms: holding.as_ref().map_or(0, |commit| commit.log_time_ms),
        digest: holding.map_or(Digest::default(), |commit| commit.digest),
        config_version: declarations.version(),
    };
    let mut after = None;
    loop {
        let page = base.page(after.as_deref(), BASE_COUNTERS)?;
        for (id, reading) in page.counters.iter().filter(|(id, _)| declarations.counter_of(id).is_some()) {
            archive.base(&reached, id, reading.value).await?;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(reached)
}

/// The stream of the strictest contract that an event feeds.
fn stream_of(declarations: &Declarations, event: &Event<'_>) -> Stream {
    let listeners = declarations.listeners(&event.event_type);
    let streams = listeners.iter().map(|listener| declarations.counter(listener.counter).contract.stream());
    streams.max_by_key(|stream| *stream as usize).unwrap_or(Stream::Simple)
}
