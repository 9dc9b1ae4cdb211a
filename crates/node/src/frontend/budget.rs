//! One bound on everything that clients can make grow: bodies being read, windows of decompressors, unfinished commands,
//! answers that nobody takes, what subscribers are about to be told.
//!
//! Whoever holds something for a client has a [`Charge`], which grows and shrinks with it and is given back when it is
//! dropped. What does not fit is refused or cut off; nobody waits with half a request in memory. The last quarter is for
//! those who hold little, so that a few large requests do not keep the many small ones out.
//!
//! Large requests wait before they are read: only so many are under way as keep the writer busy ([`Budget::admit`]). The others stay
//! in their sockets, and whoever has waited longest is next. When the line stands still, whoever comes is told so at once: those who
//! wait already are served before anybody new.

use crate::clock::Stopwatch;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tally_core::limits::{LARGE_BYTES_UNDER_WAY_MAX, LARGE_LINE_MS_MAX, LARGE_WAIT_MS_MAX};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// What may use the last quarter of the budget, in bytes.
const SMALL_BYTES: usize = 256 * 1024;

/// Large requests are admitted in units of this many bytes.
const ADMISSION_UNIT_BYTES: usize = 1024;

/// So many times what may be under way may wait for it; more would wait for too long, and is told so at once.
const WAITING_TIMES_MAX: usize = 16;

/// A growing charge takes room in steps of this many bytes, so that it seldom touches what others touch too.
const STEP_BYTES: usize = 8 * 1024;

#[derive(Debug)]
pub struct Budget {
    bytes: usize,
    held_bytes: AtomicUsize,
    /// Units that large requests may still take.
    large: Arc<Semaphore>,
    large_units: usize,
    line: Mutex<Line>,
    /// Once somebody has waited so long, nobody joins the line.
    line_patience: Duration,
}

/// Those who wait for leave, in the order in which they came.
#[derive(Debug, Default)]
struct Line {
    /// The number of each, what it waits for, and since when.
    waiting: VecDeque<(u64, usize, Stopwatch)>,
    units: usize,
    next: u64,
}

/// Leave for a large request to be read and committed, until it is dropped.
#[derive(Debug)]
pub struct Admission(#[expect(dead_code, reason = "it is given back by being dropped")] OwnedSemaphorePermit);

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// There never will be: this much is what one client may hold.
    pub beyond_bytes: Option<usize>,
}

impl Budget {
    pub fn new(bytes: usize) -> Arc<Budget> {
        Budget::with_patience(bytes, Duration::from_millis(LARGE_LINE_MS_MAX))
    }

    fn with_patience(bytes: usize, line_patience: Duration) -> Arc<Budget> {
        let large_units = LARGE_BYTES_UNDER_WAY_MAX.min(bytes / 4) / ADMISSION_UNIT_BYTES;
        Arc::new(Budget {
            bytes,
            held_bytes: AtomicUsize::new(0),
            large: Arc::new(Semaphore::new(large_units)),
            large_units,
            line: Mutex::default(),
            line_patience,
        })
    }

    /// Waits until a large request may be read that will take about so many bytes. It takes nothing of the budget: that is charged as
    /// it arrives.
    pub async fn admit(&self, expected_bytes: usize) -> Result<Admission, Full> {
        let units = expected_bytes.div_ceil(ADMISSION_UNIT_BYTES).min(self.large_units);
        let admitted = match Arc::clone(&self.large).try_acquire_many_owned(units as u32) {
            Ok(permit) => Some(permit),
            Err(_) => self.wait_for_admission(units).await,
        };
        admitted.map(Admission).ok_or(Full { beyond_bytes: None })
    }

    async fn wait_for_admission(&self, units: usize) -> Option<OwnedSemaphorePermit> {
        let _place = self.join_line(units)?;
        let admitted = Arc::clone(&self.large).acquire_many_owned(units as u32);
        // It is never closed.
        timeout(Duration::from_millis(LARGE_WAIT_MS_MAX), admitted).await.ok()?.ok()
    }

    /// A place at the end of the line, unless it is too long or stands still.
    fn join_line(&self, units: usize) -> Option<LinePlace<'_>> {
        let mut line = self.line();
        let stands_still = line.waiting.front().is_some_and(|(_, _, since)| since.elapsed() >= self.line_patience);
        if stands_still || line.units + units > WAITING_TIMES_MAX * self.large_units {
            return None;
        }
        let number = line.next;
        line.next += 1;
        line.units += units;
        line.waiting.push_back((number, units, Stopwatch::start()));
        Some(LinePlace { budget: self, number })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing in here panics halfway.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    fn large_bytes_max(&self) -> usize {
        self.bytes - self.bytes / 4
    }

    /// Takes `more` for somebody who then has `all`.
    fn take(&self, more: usize, all: usize) -> Result<(), Full> {
        let limit = if all <= SMALL_BYTES { self.bytes } else { self.large_bytes_max() };
        let grown = |held: usize| held.checked_add(more).filter(|&held| held <= limit);
        match self.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => Ok(()),
            Err(_) => Err(Full { beyond_bytes: (all > limit).then_some(limit) }),
        }
    }

    fn give(&self, bytes: usize) {
        // Who holds nothing need not touch what all others touch.
        if bytes == 0 {
            return;
        }
        let before = self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes given back of {before}");
    }
}

