//! Probes (`tally-probe`): events of known outcome go in at the front door, and are followed to where they should get.
//!
//! They are numbered, and sent one after the other: the event id follows from the number, and after n of them the counter is worth n. So
//! the right answer to each is known, also when one was under way in a crash: it is sent again, and was counted then or is now. What is
//! counted is hidden from everybody else ([`tally_core::counter::probes`]).

mod door;
mod known;
mod trace;

pub use door::Door;
pub use known::KnownFile;
pub use trace::{Sent, Stage, StageShown, Trace};

use crate::archive::ArchiveHandle;
use crate::engine::Engine;
use crate::metrics::WrongProbe;
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use door::{Answered, Fate};
use known::Known;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tally_core::counter::probes::PROBE;
use tally_core::counter::{Declarations, Probes};
use tally_core::limits::PROBES_UNDER_WAY_MAX;
use tokio::sync::watch;

/// How often one that was counted is sent again: with the first that a start sends, and then with every so many.
const REPEAT_EVERY: u64 = 6;
/// How often it is looked whether the archive has come further, and what is missing by now. Whoever makes commits wakes it.
const LOOK: Duration = Duration::from_secs(1);
const RETRY: Retry = Retry { first: Duration::from_secs(1), most: Duration::from_secs(60) };

/// What others hold of it.
#[derive(Clone)]
pub struct ProbeHandle(Arc<Mutex<Trace>>);

impl ProbeHandle {
    pub fn new(has_archive: bool) -> ProbeHandle {
        ProbeHandle(Arc::new(Mutex::new(Trace::new(has_archive))))
    }

    pub fn trace(&self) -> MutexGuard<'_, Trace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Prober {
    engine: Engine,
    handle: ProbeHandle,
    archive: Option<ArchiveHandle>,
    door: Door,
    file: KnownFile,
    /// Nobody is let in any more.
    stopping: watch::Receiver<bool>,
    /// `None` until a start has looked.
    known: Option<Known>,
    /// What is known is not written down yet.
    is_unwritten: bool,
    /// Whether the next one may have been counted already.
    is_open: bool,
    rounds: u64,
    next: Duration,
}

impl Prober {
    pub fn spec() -> Spec {
        let does = "sends events of known outcome and follows them to where they should get";
        Spec::new("probe", does, RETRY).waits_for("the next probe, or news of one")
    }

    pub fn new(
        engine: Engine,
        handle: ProbeHandle,
        archive: Option<ArchiveHandle>,
        door: Door,
        file: KnownFile,
        stopping: watch::Receiver<bool>,
    ) -> Prober {
        let next = engine.clock().passed();
        Prober {
            engine,
            handle,
            archive,
            door,
            file,
            stopping,
            known: None,
            is_unwritten: false,
            is_open: true,
            rounds: 0,
            next,
        }
    }

    /// What the counter is worth.
    async fn value(&self) -> Result<i64, WorkFailure> {
        let cell = self.engine.hasher().key(Declarations::probe_id());
        let seen = self.engine.see(&[cell]).await?;
        Ok(seen.first().and_then(|seen| seen.reading).map_or(0, |reading| reading.value))
    }

    /// Nobody else knows it before it is sent: it follows from what ids are hashed with.
    fn id(&self, number: u64) -> String {
        let key = self.engine.hasher().key(format!("{PROBE} {number}").as_bytes());
        let key: String = key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{PROBE}-{number}-{key}")
    }

    async fn known(&mut self) -> Result<Known, WorkFailure> {
        if let Some(known) = self.known {
            return Ok(known);
        }
        let (known, right) = Known::go_on(self.file.read()?, self.value().await?);
        if let Err(lost) = right {
            self.wrong(WrongProbe::Value, lost);
        }
        Ok(*self.known.insert(known))
    }

    fn write(&mut self) -> Result<(), WorkFailure> {
        if let Some(known) = self.known.filter(|_| self.is_unwritten) {
            self.file.write(known)?;
            self.is_unwritten = false;
        }
        Ok(())
    }

