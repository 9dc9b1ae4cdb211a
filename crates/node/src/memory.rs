//! What `--memory` is spent on: shares that add up to it, each with one who keeps it.
//!
//! | share | what it is for | who keeps it |
//! |---|---|---|
//! | state | counters, repeats, the ledger with its filters, new ids | the writer (`engine/writer/memory.rs`) |
//! | clients | bodies, submissions, answers, what subscribers are about to be told | [`Budget`](crate::frontend::budget::Budget) |
//! | cache | blocks of the store | the store |
//! | work | a checkpoint under way, rows that are looked up, buffers of the log | bounds in `limits.rs` |
//!
//! What the process takes beyond their sum is its code, its threads and what the allocator has not given back yet:
//! [`Shares::resident_bytes_max`] says how much that may be, and [`Reclaimer`] sees to the last of these.

mod reclaim;

pub use reclaim::Reclaimer;

use tally_core::limits::{
    BEYOND_ARCHIVE_BYTES, BEYOND_BYTES, BEYOND_PARTS, CLIENT_BYTES_MAX, CLIENT_PARTS, NAMES_BYTES_MAX,
    STORE_CACHE_BYTES_MAX, STORE_CACHE_PARTS, WORK_BYTES_MAX, WORK_PARTS,
};

/// A block of the cache is a little larger than a page, and the allocator rounds up by as much as a quarter.
const CACHE_ROUNDED_PARTS: u64 = 5;
/// New ids are there twice while a checkpoint writes some, and are sorted for it.
const NAMES_PARTS: u64 = 4;

/// The parts of `--memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    pub state_bytes: u64,
    pub clients_bytes: u64,
    pub cache_bytes: u64,
    pub work_bytes: u64,
}

impl Shares {
    pub fn of(memory_bytes: u64) -> Shares {
        let clients_bytes = (memory_bytes / CLIENT_PARTS).min(CLIENT_BYTES_MAX);
        let cache_bytes = (memory_bytes / STORE_CACHE_PARTS).min(STORE_CACHE_BYTES_MAX);
        let work_bytes = (memory_bytes / WORK_PARTS).min(WORK_BYTES_MAX);
        let state_bytes = memory_bytes - clients_bytes - cache_bytes - work_bytes;
        Shares { state_bytes, clients_bytes, cache_bytes, work_bytes }
    }

    /// What a process may have of the machine's memory that was given so much.
    pub fn resident_bytes_max(memory_bytes: u64, has_archive: bool) -> u64 {
        let archive_bytes = if has_archive { BEYOND_ARCHIVE_BYTES } else { 0 };
        memory_bytes + memory_bytes / BEYOND_PARTS + BEYOND_BYTES + archive_bytes
    }

    /// Blocks that the cache may hold, so that they take no more than its share.
    pub fn cached_bytes(&self) -> u64 {
        self.cache_bytes - self.cache_bytes / CACHE_ROUNDED_PARTS
    }

    /// New ids at which a checkpoint is due.
    pub fn names_bytes(&self) -> usize {
        NAMES_BYTES_MAX.min((self.work_bytes / NAMES_PARTS) as usize)
    }

    /// By name, for those who look.
    pub fn by_name(&self) -> [(&'static str, u64); 4] {
        let Shares { state_bytes, clients_bytes, cache_bytes, work_bytes } = *self;
        [("state", state_bytes), ("clients", clients_bytes), ("cache", cache_bytes), ("work", work_bytes)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::limits::MEMORY_BYTES_MIN;

    #[test]
    fn shares_add_up_to_the_whole_and_half_of_it_is_for_the_state() {
        for memory_bytes in [MEMORY_BYTES_MIN, MEMORY_BYTES_MIN + 1, 512 << 20, 3 << 30, 1 << 40] {
            let shares = Shares::of(memory_bytes);
            assert_eq!(shares.by_name().iter().map(|(_, bytes)| bytes).sum::<u64>(), memory_bytes);
            assert!(shares.state_bytes >= memory_bytes / 2, "{shares:?}");
        }
    }
}
