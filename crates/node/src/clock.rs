//! The only place where the node reads the time; everything else is handed it.
//!
//! A machine's clock is set by people and programs, and may be wrong for a second or a day. What a node decides by is
//! therefore a time of its own, from which log time is taken ([`Clock::now_ms`]): it goes on from where the log ended, passes as
//! the monotonic clock does, and is *steered* to the wall clock ([`ClockLine::steered`]). It never stands still and never runs
//! backwards; a wall clock that is behind makes it slower, and one that leaps ahead is followed only when it has stayed
//! there ([ADR 9](../../../docs/adr/0009-a-clock-of-its-own.md)).

mod alarm;
mod source;
mod words;

pub use source::{Hands, Stopwatch, wall_ms};
pub use words::{rfc3339, rfc3339_signed};

use arc_swap::ArcSwap;
use source::TimeSource;
use std::sync::Arc;
use std::time::Duration;
use tally_core::counter::duration::rough;
use tally_core::event::Arrival;
use tally_core::limits::{CLOCK_LEAP_MS_MAX, CLOCK_SETTLE_MS, CLOCK_STEP_MS_MAX, CLOCK_TOLD_MS};

/// How much a leap may differ from one look to the next and still be the same.
const WANDER_MS: u64 = 5_000;
/// While the wall clock is behind, time passes slower by one part in so many.
const SLOWED_BY: u64 = 16;

/// The time of a node. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    source: TimeSource,
    line: Arc<ArcSwap<ClockLine>>,
    /// What waits and durations are measured by.
    timer: TimeSource,
}

/// How time passes until the next look at the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockLine {
    /// On the monotonic clock.
    since_ms: u64,
    /// What the time was then.
    at_ms: u64,
    is_slowed: bool,
    held: Option<HeldTime>,
}

/// The wall clock is far ahead, and has to stay there before it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldTime {
    /// How far ahead.
    leap_ms: u64,
    /// The time at which it is followed.
    until_ms: u64,
}

/// How the wall clock stands to the node's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Positive if the wall clock is ahead.
    pub ahead_ms: i64,
    /// In how many milliseconds a leap will be followed.
    pub follows_in_ms: Option<u64>,
}

/// Why a node does not start at this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    #[error(
        "the clock of this machine is {} behind the last write: it says {}, and the log ends at {}",
        rough(log_ms - wall_ms), shown(*wall_ms), shown(*log_ms)
    )]
    Behind { wall_ms: u64, log_ms: u64 },
    #[error(
        "the clock of this machine is {} ahead of the last write: it says {}, and the log ends at {}",
        rough(wall_ms - log_ms), shown(*wall_ms), shown(*log_ms)
    )]
    Ahead { wall_ms: u64, log_ms: u64 },
}

impl Clock {
    /// The machine's.
    pub fn system() -> Clock {
        let source = TimeSource::system();
        Clock::of(source.clone(), source)
    }

    /// One that says what its hands say, while waits take the time that they take: for a node that is looked at from outside.
    pub fn settable(wall_ms: u64) -> (Clock, Arc<Hands>) {
        let hands = Arc::new(Hands::at(wall_ms));
        (Clock::of(TimeSource::Hands(hands.clone()), TimeSource::system()), hands)
    }

    /// One on which waits, too, end only when its hands are moved: a node that is simulated takes no time.
    pub fn simulated(wall_ms: u64) -> (Clock, Arc<Hands>) {
        let hands = Arc::new(Hands::at(wall_ms));
        let source = TimeSource::Hands(hands.clone());
        (Clock::of(source.clone(), source), hands)
    }

    fn of(source: TimeSource, timer: TimeSource) -> Clock {
        let line = ClockLine::from(source.monotonic_ms(), source.wall_ms());
        Clock { source, line: Arc::new(ArcSwap::from_pointee(line)), timer }
    }

    /// The time that has passed since some moment before: two of these are a duration.
    pub fn passed(&self) -> Duration {
        self.timer.monotonic()
    }

    /// The processor time of this thread: two of these say what it has taken from others, however long it waited meanwhile.
    pub fn worked(&self) -> Duration {
        self.timer.worked()
    }

    /// Ends when so much time has passed.
    pub async fn sleep(&self, time: Duration) {
        self.timer.sleep(time).await;
    }

