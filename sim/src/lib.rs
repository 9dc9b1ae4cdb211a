//! Whole systems in one thread, seeded, with faults, against an oracle that shares no code with them.
//!
//! Two worlds. [`cluster`]: the roles of `crates/cluster` over logs, an object store and a view in memory. [`node`]: the real engine
//! of `crates/node` over the real log on disks with faults. A run has a safety phase, in which everything fails that may, and
//! then a liveness phase, in which nothing does and everything has to converge. The same seed gives the same trace.

pub mod cluster;
pub mod fault;
pub mod folded;
pub mod node;
pub mod oracle;
mod panics;
pub mod random;
pub mod requests;
pub mod sweep;
pub mod trace;

use fault::Faults;

/// A world that can be run from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldKind {
    Cluster,
    Node,
}

impl WorldKind {
    pub const ALL: [WorldKind; 2] = [WorldKind::Cluster, WorldKind::Node];

    pub fn name(self) -> &'static str {
        match self {
            WorldKind::Cluster => "cluster",
            WorldKind::Node => "node",
        }
    }
}

/// How a run ended.
pub struct Outcome {
    pub faults: Faults,
    /// Of everything that happened, in order.
    pub trace: trace::Trace,
    /// What does not hold.
    pub failure: Option<String>,
}

/// One run. `keep`: the lines of the trace are kept, and not only their digest.
pub fn run(world: WorldKind, seed: u64, keep: bool) -> Outcome {
    match world {
        WorldKind::Cluster => cluster::random_run(seed, keep),
        WorldKind::Node => node::random_run(seed, keep),
    }
}
