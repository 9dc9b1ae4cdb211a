//! From the log and its commits to rows of the archive, commit by commit.

use super::Stop;
use super::rejected::Rejected;
use crate::engine::{CommitReader, Engine, FoundCorrection};
use std::sync::Arc;
use tally_archive::{Archive, BaseAt, Place, Reached, Told, Under};
use tally_core::commit::{Commit, Digest};
use tally_core::counter::probes::PROBE;
use tally_core::counter::{Counter, Declarations};
use tally_core::event::Event;
use tally_core::head::{Group, Head};
use tally_core::ledger::Correction;
use tally_core::op::Stream;
use tally_core::position::Position;
use tally_core::proof::{Counts, Hash};
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
    /// In force where the archive is: what is in it follows from the log alone.
    declarations: Arc<Declarations>,
    /// Entries of the commit on its way, by counter.
    received: Vec<u64>,
    /// Of the log, since the last commit of the archive.
    pub log_bytes: u64,
    /// The base before which everything was let go of since it was opened.
    let_go: Option<BaseAt>,
}

impl Following {
    /// Goes on where the archive is, or begins one here.
    pub async fn begin(engine: &Engine, mut archive: Archive) -> Result<Following, Stop> {
        let (before, kept_from) = (archive.reached()?, kept_from(engine)?);
        archive.each_reached()?.iter().flatten().try_for_each(|reached| check_same_log(engine, reached))?;
        let reached = match before {
            Some(reached) if kept_from <= reached.to.offset => reached,
            _ => {
                let at = begin_archive(engine, &mut archive).await?;
                archive.begin(&at).await?;
                at
            }
        };
        if let Some(before) = before.filter(|before| before.to != reached.to) {
            let (from, to) = (before.to, reached.to);
            tracing::warn!(%from, %to, "the archive goes on behind a gap: Tally ran without it, and freed what is between");
        }
        let declarations = in_force(engine, &archive, reached.config_version).await?;
        archive.declare(&declarations).await?;
        let is_written_down = archive.configured()? >= reached.config_version;
        if !is_written_down && reached.config_version == declarations.version() {
            // It begins behind the record that has it, for the first time or behind a gap.
            archive.configure(&reached, declarations.yaml()).await?;
        }
        let log = engine.log().reader(reached.to)?;
        Ok(Following {
            engine: engine.clone(),
            archive,
            log,
            commits: None,
            reached,
            declarations,
            received: Vec::new(),
            log_bytes: 0,
            let_go: None,
        })
    }

    /// Takes in the next commit of the log; answers whether there was one.
    pub async fn advance(&mut self) -> Result<bool, Stop> {
        let Some(mut commit) = self.next_commit()? else { return Ok(false) };
        // The first that is found may have begun before the archive did.
        if commit.to.offset > self.reached.to.offset {
            let (head, mut rejected) = (Hash::of(&commit.head()), Rejected::of(&commit));
            self.take_batches(&commit, &mut rejected).await?;
            let reasons = rejected.reasons;
            let corrections = self.corrections(&commit).await?;
            let declarations = self.declarations.clone();
            let counted = self.counted(&declarations, &commit);
            let entries = std::mem::take(&mut commit.exceptions).into_iter().zip(reasons);
            let (told, reasons): (_, Vec<_>) = entries.filter(|(entry, _)| self.is_told(&entry.counter)).unzip();
            commit.exceptions = told;
            let told = Told { commit: &commit, reasons: &reasons, head, corrections: &corrections, counted: &counted };
            self.archive.told(told).await?;
            let Commit { to, log_time_ms, digest, .. } = commit;
            self.reached = Reached { to, log_time_ms, digest, ..self.reached };
        }
        Ok(true)
    }

