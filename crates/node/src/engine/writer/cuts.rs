//! The writer's part in a cut: when one is due, what belongs to it, and what its end means.

use super::super::checkpoint::{self, Content, CutJob, Handover, Written};
use super::super::{Refusal, Wanted};
use super::Writer;
use std::sync::atomic::Ordering;
use tally_core::memory::cell::Collected;
use tally_storage::log::{Log, LogHandle};
use tally_storage::store::{self, Checkpoint};

/// A cut is due when changed rows of the ledger take one part in so many of what they may.
const LEDGER_PARTS: usize = 2;

impl<L: Log> Writer<L> {
    pub fn is_cut_due(&self) -> bool {
        let (table, options) = (&self.state.values.table, &self.options);
        let in_memory = self.shared.cells.len().saturating_sub(self.shared.cells.cold());
        let full_of_changes = table.bytes() > self.room() && table.dirty() >= in_memory / 4;
        // Whatever fills memory or disk: if a cut can change that, it is due.
        let frees = self.stored != Some(self.log.end()) || self.cut_frees_log;
        let wanted = (self.disk_is_full || self.is_crowded()) && frees;
        !table.is_cutting()
            && (full_of_changes
                || wanted
                || self.log_bytes_since_cut >= options.checkpoint_log_bytes
                || self.records_since_cut() >= options.checkpoint_records
                || self.state.values.names.bytes() >= options.checkpoint_names_bytes
                || self.state.facts_changed() >= options.checkpoint_ledger_rows
                || self.unsettled_bytes >= self.ledger_room() / LEDGER_PARTS)
    }

    pub(super) fn records_since_cut(&self) -> u64 {
        self.log.end().offset - self.stored.map_or(0, |position| position.offset)
    }

    /// Whether a cut would bring anything of what is wanted.
    pub fn is_cut_useful(&self, wanted: Wanted) -> bool {
        let names = !self.state.values.names.is_empty()
            || self.has_unsettled()
            || self.state.values.store_is_void
            || self.state.values.table.is_cutting();
        names || wanted == Wanted::Everything && self.stored != Some(self.log.end())
    }

    /// Ends an era: everything up to here belongs to the cut.
    pub fn begin_cut(&mut self) -> Result<(CutJob, Handover), Refusal> {
        // Nothing that a power cut could take back may get into the store.
        self.shared.log_health()?;
        self.sync()?;
        // A cut is where a commit ends, so a replay from it begins with a whole one.
        if let Some(closed) = self.recorder.close() {
            self.hand_on(closed);
        }
        let position = self.log.handle().synced_end();
        assert_eq!(position, self.log.end(), "a healthy log is synced to its end");
        let (state, read_from) = self.state.checkpoint(position.offset);
        let to = Checkpoint { position, counters: self.shared.cells.len(), state };
        self.state.values.table.begin_cut();
        let ledger = self.state.begin_facts_cut();
        let log_bytes = std::mem::take(&mut self.log_bytes_since_cut);
        self.cut_frees_log = false;
        let names = std::mem::take(&mut self.state.values.names);
        let replace = std::mem::take(&mut self.state.values.store_is_void);
        self.state.values.cut_replaces = replace;
        let begun = self.shared.clock.passed();
        Ok(checkpoint::job(Content { from: self.stored, to, replace, names, ledger, read_from, log_bytes, begun }))
    }

    /// The changes of the next segments; `None` once all are collected, or if the cut was abandoned.
    pub fn collect(&mut self) -> Option<Collected> {
        self.state.values.table.collect()
    }

    /// A flush in the middle of a cut leaves nothing to cut.
    pub fn is_cut_abandoned(&self) -> bool {
        !self.state.values.table.is_cutting()
    }

    /// Answers, beside how it ended, what was in the cut, which may be much to drop.
    pub fn finish_cut(&mut self, Written { result, mut content }: Written) -> (Result<(), Refusal>, Content) {
        let finished = self.settle_cut(result, &mut content);
        // Whoever waits for room looks at once.
        self.measure();
        (finished, content)
    }

    fn settle_cut(&mut self, result: Result<(), store::Error>, content: &mut Content) -> Result<(), Refusal> {
        self.state.values.cut_replaces = false;
        match result {
            Ok(()) => {
                self.state.values.table.finish_cut();
                self.state.finish_facts_cut();
                let position = content.to.position;
                self.stored = Some(position);
                self.shared.cuts.fetch_add(1, Ordering::Release);
                let (metrics, clock) = (&self.shared.metrics, &self.shared.clock);
                let took = clock.passed() - content.begun;
                metrics.checkpoints.inc();
                metrics.checkpoint_seconds.observe(took, 1);
                metrics.checkpoint_timestamp_seconds.set(clock.wall_ms() as f64 / 1000.0);
                self.shared.checkpointed.store(position.offset, Ordering::Release);
                self.shared.checkpoint_failing.store(false, Ordering::Release);
                self.shared.log_needed_from.store(content.read_from, Ordering::Release);
                let (counters, seconds) = (content.to.counters, took.as_secs_f64());
                tracing::info!(%position, counters, seconds, "a checkpoint was taken");
                Ok(())
            }
            // Whatever was in it has been flushed since.
            Err(store::Error::Abandoned) => Ok(()),
            Err(error) => {
                self.shared.metrics.checkpoint_failures.inc();
                self.shared.checkpoint_failing.store(true, Ordering::Release);
                // What made it due still does.
                self.log_bytes_since_cut += content.log_bytes;
                self.state.values.table.abort_cut();
                let flushed_since = self.state.values.store_is_void;
                self.state.values.store_is_void |= content.replace;
                if !flushed_since {
                    self.state.abort_facts_cut();
                    std::mem::take(&mut content.names).prepend_to(&mut self.state.values.names);
                }
                Err(Refusal::store(&error))
            }
        }
    }
}
