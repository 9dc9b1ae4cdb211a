//! When the next question of a paced run is due: at even distances, whatever became of those before.
//!
//! A timer of the kernel wakes the driver, since polling has a resolution of a millisecond, and spinning would take a core from
//! the server.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::time::{Duration, Instant};

pub struct Pace {
    rate: u64,
    /// Where operations are counted from.
    began: Instant,
    /// Operations that were due so far.
    operations: u64,
    timer: OwnedFd,
    /// When the timer goes off.
    wakes_at: Option<Instant>,
}

impl Pace {
    /// A pace of so many operations per second, which wakes whoever polls `registry` with `token`.
    pub fn new(rate: u64, registry: &Registry, token: Token) -> io::Result<Pace> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Pace { rate, began: Instant::now(), operations: 0, timer, wakes_at: None })
    }

    pub fn start(&mut self, now: Instant) {
        self.began = now;
    }

    /// When the next question is due.
    pub fn due(&self) -> Instant {
        self.began + after(self.operations, self.rate)
    }

    /// A question with so many operations was asked.
    pub fn asked(&mut self, operations: u64) {
        self.operations += operations;
    }

    /// Sees to it that the poll ends when the next question is due.
    pub fn wake_when_due(&mut self, now: Instant) -> io::Result<()> {
        let due = self.due();
        if self.wakes_at == Some(due) && due > now {
            return Ok(());
        }
        // Zero would stop the timer.
        let left = due.saturating_duration_since(now).max(Duration::from_nanos(1));
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // Setting a timer makes it unread again, so that its next end is an event of its own.
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: never, it_value: at })?;
        self.wakes_at = Some(due);
        Ok(())
    }
}

/// How long so many operations take.
fn after(operations: u64, rate: u64) -> Duration {
    let nanos = u128::from(operations % rate) * 1_000_000_000 / u128::from(rate);
    Duration::new(operations / rate, nanos as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};

    #[test]
    fn moments_are_even_and_do_not_drift() {
        assert_eq!(after(0, 3), Duration::ZERO);
        assert_eq!(after(1, 3), Duration::from_nanos(333_333_333));
        assert_eq!(after(3_000_000_000_000, 3), Duration::from_secs(1_000_000_000_000));
        assert_eq!(after(2_500, 2_000), Duration::from_millis(1_250));
    }

    #[test]
    fn whoever_polls_is_woken_for_every_question_and_not_before_it_is_due() {
        let mut poll = Poll::new().unwrap();
        let mut pace = Pace::new(1_000, poll.registry(), Token(0)).unwrap();
        let mut events = Events::with_capacity(1);
        pace.start(Instant::now());
        for _ in 0..3 {
            pace.asked(1);
            let due = pace.due();
            while Instant::now() < due {
                pace.wake_when_due(Instant::now()).unwrap();
                poll.poll(&mut events, None).unwrap();
                assert!(!events.is_empty());
            }
        }
    }
}
