//! How much memory the state takes, and what makes room. Its share is `table_bytes`, for everything together.
//!
//! | who | of the share |
//! |---|---|
//! | repeats | a half; what needs more is rejected |
//! | changed rows of the ledger | a half, or what repeats and the quarter of cells leave, and a quarter in any case; a cut is due at half of that, and beyond it writes wait |
//! | filters of the ledger | at most a half, a quarter and an eighth by kind (`ledger.rs`) |
//! | cells | what the others leave, and a quarter in any case |

use super::super::Trouble;
use super::Writer;
use tally_core::limits::{BATCH_BYTES_KEPT, THIN_OUT_SLOTS};
use tally_core::op::Answer;
use tally_storage::log::Log;

impl<L: Log> Writer<L> {
    /// Lets cells leave that are over the bound, of so few segments that no commit waits long; never while something is staged that
    /// was told that memory knows its cells. Answers how many segments were thinned out.
    pub fn make_room(&mut self) -> usize {
        if self.has_staged() {
            return 0;
        }
        self.state.forget_loaded();
        let room = self.room();
        self.state.values.table.thin_out(THIN_OUT_SLOTS, room)
    }

    /// Memory for cells: what the rest of the state leaves of it, and a quarter of it in any case.
    pub(super) fn room(&self) -> usize {
        let bytes = self.options.table_bytes;
        bytes.saturating_sub(self.other_bytes).max(bytes / 4)
    }

    /// Over the bound: changed cells and rows cannot leave before a cut has them, so writes have to wait for one. What no
    /// cut lets go, such as filters, has bounds of its own and crowds nobody out.
    pub fn is_crowded(&self) -> bool {
        let bound = self.options.table_bytes;
        self.state.values.table.bytes() > self.room() + bound / 8 || self.unsettled_bytes > self.ledger_room()
    }

    /// Memory for changed rows of the ledger. Repeats may have half of the state and cells always have a quarter: with another half for
    /// rows there would be more of them than there is memory.
    pub(super) fn ledger_room(&self) -> usize {
        let bytes = self.options.table_bytes;
        let settled = self.other_bytes.saturating_sub(self.unsettled_bytes);
        (bytes - bytes / 4).saturating_sub(settled).clamp(bytes / 4, bytes / 2)
    }

    /// Looks how much memory the state takes; too long a look for every commit. Answers what the repeats take of it.
    pub(super) fn measure(&mut self) -> (usize, usize) {
        let (sessions, dedup_bytes) = self.state.fates.contracts.dedup_usage();
        let values = &self.state.values;
        self.other_bytes = dedup_bytes + self.state.facts_bytes() + values.names.bytes() + values.lists_bytes();
        self.unsettled_bytes = self.state.facts_unsettled_bytes();
        self.bound_repeats(dedup_bytes);
        (sessions, dedup_bytes)
    }

    /// Repeats have half of the memory, and a little less before they are no longer full.
    fn bound_repeats(&mut self, dedup_bytes: usize) {
        let bound = self.options.table_bytes / 2;
        if dedup_bytes > bound {
            self.repeats_are_full = true;
            let what = format!(
                "the memory of repeats is full, with {dedup_bytes} bytes of {bound}: display counters reject entries that need more of \
                 it until a window has passed, and everything else goes on; give --memory more, or shorten `dedup.window`"
            );
            self.shared.troubles.raise(Trouble::RepeatsFull, &what);
        } else if self.repeats_are_full && dedup_bytes <= bound - bound / 16 {
            self.repeats_are_full = false;
            self.shared.troubles.clear(Trouble::RepeatsFull);
        }
    }

    /// What one huge batch made large is not kept for the small ones behind it.
    pub(super) fn give_back_spare(&mut self) {
        if self.answers.capacity() * size_of::<Answer>() > BATCH_BYTES_KEPT {
            self.answers = Vec::new();
        }
        if self.loads.is_empty() && size_of_val(self.loads.spare_capacity_mut()) > BATCH_BYTES_KEPT {
            self.loads = Vec::new();
        }
    }

    pub fn observe(&mut self) {
        let (sessions, dedup_bytes) = self.measure();
        self.give_back_spare();
        let metrics = &self.shared.metrics;
        metrics.dedup_sessions.set(sessions as i64);
        metrics.dedup_bytes.set(dedup_bytes as i64);
        metrics.ledger_bytes.set(self.state.facts_bytes() as i64);
        let cold = self.shared.cells.cold();
        metrics.counters_cold.set(cold as i64);
        let table_bytes = self.state.values.table.bytes();
        metrics.table_bytes.set(table_bytes as i64);
        metrics.memory.state_bytes.set((table_bytes + self.other_bytes) as i64);
        metrics.counters_in_memory.set((self.shared.cells.len() - cold) as i64);
        metrics.log_end_offset.set(self.log.end().offset as i64);
        metrics.records_since_checkpoint.set(self.records_since_cut() as i64);
    }
}
