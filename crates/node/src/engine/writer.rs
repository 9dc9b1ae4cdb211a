//! The one writer: stages submissions, commits them to the log, applies them and answers. No task, no thread, no clock.

mod alone;
mod cuts;
mod memory;
mod told;

use super::commits::{CommitQueue, Recorder};
use super::endings;
use super::lent::HeldState;
use super::lookup::Found;
use super::options::EngineOptions;
use super::shared::{Reply, Shared};
use super::turn::{self, Effects, Turn};
use super::watch::{Terms, Watch, WatchVerdict, Watched, Watches};
use super::{Committed, Refusal, Trouble};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::counter::{Declarations, Durability};
use tally_core::head::{Group, HEAD_BYTES_MAX, Head, RULES, log_time_ms};
use tally_core::id::CellKey;
use tally_core::limits::COMMIT_BYTES_MAX;
use tally_core::machine::{Machine, Need, Stored};
use tally_core::op::{Answer, OpKind, Submission};
use tally_core::position::Position;
use tally_core::record::Record;
use tally_storage::log::{Log, LogError};

/// Rows that are looked up at once for cells that are unsettled: few enough that nobody behind them waits long.
const SETTLE_AT_ONCE: usize = 512;
/// How often a write is tried on a full disk, in milliseconds, so that somebody notices when it has room again.
const PROBE_MS: u64 = 1_000;

/// The node as a sender of batches: the only one of its log.
const NODE: u64 = 0;

pub(super) struct Writer<L: Log> {
    log: L,
    state: HeldState,
    shared: Arc<Shared>,
    options: EngineOptions,
    /// The declarations that others see.
    published: Arc<Declarations>,
    /// Staged for the next commit, and who waits for it.
    batch: Submission,
    /// Of the batch that was appended last.
    head: Head,
    /// Of the next batch.
    seq: u64,
    waiting: Vec<WaitingForCommit>,
    loads: Vec<(Need, Stored)>,
    answers: Vec<Answer>,
    /// The most that anything staged asks for.
    durability: Durability,
    /// Something staged must be seen as a whole.
    whole: bool,
    pub watches: Watches,
    recorder: Recorder,
    steps: CommitQueue,
    /// Something is in the log that is not synced.
    unsynced: bool,
    /// And somebody was promised that it will be soon.
    sync_promised: bool,
    sync_took: Duration,
    /// Where the store stands.
    stored: Option<Position>,
    log_bytes_since_cut: u64,
    /// The last write was refused for want of room on the disk.
    disk_is_full: bool,
    /// When the next attempt is made to find out whether that has passed.
    probe_at_ms: u64,
    /// Time has passed so far that a cut lets go of some log.
    cut_frees_log: bool,
    /// Memory of the state beside its cells, as of the last look.
    other_bytes: usize,
    /// The part of it that only a cut lets go.
    unsettled_bytes: usize,
    /// The memory of repeats has reached its bound.
    repeats_are_full: bool,
    /// The staged batch says so.
    batch_tells_full: bool,
}

struct WaitingForCommit {
    ops: usize,
    /// `None` for what the writer itself has added.
    reply: Option<Reply>,
}

impl<L: Log> Writer<L> {
    pub fn new(
        log: L,
        state: Machine,
        stored: Option<Position>,
        recorder: Recorder,
        steps: CommitQueue,
        shared: Arc<Shared>,
        options: EngineOptions,
    ) -> Writer<L> {
        let mut batch = Submission::default();
        batch.begin_batch();
        Writer {
            log,
            published: state.declarations().clone(),
            state: HeldState::new(state, shared.lent.clone()),
            shared,
            options,
            batch,
            head: Head::default(),
            seq: 0,
            waiting: Vec::new(),
            loads: Vec::new(),
            answers: Vec::new(),
            durability: Durability::None,
            whole: false,
            watches: Watches::default(),
            recorder,
            steps,
            unsynced: false,
            sync_promised: false,
            sync_took: Duration::ZERO,
            stored,
            log_bytes_since_cut: 0,
            disk_is_full: false,
            probe_at_ms: 0,
            cut_frees_log: false,
            other_bytes: 0,
            unsettled_bytes: 0,
            repeats_are_full: false,
            batch_tells_full: false,
        }
    }

    pub fn state(&self) -> &Machine {
        &self.state
    }

    /// The largest batch that the log takes.
    pub fn batch_bytes_max(&self) -> usize {
        COMMIT_BYTES_MAX.min(self.log.batch_bytes_max() - HEAD_BYTES_MAX)
    }

    pub fn state_mut(&mut self) -> &mut Machine {
        &mut self.state
    }