    /// What became of the entries of a commit, by their counters.
    fn counted<'d>(&mut self, declarations: &'d Declarations, commit: &Commit) -> Vec<(&'d str, Counts)> {
        let mut received = std::mem::take(&mut self.received);
        received.resize(declarations.counters().len(), 0);
        let of = |(counter, received): (&'d Counter, u64)| (&*counter.name, Counts { received, ..Counts::default() });
        let mut counted: Vec<_> = declarations.counters().iter().zip(received).map(of).collect();
        for exception in &commit.exceptions {
            // Of counters that are not declared there is nothing to be told.
            let index = declarations.find(&exception.counter).map(usize::from);
            if let Some((_, counts)) = index.and_then(|index| counted.get_mut(index)) {
                counts.add_to_box(exception.fate);
            }
        }
        counted
    }

    /// Closes the root of an hour that is over by the node's time, if everything of it is here: nobody waits for the next commit.
    pub async fn close_root_of_before(&mut self, now_ms: u64) -> Result<(), Stop> {
        let hour = (now_ms / HOUR_MS) as i64;
        let is_over = self.archive.open_hour().is_some_and(|open| open < hour);
        if is_over && self.reached.to.offset == self.engine.applied().offset {
            self.archive.close_root().await?;
        }
        Ok(())
    }

    /// Whether what became of entries of a counter is of interest: not if its events need not be there.
    fn is_told(&self, counter: &[u8]) -> bool {
        self.declarations.find(counter).is_none_or(|index| self.declarations.counter(index).is_archived)
    }

    fn next_commit(&mut self) -> Result<Option<Commit>, Stop> {
        if self.commits.is_none() {
            self.commits = self.engine.commits().find(self.reached.to.offset)?.map(|(_, reader)| reader);
        }
        self.commits.as_mut().map_or(Ok(None), |commits| Ok(commits.read()?))
    }

    async fn take_batches(&mut self, commit: &Commit, rejected: &mut Rejected<'_>) -> Result<(), Stop> {
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
            if commit.is_void(batch.position.offset) || end <= had {
                continue;
            }
            let mut bytes = batch.records;
            let head = Head::take(&mut bytes)?;
            let group = head.map_or(Group::ALL, |head| head.group);
            let mut under = Under {
                group: group.0,
                rules: head.map_or(0, |head| head.rules),
                config_version: self.reached.config_version,
                generation: commit.generation,
            };
            let mut declared = None;
            for index in 0..u64::from(batch.count) {
                let offset = batch.position.offset + index;
                let place = Place { position: Position { offset, ..batch.position }, log_time_ms: batch.log_time_ms };
                let record = Record::decode(&mut bytes)?;
                match record {
                    // Nobody else's business, in no count and in no tree.
                    Record::Event(event) if event.event_type == PROBE => {
                        self.archive.probe(place, event.event_id.as_deref().unwrap_or_default()).await?;
                    }
                    Record::Event(event) => {
                        count(&mut self.received, &self.declarations, group, &event);
                        rejected.look_at(offset, &event, &self.declarations, self.engine.hasher());
                        if self.declarations.is_archived(&event.event_type) {
                            let stream = stream_of(&self.declarations, &event);
                            self.archive.event(stream, place, under, &event).await?;
                        }
                    }
                    Record::Config { version, yaml } => {
                        under.config_version = version;
                        declared = Some(String::from_utf8_lossy(yaml).into_owned());
                    }
                    _ => {}
                }
            }
            if let Some(yaml) = declared {
                self.declare(under.config_version, &yaml).await?;
            }
        }
        Ok(())
    }

    /// Other declarations are in force from here on, which is where a commit begins: a configuration is alone in its batch. So
    /// everything on its way is from before, and what follows finds a column for each dimension.
    async fn declare(&mut self, version: u64, yaml: &str) -> Result<(), Stop> {
        self.commit().await?;
        self.reached.config_version = version;
        if self.archive.configured()? < version {
            self.archive.configure(&self.reached, yaml).await?;
        }
        // The newest know counters that were removed as well.
        let newest = self.engine.declarations();
        self.declarations = if newest.version() == version { newest } else { Arc::new(parsed(version, yaml)?) };
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

    /// Takes a base if it is time for one, and lets go of what is older than `keep_ms` and before one. Nothing is on its way.
    pub async fn let_go(&mut self, now_ms: u64, keep_ms: u64) -> Result<(), Stop> {
        let bases = self.archive.bases().await?;
        if is_base_due(bases.last(), now_ms, keep_ms) {
            self.take_base(bases.last().map_or(0, |newest| newest.offset)).await?;
        }
        let Some(base) = base_to_keep(&bases, now_ms, keep_ms).filter(|base| self.let_go != Some(*base)) else {
            return Ok(());
        };
        if self.archive.let_go_before(base).await? {
            tracing::info!(base = base.offset, "the archive has let go of whole hours before a base");
        }
        self.let_go = Some(base);
        Ok(())
    }

    /// What the counters are worth now, if anything came since the last time.
    async fn take_base(&mut self, last_offset: u64) -> Result<(), Stop> {
        if self.engine.applied().offset <= last_offset {
            return Ok(());
        }
        let at = tell_base(&self.engine, &mut self.archive, Some(self.reached)).await?;
        Ok(self.archive.close_base(&at).await?)
    }

    /// Makes everything visible that was taken in.
    pub async fn commit(&mut self) -> Result<(), Stop> {
        self.archive.commit(&self.reached).await?;
        self.log_bytes = 0;
        Ok(())
    }
}

const HOUR_MS: u64 = 3_600_000;

/// Notes for which counters an event is.
fn count(received: &mut Vec<u64>, declarations: &Declarations, group: Group, event: &Event<'_>) {
    received.resize(declarations.counters().len(), 0);
    for listener in declarations.listeners(&event.event_type) {
        if group == Group::ALL || group == declarations.group_of(listener.counter) {
            received[usize::from(listener.counter)] += 1;
        }
    }
}

/// The declarations of a version: the newest, or as the archive wrote them down.
async fn in_force(engine: &Engine, archive: &Archive, version: u64) -> Result<Arc<Declarations>, Stop> {
    let newest = engine.declarations();
    if version == newest.version() {
        return Ok(newest);
    }
    match archive.configuration(version).await? {
        Some(yaml) => Ok(Arc::new(parsed(version, &yaml)?)),
        // Before the first one nothing is declared.
        None if version == 0 => Ok(Arc::default()),
        // An archive of an earlier version may have begun behind the record that has it.
        None => Ok(newest),
    }
}

