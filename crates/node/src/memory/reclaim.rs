//! Gives back what is free when the process takes much of its memory, or more and more of it.
//!
//! An allocator keeps freed memory for a while, since most of it is of use again at once. Bodies come and go by the hundred megabytes
//! in that time, and what one thread has freed another does not always use: at `--memory 512MiB` that was 200 MB that nobody held.
//! Giving all of it back at once would cost every load a few percent, so it is done only where memory is short, and where it grows: a
//! table that doubles has freed as much as it holds by then, and whoever creates millions of counters in a hurry would see both.

use crate::metrics::resident_bytes;
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use std::time::Duration;

/// How often it is looked at, and how often while memory is short: what is freed in between is some megabytes.
const EVERY: Duration = Duration::from_millis(50);
const EVERY_WHEN_SHORT: Duration = Duration::from_millis(10);
/// Memory is short when less than one part in so many of it is left.
const LEFT_PARTS: u64 = 4;
/// Memory has grown when it is one part in so many more than it was, and so many bytes at least.
const GROWN_PARTS: u64 = 64;
const GROWN_BYTES_MIN: u64 = 4 << 20;
/// What it had once is forgotten by one part in so many, each time it is looked at. Buffers that are in use again at once are given back
/// with everything else: that they come back is no growth, and to take it for that would give them back for ever.
const FORGOTTEN_PARTS: u64 = 256;

pub struct Reclaimer {
    /// What the process has of the machine's memory when memory is short.
    short_at_bytes: u64,
    /// What it had when something was given back last, or what is left of that if it has less by now.
    had_bytes: Option<u64>,
    give_back: fn(),
}

impl Reclaimer {
    pub fn spec() -> Spec {
        let does = "gives freed memory back to the system while the process takes much of its own";
        Spec::new("reclaim", does, Retry::every(EVERY))
    }

    /// `give_back` makes the allocator let go of everything that is free.
    pub fn new(memory_bytes: u64, give_back: fn()) -> Reclaimer {
        Reclaimer { short_at_bytes: memory_bytes - memory_bytes / LEFT_PARTS, had_bytes: None, give_back }
    }

    /// Answers when to look again.
    fn look(&mut self, resident_bytes: Option<u64>) -> Duration {
        let Some(bytes) = resident_bytes else { return EVERY };
        let had = self.had_bytes.unwrap_or(bytes);
        let is_short = bytes >= self.short_at_bytes;
        let has_grown = bytes.saturating_sub(had) >= GROWN_BYTES_MIN.max(had / GROWN_PARTS);
        let kept = had.min(bytes.max(had - had / FORGOTTEN_PARTS));
        self.had_bytes = Some(if is_short || has_grown { bytes.max(kept) } else { kept });
        if is_short || has_grown {
            (self.give_back)();
        }
        if is_short { EVERY_WHEN_SHORT } else { EVERY }
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

    static GIVEN: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn memory_is_given_back_only_where_it_is_short_or_grows() {
        const MIB: u64 = 1 << 20;
        let mut reclaimer = Reclaimer::new(1000 * MIB, || {
            GIVEN.fetch_add(1, Ordering::Relaxed);
        });
        let mut look = |mib: u64| (reclaimer.look(Some(mib * MIB)), GIVEN.swap(0, Ordering::Relaxed));
        assert_eq!([100, 103, 90].map(&mut look), [(EVERY, 0); 3]);
        assert_eq!(look(104), (EVERY, 1), "4 MiB more than it was");
        assert_eq!([70, 104, 107].map(&mut look), [(EVERY, 0); 3], "what was given back and is needed again");
        assert_eq!([70; 200].map(&mut look), [(EVERY, 0); 200]);
        assert_eq!([73, 74].map(&mut look), [(EVERY, 0), (EVERY, 1)], "that it had more is long ago");
        assert_eq!([640, 649].map(&mut look), [(EVERY, 1), (EVERY, 0)]);
        assert_eq!(look(650), (EVERY, 1), "a part in 64");
        assert_eq!([750, 750, 749].map(&mut look), [(EVERY_WHEN_SHORT, 1), (EVERY_WHEN_SHORT, 1), (EVERY, 0)]);
        assert_eq!(reclaimer.look(None), EVERY);
    }
}
