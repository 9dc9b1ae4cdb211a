//! How an engine should behave.

use super::commits::CommitsOptions;
use crate::clock::Clock;
use crate::worker::Spawner;
use std::time::Duration;
use tally_core::counter::Durability;
use tally_core::limits::{LISTED_KEYS_MAX, NAMES_BYTES_MAX};

/// How long a write may wait for its sync, where a counter says `interval` and the node does not.
const INTERVAL: Duration = Duration::from_secs(1);

/// When an acknowledged write is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeDurability {
    /// Before it is acknowledged.
    #[default]
    Sync,
    /// At most this much later: a power cut may take the last writes, the death of the process does not.
    Interval(Duration),
    /// Whenever the operating system likes.
    None,
}

impl NodeDurability {
    /// As counters declare it.
    pub fn level(self) -> Durability {
        match self {
            NodeDurability::Sync => Durability::Sync,
            NodeDurability::Interval(_) => Durability::Interval,
            NodeDurability::None => Durability::None,
        }
    }

    /// How long a write of level `interval` waits for its sync at most.
    pub fn interval(self) -> Duration {
        if let NodeDurability::Interval(interval) = self { interval } else { INTERVAL }
    }
}

#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Whose log it is.
    pub log_id: u64,
    pub durability: NodeDurability,
    /// Memory for the state. What does not fit of its cells is read from the store.
    pub table_bytes: usize,
    /// A checkpoint is due after so many bytes of log, which bounds the log's size.
    pub checkpoint_log_bytes: u64,
    /// A checkpoint is due after so many records, which bounds the replay after a crash.
    pub checkpoint_records: u64,
    /// A checkpoint is due after so many bytes of new ids.
    pub checkpoint_names_bytes: usize,
    /// A checkpoint is due after so many changed rows of the ledger, which bounds the memory it needs.
    pub checkpoint_ledger_rows: usize,
    /// What log time is taken from.
    pub clock: Clock,
    /// Where what may block runs.
    pub spawner: Spawner,
    /// Start whatever the clock says: somebody has looked at it.
    pub accept_clock: bool,
    /// How long writes wait for room before they are turned away.
    pub busy_after: Duration,
    /// When a checkpoint that failed is tried again.
    pub checkpoint_retry: Duration,
    /// Counters that the configuration may do without although they are declared.
    pub remove: Vec<String>,
    pub commits: CommitsOptions,
    /// Keys of a counter that can be asked for by value or by change.
    pub listed_keys: usize,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            log_id: 0,
            durability: NodeDurability::Sync,
            table_bytes: 1 << 30,
            checkpoint_log_bytes: 2 << 30,
            checkpoint_records: 64_000_000,
            checkpoint_names_bytes: NAMES_BYTES_MAX,
            checkpoint_ledger_rows: 1_000_000,
            clock: Clock::system(),
            spawner: Spawner::default(),
            accept_clock: false,
            busy_after: Duration::from_secs(5),
            checkpoint_retry: Duration::from_secs(5),
            remove: Vec::new(),
            commits: CommitsOptions::default(),
            listed_keys: LISTED_KEYS_MAX,
        }
    }
}
