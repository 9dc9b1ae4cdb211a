//! On which side of a clear something counted.
//!
//! A clear takes what counted before it in the log of the owner of values, and a slot that was judged before the clear may stand
//! behind it there. So it is not the generation that an entity's count was judged under that says whether a clear has taken it, but how
//! far the owner was with the partition of the entity when the clear became visible.

/// For each fates partition: from which of its offsets on what counted stands behind which clear, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clears(Vec<Vec<(u64, u64)>>);

impl Clears {
    /// A clear becomes visible as a generation, when so much of each fates partition was taken.
    pub fn note(&mut self, generation: u64, taken: &[u64]) {
        self.0.resize(taken.len(), Vec::new());
        for (behind, from) in self.0.iter_mut().zip(taken) {
            // Nothing has come since the clear before: whatever comes is behind both.
            behind.pop_if(|(last, _)| last == from);
            behind.push((*from, generation));
        }
    }

    /// The generation of the last clear that stands before what counted at an offset of a fates partition; 0 if none does.
    pub fn before(&self, partition: u32, offset: u64) -> u64 {
        let behind = self.0.get(partition as usize).map_or(&[][..], Vec::as_slice);
        let at = behind.partition_point(|(from, _)| *from <= offset);
        at.checked_sub(1).map_or(0, |last| behind[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_behind_every_clear_that_was_visible_when_it_came() {
        let mut clears = Clears::default();
        assert_eq!(clears.before(0, 7), 0);
        clears.note(2, &[10, 0]);
        clears.note(3, &[10, 4]);
        clears.note(6, &[25, 4]);
        let before = |partition, offsets: [u64; 4]| offsets.map(|offset| clears.before(partition, offset));
        assert_eq!(before(0, [0, 9, 10, 24]), [0, 0, 3, 3]);
        assert_eq!(before(0, [25, 26, 30, 40]), [6, 6, 6, 6]);
        assert_eq!(before(1, [0, 3, 4, 9]), [2, 2, 6, 6]);
    }
}
