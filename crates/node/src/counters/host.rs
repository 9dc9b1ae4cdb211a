//! The process that a frontend runs in: what is not about counters.

use crate::clock::Clock;
use crate::engine::Troubles;
use crate::metrics::Metrics;
use crate::worker::Spawner;
use std::sync::Arc;

/// Time, figures, troubles and threads. Clones are the same.
#[derive(Clone)]
pub struct Host {
    /// The time of the node, from which log time is taken.
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    /// What is wrong at the moment.
    pub troubles: Arc<Troubles>,
    /// Where what may wait for a disk is done.
    pub spawner: Spawner,
}
