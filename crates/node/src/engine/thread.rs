//! The writer's thread: tasks that stage and commit, workers that cut, tick, let late entries count, sweep and roll up, and connections
//! beside them, all taking turns.
//!
//! Tasks on this thread never run at the same time, so the writer is a plain `RefCell`, borrowed between two awaits and
//! never across one. Blocking in the log's sync is what gathers the next commit.

use super::bands::BandFolds;
use super::checkpoint::Job;
use super::correction::LateRuns;
use super::cut::Cutter;
use super::endings::EndingsFinder;
use super::leaders::LeaderWalks;
use super::local::LocalEngine;
use super::lookup::{self, Found};
use super::queue::{Queued, Waiting};
use super::settle::Settler;
use super::share::Share;
use super::shared::{Done, Message, Reply, Shared};
use super::sweep::Sweeper;
use super::tick::Ticker;
use super::writer::Writer;
use super::{Engine, EngineOptions, Refusal, Trouble, Wanted};
use crate::worker::{Spawner, Wake};
use flume::Sender;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tally_core::fates::RunLimits;
use tally_core::memory::cell::SEGMENTS;
use tally_core::op::Submission;
use tally_core::position::Position;
use tally_storage::log::Log;
use tally_storage::log::local::LocalLog;
use tokio::sync::{Notify, mpsc, oneshot};

/// Everything the writer's thread is started with.
pub struct EngineThread<L: Log = LocalLog> {
    pub(super) writer: Writer<L>,
    pub(super) shared: Arc<Shared>,
    pub(super) waiting: Waiting,
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) jobs: Sender<Job>,
    pub(super) options: EngineOptions,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transacted {
    At(Position),
    /// Nothing: a watched counter has changed.
    Changed,
    /// Nothing: what it was made from is not true any more.
    Outdated,
}

pub(super) struct Desk<L: Log> {
    pub writer: RefCell<Writer<L>>,
    pub shared: Arc<Shared>,
    waiting: Waiting,
    /// How much of what waits goes into a commit, and how much of it is in the next one.
    share: RefCell<Share>,
    share_staged_bytes: Cell<usize>,
    commit_due: Notify,
    pub cut_due: Wake,
    /// So many late entries wait that their run comes early.
    late_due: Wake,
    unsettled: Wake,
    pub cut_ended: Notify,
    /// Who waits for the next cut to begin and end.
    pub cut_waiters: RefCell<Vec<Done>>,
    pub options: EngineOptions,
}

impl<L: Log + 'static> EngineThread<L> {
    pub fn engine(&self) -> Engine {
        Engine { shared: self.shared.clone() }
    }

    /// Runs the writer on this thread, inside a `LocalSet`, until it is told to stop. `connections` is given the local
    /// handle and runs beside it.
    pub async fn run<F: Future<Output = ()>>(self, connections: impl FnOnce(LocalEngine<L>) -> F) {
        let engine = self.engine();
        let desk = Rc::new(Desk {
            writer: RefCell::new(self.writer),
            shared: self.shared,
            waiting: self.waiting,
            share: RefCell::new(Share::new()),
            share_staged_bytes: Cell::new(0),
            commit_due: Notify::new(),
            cut_due: Wake::default(),
            late_due: Wake::default(),
            unsettled: Wake::default(),
            cut_ended: Notify::new(),
            cut_waiters: RefCell::default(),
            options: self.options,
        });
        let local = LocalEngine { engine, desk: desk.clone() };
        Spawner::task(desk.clone().commit_loop());
        desk.start_workers(&local.engine, self.jobs);
        let connections = connections(local.clone());
        tokio::select! {
            biased;
            (done, result) = local.receive(self.messages) => {
                let _ = done.send(result);
            }
            () = async { connections.await; std::future::pending().await } => {}
        }
    }
}

