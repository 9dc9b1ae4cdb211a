//! Reconciliation: counts again from the archive, in SQL, what every declared counter should be worth, and holds the counters against it.
//!
//! All of it is at one position: the counters are seen in a snapshot, the archive is brought there, and events up to it are counted
//! again. What differs is told key by key, and bucket by bucket of time where a roll-up tells them apart, and proposed as a correction that
//! restores; nobody applies it but who is asked to.

mod archived;
mod compare;
mod fill;
mod recount;
mod report;
mod restate;
mod restated_before;
mod scene;

use fill::{Fills, NotFilled};
use report::{DRIFT_MAX, DRIFT_WINDOWS};
use scene::Scene;

pub use archived::{ArchivedParts, ArchivedWanted};
pub use report::{ByTime, Compared, CounterReport, Difference, Hour, KeysLeftOut, Report};
pub use restate::{CounterRestated, RestateWanted, Restated, RestatedKey, Restatement};

use crate::archive::ArchiveHandle;
use crate::engine::{CorrectionError, CorrectionRequest, Engine, Refusal};
use crate::sql::{Sql, SqlError};
use crate::webhook::Webhooks;
use crate::worker::{Context, Next, Retry, Spec, Wake, Work, WorkFailure};
use flume::{Receiver, Sender};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tally_core::counter::Counter;
use tally_core::id::name_of;
use tally_core::ledger::{Delta, Proposal, Purpose, Remedy};
use tally_core::limits::{CORRECTION_DELTAS_MAX, RECONCILE_ASKS_MAX, RECONCILE_REPORTS_MAX};
use tokio::sync::oneshot;

/// How often it runs by itself: behind the end of each hour, when what belongs to it has arrived.
const EVERY: Duration = Duration::from_secs(60 * 60);
const BEHIND_THE_HOUR: Duration = Duration::from_secs(60);
const RETRY: Retry = Retry { first: Duration::from_secs(60), most: Duration::from_secs(15 * 60) };
/// Who proposes what a run finds.
const AUTHOR: &str = "reconciliation";
/// Why something is left of what a run found.
const PART: &str =
    "more differs than one correction can change; what is left is proposed by the run behind the one that applies this";
/// How its reason begins.
const REASON: &str = "a recount at";

/// Why there is no report.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("the recount has failed: {0}")]
    Sql(Arc<str>),
    #[error("the correction was not made: {0}")]
    Correction(#[from] CorrectionError),
    /// Ask for something else: the words say what is wrong.
    #[error("{0}")]
    Wrong(Arc<str>),
    /// Ask for less.
    #[error(
        "{changes} keys and buckets of {counter} would change, and a correction changes at most {CORRECTION_DELTAS_MAX}; restate one counter at a time, or a shorter range"
    )]
    TooMany { counter: Arc<str>, changes: usize },
}

impl From<SqlError> for ReconcileError {
    fn from(error: SqlError) -> ReconcileError {
        match error {
            SqlError::Refused(refusal) => refusal.into(),
            error => ReconcileError::Sql(error.to_string().into()),
        }
    }
}

/// A run that somebody asks for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only this counter.
    pub counter: Option<String>,
    /// Only this time, of counters that tell it apart; the others are compared as a whole.
    pub range_ms: Option<Range<u64>>,
    /// Puts right what is found, in whose name.
    pub apply: Option<String>,
}

impl Wanted {
    fn looks_at(&self, delta: &Delta) -> bool {
        let is_of = |name: &String| name_of(&delta.id) == name.as_bytes();
        let is_within = |range: &Range<u64>| delta.bucket_ms.is_some_and(|at_ms| range.contains(&at_ms));
        self.counter.as_ref().is_none_or(is_of) && self.range_ms.as_ref().is_none_or(is_within)
    }
}

/// Who waits for an answer.
type Done<T> = oneshot::Sender<Result<Arc<T>, ReconcileError>>;

enum Ask {
    Reconcile(Wanted, Done<Report>),
    Restate(RestateWanted, Done<Restatement>),
}

