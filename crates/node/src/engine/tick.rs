//! The writer's look at the clock, many times a second, whether anybody writes or not.

use super::Trouble;
use super::thread::Desk;
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use std::rc::Rc;
use std::time::Duration;
use tally_storage::log::Log;

/// How often the writer looks at the clock when nothing else wakes it.
const TICK: Duration = Duration::from_millis(50);
/// Segments of the memory of repeats that are swept with each look at the clock: all of them in some seconds.
const SWEEP_PER_TICK: usize = 4;

/// Looks at the clock: lets time pass in the log, and everything that depends on it.
pub(super) struct Ticker<L: Log> {
    desk: Rc<Desk<L>>,
    /// When the log was last synced for those who were promised it.
    synced: Duration,
}

impl<L: Log> Ticker<L> {
    pub fn spec() -> Spec {
        let does =
            "lets time pass when nobody writes, syncs what is to be durable soon, sweeps repeats, measures memory";
        Spec::new("tick", does, Retry::every(TICK)).vital()
    }

    pub fn new(desk: Rc<Desk<L>>) -> Ticker<L> {
        Ticker { synced: desk.shared.clock.passed(), desk }
    }

    /// Keeps log time near the wall clock, and tells when they are far apart.
    fn steer(&self) {
        let shared = &self.desk.shared;
        let standing = shared.clock.steer();
        shared.metrics.clock_ahead_seconds.set(standing.ahead_ms as f64 / 1000.0);
        match standing.trouble() {
            Some(what) => shared.troubles.raise(Trouble::Clock, &what),
            None => shared.troubles.clear(Trouble::Clock),
        }
    }
}

impl<L: Log + 'static> Work for Ticker<L> {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let desk = &self.desk;
        self.steer();
        let mut writer = desk.writer.borrow_mut();
        writer.tick(desk.shared.clock.now_ms());
        writer.state_mut().fates.contracts.sweep(SWEEP_PER_TICK);
        writer.observe();
        // Also for those who are not there, because they were told that there is no room.
        writer.make_room();
        if !writer.is_crowded() {
            desk.shared.troubles.clear(Trouble::Crowded);
        }
        if writer.is_cut_due() {
            desk.cut_due.wake();
        }
        let now = context.clock().passed();
        if writer.is_sync_promised() && now - self.synced + TICK > desk.options.durability.interval() {
            self.synced = now;
            // A failure is remembered, and every later write is told.
            writer.sync()?;
        }
        Ok(Next::After(TICK))
    }
}
