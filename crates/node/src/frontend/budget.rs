//! One bound on everything that clients can make grow: bodies being read, windows of decompressors, unfinished commands,
//! answers that nobody takes, what subscribers are about to be told.
//!
//! Whoever holds something for a client has a [`Charge`], which grows and shrinks with it and is given back when it is
//! dropped. What does not fit is refused or cut off; nobody waits with half a request in memory. The last quarter is for
//! those who hold little, so that a few large requests do not keep the many small ones out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What may use the last quarter of the budget, in bytes.
const SMALL_BYTES: usize = 256 * 1024;

/// A growing charge takes room in steps of this many bytes, so that it seldom touches what others touch too.
const STEP_BYTES: usize = 8 * 1024;

#[derive(Debug)]
pub struct Budget {
    bytes: usize,
    held_bytes: AtomicUsize,
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// There never will be: this much is what one client may hold.
    pub beyond_bytes: Option<usize>,
}

impl Budget {
    pub fn new(bytes: usize) -> Arc<Budget> {
        Arc::new(Budget { bytes, held_bytes: AtomicUsize::new(0) })
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
        let before = self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes given back of {before}");
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

    const MIB: usize = 1 << 20;

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
