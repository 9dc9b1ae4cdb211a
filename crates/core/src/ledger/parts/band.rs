//! Under which number the rows of a roll-up stand: its own, with the unit above it if its buckets were rolled into coarser ones.

use crate::counter::rollup::Unit;

/// Numbers of roll-ups are lower, so that there is room for a unit above them.
pub const ROLLUP_NUMBERS_MAX: u16 = 1 << UNIT_SHIFT;

const UNIT_SHIFT: u32 = 13;

/// Rows of one roll-up whose buckets are of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Band(u16);

impl Band {
    /// Without a unit it is the roll-up's own.
    pub fn new(rollup: u16, coarser: Option<Unit>) -> Band {
        assert!(rollup < ROLLUP_NUMBERS_MAX, "the bits above it are those of a unit");
        Band(rollup | coarser.map_or(0, |unit| (unit as u16) << UNIT_SHIFT))
    }

    /// As it stands in a key.
    pub fn number(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_has_its_roll_up_below_and_its_unit_above() {
        assert_eq!(Band::new(5, None).number(), 5, "as before there were any");
        assert_eq!(Band::new(5, Some(Unit::Hour)).number(), 0x4005);
        assert_eq!(Band::new(ROLLUP_NUMBERS_MAX - 1, Some(Unit::Month)).number(), 0xbfff);
    }

    #[test]
    #[should_panic(expected = "those of a unit")]
    fn a_number_without_room_for_a_unit_is_none() {
        Band::new(ROLLUP_NUMBERS_MAX, None);
    }
}
