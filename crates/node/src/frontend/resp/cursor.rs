//! The cursors of `SCAN`: numbers that stand for the name where an iteration goes on.
//!
//! Redis' cursors are numbers, ours would be names, so each iteration is remembered here under a number. A cursor is
//! that number and the number of the step, and the last two steps of an iteration are kept, so that a client whose
//! reply was lost can ask again. When there are too many iterations, the one that rested longest is forgotten.

use std::collections::HashMap;
use tally_core::limits;

/// Cursors stay below 2^53: some clients read them as floating-point numbers.
const STEP_BITS: u32 = 28;
const SCAN_BITS: u32 = 24;

#[derive(Default)]
pub struct Cursors {
    scans: HashMap<u64, Scan>,
    last_scan: u64,
    clock: u64,
}

struct Scan {
    step: u64,
    /// The last name before `step`, and the one before the step before it.
    after: Vec<u8>,
    after_previous: Option<Vec<u8>>,
    touched: u64,
}

impl Cursors {
    /// Where the iteration goes on: behind this name.
    pub fn find(&self, cursor: u64) -> Option<&[u8]> {
        let scan = self.scans.get(&(cursor >> STEP_BITS))?;
        match scan.step.checked_sub(cursor & low(STEP_BITS))? {
            0 => Some(&scan.after),
            1 => scan.after_previous.as_deref(),
            _ => None,
        }
    }

    /// Remembers that the iteration which stood at `cursor`, 0 for a new one, goes on behind `after`.
    pub fn advance(&mut self, cursor: u64, after: Vec<u8>) -> u64 {
        self.clock += 1;
        let (number, step) = (cursor >> STEP_BITS, (cursor & low(STEP_BITS)) + 1);
        match self.scans.get_mut(&number) {
            Some(scan) if step <= low(STEP_BITS) => {
                // The current step again replaces its successor.
                if scan.step + 1 == step {
                    scan.after_previous = Some(std::mem::take(&mut scan.after));
                }
                scan.step = step;
                scan.after = after;
                scan.touched = self.clock;
                number << STEP_BITS | step
            }
            _ => self.begin(after),
        }
    }

    fn begin(&mut self, after: Vec<u8>) -> u64 {
        if self.scans.len() >= limits::RESP_SCANS_MAX {
            self.forget_one();
        }
        self.last_scan = self.last_scan % low(SCAN_BITS) + 1;
        let scan = Scan { step: 1, after, after_previous: None, touched: self.clock };
        self.scans.insert(self.last_scan, scan);
        self.last_scan << STEP_BITS | 1
    }

    fn forget_one(&mut self) {
        if let Some((&rested, _)) = self.scans.iter().min_by_key(|(_, scan)| scan.touched) {
            self.scans.remove(&rested);
        }
    }
}

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_is_found_again_at_each_step() {
        let mut cursors = Cursors::default();
        let first = cursors.advance(0, b"a".to_vec());
        assert_eq!(cursors.find(first), Some(&b"a"[..]));
        let second = cursors.advance(first, b"b".to_vec());
        assert_ne!(first, second);
        assert_eq!(cursors.find(second), Some(&b"b"[..]));
        assert!(second < 1 << 53);
    }

    #[test]
    fn a_step_can_be_asked_for_again_but_not_the_one_before_it() {
        let mut cursors = Cursors::default();
        let first = cursors.advance(0, b"a".to_vec());
        let second = cursors.advance(first, b"b".to_vec());
        assert_eq!(cursors.find(first), Some(&b"a"[..]), "the reply with the second cursor may have been lost");
        assert_eq!(cursors.advance(first, b"b".to_vec()), second);
        let third = cursors.advance(second, b"c".to_vec());
        assert_eq!(cursors.find(first), None);
        assert_eq!(cursors.find(second), Some(&b"b"[..]));
        assert_eq!(cursors.find(third), Some(&b"c"[..]));
    }

    #[test]
    fn iterations_do_not_disturb_each_other_until_there_are_too_many() {
        let mut cursors = Cursors::default();
        let mut kept = cursors.advance(0, b"kept".to_vec());
        let rested = cursors.advance(0, b"rested".to_vec());
        for n in 0..limits::RESP_SCANS_MAX {
            cursors.advance(0, n.to_le_bytes().to_vec());
            kept = cursors.advance(kept, b"kept".to_vec());
        }
        assert_eq!(cursors.find(kept), Some(&b"kept"[..]));
        assert_eq!(cursors.find(rested), None);
        assert_eq!(cursors.scans.len(), limits::RESP_SCANS_MAX);
    }

    #[test]
    fn what_was_never_a_cursor_is_unknown() {
        let mut cursors = Cursors::default();
        let cursor = cursors.advance(0, b"a".to_vec());
        for strange in [1, cursor + 1, cursor - 1, u64::MAX] {
            assert_eq!(cursors.find(strange), None, "{strange}");
        }
    }
}