impl<L: Log + 'static> Desk<L> {
    fn start_workers(self: &Rc<Self>, engine: &Engine, jobs: Sender<Job>) {
        let workers = &self.shared.workers;
        workers.beside(Ticker::<L>::spec(), Ticker::new(self.clone()));
        workers.beside(Settler::<L>::spec(&self.unsettled), Settler { desk: self.clone() });
        workers.beside(EndingsFinder::<L>::spec(), EndingsFinder { desk: self.clone() });
        workers.beside(Cutter::spec(self), Cutter { desk: self.clone(), jobs });
        workers.beside(LateRuns::<L>::spec(&self.late_due), LateRuns { desk: self.clone() });
        workers.beside(Sweeper::<L>::spec(), Sweeper::new(self.clone(), engine.clone()));
        workers.beside(BandFolds::<L>::spec(), BandFolds::new(self.clone()));
        workers.beside(LeaderWalks::<L>::spec(&self.shared.walk_due), LeaderWalks::new(self.clone(), engine.clone()));
    }

    /// The one loop that is nobody's background: whoever writes waits for it.
    async fn commit_loop(self: Rc<Self>) {
        loop {
            if self.waiting.is_empty() {
                tokio::select! {
                    () = self.commit_due.notified() => {}
                    () = self.shared.queues.rung() => {}
                }
            } else {
                // Whoever only reads has waited for a commit, and need not wait for the next one to be staged.
                tokio::task::yield_now().await;
            }
            self.stage_shares();
            // Whoever is ready gets into this commit.
            tokio::task::yield_now().await;
            self.commit();
        }
    }

    /// Stages a share of what waits in the queues.
    fn stage_shares(self: &Rc<Self>) {
        let commit_bytes = self.share.borrow().bytes();
        let queues = &self.shared.queues;
        let bytes = queues.take_shares(&self.waiting, commit_bytes, |queued| self.stage_queued(queued));
        self.share_staged_bytes.update(|before| before + bytes);
    }

    pub(super) fn commit(&self) {
        let mut writer = self.writer.borrow_mut();
        if writer.has_staged() {
            let (commit_seconds, lag) = (&self.shared.metrics.commit_seconds, &self.shared.metrics.lag);
            let begun_us = lag.now_us();
            lag.committing(begun_us);
            writer.commit(self.shared.clock.now_ms());
            let took = lag.since(begun_us);
            commit_seconds.observe(took, 1);
            self.share.borrow_mut().committed(self.share_staged_bytes.take(), took, writer.sync_took());
        }
        self.shared.metrics.lag.committed();
        if writer.is_cut_due() {
            self.cut_due.wake();
        }
        if writer.has_unsettled() {
            self.unsettled.wake();
        }
        if writer.state().fates.contracts.parked.is_crowded(RunLimits::default()) {
            self.late_due.wake();
        }
    }

    /// Stages at once if nothing has to be looked up, which is the rule; otherwise the next one need not wait.
    fn stage_queued(self: &Rc<Self>, queued: Queued) {
        let Queued { submission, reply, at_us } = queued;
        let metrics = &self.shared.metrics;
        metrics.queue_wait_seconds.observe(metrics.lag.since(at_us), 1);
        let ready = {
            let writer = self.writer.borrow();
            !writer.is_crowded() && writer.missing(&submission, &Found::default()).is_empty()
        };
        if ready {
            self.writer.borrow_mut().stage(&submission, Found::default(), reply);
            return;
        }
        let desk = self.clone();
        Spawner::task(async move { desk.stage(&submission, reply).await });
    }

    /// Memory is bounded: when changed cells fill it, writes wait for the cut that lets them leave. Before they are staged:
    /// from then on no cell may leave.
    pub(super) async fn wait_for_room(&self) -> Result<(), Refusal> {
        let mut started = None;
        while self.writer.borrow().is_crowded() {
            let cut_ended = self.cut_ended.notified();
            self.make_room().await;
            if !self.writer.borrow().is_crowded() {
                break;
            }
            let now = self.shared.clock.passed();
            let waited = now - *started.get_or_insert(now);
            let left = self.options.busy_after.checked_sub(waited).ok_or_else(|| self.crowded())?;
            self.cut_due.wake();
            let _ = self.shared.clock.timeout(left, cut_ended).await;
        }
        Ok(())
    }

    /// Tells that all writes are turned away for want of room.
    fn crowded(&self) -> Refusal {
        let what = "changes fill the memory faster than checkpoints take them to the disk: writes are refused until one has; if it \
                    lasts, look at the disk's speed and at the log for checkpoints that fail, or give --memory more";
        self.shared.troubles.raise(Trouble::Crowded, what);
        Refusal::busy()
    }

    /// Goes through the whole table twice if need be: the first time a cell that was used lately is spared.
    async fn make_room(&self) {
        let mut segments = 0;
        while segments < 2 * SEGMENTS && self.writer.borrow().is_crowded() {
            // What is staged is waited for as well.
            segments += self.writer.borrow_mut().make_room().max(1);
            tokio::task::yield_now().await;
        }
    }

    /// Answers once the store has what is wanted.
    pub(super) fn request_cut(&self, wanted: Wanted, done: Done) {
        if !self.writer.borrow().is_cut_useful(wanted) {
            let _ = done.send(Ok(()));
        } else if let Err(refusal) = self.shared.log_health() {
            let _ = done.send(Err(refusal));
        } else {
            self.cut_waiters.borrow_mut().push(done);
            self.cut_due.wake();
        }
    }

    /// Notes what becomes of every counter from now on; answers from where.
    async fn follow(&self) -> Result<Position, Refusal> {
        self.settle_all().await?;
        let (from, steps) = {
            let mut writer = self.writer.borrow_mut();
            (writer.follow(), writer.steps())
        };
        // A restart has to know of it before anybody relies on it. If that fails, no write is taken any more.
        let _ = steps.settle().await;
        Ok(from)
    }

    /// Stages a submission as soon as everything it needs is known.
    pub(super) async fn stage(&self, submission: &Submission, reply: Reply) {
        match self.find(|| Cow::Borrowed(submission)).await {
            Ok(found) => {
                self.writer.borrow_mut().stage(submission, found, reply);
                self.commit_due.notify_one();
            }
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    /// Waits for room, and for everything that a submission needs to know. When this ends nothing is missing, as long as the
    /// caller goes on without waiting.
    pub(super) async fn find<'s>(&self, submission: impl Fn() -> Cow<'s, Submission>) -> Result<Found, Refusal> {
        let missing = async |found: &Found| {
            self.wait_for_room().await?;
            let missing = self.writer.borrow().missing(&submission(), found);
            if !found.is_empty() && !missing.is_empty() {
                self.shared.metrics.lookup_retries.inc();
            }
            Ok(missing)
        };
        lookup::find(missing, async |needs| self.shared.lookup(needs).await).await
    }
}

