//! The process that a frontend runs in: what is not about counters.

use crate::archive::ArchiveHandle;
use crate::clock::Clock;
use crate::engine::Troubles;
use crate::metrics::Metrics;
use crate::worker::Spawner;
use std::sync::Arc;

/// Time, figures, troubles, threads and the archive. Clones are the same.
#[derive(Clone)]
pub struct Host {
    /// The time of the node, from which log time is taken.
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    /// What is wrong at the moment.
    pub troubles: Arc<Troubles>,
    /// Where what may wait for a disk is done.
    pub spawner: Spawner,
    /// Where every event is kept, if it is.
    pub archive: Option<ArchiveHandle>,
}
