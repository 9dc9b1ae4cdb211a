//! Anomalies (`tally-anomalies`): a worker follows log and commits, and tells which keys come to far more in a minute than they used to.
//!
//! Nobody waits for it and nothing is held for it: what the log has freed before it came there is passed over, and said so as the share
//! that was looked at. What is a jump is decided in [`tally_core::anomaly`]; here it is found out what was counted ([`look`]), told, and
//! kept ([`kept`]). History is only in memory: after a start nothing is a jump for some minutes.

mod kept;
mod look;

pub use kept::{Anomaly, Expected};

use crate::engine::{CommitsError, Engine, Refusal};
use crate::webhook::Webhooks;
use crate::worker::{Context, Next, Retry, Spec, Wake, Work, WorkFailure};
use flume::{Receiver, Sender};
use kept::Kept;
use look::Look;
use serde_json::json;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tally_core::anomaly::{Detector, Jump, MINUTE_MS, WARM_UP_MINUTES};
use tally_core::counter::{Anomalies, Declarations, Jumps};
use tally_core::limits::{ANOMALIES_PER_MINUTE_MAX, EXPECTED_ASKS_MAX, EXPECTED_MAX};
use tally_core::record::DecodeError;
use tally_storage::log::LogError;
use tokio::sync::oneshot;

const RETRY: Retry = Retry { first: Duration::from_secs(1), most: Duration::from_secs(60) };
/// Commits that are looked at at a time.
const UNIT_COMMITS: usize = 64;
/// How long after its end a minute is taken for over although no later one has come.
const GRACE: Duration = Duration::from_secs(1);
/// How soon it is looked again for commits that are on their way.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Minutes without anything that are passed one by one: after that nothing is left of what was before.
const IDLE_MINUTES_MAX: u64 = 300;

/// Why it does not get on.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("{0}")]
    Log(#[from] LogError),
    #[error("{0}")]
    Commits(#[from] CommitsError),
    #[error("a record of the log cannot be read: {0}")]
    Record(#[from] DecodeError),
    #[error("the log ends at record {at}, before the commit that ends at {to}")]
    LogEnds { at: u64, to: u64 },
}

/// Why a trend is not expected, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum ExpectError {
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{EXPECTED_MAX} trends are told in advance, which is the most there can be; remove one that is over")]
    TooMany,
    #[error("no trend is told in advance under the number {0}; GET /v1/anomalies/expected lists them")]
    NotThere(u64),
}

/// Whether anybody looks, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looking {
    /// `None` if nobody does.
    pub rule: Option<Jumps>,
    /// Minutes that are known of what keys used to come to.
    pub minutes: u64,
}

impl Looking {
    /// Whether enough is known to tell a jump.
    pub fn is_warm(&self) -> bool {
        self.minutes >= WARM_UP_MINUTES
    }
}

#[derive(Default)]
struct Shown {
    kept: Kept,
    looking: Looking,
}

enum Ask {
    Expect { expected: Expected, done: oneshot::Sender<Result<Expected, ExpectError>> },
    Forget { number: u64, done: oneshot::Sender<Result<Expected, ExpectError>> },
}

/// What others hold of it.
#[derive(Clone)]
pub struct AnomaliesHandle {
    asks: Sender<Ask>,
    wake: Wake,
    shown: Arc<Mutex<Shown>>,
}

impl AnomaliesHandle {
    /// The newest first.
    pub fn newest(&self, limit: usize) -> Vec<Anomaly> {
        lock(&self.shown).kept.anomalies.iter().take(limit).cloned().collect()
    }

    pub fn looking(&self) -> Looking {
        lock(&self.shown).looking
    }

    /// Trends that were told in advance.
    pub fn expected(&self) -> Vec<Expected> {
        lock(&self.shown).kept.expected.clone()
    }

    /// Tells a trend in advance; answers it with its number, when it is on disk.
    pub async fn expect(&self, expected: Expected) -> Result<Expected, ExpectError> {
        self.ask(|done| Ask::Expect { expected, done }).await
    }