    /// Puts declarations in force, by a record of the log.
    pub fn configure(&mut self, declarations: Declarations, now_ms: u64) -> Result<(), Refusal> {
        assert!(self.batch.is_empty(), "a configuration is alone in its batch");
        let yaml = declarations.yaml().as_bytes();
        self.batch.config(declarations.version(), yaml);
        self.durability = Durability::Sync;
        let appended = self.append(now_ms);
        if let Ok(log_time_ms) = appended {
            let effects = self.turn(log_time_ms, Some(declarations));
            self.hand_on_effects(effects);
        }
        self.batch.begin_batch();
        appended?;
        self.shared.applied.send_replace(self.log.end());
        let declarations = self.state.declarations();
        let (version, counters) = (declarations.version(), declarations.counters().len());
        tracing::info!(version, counters, "declarations are in force");
        Ok(())
    }

    /// What a submission needs that neither memory nor `found` knows.
    pub fn missing(&self, submission: &Submission, found: &Found) -> Vec<Need> {
        let found_is_current = found.cuts == self.shared.cuts.load(Ordering::Acquire);
        let found = |need| if found_is_current { found.get(need) } else { None };
        self.state.needs(&submission.ops, &submission.stamps, found)
    }

    /// Some of the cells whose rows are to be looked up.
    pub fn unsettled(&self) -> Vec<Need> {
        self.state.unsettled().take(SETTLE_AT_ONCE).collect()
    }

    pub fn has_unsettled(&self) -> bool {
        self.state.values.table.has_unsettled()
    }

    /// Takes in rows that were looked up for cells that are unsettled, unless a cut has ended since.
    pub fn settle(&mut self, found: Found) {
        if found.cuts == self.shared.cuts.load(Ordering::Acquire) {
            self.load(found);
        }
    }

    /// Lets nothing new be counted for cells that only the store knows; or lets it again.
    pub fn hold_blind(&mut self, hold: bool) {
        self.state.values.table.hold_blind(hold);
    }

    /// A walk through the keys of a counter has come to some of them; what memory does not know of them was found.
    pub fn walk(&mut self, counter: &str, ids: &[Vec<u8>], found: Found) {
        self.load(found);
        self.state.values.walk(counter, ids);
    }

    fn load(&mut self, found: Found) {
        for (need, stored) in found.into_rows() {
            self.state.load(need, stored);
        }
    }

    /// Adds a submission of which nothing is missing to the next commit. From here to the commit no cell leaves memory. One that is
    /// strict is a commit of its own.
    pub fn stage(&mut self, submission: &Submission, found: Found, reply: Reply) {
        match submission.needs.strict {
            true => self.commit_strict(submission, found, reply),
            false => self.add_to_batch(submission, found, reply),
        }
    }

    fn add_to_batch(&mut self, submission: &Submission, found: Found, reply: Reply) {
        // A batch says which declarations it was made under, and a replay stages its events under those.
        let in_force = self.state.declarations().version();
        assert!(submission.staged_under.is_none_or(|version| version == in_force), "it was staged under others");
        if self.batch.records.len() + submission.records.len() > self.batch_bytes_max() {
            // Without making room: the submission was checked already, and what it needs must stay.
            self.commit_staged(self.shared.clock.now_ms());
        }
        self.loads.extend(found.into_rows());
        if self.repeats_are_full && !self.batch_tells_full && self.state.fates.contracts.may_need_room(&submission.ops)
        {
            // By a record, since a replay could not know.
            self.batch.record_op(OpKind::RepeatsFull, CellKey::NONE, 0, &Record::RepeatsFull);
            self.waiting.push(WaitingForCommit { ops: 1, reply: None });
            self.batch_tells_full = true;
        }
        if submission.record_count > 0 {
            self.durability = self.durability.max(submission.needs.durability(self.options.durability.level()));
        }
        self.whole |= submission.needs.whole;
        self.waiting.push(WaitingForCommit { ops: submission.ops.len(), reply: Some(reply) });
        self.batch.append(submission);
    }

    /// Watches a counter; what memory does not know of it was found.
    pub fn watch(&mut self, watched: Watched<'_>, found: Found, now_ms: u64) -> Result<Watch, Refusal> {
        self.load(found);
        self.watches.add(watched, &self.state, now_ms)
    }

    /// Commits a submission of which nothing is missing at once, behind what is staged, if its terms hold there.
    pub fn transact(
        &mut self,
        submission: &Submission,
        terms: &Terms<'_>,
        found: Found,
        reply: Reply,
        now_ms: u64,
    ) -> WatchVerdict {
        self.commit_staged(now_ms);
        self.load(found);
        let verdict = self.watches.judge(terms, &self.state, self.next_log_time_ms(now_ms));
        if verdict == WatchVerdict::Holds {
            self.stage(submission, Found::default(), reply);
            self.commit_staged(now_ms);
        }
        verdict
    }

