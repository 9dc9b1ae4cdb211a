//! The embedded node: the real engine with all its workers on one thread, over the real log on disks with faults and a store in
//! memory, in a time that passes only when the world says so.
//!
//! A run is a row of lives. Each opens an engine on what the one before has left, asks it for things and ends in the middle of
//! something; what was unsynced then is there, torn or gone. A request that was under way may be there or not: each brings a
//! marker, by which the next life finds out. What was acknowledged must be there, once.

mod asks;
mod check;
mod life;
mod store;

pub use life::{End, Which, pass};

use crate::Outcome;
use crate::fault::{Fault, Faults};
use crate::oracle::{Ask, Config, Judge, Spec, Worth};
use crate::panics;
use crate::random::Random;
use crate::trace::Trace;
use std::sync::Arc;
use store::FaultyStore;
use tally_core::id::CellHasher;
use tally_wal::testing::FaultDisk;

pub const START_MS: u64 = 1_800_000_000_000;
/// Lives with faults, before the one that has none.
const LIVES: u64 = 5;

fn hasher() -> CellHasher {
    CellHasher::new(1)
}

/// A request that was under way when its engine ended.
struct Unknown {
    marker: u64,
    ask: Ask,
    /// The engine's time when it was sent.
    now_ms: u64,
}

pub struct NodeWorld {
    pub random: Random,
    pub trace: Trace,
    pub faults: Faults,
    store: Arc<FaultyStore>,
    log: FaultDisk,
    commits: FaultDisk,
    wall_ms: u64,
    spec: Spec,
    judge: Judge,
    worth: Worth,
    markers: u64,
    /// Markers of what was acknowledged.
    acknowledged: Vec<u64>,
    unknown: Vec<Unknown>,
    /// A fault of a disk may have struck in this life.
    armed: bool,
    pub failure: Option<String>,
}

pub fn random_run(seed: u64, keep: bool) -> Outcome {
    let mut world = NodeWorld::new(seed, keep);
    let panic = panics::listen(&mut world, NodeWorld::lives);
    let NodeWorld { faults, trace, failure, .. } = world;
    Outcome { faults, trace, failure: panic.or(failure) }
}

impl NodeWorld {
    pub fn new(seed: u64, keep: bool) -> NodeWorld {
        let mut random = Random::new(seed);
        let (log, commits) = (FaultDisk::new(random.next()), FaultDisk::new(random.next()));
        NodeWorld {
            random,
            trace: Trace::new(keep),
            faults: Faults::default(),
            store: Arc::default(),
            log,
            commits,
            wall_ms: START_MS,
            spec: Config::First.spec(),
            judge: Judge::default(),
            worth: Worth::default(),
            markers: 0,
            acknowledged: Vec::new(),
            unknown: Vec::new(),
            armed: false,
            failure: None,
        }
    }

    fn lives(&mut self) {
        for _ in 0..LIVES {
            if self.failure.is_none() {
                self.live();
            }
        }
        if self.failure.is_none() {
            self.last_life();
        }
    }

    fn hit(&mut self, fault: Fault) {
        self.faults.hit(fault);
        self.trace.note(format_args!("! {}", fault.text()));
    }

    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }
}
