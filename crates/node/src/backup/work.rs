//! The worker `backup`: takes a backup when somebody asks for one, or when it is time.

use super::bucket::LEASE_RENEW;
use super::manifest::{self, ManifestName};
use super::take::Taking;
use super::{BackupError, Place};
use crate::data_dir::DirIdentity;
use crate::engine::Engine;
use crate::worker::{Context, Next, Retry, Spec, Wake, Work, WorkFailure};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tally_core::counter::BackupSchedule;
use tally_storage::store::local::give_way;

/// What comes behind each chunk at least: the time in which the log syncs a few times.
const REST: Duration = Duration::from_millis(2);
/// While somebody counts it rests so many times as long as a processor has worked for it, so that it takes a 32nd of a core at most: where
/// processors are all that is short, whoever counts misses each part of one. Who waits for a place takes nothing from anybody.
const RESTS: u32 = 31;
/// And so many times while the log grows faster than it is copied: what is kept of it for a backup grows as well, until the disk is full.
const RESTS_BEHIND: u32 = 3;
/// Somebody counts if so many records have come in each second since the last chunk.
const COUNTED_PER_SECOND: u64 = 10_000;
/// How often it is looked what is there, and whether it is time.
const LOOK: Duration = Duration::from_secs(60);
/// Behind merges, for which the next one waits: nobody waits for a backup.
const NICENESS: i32 = 10;
const RETRY: Retry = Retry { first: Duration::from_secs(10), most: Duration::from_secs(60) };

/// How far a backup is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// What it has: all rows, objects, and their bytes before they are compressed.
    pub rows: u64,
    pub objects: u64,
    pub bytes: u64,
    /// What of that was not there before, as it is on disk.
    pub written_objects: u64,
    pub written_bytes: u64,
    /// How many counters there are; each is a row, and its id another.
    pub counters: u64,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct EndedBackup {
    pub run: u64,
    pub at_ms: u64,
    pub took: Duration,
    pub made: Result<(ManifestName, Progress), String>,
}

/// What is told of backups.
#[derive(Clone, Debug)]
pub struct BackupStatus {
    pub place: Place,
    /// Runs that were begun since the start. The next one has the next number.
    pub begun: u64,
    pub running: Option<Progress>,
    pub last: Option<EndedBackup>,
    /// Those that are there, as [`manifest::list`] has them.
    pub kept: Vec<ManifestName>,
    is_wanted: bool,
}

impl BackupStatus {
    fn new(place: Place) -> BackupStatus {
        BackupStatus { place, begun: 0, running: None, last: None, kept: Vec::new(), is_wanted: false }
    }
}

/// What others hold of it.
#[derive(Clone)]
pub struct BackupHandle {
    status: Arc<Mutex<BackupStatus>>,
    wake: Wake,
}

impl BackupHandle {
    pub fn status(&self) -> BackupStatus {
        lock(&self.status).clone()
    }

    /// Has a backup taken of everything that is acknowledged now. Answers the number of its run, which is the next one that begins.
    pub fn ask(&self) -> u64 {
        let run = {
            let mut status = lock(&self.status);
            status.is_wanted = true;
            status.begun + 1
        };
        self.wake.wake();
        run
    }
}

fn lock(status: &Mutex<BackupStatus>) -> MutexGuard<'_, BackupStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct Backups {
    engine: Engine,
    identity: DirIdentity,
    place: Place,
    /// Another number each time.
    random: fn() -> io::Result<u64>,
    status: Arc<Mutex<BackupStatus>>,
    taking: Option<Taking>,
    /// When the run began, by [`crate::clock::Clock::passed`].
    begun: Duration,
    /// When the last chunk was there, and how far the log was then.
    seen: (Duration, u64),
    /// When it was last looked what is there, by [`crate::clock::Clock::passed`].
    looked: Option<Duration>,
}

