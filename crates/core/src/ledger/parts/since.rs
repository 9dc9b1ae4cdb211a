//! What was added to the parts of one key since the store has it, for whoever reads.

use super::blocks::Blocks;
use super::split::{Role, Split, texts};
use super::tuples::Combination;
use crate::counter::rollup::Minutes;
use crate::record::DecodeError;
use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// What was added to the parts of a key that only memory knows of.
#[derive(Default)]
pub struct PartsSince {
    splits: Vec<Arc<Split>>,
    texts: Vec<u8>,
    /// Values of splits, each once.
    values: Vec<ValuesSince>,
    counts: Vec<CountSince>,
    /// How many stretches of the log they are from.
    stretches: u32,
    /// What the store has is void.
    pub cleared: bool,
}

struct ValuesSince {
    split: usize,
    text: Range<usize>,
}

#[derive(Clone, Copy)]
struct CountSince {
    values: u32,
    bucket: Minutes,
    sum: i64,
    /// When it came: which stretch of the log, and how many of its key came before it there.
    came: (u32, u32),
}

/// Which values of a stretch were told already.
pub(super) struct Told {
    stretch: u32,
    known: HashMap<u64, u32, BuildHasherDefault<Spread>>,
}

/// Numbers of values are no hashes, and few enough for this.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only a u64 is hashed");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl PartsSince {
    /// Of a key that began anew.
    pub(super) fn cleared() -> PartsSince {
        PartsSince { cleared: true, ..PartsSince::default() }
    }

    /// Goes on to a newer stretch of the log.
    pub(super) fn begin(&mut self) -> Told {
        self.stretches += 1;
        Told { stretch: self.stretches, known: HashMap::default() }
    }

    /// Adds one more, of which so many of its key came before.
    pub(super) fn push(&mut self, told: &mut Told, combination: Combination<'_>, sum: i64, order: u32) {
        let split = self.split(combination.split);
        let number = combination.values_number << 16 | split as u64;
        let values = *told.known.entry(number).or_insert_with(|| {
            let start = self.texts.len();
            self.texts.extend_from_slice(combination.values);
            self.values.push(ValuesSince { split, text: start..self.texts.len() });
            self.values.len() as u32 - 1
        });
        let came = (told.stretch, order);
        self.counts.push(CountSince { values, bucket: combination.bucket, sum, came });
    }

    fn split(&mut self, split: &Arc<Split>) -> usize {
        self.splits.iter().position(|known| Arc::ptr_eq(known, split)).unwrap_or_else(|| {
            self.splits.push(split.clone());
            self.splits.len() - 1
        })
    }

    fn split_and_text(&self, values: &ValuesSince) -> (&Split, &[u8]) {
        (&self.splits[values.split], &self.texts[values.text.clone()])
    }

    /// The roll-ups that decide about values of what was added, as it was when it was.
    pub fn deciding(&self) -> impl Iterator<Item = u16> {
        let all = self.splits.iter().flat_map(|split| &split.rollups);
        all.filter(|rollup| rollup.role != Role::Counts).map(|rollup| rollup.number)
    }

    /// How many parts it may bring to a row, at most.
    pub fn parts_of_a_row(&self) -> usize {
        self.values.len()
    }

    /// Tells a listener what was added to a roll-up whose key admits everything. It is asked once for each combination of values as what it
    /// knows them, and hears that with each sum of them.
    pub fn of_rollup<L>(
        &self,
        number: u16,
        listener: &mut L,
        known_as: impl Fn(&mut L, &[u8]) -> u32,
        tell: impl Fn(&mut L, Minutes, u32, i64),
    ) -> Result<(), DecodeError> {
        let mut projected = Vec::new();
        let mut known = Vec::with_capacity(self.values.len());
        for values in &self.values {
            let (split, text) = self.split_and_text(values);
            known.push(match split.rollup(number) {
                None => None,
                Some(rollup) => {
                    rollup.project(&texts(split, text)?, &mut projected);
                    Some((split, rollup, known_as(listener, &projected)))
                }
            });
        }
        for CountSince { values, bucket, sum, .. } in &self.counts {
            if let Some((split, rollup, known)) = known[*values as usize] {
                tell(listener, rollup.bucket(split, *bucket), known, *sum);
            }
        }
        Ok(())
    }

    /// Lays it over rows of a key, in the order in which it came: those of the roll-up that matters and of what decides about its values.
    pub fn lay_over(&self, blocks: &mut Blocks<'_>) -> Result<(), DecodeError> {
        let mut counts: Vec<&CountSince> = self.counts.iter().collect();
        counts.sort_unstable_by_key(|count| count.came);
        for CountSince { values, bucket, sum, .. } in counts {
            let (split, text) = self.split_and_text(&self.values[*values as usize]);
            blocks.add(split, text, *bucket, *sum)?;
        }
        Ok(())
    }
}