impl<L: Log + 'static> LocalEngine<L> {
    /// Takes messages from other threads until one of them says stop, which is answered by the caller.
    async fn receive(&self, mut messages: mpsc::Receiver<Message>) -> (Done, Result<(), Refusal>) {
        loop {
            match messages.recv().await.expect("the engine holds a sender itself") {
                Message::Checkpoint { wanted, done } => self.desk.request_cut(wanted, done),
                Message::Follow { reply } => {
                    let desk = self.desk.clone();
                    Spawner::task(async move { drop(reply.send(desk.follow().await)) });
                }
                Message::Ask(asked) => asked.answer(self.desk.writer.borrow_mut().state_mut()),
                Message::Tend { tending, done } => {
                    // Whoever is staged was told what memory knows, and this may change it.
                    self.desk.commit();
                    tending.tend(self.desk.writer.borrow_mut().state_mut(), &self.desk.shared);
                    let _ = done.send(());
                }
                Message::Remedy { request, reply } => {
                    let desk = self.desk.clone();
                    Spawner::task(async move { drop(reply.send(desk.remedy(&request).await)) });
                }
                Message::Stop { done } => {
                    let finished = self.finish().await;
                    self.desk.shared.workers.stop();
                    // Whoever asked too late is told so: what waits is dropped, and with it the way to answer.
                    messages.close();
                    while messages.recv().await.is_some() {}
                    return (done, finished);
                }
            }
        }
    }

    /// Commits what was accepted and takes the last checkpoint.
    async fn finish(&self) -> Result<(), Refusal> {
        while !self.desk.waiting.is_empty() {
            self.desk.stage_shares();
            self.desk.commit();
        }
        self.desk.commit();
        let (done, waits) = oneshot::channel();
        self.desk.request_cut(Wanted::Everything, done);
        waits.await.unwrap_or(Err(Refusal::ShuttingDown))
    }
}