/// What others hold of it.
#[derive(Clone)]
pub struct ReconcileHandle {
    asks: Sender<Ask>,
    wake: Wake,
    reports: Reports,
    not_filled: NotFilled,
}

/// The last ones, the newest first.
type Reports = Arc<Mutex<VecDeque<Arc<Report>>>>;

impl ReconcileHandle {
    /// With the worst differences of each counter.
    pub fn reports(&self) -> Vec<Arc<Report>> {
        lock(&self.reports).iter().cloned().collect()
    }

    /// Counters that keep differing: somebody should look at them.
    pub fn alerts(&self) -> Vec<String> {
        let reports = lock(&self.reports);
        let mut names: Vec<&str> = reports.iter().flat_map(|report| report.names()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().filter(|name| is_lasting(&reports, name)).map(str::to_owned).collect()
    }

    /// Why a roll-up that was added later is not filled, if it cannot be.
    pub fn not_filled(&self, counter: &str, rollup: u16) -> Option<String> {
        let not_filled = self.not_filled.lock().unwrap_or_else(PoisonError::into_inner);
        not_filled.get(&(counter.to_owned(), rollup)).cloned()
    }

    /// Has a run made now, and answers what it found.
    pub async fn run(&self, wanted: Wanted) -> Result<Arc<Report>, ReconcileError> {
        self.ask(|done| Ask::Reconcile(wanted, done)).await
    }

    /// Has a range of time counted again, and answers what would change; that is proposed, and applied if so wanted.
    pub async fn restate(&self, wanted: RestateWanted) -> Result<Arc<Restatement>, ReconcileError> {
        self.ask(|done| Ask::Restate(wanted, done)).await
    }

    async fn ask<T>(&self, ask: impl FnOnce(Done<T>) -> Ask) -> Result<Arc<T>, ReconcileError> {
        let (done, answer) = oneshot::channel();
        self.asks.try_send(ask(done)).map_err(|_| Refusal::busy())?;
        self.wake.wake();
        answer.await.unwrap_or(Err(Refusal::ShuttingDown.into()))
    }
}

fn lock(reports: &Reports) -> MutexGuard<'_, VecDeque<Arc<Report>>> {
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct Reconciler {
    engine: Engine,
    archive: ArchiveHandle,
    sql: Arc<dyn Sql>,
    webhooks: Webhooks,
    asks: Receiver<Ask>,
    reports: Reports,
    /// When it runs by itself again, as its clock says.
    next_ms: u64,
    fills: Fills,
}

impl Reconciler {
    pub fn spec() -> Spec {
        let does = "counts again from the archive, in SQL, what counters should be worth, and proposes what differs; fills roll-ups that were \
                    added later";
        Spec::new("reconcile", does, RETRY).waits_for("the end of an hour").tried_again_when_woken()
    }

    pub fn new(
        engine: Engine,
        archive: ArchiveHandle,
        sql: Arc<dyn Sql>,
        webhooks: Webhooks,
        spec: &Spec,
    ) -> (Reconciler, ReconcileHandle) {
        let (asks, asked) = flume::bounded(RECONCILE_ASKS_MAX);
        let reports = Reports::default();
        let fills = Fills::default();
        let not_filled = fills.not_filled.clone();
        let handle = ReconcileHandle { asks, wake: spec.wake.clone(), reports: reports.clone(), not_filled };
        let next_ms = behind_this_hour(engine.clock().now_ms());
        (Reconciler { engine, archive, sql, webhooks, asks: asked, reports, next_ms, fills }, handle)
    }

    /// Leaves roll-ups as they are.
    pub fn fill_nothing(&mut self) {
        self.fills.are_off = true;
    }

    async fn run(&self, wanted: &Wanted) -> Result<Arc<Report>, ReconcileError> {
        let (scene, mut report) = self.undisturbed(async |scene| self.compare_all(scene, wanted).await).await?;
        match self.put_right(&mut report, wanted, scene.generation).await {
            // What was found is told all the same.
            Err(CorrectionError::Unfit(unfit)) => report.not_corrected = Some(unfit.to_string()),
            done => done?,
        }
        let report = Arc::new(report);
        self.publish(&report);
        Ok(report)
    }

