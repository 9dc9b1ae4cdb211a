//! Off the writer's thread: from what was applied to commits in the second log.

use super::super::shared::Shared;
use super::log::{CommitLog, CommitReading, CommitsError, find, reading, search};
use super::record::{Changed, CommitStep};
use crate::worker::{Context, Next, Retry, Spawner, Spec, Work, WorkFailure};
use flume::{Receiver, Sender};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::commit::{Commit, Digest, Gathering};
use tally_core::id::CellHasher;
use tally_core::limits::COMMIT_SLOT_MS;
use tally_core::position::Position;
use tally_storage::log::{Log, LogError, LogHandle};
use tokio::sync::oneshot;

/// Steps that wait for whoever makes commits.
const STEPS_MAX: usize = 16;
/// Memory of batches on its way back to the writer: all that may be under way, so that nothing is made anew.
const SPARES_MAX: usize = STEPS_MAX;
/// Commits that wait for their log to be synced, in bytes; beyond it no more steps are taken.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// How often commits are made durable although nobody waits for it.
const SYNC_EVERY: Duration = Duration::from_secs(5);
/// How often old commits are looked after.
const TEND_EVERY: Duration = Duration::from_secs(5);

/// How long commits are kept, and how many.
#[derive(Clone, Copy, Debug)]
pub struct CommitsOptions {
    pub keep: Duration,
    /// On disk; the newest stay, however many there are behind the last checkpoint.
    pub bytes_max: u64,
}

impl Default for CommitsOptions {
    fn default() -> CommitsOptions {
        CommitsOptions { keep: Duration::from_secs(72 * 60 * 60), bytes_max: 1 << 30 }
    }
}

/// What is asked of the thread that makes commits.
pub(in crate::engine) enum Order {
    Step(CommitStep),
    /// Everything that was handed on before is to be durable.
    Settle(oneshot::Sender<Result<(), CommitsError>>),
}

/// The way to that thread.
#[derive(Clone)]
pub(in crate::engine) struct CommitQueue {
    orders: Sender<Order>,
    spares: Receiver<Changed>,
}

impl CommitQueue {
    pub fn is_full(&self) -> bool {
        self.orders.is_full()
    }

    /// Hands on a step; waits if the thread is behind.
    pub fn send(&self, step: CommitStep) {
        // If it is gone it has said why.
        let _ = self.orders.send(Order::Step(step));
    }

    /// Memory for the next batch.
    pub fn spare(&self) -> Changed {
        self.spares.try_recv().unwrap_or_default()
    }

    /// Waits until everything handed on so far is durable.
    pub async fn settle(&self) -> Result<(), CommitsError> {
        let (done, settled) = oneshot::channel();
        self.orders.send_async(Order::Settle(done)).await.map_err(|_| CommitsError::Stopped)?;
        settled.await.unwrap_or(Err(CommitsError::Stopped))
    }
}

/// Makes commits of steps.
pub(in crate::engine) struct Maker<L: Log> {
    log: CommitLog<L>,
    gathering: Gathering,
    digest: Digest,
    /// What was published before the restart and is made again.
    published: Option<CommitReading<<L::Handle as LogHandle>::Reader>>,
    /// Made, and not in the second log: what they are of may not be durable.
    pending: VecDeque<PendingSlot>,
    pending_bytes: usize,
    /// The second log has what is not synced.
    unsynced: bool,
    /// Behind the last commit in the second log.
    written: Position,
}

struct PendingSlot {
    to: Position,
    log_time_ms: u64,
    /// Of the commit; `None` for word that deltas are recorded.
    bytes: Option<Vec<u8>>,
}

impl PendingSlot {
    fn bytes(&self) -> usize {
        self.bytes.as_ref().map_or(0, Vec::len)
    }
}

/// Where commits go on after a restart.
pub(in crate::engine) struct Resumed {
    /// Behind the commits before the cut.
    pub end: Position,
    /// Deltas are recorded.
    pub followed: bool,
}