/// What was in force once can be read, whatever came since.
fn parsed(version: u64, yaml: &str) -> Result<Declarations, Stop> {
    let declarations =
        Declarations::parse(yaml).map_err(|error| Stop::Declared { version, error: error.to_string() })?;
    Ok(declarations.with_version(version))
}

/// A base is taken this often while events are kept: so much longer than asked for do they stay at most.
const BASES_WHILE_KEPT: u64 = 8;
/// Whole hours go, so more bases than that are of no use.
const BASE_EVERY_MS_MIN: u64 = 3_600_000;

fn is_base_due(newest: Option<&BaseAt>, now_ms: u64, keep_ms: u64) -> bool {
    let every_ms = (keep_ms / BASES_WHILE_KEPT).max(BASE_EVERY_MS_MIN);
    newest.is_none_or(|newest| now_ms.saturating_sub(newest.log_time_ms) >= every_ms)
}

/// The newest base that is older than what is kept; `None` if nothing is before it.
fn base_to_keep(bases: &[BaseAt], now_ms: u64, keep_ms: u64) -> Option<BaseAt> {
    let is_old = |base: &&BaseAt| base.log_time_ms <= now_ms.saturating_sub(keep_ms);
    bases.iter().rev().find(is_old).copied().filter(|base| base.offset > 0)
}

/// Refuses to go on from what the log does not have, as far as its commits can tell: what came instead would be passed over.
fn check_same_log(engine: &Engine, reached: &Reached) -> Result<(), Stop> {
    let commit = engine.commits().holding(reached.to.offset)?;
    // It ends where a commit ends, here as well.
    let is_other =
        commit.is_some_and(|commit| (commit.to.offset, commit.digest) != (reached.to.offset, reached.digest));
    // What is archived was in a commit that was on disk.
    if is_other || reached.to.offset > engine.commits().end().offset {
        return Err(Stop::Diverged { archived: reached.to });
    }
    Ok(())
}

/// The first record that both the log and the commits are still there of.
fn kept_from(engine: &Engine) -> Result<u64, Stop> {
    let commits = engine.commits();
    let commits_from = commits.oldest()?.map_or(commits.end(), |oldest| oldest.from);
    Ok(engine.log().start().offset.max(commits_from.offset))
}

/// Where the log begins, if all of it is still there. Otherwise here: what the counters are worth now is what everything behind is
/// added to.
async fn begin_archive(engine: &Engine, archive: &mut Archive) -> Result<Reached, Stop> {
    if kept_from(engine)? > 0 {
        return tell_base(engine, archive, None).await;
    }
    let to = engine.log().start();
    let mut log = engine.log().reader(to)?;
    let log_time_ms = log.next()?.map_or(engine.clock().now_ms(), |batch| batch.log_time_ms);
    Ok(Reached { to, log_time_ms, digest: Digest::default(), config_version: 0 })
}

/// What every declared counter is worth, and where that is. `known` is a place whose log time is known although its commit may be gone.
async fn tell_base(engine: &Engine, archive: &mut Archive, known: Option<Reached>) -> Result<Reached, Stop> {
    archive.begin_base()?;
    let (base, declarations) = (engine.base().await?, engine.declarations());
    let (to, config_version) = (base.position(), declarations.version());
    let commit = engine.commits().holding(to.offset)?.map(|commit| (commit.log_time_ms, commit.digest));
    let known = known.filter(|known| known.to == to).map(|known| (known.log_time_ms, known.digest));
    // A restored node has no commit before its first: the state itself knows its time.
    let (log_time_ms, digest) = match commit.or(known) {
        Some(known) => known,
        None => (base.state()?.log_time_ms(), Digest::default()),
    };
    let reached = Reached { to, log_time_ms, digest, config_version };
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

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;

    fn base(offset: u64, day: u64) -> BaseAt {
        BaseAt { offset, log_time_ms: day * DAY_MS }
    }

    #[test]
    fn the_newest_base_before_what_is_kept_stays_and_what_is_older_goes() {
        let bases = [base(0, 100), base(10, 111), base(20, 122), base(30, 133)];
        let kept = |today: u64| base_to_keep(&bases, today * DAY_MS, 90 * DAY_MS);
        assert_eq!(kept(189), None, "nothing is that old");
        assert_eq!(kept(200), None, "nothing is before the first base");
        assert_eq!(kept(201), Some(base(10, 111)));
        assert_eq!(kept(211), Some(base(10, 111)));
        assert_eq!(kept(500), Some(base(30, 133)));
    }

    #[test]
    fn a_base_is_taken_eight_times_while_events_are_kept_and_once_an_hour_at_most() {
        let due = |passed_ms: u64, keep_ms| is_base_due(Some(&base(1, 100)), 100 * DAY_MS + passed_ms, keep_ms);
        assert!(!due(DAY_MS - 1, 8 * DAY_MS));
        assert!(due(DAY_MS, 8 * DAY_MS));
        assert!(!due(BASE_EVERY_MS_MIN - 1, BASE_EVERY_MS_MIN));
        assert!(due(BASE_EVERY_MS_MIN, BASE_EVERY_MS_MIN));
    }
}
