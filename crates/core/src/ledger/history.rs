//! What each generation did to a cell: from these steps follows what an earlier generation last said.

use super::LedgerKey;
use super::cut::Placed;
use super::row::{Row, whole};
use crate::id::CellKey;
use crate::memory::journal::Journal;
use crate::record::{DecodeError, put_signed, put_varint, take_byte, take_signed, take_varint};

/// One generation's effect on one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The value just before the generation became visible: what the one before it last said.
    pub before: i64,
    pub delta: i64,
    pub at_ms: u64,
    /// The number of the correction.
    pub number: u64,
    pub cleared: bool,
    /// It brought the counter to what the log says, and adjusted nothing.
    pub restored: bool,
    /// No step, but word that the counter was deleted: everything up to generation `number` is forgotten. There is one such row
    /// per cell at most, behind all generations.
    pub forgotten: bool,
}

/// Where the row stands that says what is forgotten.
pub const FORGOTTEN_AT: u64 = u64::MAX;

impl Step {
    pub fn new(before: i64, delta: i64, at_ms: u64, number: u64) -> Step {
        Step { before, delta, at_ms, number, cleared: false, restored: false, forgotten: false }
    }
}

mod kind {
    pub const PLAIN: u8 = 0;
    pub const CLEARED: u8 = 1;
    pub const FORGOTTEN: u8 = 2;
    pub const RESTORED: u8 = 3;
}

impl Row for Step {
    fn encode(&self, out: &mut Vec<u8>) {
        put_signed(out, self.before);
        put_signed(out, self.delta);
        put_varint(out, self.at_ms);
        put_varint(out, self.number);
        out.push(match self {
            Step { forgotten: true, .. } => kind::FORGOTTEN,
            Step { cleared: true, .. } => kind::CLEARED,
            Step { restored: true, .. } => kind::RESTORED,
            _ => kind::PLAIN,
        });
    }

    fn decode(bytes: &[u8]) -> Result<Step, DecodeError> {
        whole(bytes, |bytes| {
            let (before, delta) = (take_signed(bytes)?, take_signed(bytes)?);
            let mut step = Step::new(before, delta, take_varint(bytes)?, take_varint(bytes)?);
            match take_byte(bytes)? {
                kind::PLAIN => {}
                kind::CLEARED => step.cleared = true,
                kind::FORGOTTEN => step.forgotten = true,
                kind::RESTORED => step.restored = true,
                other => return Err(DecodeError::BadValue { field: "cleared", value: other.into() }),
            }
            Ok(step)
        })
    }
}

impl Placed for Step {
    type Place = (CellKey, u64);

    fn key((cell, generation): (CellKey, u64)) -> LedgerKey {
        LedgerKey::Step(cell, generation)
    }
}

/// Steps since the last cut, by cell and generation.
pub type Steps = Journal<Step>;

impl Steps {
    /// A generation that touches a cell more than once, in several buckets of time, is one step all the same.
    pub fn push(&mut self, cell: CellKey, generation: u64, step: Step) {
        let joined = match self.get((cell, generation)) {
            // What matters is that `before` and `delta` make the value after, whatever the way there.
            Some(first) => Step { before: first.before, delta: first.delta.wrapping_add(step.delta), ..step },
            None => step,
        };
        self.insert((cell, generation), &joined);
    }

    /// The steps of a cell with their generations, ascending, without those that are forgotten.
    pub fn of(&self, cell: CellKey) -> impl DoubleEndedIterator<Item = (u64, Step)> {
        let from = self.forgotten(cell).map_or(0, |generation| generation.saturating_add(1));
        self.range((cell, from)..(cell, FORGOTTEN_AT)).map(|((_, generation), step)| (generation, step))
    }

    /// The counter was deleted when this was the newest generation.
    pub fn forget(&mut self, cell: CellKey, generation: u64, at_ms: u64) {
        let row = Step { forgotten: true, ..Step::new(0, 0, at_ms, generation) };
        self.insert((cell, FORGOTTEN_AT), &row);
    }

    /// The generation up to which everything is forgotten, as far as memory knows.
    pub fn forgotten(&self, cell: CellKey) -> Option<u64> {
        self.get((cell, FORGOTTEN_AT)).map(|row| row.number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::{check, check_strange};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_step_survives_its_bytes(before: i64, delta: i64, at_ms: u64, number: u64, cleared: bool) {
            let plain = Step::new(before, delta, at_ms, number);
            check(&Step { cleared, ..plain });
            check(&Step { restored: true, ..plain });
            check(&Step { forgotten: true, ..plain });
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            check_strange::<Step>(&bytes);
        }
    }

    fn step(before: i64, delta: i64) -> Step {
        Step::new(before, delta, 3, 4)
    }

    #[test]
    fn the_bytes_of_a_step_are_pinned() {
        assert_eq!(step(-1, 150).to_bytes(), [1, 0xac, 2, 3, 4, 0]);
        assert_eq!(Step { cleared: true, ..step(0, 0) }.to_bytes(), [0, 0, 3, 4, 1]);
        assert_eq!(Step { forgotten: true, ..step(0, 0) }.to_bytes(), [0, 0, 3, 4, 2]);
        assert_eq!(Step { restored: true, ..step(0, 0) }.to_bytes(), [0, 0, 3, 4, 3]);
    }

    #[test]
    fn what_is_forgotten_is_no_history_and_what_comes_after_it_is() {
        let cell = CellKey::from_bytes([1; 16]);
        let mut steps = Steps::default();
        steps.push(cell, 7, step(10, 2));
        steps.forget(cell, 8, 3);
        assert_eq!((steps.of(cell).count(), steps.forgotten(cell)), (0, Some(8)));
        steps.push(cell, 9, step(0, 1));
        assert_eq!(steps.of(cell).collect::<Vec<_>>(), [(9, step(0, 1))]);
    }

    #[test]
    fn a_generation_is_one_step_of_a_cell_however_often_it_touches_it() {
        let [cell, other] = [1, 2].map(|n| CellKey::from_bytes([n; 16]));
        let mut steps = Steps::default();
        steps.push(cell, 7, step(10, 2));
        steps.push(other, 7, step(0, 1));
        steps.push(cell, 7, step(12, 3));
        steps.push(cell, 9, step(20, 1));
        assert_eq!(steps.of(cell).collect::<Vec<_>>(), [(7, step(10, 5)), (9, step(20, 1))]);
        assert_eq!(steps.of(other).count(), 1);
    }
}