    fn wrong(&self, what: WrongProbe, words: String) {
        tracing::error!(what = what.name(), "a probe did not come to what it had to: {words}");
        self.engine.metrics().probes.wrong(what).inc();
        let mut trace = self.handle.trace();
        trace.wrong += 1;
        trace.problem = Some((self.engine.clock().now_ms(), words));
    }

    /// Nobody knows what became of one; it is sent again.
    fn unanswered(&mut self, words: String) {
        if !self.is_open || self.rounds == 1 {
            tracing::warn!("a probe was not acknowledged: {words}");
        }
        self.is_open = true;
        self.handle.trace().problem = Some((self.engine.clock().now_ms(), words));
    }

    /// Sends the next probe, and now and then the last one again.
    async fn round(&mut self, probes: Probes) -> Result<(), WorkFailure> {
        // Until the last one is written down, nobody could tell after a crash how many there were.
        self.write()?;
        let known = self.known().await?;
        let within = Duration::from_millis(probes.within_ms);
        if self.rounds.is_multiple_of(REPEAT_EVERY) && known.number > 0 {
            self.repeat(known, within).await;
        }
        let known = self.known().await?;
        self.rounds += 1;
        let (id, now) = (self.id(known.number + 1), self.engine.clock().passed());
        let (now_ms, from) = (self.engine.clock().now_ms(), self.engine.applied().offset);
        self.handle.trace().send(id.clone(), now, now_ms, from);
        self.engine.metrics().probes.sent.inc();
        match self.door.send(&self.engine, &id, within).await {
            Ok(answered) => self.answered(known, answered, within).await,
            Err(words) => {
                self.unanswered(words);
                Ok(())
            }
        }
    }

    async fn repeat(&mut self, known: Known, within: Duration) {
        self.handle.trace().repeated += 1;
        self.engine.metrics().probes.repeated.inc();
        let Ok(answered) = self.door.send(&self.engine, &self.id(known.number), within).await else {
            // If nobody answers, the one that follows says so.
            return;
        };
        if answered.fate != Fate::Duplicate {
            let words = format!("probe {} was sent again, and was {:?}", known.number, answered.fate);
            self.wrong(WrongProbe::Answer, words);
            let value = known.value + i64::from(answered.fate == Fate::Counted);
            self.known = Some(Known { value, ..known });
        }
    }

    /// The next probe is durable: it was counted, now or by an attempt before.
    async fn answered(&mut self, known: Known, answered: Answered, within: Duration) -> Result<(), WorkFailure> {
        let (number, clock) = (known.number + 1, self.engine.clock().clone());
        let took = self.handle.trace().acknowledged(answered.token, clock.passed());
        self.observe(Stage::Acknowledged, took);
        let is_counted = answered.fate == Fate::Counted || answered.fate == Fate::Duplicate && self.is_open;
        if !is_counted {
            self.wrong(WrongProbe::Answer, format!("probe {number} was new, and was {:?}", answered.fate));
        }
        let expected = known.value + i64::from(is_counted);
        (self.is_open, self.is_unwritten) = (false, true);
        self.known = Some(Known { number, value: expected });
        if clock.timeout(within, self.engine.wait_for(answered.token.offset)).await.is_some() {
            let value = self.value().await?;
            if value == expected {
                let id = self.id(number);
                let took = self.handle.trace().arrive(Stage::Applied, clock.passed(), |sent| sent.id == id);
                self.observe(Stage::Applied, took);
            } else {
                self.wrong(WrongProbe::Value, format!("after probe {number} they come to {value}, not {expected}"));
                self.known = Some(Known { number, value });
            }
        }
        self.write()
    }

    fn observe(&self, stage: Stage, took: impl IntoIterator<Item = Duration>) {
        let seconds = self.engine.metrics().probes.seconds(stage);
        took.into_iter().for_each(|took| seconds.observe(took.as_secs_f64()));
    }

