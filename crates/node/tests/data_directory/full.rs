//! A small disk that fills up and is freed again, over and over.

use crate::small_disk::SmallDisk;
use crate::support::{PATIENCE, Running, options, start_with};
use std::path::Path;
use tally_node::assemble::Options;
use tally_node::clock::Stopwatch;

const DISK_BYTES: u64 = 24 << 20;
const SEGMENT_BYTES: u64 = 1 << 20;
const COUNTERS: usize = 400;

fn small(data: &Path) -> Options {
    let mut options = options(data);
    options.log.segment_bytes = SEGMENT_BYTES;
    options.checkpoint_log_bytes = 2 * SEGMENT_BYTES;
    options
}

/// Counts up counters with long names, one after the other, and remembers what was acknowledged.
struct Counting {
    values: Vec<i64>,
    next: usize,
}

impl Counting {
    fn name(counter: usize) -> String {
        format!("{}{counter}", "v".repeat(2000))
    }

    /// Whether the next one was counted.
    fn count(&mut self, node: &mut Running) -> bool {
        let counter = self.next % COUNTERS;
        let answer = node.ask(&format!("INCR {}", Counting::name(counter)));
        if answer.starts_with(':') {
            self.values[counter] += 1;
            self.next += 1;
            assert_eq!(answer, format!(":{}", self.values[counter]));
            return true;
        }
        assert!(answer.starts_with("-MISCONF") || answer.starts_with("-BUSY"), "{answer}");
        false
    }

    fn check(&self, node: &mut Running) {
        for counter in (0..COUNTERS).step_by(37) {
            let expected =
                if self.values[counter] == 0 { "(none)".to_owned() } else { self.values[counter].to_string() };
            assert_eq!(node.ask(&format!("GET {}", Counting::name(counter))), expected);
        }
    }

    /// Until a write is refused and the node says why. A checkpoint that is under way gives some room back, and takes the
    /// trouble away with it: then the disk is filled again.
    fn until_full(&mut self, node: &mut Running, disk: &SmallDisk) {
        let began = Stopwatch::start();
        loop {
            disk.fill();
            while self.count(node) && !self.next.is_multiple_of(100) {}
            if troubles(node) == ["disk_full"] {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "the disk never fills up");
        }
    }

    fn until_counted(&mut self, node: &mut Running) {
        let began = Stopwatch::start();
        while !self.count(node) {
            assert!(began.elapsed() < PATIENCE, "writes do not come back");
            std::thread::yield_now();
        }
    }
}

#[test]
fn writes_go_on_after_space_was_freed_every_time_and_after_a_restart() {
    let Some(disk) = SmallDisk::mount(&format!("size={DISK_BYTES}")) else { return };
    let mut counting = Counting { values: vec![0; COUNTERS], next: 0 };
    let mut node = start_with(small(&disk.data())).unwrap();
    for _ in 0..3 {
        counting.until_full(&mut node, &disk);
        counting.check(&mut node);
        disk.free();
        counting.until_counted(&mut node);
        // Enough for several checkpoints.
        for _ in 0..1500 {
            counting.until_counted(&mut node);
        }
        wait_until(|| troubles(&node).is_empty());
    }
    counting.until_full(&mut node, &disk);
    let _ = node.node.stop();
    disk.fill();
    node = start_with(small(&disk.data())).unwrap();
    counting.check(&mut node);
    disk.free();
    counting.until_counted(&mut node);
    counting.check(&mut node);
    node.stop();
}

#[test]
fn a_start_on_a_full_disk_serves_reads_says_so_and_takes_writes_once_there_is_room() {
    let Some(disk) = SmallDisk::mount(&format!("size={DISK_BYTES}")) else { return };
    let mut counting = Counting { values: vec![0; COUNTERS], next: 0 };
    let mut node = start_with(small(&disk.data())).unwrap();
    for _ in 0..20 {
        assert!(counting.count(&mut node));
    }
    for _ in 0..3 {
        node.stop();
        // One segment and nothing to go on with.
        disk.take_spares();
        disk.fill();
        node = start_with(small(&disk.data())).unwrap();
        counting.check(&mut node);
        counting.until_full(&mut node, &disk);
        disk.free();
        // It is noticed without a write.
        wait_until(|| troubles(&node).is_empty());
        assert!(counting.count(&mut node));
    }
    counting.check(&mut node);
    node.stop();
}

#[test]
fn readiness_is_a_503_that_names_the_full_disk_and_a_200_again_when_it_has_passed() {
    let Some(disk) = SmallDisk::mount(&format!("size={DISK_BYTES}")) else { return };
    let mut counting = Counting { values: vec![0; COUNTERS], next: 0 };
    let http = Some("127.0.0.1:0".parse().unwrap());
    let mut node = start_with(Options { http, ..small(&disk.data()) }).unwrap();
    assert_eq!(readiness(&node), (200, "ready\n".to_owned()));
    for _ in 0..2 {
        let began = Stopwatch::start();
        // A checkpoint that is under way may give some room back in between: then it is filled again.
        loop {
            disk.fill();
            while counting.count(&mut node) && !counting.next.is_multiple_of(100) {}
            let (status, body) = readiness(&node);
            if status == 503 && body.contains("\"trouble\":\"disk_full\"") {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "it says {status} {body}");
        }
        disk.free();
        wait_until(|| readiness(&node) == (200, "ready\n".to_owned()));
        counting.until_counted(&mut node);
    }
    node.stop();
}

fn readiness(node: &Running) -> (u16, String) {
    node.http("GET", "/readyz", "")
}

fn troubles(node: &Running) -> Vec<&'static str> {
    node.node.engine().troubles().lasting().into_iter().map(|(trouble, _)| trouble.name()).collect()
}

fn wait_until(condition: impl Fn() -> bool) {
    let began = Stopwatch::start();
    while !condition() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}
