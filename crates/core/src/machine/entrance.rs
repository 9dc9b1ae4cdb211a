//! The way of a batch into the state: what its head says is looked at before anything of it is decided.
//!
//! The rules it is judged by must be known, the declarations it was made under those in force, its time one that the rule of log
//! time gives ([`crate::head::log_time_ms`]). Whatever is not so was never written by a sound appender, so a replay stops there
//! and says why; for a batch of one's own it is an assertion. A batch that stood before is void: it changes nothing but time.

use super::Machine;
use crate::fates::{Overrun, Void};
use crate::head::{Head, RULES, is_log_time_ms};
use crate::limits::VOIDS_MAX;
use crate::op::Batch;

/// What a batch says of itself cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Improper {
    #[error("it is judged by rules of version {0}, and this Tally knows those up to {RULES}: start a newer one")]
    NewerRules(u32),
    #[error("it was made under declarations from record {known} on, and those from record {in_force} on are in force")]
    ControlBehind { known: u64, in_force: u64 },
    #[error(
        "it was made under declarations from record {known} on, which are not there; those in force are from record {in_force} on"
    )]
    ControlAhead { known: u64, in_force: u64 },
    #[error("its log time is {log_time_ms}, after {before_ms}, and the clock of its appender was at {clock_ms}")]
    LogTime { log_time_ms: u64, before_ms: u64, clock_ms: u64 },
    #[error("its events were routed by identity group {0}, which the declarations do not have")]
    Group(u16),
    #[error("{0}")]
    Overrun(#[from] Overrun),
    #[error("it is one more than {VOIDS_MAX} void batches within the time for which repeats are remembered")]
    TooManyVoid,
}

impl Machine {
    /// Behind the last control record: a batch that is made now is made under it.
    pub fn control(&self) -> u64 {
        self.timeline.last_config().map_or(0, |config| config.from)
    }

    /// Whether a batch with this head and time may come next.
    pub fn check_head(&self, head: &Head, log_time_ms: u64) -> Result<(), Improper> {
        if head.rules > RULES {
            return Err(Improper::NewerRules(head.rules));
        }
        let (known, in_force) = (head.control, self.control());
        if known < in_force {
            return Err(Improper::ControlBehind { known, in_force });
        }
        if known > in_force {
            return Err(Improper::ControlAhead { known, in_force });
        }
        if !self.declarations().has_group(head.group) {
            return Err(Improper::Group(head.group.0));
        }
        let before_ms = self.log_time_ms();
        if !is_log_time_ms(before_ms, head.clock_ms, log_time_ms) {
            return Err(Improper::LogTime { log_time_ms, before_ms, clock_ms: head.clock_ms });
        }
        if self.timeline.voids() >= VOIDS_MAX {
            return Err(Improper::TooManyVoid);
        }
        Ok(self.fates.senders.check(head, log_time_ms)?)
    }

    /// Notes who sent a batch, before anything of it is applied. Answers why it is void, if it is. One without operations, such
    /// as a configuration, does not come to [`Machine::apply`], and enters by itself.
    #[inline]
    pub fn enter(&mut self, batch: &Batch<'_>) -> Option<Void> {
        let head = batch.head.as_ref()?;
        if let Err(improper) = self.check_head(head, batch.log_time_ms) {
            panic!("record {}: {improper}", batch.offset);
        }
        let digest = || head.digest(batch.bare_records());
        let void = self.fates.senders.admit(head, batch.log_time_ms, digest)?;
        self.timeline.voided(batch.offset);
        Some(void)
    }

    /// Whether the batch at an offset was void when it came.
    pub fn was_void(&self, offset: u64) -> bool {
        self.timeline.was_void(offset)
    }
}
