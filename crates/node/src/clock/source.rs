//! Where the time comes from: the machine's clocks, or hands that a test moves.

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
pub(super) enum Source {
    /// The stopwatch stands for the monotonic clock.
    System(Stopwatch),
    Hands(Arc<Hands>),
}

impl Source {
    pub fn system() -> Source {
        Source::System(Stopwatch::start())
    }

    pub fn wall_ms(&self) -> u64 {
        match self {
            Source::System(_) => wall_ms(),
            Source::Hands(hands) => hands.wall_ms.load(Ordering::Acquire),
        }
    }

    pub fn monotonic_ms(&self) -> u64 {
        match self {
            Source::System(started) => started.elapsed().as_millis() as u64,
            Source::Hands(hands) => hands.monotonic_ms.load(Ordering::Acquire),
        }
    }
}

/// The hands of a clock that a test sets.
#[derive(Debug)]
pub struct Hands {
    wall_ms: AtomicU64,
    monotonic_ms: AtomicU64,
}

impl Hands {
    pub(super) fn at(wall_ms: u64) -> Hands {
        Hands { wall_ms: AtomicU64::new(wall_ms), monotonic_ms: AtomicU64::new(0) }
    }

    /// Time passes.
    pub fn pass(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::AcqRel);
        self.monotonic_ms.fetch_add(ms, Ordering::AcqRel);
    }

    /// Somebody sets the wall clock, and no time passes.
    pub fn set_wall(&self, wall_ms: u64) {
        self.wall_ms.store(wall_ms, Ordering::Release);
    }

    pub fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::Acquire)
    }
}