    async fn compare_all(&self, scene: &Scene, wanted: &Wanted) -> Result<Report, ReconcileError> {
        let mut report = Report::at(scene.snapshot.position(), self.engine.clock().now_ms());
        report.range_ms = wanted.range_ms.clone();
        let is_wanted = |counter: &&Counter| wanted.counter.as_ref().is_none_or(|name| **name == *counter.name);
        for counter in scene.declarations.counters().iter().filter(is_wanted) {
            let compared = self.compare(scene, counter, wanted.range_ms.as_ref()).await;
            report.counters.push(match compared {
                // What is too much for one counter says nothing of the others.
                Err(error @ ReconcileError::Sql(_)) if wanted.counter.is_none() => {
                    tracing::error!(counter = %counter.name, %error, "a counter was not counted again");
                    CounterReport::failed(&counter.name, error.to_string())
                }
                compared => compared?,
            });
        }
        Ok(report)
    }

    /// Proposes what would put right what was found, and applies it if that is wanted.
    async fn put_right(&self, report: &mut Report, wanted: &Wanted, generation: u64) -> Result<(), CorrectionError> {
        self.withdraw_proposals_before(report, wanted).await?;
        let (deltas, is_all) = report.deltas();
        report.not_corrected = (!is_all).then(|| PART.to_owned());
        if deltas.is_empty() {
            return Ok(());
        }
        let reason = format!("{REASON} {} came to something else", report.position);
        // What was corrected since is not in what was seen.
        let (author, purpose, if_generation) = (AUTHOR.to_owned(), Purpose::Restore, Some(generation));
        let proposal = Proposal { number: 0, reason, author, at_ms: 0, deltas, if_generation, purpose };
        let number = self.engine.propose(proposal, None).await?;
        report.proposal = Some(number);
        if let Some(author) = &wanted.apply {
            let remedy = Remedy::Apply { number, author: author.clone(), if_generation: None };
            self.engine.correct(CorrectionRequest { remedy, once: None }).await?;
            report.applied = true;
        }
        Ok(())
    }

    /// Proposals of earlier runs make way, before a restart as well, if all that they would change was looked at again.
    async fn withdraw_proposals_before(&self, report: &Report, wanted: &Wanted) -> Result<(), Refusal> {
        for proposal in self.engine.open_proposals().await? {
            let is_own = proposal.author == AUTHOR && proposal.reason.starts_with(REASON);
            let is_seen = |delta: &Delta| wanted.looks_at(delta) && !report.has_failed(name_of(&delta.id));
            if is_own && proposal.deltas.iter().all(is_seen) {
                self.engine.withdraw(proposal.number).await?;
            }
        }
        Ok(())
    }