impl<L: Log> Maker<L> {
    /// Goes on in the second log behind a cut that stands at `cut`; the log ends at `log_end`. Answers `None` if the second log
    /// knows of more than the log has: then it is of no use.
    pub fn resume(
        log: L,
        hasher: CellHasher,
        cut: Position,
        log_end: u64,
    ) -> Result<Option<(Maker<L>, Resumed)>, CommitsError> {
        let handle = log.handle();
        let (last, followed) = last_commit(&handle)?;
        let Some(last) = last else {
            // There are none: a new directory, or one from before there were any.
            let maker = Maker::new(log, hasher, Digest::default(), cut, None);
            return Ok(Some((maker, Resumed { end: cut, followed })));
        };
        if last.to.offset > log_end {
            return Ok(None);
        }
        let followed = followed || last.deltas.is_some();
        let (end, digest, published) = match find(&handle, cut.offset)? {
            // All of them are before the cut.
            None => (last.to, Some(last.digest), None),
            Some((ordinal, first)) => {
                let before = commit_before(&handle, ordinal)?.0.map(|before| before.digest);
                // The first of all is chained to nothing.
                let digest = before.or((handle.start().offset == 0).then(Digest::default));
                (first.from, digest, Some(reading(&handle, ordinal)?))
            }
        };
        let Some(digest) = digest.filter(|_| end.offset == cut.offset) else {
            return Err(CommitsError::Missing { end, checkpoint: cut });
        };
        let maker = Maker::new(log, hasher, digest, last.to, published);
        Ok(Some((maker, Resumed { end, followed })))
    }

    fn new(
        log: L,
        hasher: CellHasher,
        digest: Digest,
        written: Position,
        published: Option<CommitReading<<L::Handle as LogHandle>::Reader>>,
    ) -> Maker<L> {
        Maker {
            log: CommitLog::new(log),
            gathering: Gathering::new(hasher),
            digest,
            published,
            pending: VecDeque::new(),
            pending_bytes: 0,
            unsynced: false,
            written,
        }
    }

    pub fn handle(&self) -> L::Handle {
        self.log.handle()
    }

    /// Behind the last commit in the second log.
    pub fn written(&self) -> Position {
        self.written
    }

    /// Takes a step. Answers the memory of the batch, which is of use again.
    pub fn take(&mut self, step: CommitStep) -> Result<Option<Changed>, CommitsError> {
        match step {
            CommitStep::Changed { mut changed, declarations } => {
                let Changed { changes, batch } = &mut changed;
                self.gathering.add(changes, &batch.records, &batch.ops, &declarations);
                batch.clear();
                Ok(Some(changed))
            }
            CommitStep::Followed { at, log_time_ms } => {
                self.keep(PendingSlot { to: at, log_time_ms, bytes: None });
                Ok(None)
            }
            CommitStep::Closed { slot, followed } => {
                let deltas = followed.then(|| self.gathering.finish());
                let commit = Commit::new(slot, self.digest, deltas);
                self.digest = commit.digest;
                self.compare_or_keep(commit)?;
                Ok(None)
            }
        }
    }

    fn compare_or_keep(&mut self, commit: Commit) -> Result<(), CommitsError> {
        if let Some(published) = &mut self.published {
            match published.next()? {
                Some(known) if (known.digest, known.from, known.to) == (commit.digest, commit.from, commit.to) => {
                    return Ok(());
                }
                Some(known) => {
                    let (published, now) = (known.digest.to_string(), commit.digest.to_string());
                    return Err(CommitsError::Differs { from: known.from, to: known.to, published, now });
                }
                None => self.published = None,
            }
        }
        self.keep(PendingSlot { to: commit.to, log_time_ms: commit.log_time_ms, bytes: Some(commit.encode()) });
        Ok(())
    }

    fn keep(&mut self, pending: PendingSlot) {
        self.pending_bytes += pending.bytes();
        self.pending.push_back(pending);
    }

    /// Appends commits of what is durable.
    pub fn write(&mut self, synced: u64) -> Result<(), LogError> {
        while let Some(pending) = self.pending.front().filter(|pending| pending.to.offset <= synced) {
            match &pending.bytes {
                Some(bytes) => self.log.append(pending.log_time_ms, bytes)?,
                None => self.log.note_followed(pending.log_time_ms)?,
            }
            self.written = pending.to;
            self.unsynced = true;
            self.pending_bytes -= pending.bytes();
            self.pending.pop_front();
        }
        Ok(())
    }