/// The place of somebody who waits; he may stop waiting at any time.
struct LinePlace<'a> {
    budget: &'a Budget,
    number: u64,
}

impl Drop for LinePlace<'_> {
    fn drop(&mut self) {
        let mut line = self.budget.line();
        let at = line.waiting.binary_search_by_key(&self.number, |(number, ..)| *number);
        let left = at.ok().and_then(|at| line.waiting.remove(at));
        let (_, units, _) = left.expect("who waits is in the line");
        line.units -= units;
    }
}

/// What one holder has of the budget.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    pub fn new(budget: &Arc<Budget>) -> Charge {
        Charge { budget: budget.clone(), bytes: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes sure that at least `bytes` are held.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Full> {
        match bytes <= self.bytes {
            true => Ok(()),
            false => self.set(bytes.next_multiple_of(STEP_BYTES)),
        }
    }

    /// Holds exactly `bytes` from now on; what it had before if there is no room.
    pub fn set(&mut self, bytes: usize) -> Result<(), Full> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => {}
            Some(more) => self.budget.take(more, bytes)?,
            None => self.budget.give(self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Holds nothing any more.
    pub fn release(&mut self) {
        self.budget.give(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

    const MIB: usize = 1 << 20;

    async fn waits<F: Future>(mut future: Pin<&mut F>) -> bool {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    #[test]
    fn holders_share_one_bound_and_give_back_what_they_took() {
        let budget = Budget::new(8 * MIB);
        let (mut first, mut second) = (Charge::new(&budget), Charge::new(&budget));
        first.set(4 * MIB).unwrap();
        second.grow_to(MIB).unwrap();
        assert_eq!(second.set(3 * MIB), Err(Full { beyond_bytes: None }));
        assert_eq!((second.bytes(), budget.held_bytes()), (MIB, 5 * MIB));
        first.set(MIB).unwrap();
        second.set(3 * MIB).unwrap();
        drop((first, second));
        assert_eq!(budget.held_bytes(), 0);
    }

    #[tokio::test]
    async fn large_requests_are_admitted_in_the_order_in_which_they_came() {
        let budget = Budget::new(16 * MIB);
        let first = budget.admit(3 * MIB).await.unwrap();
        let (mut second, mut third) = (Box::pin(budget.admit(2 * MIB)), Box::pin(budget.admit(1)));
        assert!(waits(second.as_mut()).await);
        assert!(waits(third.as_mut()).await, "there is room, but somebody waits longer");
        drop(first);
        let second = second.await.unwrap();
        let third = third.await.unwrap();
        assert_eq!(budget.held_bytes(), 0, "nothing has arrived");
        drop((second, third));
        budget.admit(100 * MIB).await.unwrap();
    }

    #[tokio::test]
    async fn who_would_wait_too_long_is_told_at_once() {
        let budget = Budget::new(16 * MIB);
        let all = budget.admit(4 * MIB).await.unwrap();
        let mut waiting: Vec<_> = (0..WAITING_TIMES_MAX).map(|_| Box::pin(budget.admit(4 * MIB))).collect();
        for one in &mut waiting {
            assert!(waits(one.as_mut()).await);
        }
        assert_eq!(budget.admit(4 * MIB).await.unwrap_err(), Full { beyond_bytes: None });
        drop(waiting.pop());
        let mut next = Box::pin(budget.admit(4 * MIB));
        assert!(waits(next.as_mut()).await);
        drop(all);
        drop(waiting);
        next.await.unwrap();
    }

    #[tokio::test]
    async fn when_the_line_stands_still_newcomers_are_told_and_those_who_wait_are_served() {
        let budget = Budget::with_patience(16 * MIB, Duration::ZERO);
        let all = budget.admit(4 * MIB).await.unwrap();
        let mut waiting = Box::pin(budget.admit(MIB));
        assert!(waits(waiting.as_mut()).await, "nobody has waited yet");
        assert_eq!(budget.admit(MIB).await.unwrap_err(), Full { beyond_bytes: None });
        drop(all);
        let first = waiting.await.unwrap();
        let _second = budget.admit(MIB).await.expect("nobody waits any more");
        drop(first);
        let line = budget.line();
        assert_eq!((line.waiting.len(), line.units), (0, 0));
    }

    #[test]
    fn large_holders_leave_a_quarter_to_small_ones() {
        let budget = Budget::new(8 * MIB);
        let mut large = Charge::new(&budget);
        assert_eq!(large.set(7 * MIB), Err(Full { beyond_bytes: Some(6 * MIB) }));
        large.set(6 * MIB).unwrap();
        let mut small: Vec<Charge> = (0..9).map(|_| Charge::new(&budget)).collect();
        small[..8].iter_mut().for_each(|charge| charge.set(SMALL_BYTES).unwrap());
        assert_eq!(small[8].set(1), Err(Full { beyond_bytes: None }));
    }
}
