//! Gives back what is free when the process takes much of its memory.
//!
//! An allocator keeps freed memory for a while, since most of it is of use again at once. Bodies come and go by the hundred megabytes
//! in that time, and what one thread has freed another does not always use: at `--memory 512MiB` that was 200 MB that nobody held.
//! Giving all of it back at once would cost every load a few percent, so it is done only where memory is short.

use crate::metrics::resident_bytes;
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use std::time::Duration;

/// How often it is looked at, and how often while memory is short: what is freed in between is some megabytes.
const EVERY: Duration = Duration::from_millis(50);
const EVERY_WHEN_SHORT: Duration = Duration::from_millis(10);
/// Memory is short when less than one part in so many of it is left.
const LEFT_PARTS: u64 = 4;

pub struct Reclaimer {
    /// What the process has of the machine's memory when memory is short.
    short_at_bytes: u64,
    give_back: fn(),
}

impl Reclaimer {
    pub fn spec() -> Spec {
        let does = "gives freed memory back to the system while the process takes much of its own";
        Spec::new("reclaim", does, Retry::every(EVERY))
    }

    /// `give_back` makes the allocator let go of everything that is free.
    pub fn new(memory_bytes: u64, give_back: fn()) -> Reclaimer {
        Reclaimer { short_at_bytes: memory_bytes - memory_bytes / LEFT_PARTS, give_back }
    }

    /// Answers when to look again.
    fn look(&self, resident_bytes: Option<u64>) -> Duration {
        if resident_bytes.is_none_or(|bytes| bytes < self.short_at_bytes) {
            return EVERY;
        }
        (self.give_back)();
        EVERY_WHEN_SHORT
    }
}

impl Work for Reclaimer {
    async fn work(&mut self, _: &Context) -> Result<Next, WorkFailure> {
        Ok(Next::After(self.look(resident_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn memory_is_given_back_only_where_it_is_short() {
        static GIVEN: AtomicUsize = AtomicUsize::new(0);
        let reclaimer = Reclaimer::new(1000, || {
            GIVEN.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!([None, Some(749)].map(|bytes| reclaimer.look(bytes)), [EVERY; 2]);
        assert_eq!(GIVEN.load(Ordering::Relaxed), 0);
        assert_eq!(reclaimer.look(Some(750)), EVERY_WHEN_SHORT);
        assert_eq!(GIVEN.load(Ordering::Relaxed), 1);
    }
}
