//! A whole cluster in one thread: collectors, owners, logs, an object store and a view, and everything that can happen to them.
//!
//! [`World`] has a method for each thing that can happen; a random run picks among them by its seed, a named test calls them in
//! the order of its schedule. [`check`] holds everything against the oracle.

mod chains;
mod check;
mod clients;
mod collecting;
mod control;
mod fates;
mod follow;
mod logs;
mod objects;
mod referee;
mod steps;
mod values;
mod views;

pub use chains::LocalCopy;
pub use collecting::{CollectorHost, Sent};
pub use fates::{FatesHost, FatesStep};
pub use logs::Topic;
pub use objects::Objects;
pub use referee::Referee;
pub use steps::random_run;
pub use values::{ValuesHost, ValuesStep};

use crate::fault::{Fault, Faults};
use crate::random::Random;
use crate::trace::Trace;
use logs::Delayed;
use std::num::NonZeroU32;
use tally_cluster::control::ControlRecord;
use tally_cluster::message::{Payload, ToValues};
use tally_core::commit::Commit;
use tally_core::id::CellHasher;
use tally_storage::view::memory::{Copy as ViewCopy, MemoryView};

pub const FATES: u32 = 3;
pub const VALUES: u32 = 2;
pub const COLLECTORS: usize = 2;
/// All clocks begin here: a multiple of everything that matters.
pub const START_MS: u64 = 1_800_000_000_000;

/// Keys are found by it.
fn hasher() -> CellHasher {
    CellHasher::new(42)
}

fn partitions(of: u32) -> NonZeroU32 {
    NonZeroU32::new(of).expect("there is at least one partition")
}

pub struct World {
    pub random: Random,
    pub trace: Trace,
    pub faults: Faults,
    pub now_ms: u64,
    /// How far the clock of the logs is ahead.
    pub broker_ahead_ms: u64,
    pub events: Vec<Topic<Payload>>,
    pub values_log: Vec<Topic<ToValues>>,
    pub commits: Vec<Vec<Commit>>,
    pub control: Vec<ControlRecord>,
    pub objects: Objects,
    pub view: MemoryView,
    view_copy: ViewCopy,
    sendings: u64,
    pub collectors: Vec<CollectorHost>,
    pub fates: Vec<FatesHost>,
    pub values: Vec<ValuesHost>,
    following: Vec<follow::Following>,
    /// Batches that are on their way for too long.
    delayed: Vec<Delayed>,
    pub referee: Referee,
    /// Generations of corrections, clears and reverts that nobody has taken back.
    corrections: Vec<u64>,
    /// A number for everything that must not be the same twice.
    nonces: u64,
}

impl World {
    pub fn new(seed: u64, keep_trace: bool) -> World {
        let mut world = World {
            random: Random::new(seed),
            trace: Trace::new(keep_trace),
            faults: Faults::default(),
            now_ms: START_MS,
            broker_ahead_ms: 0,
            events: (0..FATES).map(|_| Topic::default()).collect(),
            values_log: (0..VALUES).map(|_| Topic::default()).collect(),
            commits: vec![Vec::new(); FATES as usize],
            control: Vec::new(),
            objects: Objects::default(),
            view: MemoryView::default(),
            view_copy: ViewCopy::default(),
            sendings: 0,
            collectors: Vec::new(),
            fates: (0..FATES).map(|_| FatesHost::default()).collect(),
            values: (0..VALUES).map(|_| ValuesHost::default()).collect(),
            following: (0..VALUES).map(|_| follow::Following::default()).collect(),
            delayed: Vec::new(),
            referee: Referee::new(),
            corrections: Vec::new(),
            nonces: 0,
        };
        world.configure(crate::oracle::Config::First);
        for sender in 0..COLLECTORS {
            world.collectors.push(CollectorHost::new(sender as u64));
            world.start_collector(sender);
            world.learn_control(sender);
        }
        (0..FATES).for_each(|partition| world.start_fates(partition));
        (0..VALUES).for_each(|partition| world.start_values(partition));
        world
    }

    fn nonce(&mut self) -> u64 {
        self.nonces += 1;
        self.nonces
    }

    pub fn hit(&mut self, fault: Fault) {
        self.faults.hit(fault);
        self.trace.note(format_args!("! {}", fault.text()));
    }

    /// What a counter is worth, as its owner says.
    pub fn value_of(&mut self, key: &str) -> Option<i64> {
        let partition = tally_cluster::route::values_partition(key.as_bytes(), partitions(VALUES));
        let process = self.values[partition as usize].active.as_mut()?;
        process.owner.row(key.as_bytes(), &process.chain.rows).value
    }

    pub fn note(&mut self, line: std::fmt::Arguments<'_>) {
        self.trace.note(line);
    }
}
