//! Flipped bits and truncations over all files of a data directory: whatever is damaged, a start answers as before or is
//! refused. It never answers anything else, and never panics. A program of its own, so that it can count panics.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../data_directory/support.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Running, copy, start};

const COUNTERS: i64 = 40;
/// Small files are damaged at every so many bits, large ones at so many places.
const PLACES_PER_FILE: u64 = 12;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A directory as a crash leaves it: something in the store, something only in the log.
fn crashed(dir: &Path) -> PathBuf {
    let (running, image) = (dir.join("running"), dir.join("crashed"));
    let mut node = start(&running).unwrap();
    for counter in 0..COUNTERS {
        assert_eq!(node.ask(&format!("INCRBY counter:{counter} {}", counter + 1)), format!(":{}", counter + 1));
    }
    node.stop();
    let mut node = start(&running).unwrap();
    for counter in 0..COUNTERS {
        node.ask(&format!("INCRBY counter:{counter} 1000"));
    }
    copy(&running, &image);
    node.stop();
    image
}

/// Every counter is as it was, or the read is refused.
fn is_right(node: &mut Running) -> bool {
    (0..COUNTERS).all(|counter| {
        let answer = node.ask(&format!("GET counter:{counter}"));
        answer == (counter + 1001).to_string() || answer.starts_with('-')
    })
}

/// Of the end of the log it is unknown whether it was ever durable; a prefix of it may be missing.
fn is_a_prefix(node: &mut Running) -> bool {
    let values: Vec<String> = (0..COUNTERS).map(|counter| node.ask(&format!("GET counter:{counter}"))).collect();
    let newer = values.iter().zip(1001..).take_while(|(value, expected)| **value == expected.to_string()).count();
    values.iter().zip(1..).skip(newer).all(|(value, expected)| *value == expected.to_string())
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// A generator that is the same every time.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[test]
fn no_flipped_bit_and_no_truncation_gives_a_wrong_answer_or_a_panic() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        eprintln!("{panic}");
    }));
    let dir = tempfile::tempdir().unwrap();
    let whole = crashed(dir.path());
    copy(&whole, &dir.path().join("undamaged"));
    let mut node = start(&dir.path().join("undamaged")).unwrap();
    assert!(is_right(&mut node));
    node.stop();
    let mut paths = Vec::new();
    files(&whole, &mut paths);
    paths.retain(|path| !path.extension().is_some_and(|end| end == "spare" || end == "tmp"));
    let (mut seed, mut tried, mut refused) = (7, 0, 0);
    for path in paths {
        let name = path.strip_prefix(&whole).unwrap();
        let bytes = fs::read(&path).unwrap();
        // A segment is mostly zeros: what counts is where it was written to.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1) as u64;
        for place in 0..PLACES_PER_FILE.min(2 * used) {
            let mut damaged = bytes.clone();
            let at = (next(&mut seed) % used) as usize;
            let what = match place % 4 {
                3 => {
                    damaged.truncate(at);
                    format!("{} cut to {at} bytes", name.display())
                }
                _ => {
                    let bit = next(&mut seed) % 8;
                    damaged[at] ^= 1 << bit;
                    format!("{} with bit {bit} of byte {at} flipped", name.display())
                }
            };
            let image = dir.path().join("damaged");
            copy(&whole, &image);
            fs::write(image.join(name), damaged).unwrap();
            tried += 1;
            match start(&image) {
                Ok(mut node) => {
                    let in_log = name.starts_with("log");
                    let is_good = is_right(&mut node) || in_log && is_a_prefix(&mut node);
                    assert!(is_good, "{what}: silently wrong");
                    let _ = node.node.stop();
                }
                Err(error) => {
                    refused += 1;
                    let words = error.to_string();
                    assert!(words.contains("copy"), "{what}: {words} does not say what to do");
                }
            }
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{what}: a panic");
            fs::remove_dir_all(&image).unwrap();
        }
    }
    println!("{tried} damages, {refused} refused");
    assert!(tried > 60 && refused > tried / 4, "{tried} damages, {refused} refused");
}