    /// Looks where those are that are under way.
    async fn follow(&mut self, probes: Probes) -> Result<(), WorkFailure> {
        let clock = self.engine.clock().clone();
        let told = self.engine.commits().end().offset;
        let is_told = |sent: &Sent| sent.token.is_some_and(|token| token.offset <= told);
        let took = self.handle.trace().arrive(Stage::Told, clock.passed(), is_told);
        self.observe(Stage::Told, took);
        let lost = self.follow_archive().await?;
        for id in &lost {
            self.wrong(WrongProbe::Row, format!("the archive has come past {id}, and does not have it"));
        }
        let is_lost = |sent: &Sent, stage| stage == Stage::Archived && lost.contains(&sent.id);
        let missing = self.handle.trace().expire(probes, clock.passed(), is_lost);
        for stage in missing {
            tracing::warn!(stage = stage.name(), "a probe is missing");
            self.engine.metrics().probes.missing(stage).inc();
        }
        Ok(())
    }

    /// Looks for the rows of those that the archive has come past; answers whose is not there.
    async fn follow_archive(&self) -> Result<HashSet<String>, WorkFailure> {
        let Some(archive) = &self.archive else { return Ok(HashSet::new()) };
        let reached = archive.status().reached.map_or(0, |reached| reached.to.offset);
        let passed: Vec<(String, u64)> = self.passed(reached);
        let Some(from) = passed.iter().map(|(_, from)| *from).min() else { return Ok(HashSet::new()) };
        let found = archive.reader().probes(from).await?;
        let took = self.handle.trace().arrive(Stage::Archived, self.engine.clock().passed(), |sent| {
            found.contains(&sent.id) && passed.iter().any(|(id, _)| *id == sent.id)
        });
        self.observe(Stage::Archived, took);
        Ok(passed.into_iter().map(|(id, _)| id).filter(|id| !found.contains(id.as_str())).collect())
    }

    /// Those before an offset that are not archived, and behind which offset each is.
    fn passed(&self, reached: u64) -> Vec<(String, u64)> {
        let trace = self.handle.trace();
        let open = trace.under_way().iter().filter(|sent| sent.is_open(Stage::Archived));
        let passed = open.filter(|sent| sent.token.is_some_and(|token| token.offset <= reached));
        passed.map(|sent| (sent.id.clone(), sent.from)).collect()
    }

    /// How long it can rest.
    fn rest(&self) -> Duration {
        let until = self.next.saturating_sub(self.engine.clock().passed());
        if self.handle.trace().under_way().is_empty() { until } else { until.min(LOOK) }
    }

    /// The first position whose commit somebody waits for.
    fn untold(&self) -> Option<u64> {
        let trace = self.handle.trace();
        let mut untold = trace.under_way().iter().filter(|sent| sent.is_open(Stage::Told));
        untold.find_map(|sent| sent.token.map(|token| token.offset))
    }
}

impl Work for Prober {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let Some(probes) = self.engine.declarations().probes() else { return Ok(Next::WhenWoken) };
        if *self.stopping.borrow() {
            return Ok(Next::WhenWoken);
        }
        if self.engine.clock().passed() >= self.next {
            self.next = self.engine.clock().passed() + Duration::from_millis(probes.every_ms);
            // If none of them ends, there is nothing to learn from more.
            if self.handle.trace().under_way().len() < PROBES_UNDER_WAY_MAX {
                self.round(probes).await?;
            }
        }
        self.follow(probes).await?;
        let under_way = self.handle.trace().under_way().len();
        self.engine.metrics().probes.under_way.set(under_way as i64);
        context.queue(under_way);
        Ok(Next::After(self.rest()))
    }

    async fn wait(&mut self) -> ControlFlow<()> {
        match self.untold() {
            Some(offset) => self.engine.commits().wait_behind(offset.saturating_sub(1)).await,
            None => std::future::pending().await,
        }
        ControlFlow::Continue(())
    }
}