    pub fn has_staged(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Makes everything staged durable, applies it and answers everybody.
    pub fn commit(&mut self, now_ms: u64) {
        self.commit_staged(now_ms);
        self.make_room();
    }

    fn commit_staged(&mut self, now_ms: u64) {
        let result = match self.batch.record_count {
            0 => self.know_endings(self.next_log_time_ms(now_ms)),
            _ => self.append(now_ms),
        };
        match result {
            Ok(log_time_ms) => self.apply_and_answer(log_time_ms),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// Sees to it that memory has what ends up to a time; answers the time.
    fn know_endings(&mut self, log_time_ms: u64) -> Result<u64, Refusal> {
        let known = endings::know(&mut self.state, &*self.shared.store, log_time_ms);
        known.map(|()| log_time_ms).map_err(|error| Refusal::store(&error))
    }

    /// The log time of a batch that is appended at a time.
    fn next_log_time_ms(&self, now_ms: u64) -> u64 {
        log_time_ms(self.state.log_time_ms(), now_ms, now_ms)
    }

    /// Turns away everything staged.
    pub fn refuse(&mut self, refusal: &Refusal) {
        for reply in self.waiting.drain(..).filter_map(|waiting| waiting.reply) {
            let _ = reply.send(Err(refusal.clone()));
        }
        self.batch_tells_full = false;
        self.loads.clear();
        self.batch.begin_batch();
        self.durability = Durability::None;
        self.whole = false;
    }

    /// Lets time pass although nobody writes, if something waits for it.
    pub fn tick(&mut self, now_ms: u64) {
        self.close_commit(now_ms);
        if self.has_staged() || self.shared.health().is_err() {
            return;
        }
        let due = if self.disk_is_full { self.pass_time(now_ms) } else { self.state.waits_for(now_ms) };
        if due {
            self.record_tick(now_ms);
        }
    }

    fn record_tick(&mut self, now_ms: u64) {
        self.batch.record(&Record::Tick);
        self.durability = self.options.durability.level();
        self.commit(now_ms);
    }

    /// Moves the end of the log on, though nothing is staged: the next cut stands further than any that has begun.
    pub fn move_on(&mut self, now_ms: u64) -> Result<(), Refusal> {
        assert!(!self.has_staged(), "it was committed before");
        self.shared.health()?;
        let end = self.log.end();
        self.record_tick(now_ms);
        if self.log.end() == end { Err(Refusal::busy()) } else { Ok(()) }
    }

    /// Lets time pass although nothing can be written: what the log was kept for may be over, and then a cut lets go of it. Any
    /// later record has a later time. Answers whether it is time to try a write again.
    fn pass_time(&mut self, now_ms: u64) -> bool {
        let end = self.log.end().offset;
        if let Ok(log_time_ms) = self.know_endings(now_ms.max(self.state.log_time_ms())) {
            self.state.pass_time(log_time_ms, end);
        }
        self.cut_frees_log = self.state.read_from(end) > self.shared.log_needed_from.load(Ordering::Acquire);
        let due = now_ms >= self.probe_at_ms;
        if due {
            self.probe_at_ms = now_ms + PROBE_MS;
        }
        due
    }

    /// Makes what was acknowledged before it was durable durable.
    pub fn sync(&mut self) -> Result<(), Refusal> {
        if !self.unsynced {
            return Ok(());
        }
        let begun = self.shared.clock.passed();
        self.state.lend(|| self.log.sync()).map_err(|error| self.refusal(error))?;
        let took = self.shared.clock.passed() - begun;
        self.sync_took += took;
        self.shared.metrics.sync_seconds.observe(took.as_secs_f64());
        self.unsynced = false;
        self.sync_promised = false;
        Ok(())
    }

    /// How long syncs took since the last time this was asked.
    pub fn sync_took(&mut self) -> Duration {
        std::mem::take(&mut self.sync_took)
    }

    /// Whether somebody was promised a sync that is still to come.
    pub fn is_sync_promised(&self) -> bool {
        self.sync_promised
    }

    /// The time to live of a counter, if memory knows it.
    pub fn ttl(&self, cell: CellKey) -> Option<Answer> {
        let now_ms = self.shared.clock.now_ms();
        self.state.values.table.knows(cell).then(|| self.shared.left(self.state.values.ttl(cell, now_ms), now_ms))
    }

    pub fn deadline(&self, cell: CellKey) -> Option<Answer> {
        let now_ms = self.shared.clock.now_ms();
        self.state.values.table.knows(cell).then(|| self.state.values.deadline(cell, now_ms))
    }

    /// Appends the batch at a time of the node's clock; answers its log time.
    fn append(&mut self, now_ms: u64) -> Result<u64, Refusal> {
        let log_time_ms = self.know_endings(self.next_log_time_ms(now_ms))?;
        let head = self.next_head(now_ms, log_time_ms);
        let count = self.batch.record_count;
        let payload = self.batch.payload(&head);
        let bytes = payload.len() as u64;
        let appended = self.state.lend(|| self.log.append(log_time_ms, count, payload));
        let appended = appended.map_err(|error| self.refusal(error))?;
        self.head = head;
        self.seq += 1;
        self.unsynced = true;
        if std::mem::take(&mut self.disk_is_full) {
            self.shared.troubles.clear(Trouble::DiskFull);
        }
        match std::mem::replace(&mut self.durability, Durability::None) {
            Durability::Sync => self.sync()?,
            Durability::Interval => self.sync_promised = true,
            Durability::None => {}
        }
        self.log_bytes_since_cut += bytes;
        self.shared.metrics.commits.inc();
        self.shared.metrics.commit_bytes.inc_by(bytes);
        Ok(appended.log_time_ms)
    }

    /// What the next batch carries. The node is one sender, each opening of its log a life of it; a batch is appended or not, and
    /// never sent again.
    fn next_head(&self, now_ms: u64, log_time_ms: u64) -> Head {
        Head {
            begins: self.recorder.must_mark(log_time_ms),
            rules: RULES,
            group: Group::ALL,
            control: self.state.control(),
            sender: NODE,
            incarnation: self.log.end().epoch.into(),
            seq: self.seq,
            settled: self.seq + 1,
            clock_ms: now_ms,
        }
    }

    fn refusal(&mut self, error: LogError) -> Refusal {
        match error {
            LogError::Full(reason) => {
                self.disk_is_full = true;
                self.shared.troubles.raise(Trouble::DiskFull, &reason);
                Refusal::DiskFull(reason.into())
            }
            LogError::TooLarge { .. } => Refusal::TooLarge(error.to_string().into()),
            error => self.shared.troubles.fail_log(&error.to_string()),
        }
    }

    fn apply_and_answer(&mut self, log_time_ms: u64) {
        let position = self.log.end();
        match std::mem::take(&mut self.whole) {
            true => self.apply_whole(log_time_ms),
            false => self.apply(log_time_ms),
        }
        let mut answers = self.answers.as_slice();
        for waiting in self.waiting.drain(..) {
            let (mine, rest) = answers.split_at(waiting.ops);
            answers = rest;
            if let Some(reply) = waiting.reply {
                let _ = reply.send(Ok(Committed { answers: mine.to_vec(), position, log_time_ms }));
            }
        }
        self.batch_tells_full = false;
        self.batch.begin_batch();
    }

    /// Applies what was appended; readers of several counters see all of it or nothing.
    fn apply_whole(&mut self, log_time_ms: u64) {
        self.shared.revision.fetch_add(1, Ordering::AcqRel);
        self.apply(log_time_ms);
        self.shared.revision.fetch_add(1, Ordering::AcqRel);
        // Whoever waits for the whole of it must not have been told before.
        self.shared.applied.send_replace(self.log.end());
    }

    /// Applies what was appended; everybody sees it from here on.
    fn apply(&mut self, log_time_ms: u64) {
        for (need, stored) in self.loads.drain(..) {
            self.state.load(need, stored);
        }
        let audited = self.state.fates.contracts.audited;
        let effects = self.turn(log_time_ms, None);
        if !self.watches.is_empty() {
            self.watches.note(&self.batch.ops, &self.answers, &self.batch.records, &self.state);
        }
        self.tell_duplicates(audited);
        self.shared.metrics.updates.inc_by(effects.outcomes.updates);
        self.shared.metrics.duplicate_events.inc_by(effects.outcomes.duplicate_events);
        let is_logged = self.batch.record_count > 0;
        self.hand_on_effects(effects);
        if is_logged {
            self.shared.applied.send_replace(self.log.end());
        }
    }

    /// A turn of the loop with the batch that was appended.
    fn turn(&mut self, log_time_ms: u64, declarations: Option<Declarations>) -> Effects {
        let (to, count) = (self.log.end(), self.batch.record_count);
        // What leaves no record is in no log.
        let head = (count > 0).then_some(self.head);
        let batch = self.batch.batch(head, log_time_ms, to.offset - u64::from(count));
        let turn = Turn { batch, count, to, declarations };
        let effects = turn::turn(&mut self.state, &mut self.recorder, turn, &mut self.answers);
        assert_eq!(effects.void, None, "the writer sends no batch twice");
        self.publish_declarations();
        effects
    }

    /// They change with a configuration; what roll-ups there are also when one of them was filled, or everything flushed.
    fn publish_declarations(&mut self) {
        let declarations = self.state.declarations();
        if !Arc::ptr_eq(declarations, &self.published) {
            self.published = declarations.clone();
            self.shared.declarations.store(self.published.clone());
        }
    }
}
