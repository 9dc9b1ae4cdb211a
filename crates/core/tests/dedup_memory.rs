//! What dedup costs in memory, asked of the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tally_core::id::{CellHasher, CellKey};
use tally_core::memory::dedup::Dedup;

const WINDOW_MS: u64 = 60_000;
/// Enough that all segments grow many times; the sizes of segments repeat with every doubling.
const GROUPS: usize = 300_000;
const BYTES_PER_GROUP_MAX: usize = 100;

struct Counting;

// Per thread, so that only what a test itself allocates counts.
thread_local! {
    static IN_USE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator is unsafe; this one only counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.set(IN_USE.get().wrapping_add(layout.size()));
        PEAK.set(PEAK.get().max(IN_USE.get()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.set(IN_USE.get().wrapping_sub(layout.size()));
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that was in use at any moment of some work.
fn peak_of(work: impl FnOnce()) -> usize {
    PEAK.set(IN_USE.get());
    work();
    PEAK.get()
}

fn keys(sessions: std::ops::Range<usize>) -> Vec<CellKey> {
    let hasher = CellHasher::new(1);
    sessions.map(|session| hasher.key(&session.to_le_bytes())).collect()
}

#[test]
fn an_active_session_costs_at_most_100_bytes_at_every_moment_of_growth() {
    let keys = keys(0..GROUPS);
    let base = IN_USE.get();
    let mut dedup = Dedup::new(WINDOW_MS);
    let mut worst = 0.0f64;
    for (index, key) in keys.iter().enumerate() {
        let peak = peak_of(|| assert!(!dedup.is_repeat(*key, 1, 0))) - base;
        let groups = index + 1;
        assert_eq!(dedup.bytes(), IN_USE.get() - base + size_of::<Dedup>(), "of {groups} sessions");
        if groups > 10_000 {
            assert!(peak <= groups * BYTES_PER_GROUP_MAX, "{peak} bytes for {groups} sessions");
            worst = worst.max(peak as f64 / groups as f64);
        }
    }
    assert!(worst > 60.0, "{worst:.1} bytes are too few to be true");
    println!("at worst {worst:.1} bytes per session");

    // The same sessions in the next window, with consecutive seqs, need nothing more.
    let in_use = IN_USE.get();
    let peak = peak_of(|| {
        for seq in 2..5 {
            keys.iter().for_each(|key| assert!(!dedup.is_repeat(*key, seq, WINDOW_MS)));
        }
    });
    assert_eq!((dedup.groups(), peak), (GROUPS, in_use));
}

#[test]
fn sessions_that_end_make_room_for_others() {
    let (keys, others) = (keys(0..GROUPS), keys(GROUPS..2 * GROUPS));
    let base = IN_USE.get();
    let mut dedup = Dedup::new(WINDOW_MS);
    let mut active = [&keys, &others].into_iter().cycle();
    let peak = peak_of(|| {
        for window in 0..6 {
            let active = active.next().expect("it never ends");
            active.iter().for_each(|key| assert!(!dedup.is_repeat(*key, window, window * WINDOW_MS)));
        }
    });
    // Two windows of sessions count at the same time.
    assert!(peak - base <= 2 * GROUPS * BYTES_PER_GROUP_MAX, "{} bytes for two times {GROUPS}", peak - base);
    dedup.advance(7 * WINDOW_MS);
    assert_eq!(IN_USE.get(), base, "all memory is given back");
}

#[test]
fn the_memory_of_gaps_is_never_understated() {
    let keys = keys(0..200);
    let base = IN_USE.get();
    let mut dedup = Dedup::new(WINDOW_MS);
    // Gaps open, and some of them close.
    for seq in (0..500).map(|n| n * 2).chain((0..400).map(|n| n * 2 + 1)) {
        keys.iter().for_each(|key| assert!(!dedup.is_repeat(*key, seq, 0)));
        let in_use = IN_USE.get() - base + size_of::<Dedup>();
        assert!(dedup.bytes() >= in_use, "{} for {in_use} at {seq}", dedup.bytes());
        assert!(dedup.bytes() <= 3 * in_use, "{} for {in_use} at {seq}", dedup.bytes());
    }
}