    fn publish(&self, report: &Arc<Report>) {
        let metrics = &self.engine.metrics().reconciliation;
        metrics.runs.inc();
        let mut reports = lock(&self.reports);
        reports.push_front(Arc::new(report.shortened()));
        reports.truncate(RECONCILE_REPORTS_MAX);
        for counter in &report.counters {
            let differing = counter.differing();
            // What was found in some of the time says nothing of the rest.
            if report.range_ms.is_none() {
                metrics.tell(&counter.counter, differing.map(|keys| (counter.drift(), keys)));
                metrics.tell_hour(&counter.counter, counter.by_time.as_ref().map(|by| by.last_closed.drift()));
            }
            if let Some(differing @ 1..) = differing {
                let (name, drift) = (&counter.counter, counter.drift());
                tracing::warn!(counter = %name, differing, drift, proposal = report.proposal, "counters differ from a recount");
            }
        }
        for name in report.names() {
            let is_lasting = is_lasting(&reports, name);
            metrics.alert(name, is_lasting);
            // A run that looked at some of the time alone has nothing to add.
            if is_lasting && report.compared(name).is_some() {
                self.webhooks.tell("reconciliation", report.at_ms, || report.told_of(name));
                tracing::error!(
                    counter = name,
                    "a counter differs from its recount by more than 0.1 % in three hours, or has done so for three runs"
                );
            }
        }
    }
}

/// Whether a counter differs by too much in so many hours, as the last run has found and not put right, or as a whole for so many runs in a
/// row. Of one that cannot be compared any more nothing lasts; a run that has failed says nothing.
fn is_lasting(reports: &VecDeque<Arc<Report>>, name: &str) -> bool {
    let of_run = |report: &Arc<Report>| {
        let found = report.told(name)?;
        Some(if report.is_put_right() { (0, 0.0) } else { (found.hours_adrift().unwrap_or(0), found.drift()) })
    };
    let runs: Vec<(usize, f64)> = reports.iter().filter_map(of_run).take(DRIFT_WINDOWS).collect();
    let is_adrift = runs.len() == DRIFT_WINDOWS && runs.iter().all(|(_, drift)| *drift > DRIFT_MAX);
    is_adrift || runs.first().is_some_and(|(hours, _)| *hours >= DRIFT_WINDOWS)
}

fn behind_this_hour(now_ms: u64) -> u64 {
    let hour_ms = EVERY.as_millis() as u64;
    (now_ms / hour_ms + 1) * hour_ms + BEHIND_THE_HOUR.as_millis() as u64
}

impl Reconciler {
    async fn advance(&mut self, context: &Context) -> Result<Next, ReconcileError> {
        while let Ok(ask) = self.asks.try_recv() {
            match ask {
                Ask::Reconcile(wanted, done) => _ = done.send(self.run(&wanted).await),
                Ask::Restate(wanted, done) => _ = done.send(self.restate(&wanted).await),
            }
        }
        let now_ms = context.clock().now_ms();
        if now_ms >= self.next_ms {
            // One that fails is not made again before the next: it takes as long as there are events.
            self.next_ms = behind_this_hour(now_ms);
            self.run(&Wanted::default()).await?;
        }
        let has_filled = self.fill_some().await?;
        if has_filled {
            context.progress(self.fill_progress());
            return Ok(Next::Again);
        }
        let now_ms = context.clock().now_ms();
        let next_ms = self.fills.again_ms(now_ms).map_or(self.next_ms, |again_ms| again_ms.min(self.next_ms));
        let wait_ms = next_ms.saturating_sub(now_ms).max(1);
        Ok(Next::After(Duration::from_millis(wait_ms)))
    }
}

impl Work for Reconciler {
    /// A recount may take as long as there are events; nobody who stops waits for it.
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        tokio::select! {
            advanced = self.advance(context) => Ok(advanced?),
            () = context.stopped() => Ok(Next::After(EVERY)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::CounterReport;
    use tally_core::position::Position;

    fn report(compared: Compared) -> Arc<Report> {
        let counters = vec![CounterReport { compared, ..CounterReport::not("views", String::new()) }];
        Arc::new(Report { counters, ..Report::at(Position::default(), 0) })
    }

    fn adrift() -> Arc<Report> {
        let whole = vec![Difference { id: "views".to_owned(), bucket_ms: None, live: 2, recount: 1 }];
        report(Compared::new(1, 2, whole, Vec::new(), false))
    }

    /// Whether there is an alert behind three runs that found a difference and another one.
    fn is_lasting_behind(last: Arc<Report>) -> bool {
        is_lasting(&VecDeque::from([last, adrift(), adrift(), adrift()]), "views")
    }

    #[test]
    fn an_alert_ends_when_its_counter_cannot_be_compared_any_more_and_stays_when_a_run_has_failed() {
        assert!(is_lasting_behind(adrift()));
        assert!(!is_lasting_behind(report(Compared::Not("its archive is none".to_owned()))));
        assert!(is_lasting_behind(report(Compared::Failed("it took longer".to_owned()))));
    }

    #[test]
    fn an_alert_ends_when_all_of_it_was_put_right_and_not_when_a_part_was() {
        let applied = |not_corrected| Arc::new(Report { applied: true, not_corrected, ..(*adrift()).clone() });
        assert!(!is_lasting_behind(applied(None)));
        assert!(is_lasting_behind(applied(Some(PART.to_owned()))));
    }
}
