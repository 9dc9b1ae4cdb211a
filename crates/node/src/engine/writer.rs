//! The one writer: stages submissions, commits them to the log, applies them and answers. No task, no thread, no clock.

use super::checkpoint::{self, Handover, Job, Written};
use super::lookup::Found;
use super::options::{Durability, EngineOptions};
use super::recovery::encode_state;
use super::shared::{Reply, Shared};
use super::{Committed, Refusal, Wanted};
use crate::clock::Stopwatch;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tally_core::aggregate::{Batch, State};
use tally_core::cell::Row;
use tally_core::counter::Declarations;
use tally_core::id::CellKey;
use tally_core::limits::COMMIT_BYTES_MAX;
use tally_core::op::{Answer, Submission};
use tally_core::position::Position;
use tally_core::record::Record;
use tally_storage::log::{Log, LogError, LogHandle};
use tally_storage::store::Checkpoint;

/// Segments thinned out after one commit, so that no commit waits long for room.
const THIN_OUT_PER_COMMIT: usize = 2;

pub(super) struct Writer<L: Log> {
    log: L,
    state: State,
    shared: Arc<Shared>,
    options: EngineOptions,
    /// Staged for the next commit, and who waits for it.
    batch: Submission,
    waiting: Vec<Waiting>,
    loads: Vec<(CellKey, Row)>,
    answers: Vec<Answer>,
    /// Something is in the log that is not synced.
    unsynced: bool,
    /// Where the store stands.
    stored: Option<Position>,
    log_bytes_since_cut: u64,
    /// The log has no room for another segment: a cut frees some.
    log_is_full: bool,
}

struct Waiting {
    ops: usize,
    reply: Reply,
}