    /// A trend is not expected any more.
    pub async fn forget(&self, number: u64) -> Result<Expected, ExpectError> {
        self.ask(|done| Ask::Forget { number, done }).await
    }

    async fn ask(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<Expected, ExpectError>>) -> Ask,
    ) -> Result<Expected, ExpectError> {
        let (done, answer) = oneshot::channel();
        self.asks.try_send(ask(done)).map_err(|_| Refusal::busy())?;
        self.wake.wake();
        answer.await.unwrap_or(Err(Refusal::ShuttingDown.into()))
    }
}

fn lock(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct AnomalyWatcher {
    engine: Engine,
    webhooks: Webhooks,
    file: PathBuf,
    asks: Receiver<Ask>,
    shown: Arc<Mutex<Shown>>,
    /// `None` if nobody wants to know.
    detector: Option<Detector>,
    /// `None` where it could not go on.
    look: Option<Look>,
    /// The one that is counted, since 1970.
    minute: Option<u64>,
}

impl AnomalyWatcher {
    pub fn spec() -> Spec {
        let does = "tells which keys come to far more in a minute than they used to";
        Spec::new("anomalies", does, RETRY).waits_for("commits of the log, or the end of a minute")
    }

    /// One that keeps what it finds in a file.
    pub fn new(
        engine: Engine,
        webhooks: Webhooks,
        file: PathBuf,
        spec: &Spec,
    ) -> io::Result<(AnomalyWatcher, AnomaliesHandle)> {
        let rule = match engine.declarations().anomalies() {
            Anomalies::Told(rule) => Some(rule),
            Anomalies::No => None,
        };
        let shown = Shown { kept: Kept::read(&file)?, looking: Looking { rule, minutes: 0 } };
        let (shown, (asks, asked)) = (Arc::new(Mutex::new(shown)), flume::bounded(EXPECTED_ASKS_MAX));
        let handle = AnomaliesHandle { asks, wake: spec.wake.clone(), shown: shown.clone() };
        let detector = rule.map(Detector::new);
        // From here on nothing is missed.
        let look = rule.map(|_| Look::begin(&engine));
        let watcher = AnomalyWatcher { engine, webhooks, file, asks: asked, shown, detector, look, minute: None };
        Ok((watcher, handle))
    }

    fn answer(&self, ask: Ask) {
        match ask {
            Ask::Expect { expected, done } => drop(done.send(self.expect(expected))),
            Ask::Forget { number, done } => drop(done.send(self.forget(number))),
        }
    }

    fn expect(&self, mut expected: Expected) -> Result<Expected, ExpectError> {
        let now_ms = self.engine.clock().now_ms();
        self.change(|kept| {
            kept.expected.retain(|known| known.to_ms > now_ms);
            if kept.expected.len() >= EXPECTED_MAX {
                return Err(ExpectError::TooMany);
            }
            expected.number = kept.next_number();
            kept.expected.push(expected.clone());
            Ok(expected)
        })
    }

    fn forget(&self, number: u64) -> Result<Expected, ExpectError> {
        self.change(|kept| {
            let at = kept.expected.iter().position(|known| known.number == number);
            Ok(kept.expected.remove(at.ok_or(ExpectError::NotThere(number))?))
        })
    }

    /// Changes what is kept, on disk first. Nobody else changes it, so nobody waits for the disk.
    fn change<T>(&self, change: impl FnOnce(&mut Kept) -> Result<T, ExpectError>) -> Result<T, ExpectError> {
        let mut kept = lock(&self.shown).kept.clone();
        let changed = change(&mut kept)?;
        kept.write(&self.file).map_err(|error| {
            Refusal::StoreFailed(format!("{} cannot be written: {error}", self.file.display()).into())
        })?;
        lock(&self.shown).kept = kept;
        Ok(changed)
    }

    /// Looks at some commits; answers whether more should follow at once.
    fn advance(&mut self, detector: &mut Detector) -> Result<bool, Stop> {
        let mut look = self.look.take().unwrap_or_else(|| Look::begin(&self.engine));
        for _ in 0..UNIT_COMMITS {
            let Some(commit) = look.next()? else {
                self.look = Some(look);
                return Ok(false);
            };
            self.pass_to(detector, commit.log_time_ms / MINUTE_MS);
            look.count(&commit, detector)?;
        }
        self.look = Some(look);
        Ok(true)
    }

    /// Time goes on. All minutes before this one are over.
    fn pass_to(&mut self, detector: &mut Detector, minute: u64) {
        let from = self.minute.unwrap_or(minute);
        for over in from.max(minute.saturating_sub(IDLE_MINUTES_MAX))..minute {
            self.end_minute(detector, over);
        }
        self.minute = Some(minute.max(from));
    }

    /// A minute is over if everything of it was looked at, and time has passed it. Answers how long until one may be.
    fn pass_time(&mut self, detector: &mut Detector) -> Duration {
        let now_ms = self.engine.clock().now_ms();
        let known = self.minute.get_or_insert(now_ms / MINUTE_MS);
        let over_ms = (*known + 1) * MINUTE_MS + GRACE.as_millis() as u64;
        if now_ms < over_ms {
            return Duration::from_millis(over_ms - now_ms);
        }
        let reached = self.look.as_ref().map_or(0, |look| look.reached);
        if reached < self.engine.applied().offset {
            self.engine.commits().hurry();
            return LOOK_AGAIN;
        }
        self.pass_to(detector, now_ms.saturating_sub(GRACE.as_millis() as u64) / MINUTE_MS);
        GRACE
    }

    fn end_minute(&self, detector: &mut Detector, minute: u64) {
        let found = detector.end_minute();
        lock(&self.shown).looking.minutes = detector.minutes();
        if found.jumps.is_empty() {
            return;
        }
        let mut kept = lock(&self.shown).kept.clone();
        let (declarations, metrics) = (self.engine.declarations(), &self.engine.metrics().anomalies);
        let (minute_ms, mut told) = (minute * MINUTE_MS, Vec::new());
        for (n, jump) in found.jumps.iter().enumerate() {
            let expected = kept.expects(&declarations, jump, minute_ms);
            let counter = counter_of(&declarations, jump);
            metrics.count(counter.as_deref(), expected.is_some());
            if n < ANOMALIES_PER_MINUTE_MAX {
                let number = kept.next_number();
                let anomaly = Anomaly::new(number, minute_ms, jump, counter, found.share, expected);
                told.extend(anomaly.expected.is_none().then(|| anomaly.clone()));
                kept.keep(anomaly);
            }
        }
        if let Err(error) = kept.write(&self.file) {
            tracing::warn!(file = %self.file.display(), %error, "anomalies are not kept for the next start");
        }
        lock(&self.shown).kept = kept;
        for anomaly in &told {
            self.webhooks.tell("anomaly", self.engine.clock().now_ms(), || json!(anomaly));
        }
        if let Some(first) = told.first() {
            let (key, before, after) = (&first.id, first.before, first.after);
            tracing::warn!(key, before, after, keys = told.len(), "the rates of keys have jumped within a minute");
        }
    }
}

/// The declared counter that a key is of.
fn counter_of(declarations: &Declarations, jump: &Jump) -> Option<String> {
    declarations.counter_of(&jump.id).map(|counter| counter.name.to_string())
}

impl Work for AnomalyWatcher {
    async fn work(&mut self, _: &Context) -> Result<Next, WorkFailure> {
        while let Ok(ask) = self.asks.try_recv() {
            self.answer(ask);
        }
        let Some(mut detector) = self.detector.take() else { return Ok(Next::WhenWoken) };
        let advanced = self.advance(&mut detector);
        let next = advanced.map(|has_more| match has_more {
            true => Next::Again,
            false => Next::After(self.pass_time(&mut detector)),
        });
        self.detector = Some(detector);
        Ok(next?)
    }

    async fn wait(&mut self) -> ControlFlow<()> {
        match &self.look {
            Some(look) => self.engine.commits().wait_behind(look.reached).await,
            None => std::future::pending().await,
        }
        ControlFlow::Continue(())
    }
}
