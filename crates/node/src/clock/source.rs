//! Where the time comes from: the machine's clocks, or hands that a test moves.

use super::alarm::Alarms;
use rustix::time::{ClockId, clock_gettime};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the wall clock says, in milliseconds since 1970: for the ages of connections and the like, never for a decision about
/// counters, which is [`super::Clock::now_ms`]'s.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Measures how long something takes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// How much later it was started than another one.
    pub fn since(&self, earlier: &Stopwatch) -> Duration {
        self.0.duration_since(earlier.0)
    }
}

#[derive(Clone, Debug)]
pub(super) enum TimeSource {
    /// The stopwatch stands for the monotonic clock.
    System(Stopwatch),
    Hands(Arc<Hands>),
}

impl TimeSource {
    pub fn system() -> TimeSource {
        TimeSource::System(Stopwatch::start())
    }

    pub fn wall_ms(&self) -> u64 {
        match self {
            TimeSource::System(_) => wall_ms(),
            TimeSource::Hands(hands) => hands.wall_ms.load(Ordering::Acquire),
        }
    }

    pub fn monotonic_ms(&self) -> u64 {
        self.monotonic().as_millis() as u64
    }

    pub fn monotonic(&self) -> Duration {
        match self {
            TimeSource::System(started) => started.elapsed(),
            TimeSource::Hands(hands) => Duration::from_millis(hands.monotonic_ms.load(Ordering::Acquire)),
        }
    }

    /// How long this thread has worked. With hands nobody works for any time.
    pub fn worked(&self) -> Duration {
        match self {
            TimeSource::System(_) => clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default(),
            TimeSource::Hands(_) => Duration::ZERO,
        }
    }

    /// Ends when so much time has passed.
    pub async fn sleep(&self, time: Duration) {
        match self {
            TimeSource::System(_) => tokio::time::sleep(time).await,
            TimeSource::Hands(hands) => hands.sleep(time).await,
        }
    }
}

/// The hands of a clock that a test sets.
#[derive(Debug)]
pub struct Hands {
    wall_ms: AtomicU64,
    monotonic_ms: AtomicU64,
    /// Who waits for these hands to move.
    alarms: Alarms,
}

impl Hands {
    pub(super) fn at(wall_ms: u64) -> Hands {
        Hands { wall_ms: AtomicU64::new(wall_ms), monotonic_ms: AtomicU64::new(0), alarms: Alarms::default() }
    }

    /// Time passes.
    pub fn pass(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::AcqRel);
        let before_ms = self.monotonic_ms.fetch_add(ms, Ordering::AcqRel);
        self.alarms.ring(before_ms + ms);
    }

    /// How long it is until the first of those who wait is due; `None` if nobody waits.
    pub fn until_next_ms(&self) -> Option<u64> {
        let due_ms = self.alarms.first_ms()?;
        Some(due_ms.saturating_sub(self.monotonic_ms.load(Ordering::Acquire)))
    }

    async fn sleep(&self, time: Duration) {
        let due_ms = self.monotonic_ms.load(Ordering::Acquire) + time.as_micros().div_ceil(1000) as u64;
        let alarm = self.alarms.set(due_ms);
        poll_fn(|context| alarm.poll(context, || self.monotonic_ms.load(Ordering::Acquire))).await;
    }

    /// Somebody sets the wall clock, and no time passes.
    pub fn set_wall(&self, wall_ms: u64) {
        self.wall_ms.store(wall_ms, Ordering::Release);
    }

    pub fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::Acquire)
    }
}
