//! What each generation did to a cell: from these steps follows what an earlier generation last said.

use super::journal::Journal;
use super::row::{Row, take_bool, whole};
use crate::id::CellKey;
use crate::record::{DecodeError, put_signed, put_varint, take_signed, take_varint};

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
}

impl Row for Step {
    fn encode(&self, out: &mut Vec<u8>) {
        put_signed(out, self.before);
        put_signed(out, self.delta);
        put_varint(out, self.at_ms);
        put_varint(out, self.number);
        out.push(self.cleared.into());
    }

    fn decode(bytes: &[u8]) -> Result<Step, DecodeError> {
        whole(bytes, |bytes| {
            Ok(Step {
                before: take_signed(bytes)?,
                delta: take_signed(bytes)?,
                at_ms: take_varint(bytes)?,
                number: take_varint(bytes)?,
                cleared: take_bool(bytes, "cleared")?,
            })
        })
    }
}

/// Steps since the last cut, by cell and generation.
pub type Steps = Journal<(CellKey, u64), Step>;

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

    /// The steps of a cell with their generations, ascending.
    pub fn of(&self, cell: CellKey) -> impl DoubleEndedIterator<Item = (u64, Step)> {
        self.range((cell, 0)..=(cell, u64::MAX)).map(|((_, generation), step)| (generation, step))
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
            check(&Step { before, delta, at_ms, number, cleared });
        }

        #[test]
        fn strange_bytes_are_an_error_not_a_panic(bytes: Vec<u8>) {
            check_strange::<Step>(&bytes);
        }
    }

    fn step(before: i64, delta: i64) -> Step {
        Step { before, delta, at_ms: 3, number: 4, cleared: false }
    }

    #[test]
    fn the_bytes_of_a_step_are_pinned() {
        assert_eq!(step(-1, 150).to_bytes(), [1, 0xac, 2, 3, 4, 0]);
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