impl Backups {
    pub fn spec() -> Spec {
        Spec::new("backup", "takes backups, when it is time or somebody asks", RETRY)
            .waits_for("somebody to ask")
            .tried_again_when_woken()
    }

    pub fn new(
        engine: Engine,
        identity: DirIdentity,
        place: Place,
        random: fn() -> io::Result<u64>,
        spec: &Spec,
    ) -> (Backups, BackupHandle) {
        let status = Arc::new(Mutex::new(BackupStatus::new(place.clone())));
        let handle = BackupHandle { status: status.clone(), wake: spec.wake.clone() };
        let begun = engine.clock().passed();
        (
            Backups { engine, identity, place, random, status, taking: None, begun, seen: (begun, 0), looked: None },
            handle,
        )
    }

    /// What is there, and how old it is: others may write there, or take all of it away.
    fn look(&mut self, context: &Context) -> Result<(), BackupError> {
        let now = self.engine.clock().passed();
        let listed = match self.looked {
            Some(looked) if now.saturating_sub(looked) < LOOK => return Ok(()),
            Some(_) => self.place.list()?,
            None => self.begin_looking(context)?,
        };
        self.publish(listed);
        self.looked = Some(now);
        Ok(())
    }

    /// The first look is by one who writes, so that a place where nobody can is known from the start.
    fn begin_looking(&self, context: &Context) -> Result<Vec<ManifestName>, BackupError> {
        if !context.is_among_others() {
            give_way(NICENESS);
        }
        let target = self.place.open(self.random)?;
        manifest::list(&*target).map_err(|error| self.place.failed(error))
    }

    fn publish(&self, kept: Vec<ManifestName>) {
        let taken_ms = self.last_taken_ms(&kept).unwrap_or(0);
        self.engine.metrics().backup.timestamp_seconds.set(taken_ms as f64 / 1000.0);
        lock(&self.status).kept = kept;
    }

    /// When the last one of this data directory was taken. One that says it was taken after now was named by a clock that was wrong,
    /// and tells nothing about when.
    fn last_taken_ms(&self, kept: &[ManifestName]) -> Option<u64> {
        let now_ms = self.engine.clock().wall_ms();
        let own = kept.iter().filter(|name| name.id == self.identity.id);
        own.map(|name| name.time_ms).filter(|taken_ms| *taken_ms <= now_ms).max()
    }

    fn schedule(&self) -> Option<BackupSchedule> {
        self.engine.declarations().backups()
    }

    /// How long until the next one; `None` if nobody knows.
    fn due_in(&self) -> Option<Duration> {
        let status = lock(&self.status);
        if status.is_wanted {
            return Some(Duration::ZERO);
        }
        let taken_ms = self.last_taken_ms(&status.kept);
        let age = taken_ms.map(|ms| Duration::from_millis(self.engine.clock().wall_ms().saturating_sub(ms)));
        let every = self.schedule().map(|schedule| Duration::from_millis(schedule.every_ms));
        every.map(|every| age.map_or(Duration::ZERO, |age| every.saturating_sub(age)))
    }

    /// Whoever asked is told what becomes of this run.
    fn begin_run(&mut self) {
        self.begun = self.engine.clock().passed();
        let mut status = lock(&self.status);
        status.begun += 1;
        status.is_wanted = false;
        status.running = Some(Progress::default());
    }

    async fn begin(&mut self) -> Result<(), BackupError> {
        self.begin_run();
        let target = self.place.open(self.random)?;
        let taken_ms = self.engine.clock().wall_ms();
        let taking = Taking::begin(&self.engine, self.identity, target, self.place.clone(), taken_ms).await?;
        self.taking = Some(taking);
        Ok(())
    }