    /// The same; what there is no room for waits for some.
    pub fn write_if_there_is_room(&mut self, synced: u64) -> Result<(), CommitsError> {
        match self.write(synced) {
            Ok(()) | Err(LogError::Full(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// So much waits for its log to be synced that no more is taken.
    fn is_behind(&self) -> bool {
        self.pending_bytes > PENDING_BYTES_MAX
    }

    /// There is no room on the disk: if much waits for it, it is kept without its deltas. Whoever follows is told that they are
    /// gone, and the node goes on.
    fn spare_memory(&mut self) {
        if self.pending_bytes <= PENDING_BYTES_MAX / 2 {
            return;
        }
        for bytes in self.pending.iter_mut().filter_map(|pending| pending.bytes.as_mut()) {
            let commit = Commit::decode(bytes).expect("it was encoded here");
            *bytes = Commit { deltas: None, ..commit }.encode();
        }
        self.pending_bytes = self.pending.iter().map(PendingSlot::bytes).sum();
    }

    pub fn sync(&mut self) -> Result<(), LogError> {
        if self.unsynced {
            self.log.sync()?;
            self.unsynced = false;
        }
        Ok(())
    }
}

/// The last commit of the second log, and whether it says behind it that deltas are recorded.
fn last_commit<H: LogHandle>(handle: &H) -> Result<(Option<Commit>, bool), CommitsError> {
    commit_before(handle, handle.synced_end().offset)
}

/// The commit before the one that begins at `ordinal`, and whether it says between them that deltas are recorded.
fn commit_before<H: LogHandle>(handle: &H, ordinal: u64) -> Result<(Option<Commit>, bool), CommitsError> {
    let (start, mut from, mut followed) = (handle.start().offset, ordinal, false);
    while from > start {
        // A commit has some parts at most, and unfinished ones may lie between.
        from -= 1;
        let mut reading = reading(handle, from)?;
        let mut last = None;
        while let Some(commit) = reading.next()?.filter(|_| reading.ordinal() < ordinal) {
            last = Some(commit);
        }
        followed |= reading.is_followed();
        if last.is_some() {
            return Ok((last, followed));
        }
    }
    Ok((None, followed))
}

/// The queue to whoever makes commits, from both ends.
pub(in crate::engine) fn queue(spawner: Spawner) -> (CommitQueue, Receiver<Order>, Sender<Changed>) {
    // On one thread nobody can wait for the other.
    let orders_max = if spawner == Spawner::Here { usize::MAX >> 8 } else { STEPS_MAX };
    let (orders, received) = flume::bounded(orders_max);
    let (give_back, spares) = flume::bounded(SPARES_MAX);
    (CommitQueue { orders, spares }, received, give_back)
}

/// Makes commits until the writer is gone.
pub(in crate::engine) struct CommitMaker<L: Log> {
    maker: Maker<L>,
    shared: Arc<Shared>,
    orders: Receiver<Order>,
    spares: Sender<Changed>,
    next: Option<Order>,
    /// When they were last made durable and last looked after, by [`crate::clock::Clock::passed`].
    synced: Duration,
    tended: Option<Duration>,
    /// It has said why.
    is_broken: bool,
}

impl<L: Log> CommitMaker<L> {
    pub fn spec() -> Spec {
        let spec = Spec::new("commits", "makes commits of what was applied and keeps them", Retry::NEVER);
        spec.waits_for("something to be applied").vital()
    }

    pub fn new(
        maker: Maker<L>,
        shared: Arc<Shared>,
        orders: Receiver<Order>,
        spares: Sender<Changed>,
    ) -> CommitMaker<L> {
        let now = shared.clock.passed();
        CommitMaker { maker, shared, orders, spares, next: None, synced: now, tended: None, is_broken: false }
    }

    /// Takes what there is, and publishes what came of it.
    fn turn(&mut self) -> Result<(), CommitsError> {
        let mut settles = Vec::new();
        while let Some(order) = self.next.take().or_else(|| self.orders.try_recv().ok()) {
            match order {
                Order::Step(step) => {
                    if let Some(spare) = self.maker.take(step)? {
                        let _ = self.spares.try_send(spare);
                    }
                }
                Order::Settle(done) => settles.push(done),
            }
            if self.maker.is_behind() {
                break;
            }
        }
        let published = match self.publish(!settles.is_empty()) {
            Err(CommitsError::Log(error @ LogError::Full(_))) => {
                self.maker.spare_memory();
                Err(error)
            }
            published => published.map(Ok)?,
        };
        for done in settles {
            let _ = done.send(published.clone().map_err(CommitsError::from));
        }
        self.tend()
    }

    /// Appends what may be appended; makes it durable if somebody waits for that, and tells it.
    fn publish(&mut self, settle: bool) -> Result<(), CommitsError> {
        let synced = self.shared.log.synced_end().offset;
        while let Err(error) = self.maker.write(synced) {
            if !matches!(error, LogError::Full(_)) || !self.make_room()? {
                return Err(error.into());
            }
        }
        let now = self.shared.clock.passed();
        if settle
            || self.shared.commits.take_hurry()
            || self.shared.commits.is_followed()
            || now.saturating_sub(self.synced) >= SYNC_EVERY
        {
            self.maker.sync()?;
            self.synced = now;
            self.shared.commits.published(self.maker.written());
        }
        Ok(())
    }

    /// Lets the oldest commits go; answers whether any could.
    fn make_room(&mut self) -> Result<bool, CommitsError> {
        let handle = self.maker.handle();
        let (start, end) = (handle.start().offset, self.kept_from(&handle)?);
        retain(&handle, end, (end - start) / 2)
    }

    /// The first commit that must stay: those behind the last cut are made again by a restart, and compared, and the archive keeps what
    /// those say that it does not have.
    fn kept_from(&self, handle: &L::Handle) -> Result<u64, CommitsError> {
        let archived = self.shared.archived.load(Ordering::Acquire);
        let cut = self.shared.checkpointed.load(Ordering::Acquire).min(archived);
        let (start, end) = (handle.start().offset, handle.synced_end().offset);
        // The one that ends at the cut is what the first of them is chained to.
        let first = find(handle, cut.saturating_sub(1))?.map_or(end, |(ordinal, _)| ordinal);
        Ok(first.clamp(start, end))
    }

    /// Frees commits that are older or more than the options say, and sees to it that the next segment is there beforehand.
    fn tend(&mut self) -> Result<(), CommitsError> {
        let now = self.shared.clock.passed();
        if self.tended.is_some_and(|tended| now.saturating_sub(tended) < TEND_EVERY) {
            return Ok(());
        }
        self.tended = Some(now);
        self.shared.snapshots.sweep(now);
        let handle = self.maker.handle();
        let CommitsOptions { keep, bytes_max } = self.shared.commits.options();
        let before_ms = self.shared.clock.now_ms().saturating_sub(keep.as_millis() as u64);
        let kept_from = self.kept_from(&handle)?;
        let first = search(&handle, |commit| commit.log_time_ms >= before_ms)?;
        let first = first.map_or(kept_from, |(ordinal, _)| ordinal).min(kept_from);
        handle.retain_from(Position { offset: first, ..Position::default() })?;
        while handle.bytes() > bytes_max && retain(&handle, kept_from, (kept_from - handle.start().offset) / 16)? {}
        match handle.prepare() {
            // There is room for the next ones only where the oldest are.
            Err(LogError::Full(_)) => self.make_room().map(drop),
            prepared => prepared.map(drop).map_err(CommitsError::from),
        }
    }

    /// Whoever asks is told that there is nothing more to come.
    fn refuse_all(&mut self) {
        while let Some(order) = self.next.take().or_else(|| self.orders.try_recv().ok()) {
            if let Order::Settle(done) = order {
                let _ = done.send(Err(CommitsError::Stopped));
            }
        }
    }
}

/// Frees the oldest segment, if all of it lies before `end`; answers whether it did.
fn retain<H: LogHandle>(handle: &H, end: u64, step: u64) -> Result<bool, CommitsError> {
    let start = handle.start().offset;
    let mut from = start;
    while from < end {
        from = (from + step.max(1)).min(end);
        handle.retain_from(Position { offset: from, ..Position::default() })?;
        if handle.start().offset > start {
            return Ok(true);
        }
    }
    Ok(false)
}

impl<L: Log> Work for CommitMaker<L> {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        context.queue(self.orders.len());
        if self.is_broken {
            self.refuse_all();
            return Ok(Next::WhenWoken);
        }
        if let Err(error) = self.turn() {
            // Nothing more is durable, and a restart makes all of it again.
            self.is_broken = true;
            self.shared.troubles.fail_worker("commits", &error.to_string());
            return Err(error.into());
        }
        Ok(Next::After(Duration::from_millis(COMMIT_SLOT_MS)))
    }

    async fn wait(&mut self) -> ControlFlow<()> {
        if self.maker.is_behind() {
            // Whoever writes has to sync first.
            return std::future::pending().await;
        }
        match self.orders.recv_async().await {
            Ok(order) => {
                self.next = Some(order);
                ControlFlow::Continue(())
            }
            Err(_) => {
                // What is durable in the log is kept, for whoever reads it next.
                let _ = if self.is_broken { Ok(()) } else { self.publish(true) };
                ControlFlow::Break(())
            }
        }
    }
}
