//! One bound on what all requests together hold while they are read.
//!
//! A request takes room as it grows and gives it back when it is answered. When there is none left it is refused, and the
//! client comes back later; it never waits with half a body in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::engine::Refusal;

/// Room is taken in steps of this many bytes, so that a growing request seldom touches what others touch too.
const STEP_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub struct Memory {
    free_bytes: AtomicUsize,
}

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        Memory { free_bytes: AtomicUsize::new(bytes) }
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |free: usize| free.checked_sub(bytes);
        self.free_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// What one request holds.
#[derive(Debug)]
pub struct Lease {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Lease {
    pub fn new(memory: Arc<Memory>) -> Lease {
        Lease { memory, bytes: 0 }
    }

    /// Makes sure that at least `bytes` are held.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let wanted = bytes.next_multiple_of(STEP_BYTES);
        if !self.memory.take(wanted - self.bytes) {
            return Err(Refusal::Busy { retry_after: Duration::from_secs(1) });
        }
        self.bytes = wanted;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.memory.free_bytes.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_share_one_bound_and_give_back_what_they_took() {
        let memory = Arc::new(Memory::new(3 * STEP_BYTES));
        let mut first = Lease::new(Arc::clone(&memory));
        let mut second = Lease::new(Arc::clone(&memory));
        first.hold(STEP_BYTES + 1).unwrap();
        second.hold(1).unwrap();
        assert!(matches!(second.hold(STEP_BYTES + 1), Err(Refusal::Busy { .. })));
        drop(first);
        second.hold(3 * STEP_BYTES).unwrap();
        drop(second);
        assert_eq!(memory.free_bytes.load(Ordering::Relaxed), 3 * STEP_BYTES);
    }
}