impl<L: Log> Writer<L> {
    pub fn new(
        log: L,
        state: State,
        stored: Option<Position>,
        shared: Arc<Shared>,
        options: EngineOptions,
    ) -> Writer<L> {
        Writer {
            log,
            state,
            shared,
            options,
            batch: Submission::default(),
            waiting: Vec::new(),
            loads: Vec::new(),
            answers: Vec::new(),
            unsynced: false,
            stored,
            log_bytes_since_cut: 0,
            log_is_full: false,
        }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Puts declarations in force, by a record of the log.
    pub fn configure(&mut self, declarations: Declarations, now_ms: u64) -> Result<(), Refusal> {
        assert!(self.batch.is_empty(), "a configuration is alone in its batch");
        let yaml = declarations.yaml().as_bytes();
        self.batch.record(&Record::Config { version: declarations.version(), yaml });
        let appended = self.append(now_ms);
        self.batch.clear();
        appended?;
        self.state.configure(declarations);
        self.shared.declarations.store(self.state.declarations().clone());
        Ok(())
    }

    /// The cells of a submission that neither memory nor `found` knows.
    pub fn missing(&self, submission: &Submission, found: &Found) -> Vec<CellKey> {
        if self.shared.cells.cold() == 0 {
            return Vec::new();
        }
        let found_is_current = found.cuts == self.shared.cuts.load(Ordering::Acquire);
        let unknown = submission.ops.iter().filter(|op| !self.state.knows(op));
        unknown.map(|op| op.cell).filter(|cell| !(found_is_current && found.has(*cell))).collect()
    }

    /// Adds a submission of which nothing is missing to the next commit. From here to the commit no cell leaves memory.
    pub fn stage(&mut self, submission: &Submission, found: Found, reply: Reply) {
        if self.batch.records.len() + submission.records.len() > COMMIT_BYTES_MAX.min(self.log.batch_bytes_max()) {
            // Without making room: the submission was checked already, and what it needs must stay.
            self.commit_staged(crate::clock::now_ms());
        }
        let loads = found.rows.into_iter().filter_map(|(key, row)| Some((key, row?)));
        self.loads.extend(loads);
        self.waiting.push(Waiting { ops: submission.ops.len(), reply });
        self.batch.append(submission);
    }

    pub fn has_staged(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Makes everything staged durable, applies it and answers everybody.
    pub fn commit(&mut self, now_ms: u64) {
        self.commit_staged(now_ms);
        self.make_room(THIN_OUT_PER_COMMIT);
    }

    fn commit_staged(&mut self, now_ms: u64) {
        let now_ms = now_ms.max(self.state.log_time_ms());
        let result = if self.batch.record_count == 0 { Ok(now_ms) } else { self.append(now_ms) };
        match result {
            Ok(log_time_ms) => self.apply_and_answer(log_time_ms),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    /// Turns away everything staged.
    pub fn refuse(&mut self, refusal: &Refusal) {
        for waiting in self.waiting.drain(..) {
            let _ = waiting.reply.send(Err(refusal.clone()));
        }
        self.loads.clear();
        self.batch.clear();
    }

    /// Lets counters expire although nobody writes.
    pub fn tick(&mut self, now_ms: u64) {
        let due = self.state.table.first_deadline().is_some_and(|(at_ms, ..)| at_ms <= now_ms);
        if due && !self.has_staged() && !self.log_is_full && self.shared.health().is_ok() {
            self.batch.record(&Record::Tick);
            self.commit(now_ms);
        }
    }

    /// Makes what was acknowledged before it was durable durable.
    pub fn sync(&mut self) -> Result<(), Refusal> {
        if !self.unsynced {
            return Ok(());
        }
        let stopwatch = Stopwatch::start();
        self.log.sync().map_err(|error| self.refusal(error))?;
        self.shared.metrics.sync_seconds.observe(stopwatch.elapsed().as_secs_f64());
        self.unsynced = false;
        Ok(())
    }

    /// The time to live of a counter, if memory knows it.
    pub fn ttl(&self, cell: CellKey, now_ms: u64) -> Option<Answer> {
        self.state.table.knows(cell).then(|| self.state.ttl(cell, now_ms))
    }

    fn append(&mut self, log_time_ms: u64) -> Result<u64, Refusal> {
        let appended = self.log.append(log_time_ms, self.batch.record_count, &self.batch.records);
        let appended = appended.map_err(|error| self.refusal(error))?;
        self.unsynced = true;
        if self.options.durability == Durability::Sync {
            self.sync()?;
        }
        let bytes = self.batch.records.len() as u64;
        self.log_bytes_since_cut += bytes;
        self.shared.metrics.commits.inc();
        self.shared.metrics.commit_bytes.inc_by(bytes);
        Ok(appended.log_time_ms)
    }

    fn refusal(&mut self, error: LogError) -> Refusal {
        match error {
            LogError::Full(reason) => {
                self.log_is_full = true;
                Refusal::DiskFull(reason.into())
            }
            LogError::TooLarge { .. } => Refusal::TooLarge(error.to_string().into()),
            error => {
                tracing::error!(%error, "the log has failed; no more writes until a restart");
                self.shared.fail(&error.to_string())
            }
        }
    }

    fn apply_and_answer(&mut self, log_time_ms: u64) {
        for (key, row) in self.loads.drain(..) {
            self.state.load(key, row);
        }
        let batch = Batch { records: &self.batch.records, ops: &self.batch.ops, log_time_ms };
        self.state.apply(&batch, &mut self.answers);
        let position = self.log.end();
        let mut answers = self.answers.as_slice();
        for waiting in self.waiting.drain(..) {
            let (mine, rest) = answers.split_at(waiting.ops);
            answers = rest;
            let _ = waiting.reply.send(Ok(Committed { answers: mine.to_vec(), position, log_time_ms }));
        }
        self.batch.clear();
    }

    /// Lets cells leave that are over the bound, of so many segments at most; never while something is staged that was told
    /// that memory knows its cells.
    pub fn make_room(&mut self, segments: usize) {
        if self.has_staged() {
            return;
        }
        for _ in 0..segments {
            if self.state.table.bytes() <= self.options.table_bytes {
                break;
            }
            self.state.table.thin_out();
        }
    }

    /// Far over the bound: changed cells cannot leave before a cut has them, so writes have to wait for one.
    pub fn is_crowded(&self) -> bool {
        self.state.table.bytes() > self.options.table_bytes + self.options.table_bytes / 4
    }

    pub fn is_cut_due(&self) -> bool {
        let (table, options) = (&self.state.table, &self.options);
        let full_of_changes = table.bytes() > options.table_bytes
            && (table.dirty() >= self.shared.cells.len().saturating_sub(self.shared.cells.cold()) / 4
                || self.is_crowded());
        !table.is_cutting()
            && (full_of_changes
                || self.log_is_full && self.stored != Some(self.log.end())
                || table.dirty() >= options.checkpoint_cells
                || self.log_bytes_since_cut >= options.checkpoint_log_bytes
                || self.records_since_cut() >= options.checkpoint_records
                || self.state.names.bytes() >= options.checkpoint_names_bytes)
    }

    fn records_since_cut(&self) -> u64 {
        self.log.end().offset - self.stored.map_or(0, |position| position.offset)
    }

    /// Whether a cut would bring anything of what is wanted.
    pub fn is_cut_useful(&self, wanted: Wanted) -> bool {
        let names = !self.state.names.is_empty() || self.state.store_is_void || self.state.table.is_cutting();
        names || wanted == Wanted::Everything && self.stored != Some(self.log.end())
    }

    /// Ends an era: everything up to here belongs to the cut.
    pub fn begin_cut(&mut self) -> Result<(Job, Handover), Refusal> {
        // Nothing that a power cut could take back may get into the store.
        self.shared.log_health()?;
        self.sync()?;
        let position = self.log.handle().synced_end();
        assert_eq!(position, self.log.end(), "a healthy log is synced to its end");
        let counters = self.shared.cells.len();
        let to = Checkpoint { position, counters, state: encode_state(&self.state) };
        self.state.table.begin_cut();
        self.log_bytes_since_cut = 0;
        self.log_is_full = false;
        let names = std::mem::take(&mut self.state.names);
        let replace = std::mem::take(&mut self.state.store_is_void);
        Ok(checkpoint::job(self.stored, to, replace, names))
    }

    /// The changes of the next segment; `None` once all are collected, or if the cut was abandoned.
    pub fn collect(&mut self) -> Option<tally_core::cell::Collected> {
        self.state.table.collect()
    }

    /// A flush in the middle of a cut leaves nothing to cut.
    pub fn is_cut_abandoned(&self) -> bool {
        !self.state.table.is_cutting()
    }

    pub fn finish_cut(&mut self, written: Written) -> Result<(), Refusal> {
        match written.result {
            Ok(()) => {
                self.state.table.finish_cut();
                self.stored = Some(written.to.position);
                self.shared.cuts.fetch_add(1, Ordering::Release);
                self.shared.metrics.checkpoints.inc();
                self.shared.log_needed_from.store(written.to.position.offset, Ordering::Release);
                Ok(())
            }
            // Whatever was in it has been flushed since.
            Err(tally_storage::store::Error::Abandoned) => Ok(()),
            Err(error) => {
                tracing::error!(%error, "a checkpoint failed; it will be tried again");
                self.state.table.abort_cut();
                let flushed_since = self.state.store_is_void;
                self.state.store_is_void |= written.replace;
                if !flushed_since {
                    written.names.prepend_to(&mut self.state.names);
                }
                Err(Refusal::store(&error))
            }
        }
    }

    pub fn observe(&self) {
        let metrics = &self.shared.metrics;
        let cold = self.shared.cells.cold();
        metrics.counters_cold.set(cold as i64);
        metrics.table_bytes.set(self.state.table.bytes() as i64);
        metrics.counters_in_memory.set((self.shared.cells.len() - cold) as i64);
        metrics.log_end_offset.set(self.log.end().offset as i64);
    }
}