    /// One chunk of the one under way, if there is one.
    fn step(&mut self, context: &Context) -> Result<(), BackupError> {
        let Some(taking) = &mut self.taking else { return Ok(()) };
        let made = taking.step()?;
        let progress = taking.progress;
        lock(&self.status).running = Some(progress);
        context.progress(format!("{} rows of {} counters", progress.rows, progress.counters));
        let Some(name) = made else { return Ok(()) };
        let taking = self.taking.take().expect("it has just been looked at");
        let pruned = self.schedule().map_or(Ok(()), |schedule| taking.prune(&name, schedule.keep as usize));
        let listed = taking.list();
        drop(taking);
        self.engine.metrics().backup.bytes.set(progress.bytes as i64);
        self.engine.metrics().backup.written_bytes.inc_by(progress.written_bytes);
        tracing::info!(
            backup = &name.name,
            position = %name.position,
            bytes = progress.bytes,
            written = progress.written_bytes,
            "a backup was taken"
        );
        // Whoever waits for it may read it from here on, also if what is too old could not be removed.
        listed.map(|listed| self.publish(listed)).inspect(|()| self.end(Ok((name, progress))))?;
        pruned
    }

    fn end(&self, made: Result<(ManifestName, Progress), String>) {
        let clock = self.engine.clock();
        let mut status = lock(&self.status);
        let (run, at_ms, took) = (status.begun, clock.wall_ms(), clock.passed().saturating_sub(self.begun));
        status.running = None;
        status.last = Some(EndedBackup { run, at_ms, took, made });
    }

    /// So has the run under way, if there is one: what comes behind a backup may fail as well, and ends nobody's run.
    fn fail(&mut self, error: &BackupError) {
        self.taking = None;
        self.engine.metrics().backup.failures.inc();
        let is_run = lock(&self.status).running.is_some();
        if is_run {
            self.end(Err(error.to_string()));
        }
    }

    /// Nobody has to be given way to while nobody counts.
    fn rest_after(&mut self, worked: Duration) -> Duration {
        let seen = (self.engine.clock().passed(), self.engine.applied().offset);
        let (before, offset) = std::mem::replace(&mut self.seen, seen);
        let (passed_ms, came) = (seen.0.saturating_sub(before).as_millis() as u64, seen.1.saturating_sub(offset));
        let is_busy = came * 1000 >= COUNTED_PER_SECOND * passed_ms.max(1);
        let is_behind = self.taking.as_ref().is_some_and(|taking| taking.is_behind(seen.1));
        match (is_busy, is_behind) {
            (false, _) => REST,
            (true, false) => rest(worked, RESTS),
            (true, true) => rest(worked, RESTS_BEHIND),
        }
    }

    async fn advance(&mut self, context: &Context) -> Result<Next, BackupError> {
        if self.taking.is_some() {
            let began = self.engine.clock().worked();
            self.step(context)?;
            let worked = self.engine.clock().worked().saturating_sub(began);
            return Ok(Next::After(self.rest_after(worked)));
        }
        if let Err(error) = self.look(context) {
            let is_wanted = lock(&self.status).is_wanted;
            // It cannot be begun, and whoever asked for it waits.
            if is_wanted {
                self.begin_run();
            }
            return Err(error);
        }
        match self.due_in() {
            Some(Duration::ZERO) => self.begin().await.map(|()| Next::Again),
            time => Ok(Next::After(time.map_or(LOOK, |time| time.min(LOOK)))),
        }
    }
}

/// However long a step was, a lease that was renewed before the rest is renewed in time behind it.
fn rest(worked: Duration, times: u32) -> Duration {
    (worked * times).clamp(REST, LEASE_RENEW)
}

impl Work for Backups {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let advanced = self.advance(context).await;
        if let Err(error) = &advanced {
            self.fail(error);
        }
        Ok(advanced?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_in_proportion_to_the_work_and_no_lease_ends_in_it() {
        assert_eq!(rest(Duration::from_millis(8), 31), Duration::from_millis(248));
        assert_eq!(rest(Duration::ZERO, RESTS), REST);
        assert_eq!(rest(Duration::from_secs(5), RESTS), LEASE_RENEW);
    }
}