    /// Waits for something, but not longer than this; `None` if it did not happen.
    pub async fn timeout<T>(&self, time: Duration, something: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            happened = something => Some(happened),
            () = self.sleep(time) => None,
        }
    }

    /// What the wall clock says, in milliseconds since 1970: for people, never for a decision.
    pub fn wall_ms(&self) -> u64 {
        self.source.wall_ms()
    }

    /// Goes on from the end of a log, 0 if it is new. Refuses what can hardly be true, unless somebody has said that it is.
    pub fn go_on_from(&self, log_ms: u64, is_accepted: bool) -> Result<(), ClockError> {
        let (monotonic_ms, wall_ms) = (self.source.monotonic_ms(), self.source.wall_ms());
        let is_new = log_ms == 0;
        if !is_new && !is_accepted {
            if wall_ms.saturating_add(CLOCK_STEP_MS_MAX) < log_ms {
                return Err(ClockError::Behind { wall_ms, log_ms });
            }
            if wall_ms > log_ms.saturating_add(CLOCK_LEAP_MS_MAX) {
                return Err(ClockError::Ahead { wall_ms, log_ms });
            }
        }
        let from_ms = if is_new || is_accepted { log_ms.max(wall_ms) } else { log_ms };
        self.line.store(Arc::new(ClockLine::from(monotonic_ms, from_ms).steered(monotonic_ms, wall_ms)));
        Ok(())
    }

    /// Milliseconds since 1970, as the node has it.
    pub fn now_ms(&self) -> u64 {
        self.line.load().at(self.source.monotonic_ms())
    }

    /// When something arrives that is received now.
    pub fn arrival(&self) -> Arrival {
        Arrival { log_ms: self.now_ms(), wall_ms: self.source.wall_ms() }
    }

    /// When something ends that has so long to live. Exact also across a leap that is about to be followed: what ends
    /// before it ends by the time as it is, what ends behind it by the time as it will be.
    pub fn deadline_ms(&self, ttl_ms: i64) -> Option<i64> {
        self.line.load().deadline_ms(self.source.monotonic_ms(), ttl_ms)
    }

    /// How long something has to live that ends at a moment; 0 if it has ended. The reverse of [`Self::deadline_ms`].
    pub fn left_ms(&self, deadline_ms: u64) -> u64 {
        self.line.load().left_ms(self.source.monotonic_ms(), deadline_ms)
    }

    /// Whether the wall clock has leapt ahead and is about to be followed.
    pub fn is_held(&self) -> bool {
        self.line.load().held.is_some()
    }

    /// Looks at the wall clock. To be called often; by one thread.
    pub fn steer(&self) -> Standing {
        let (monotonic_ms, wall_ms) = (self.source.monotonic_ms(), self.source.wall_ms());
        let line = **self.line.load();
        let steered = line.steered(monotonic_ms, wall_ms);
        if steered != line {
            self.line.store(Arc::new(steered));
        }
        let now_ms = steered.at(monotonic_ms);
        Standing {
            ahead_ms: wall_ms as i64 - now_ms as i64,
            follows_in_ms: steered.held.map(|held| held.until_ms.saturating_sub(now_ms)),
        }
    }
}

impl ClockLine {
    fn from(since_ms: u64, at_ms: u64) -> ClockLine {
        ClockLine { since_ms, at_ms, is_slowed: false, held: None }
    }

    fn at(&self, monotonic_ms: u64) -> u64 {
        let passed_ms = monotonic_ms.saturating_sub(self.since_ms);
        self.at_ms + if self.is_slowed { passed_ms - passed_ms / SLOWED_BY } else { passed_ms }
    }

    fn steered(self, monotonic_ms: u64, wall_ms: u64) -> ClockLine {
        let now_ms = self.at(monotonic_ms);
        let on = ClockLine::from(monotonic_ms, now_ms);
        let Some(ahead_ms) = wall_ms.checked_sub(now_ms) else {
            return if self.is_slowed { self } else { ClockLine { is_slowed: true, ..on } };
        };
        match self.held {
            None if ahead_ms == 0 && !self.is_slowed => self,
            _ if ahead_ms <= CLOCK_STEP_MS_MAX => ClockLine::from(monotonic_ms, wall_ms),
            _ if ahead_ms > CLOCK_LEAP_MS_MAX => on,
            Some(held) if held.leap_ms.abs_diff(ahead_ms) > WANDER_MS => on.holding(ahead_ms),
            Some(held) if now_ms >= held.until_ms => ClockLine::from(monotonic_ms, wall_ms),
            Some(_) => self,
            None => on.holding(ahead_ms),
        }
    }

    fn holding(self, leap_ms: u64) -> ClockLine {
        ClockLine { held: Some(HeldTime { leap_ms, until_ms: self.at_ms + CLOCK_SETTLE_MS }), ..self }
    }

    fn deadline_ms(&self, monotonic_ms: u64, ttl_ms: i64) -> Option<i64> {
        let plain_ms = ttl_ms.checked_add_unsigned(self.at(monotonic_ms))?;
        match self.held {
            Some(held) if plain_ms > held.until_ms as i64 => plain_ms.checked_add_unsigned(held.leap_ms),
            _ => Some(plain_ms),
        }
    }

    fn left_ms(&self, monotonic_ms: u64, deadline_ms: u64) -> u64 {
        let now_ms = self.at(monotonic_ms);
        let ends_ms = match self.held {
            Some(held) if deadline_ms > held.until_ms => deadline_ms.saturating_sub(held.leap_ms).max(held.until_ms),
            _ => deadline_ms,
        };
        ends_ms.saturating_sub(now_ms)
    }
}

impl Standing {
    /// What there is to say about it; `None` if the two clocks agree well enough.
    pub fn trouble(&self) -> Option<String> {
        if self.ahead_ms.unsigned_abs() < CLOCK_TOLD_MS {
            return None;
        }
        let apart = rough(self.ahead_ms.unsigned_abs());
        Some(match self.follows_in_ms {
            _ if self.ahead_ms < 0 => format!(
                "the clock of this machine is {apart} behind the time of the log, which goes on a little slower until they \
                 meet; set the clock if it is wrong"
            ),
            Some(_) => format!(
                "the clock of this machine has leapt ahead of the time of the log by {apart}; if it stays there for \
                 {} s it is followed, so set it now if it is wrong",
                CLOCK_SETTLE_MS / 1000
            ),
            None => format!(
                "the clock of this machine is {apart} ahead of the time of the log, which is not followed; set the clock, \
                 or restart with --accept-clock if it is right"
            ),
        })
    }
}

/// A moment for people.
fn shown(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|at_ms| jiff::Timestamp::from_millisecond(at_ms).ok());
    at.map_or_else(|| format!("{at_ms} ms"), |at| format!("{at:.0}"))
}

#[cfg(test)]
mod tests;
