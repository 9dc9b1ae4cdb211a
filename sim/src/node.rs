//! The embedded node: the real engine with all its workers on one thread, over the real log on disks with faults and a store in
//! memory, in a time that passes only when the world says so.
//!
//! A run is a row of lives. Each opens an engine on what the one before has left, asks it for things and ends in the middle of
//! something; what was unsynced then is there, torn or gone. A request that was under way may be there or not: each brings a
//! marker, by which the next life finds out. What was acknowledged must be there, once.

mod asks;
mod check;
mod follow;
mod life;
mod store;

pub use life::{End, Which, pass};

use crate::Outcome;
use crate::fault::{Fault, Faults};
use crate::folded::Folded;
use crate::oracle::{Config, Judge, Spec, Worth};
use crate::panics;
use crate::random::Random;
use crate::trace::Trace;
use asks::Unknown;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::FaultyStore;
use tally_core::id::CellHasher;
use tally_core::position::Position;
use tally_wal::testing::FaultDisk;

pub const START_MS: u64 = 1_800_000_000_000;
/// Lives with faults, before the one that has none.
const LIVES: u64 = 5;
/// Memory for all cells.
const TABLE_BYTES: usize = 4 << 20;
/// So little that every cell leaves that nobody uses.
const TABLE_BYTES_COLD: usize = 150_000;
/// A counter of all requests: each copies it to its marker.
const ORDER: &str = "order";

fn hasher() -> CellHasher {
    CellHasher::new(1)
}

/// What a run is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// In some lives cells leave memory.
    pub cold: bool,
    /// Counters end.
    pub ending: bool,
    /// Somebody follows.
    pub followed: bool,
}

impl Circumstances {
    pub const ALL_WARM: Circumstances = Circumstances { cold: false, ending: true, followed: true };
    const DRAWN: [Circumstances; 4] = [
        Circumstances { cold: true, ending: true, followed: true },
        Circumstances::ALL_WARM,
        Circumstances { cold: true, ending: false, followed: true },
        Circumstances { cold: true, ending: true, followed: false },
    ];
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
    /// Requests so far.
    sent: u64,
    /// Markers of what was acknowledged.
    acknowledged: Vec<String>,
    /// Markers of all requests that stand in the log, and which one each is.
    found: BTreeMap<String, i64>,
    unknown: Vec<Unknown>,
    /// A fault of a disk may have struck in this life.
    armed: bool,
    pub circumstances: Circumstances,
    table_bytes: usize,
    /// Of somebody who follows.
    folded: Folded<Position>,
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
            sent: 0,
            acknowledged: Vec::new(),
            found: BTreeMap::new(),
            unknown: Vec::new(),
            armed: false,
            circumstances: Circumstances::ALL_WARM,
            table_bytes: TABLE_BYTES,
            folded: Folded::default(),
            failure: None,
        }
    }

    fn lives(&mut self) {
        self.circumstances = *self.random.pick(&Circumstances::DRAWN);
        self.all_lives();
    }

    /// Lives with faults, and the last one.
    pub fn all_lives(&mut self) {
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
