//! What was added to the parts of one key since the store has it, for whoever reads.

use super::blocks::Blocks;
use super::split::{Split, texts};
use super::tuples::Combination;
use crate::counter::rollup::Minutes;
use crate::record::DecodeError;
use hashbrown::HashMap;
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
}

/// Which values of a stretch were told already.
#[derive(Default)]
pub(super) struct Told(HashMap<(usize, u64), u32>);

impl PartsSince {
    /// Of a key that began anew.
    pub(super) fn cleared() -> PartsSince {
        PartsSince { cleared: true, ..PartsSince::default() }
    }

    /// Adds one more.
    pub(super) fn push(&mut self, told: &mut Told, combination: Combination<'_>, sum: i64) {
        let split = self.split(combination.split);
        let values = *told.0.entry((split, combination.values_number)).or_insert_with(|| {
            let start = self.texts.len();
            self.texts.extend_from_slice(combination.values);
            self.values.push(ValuesSince { split, text: start..self.texts.len() });
            self.values.len() as u32 - 1
        });
        self.counts.push(CountSince { values, bucket: combination.bucket, sum });
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

    /// How many parts it may bring to a row, at most.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
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
        for CountSince { values, bucket, sum } in &self.counts {
            if let Some((split, rollup, known)) = known[*values as usize] {
                tell(listener, rollup.bucket(split, *bucket), known, *sum);
            }
        }
        Ok(())
    }

    /// Lays it over rows of a key: those of the roll-up that matters and of what decides about its values.
    pub fn lay_over(&self, blocks: &mut Blocks<'_>) -> Result<(), DecodeError> {
        for CountSince { values, bucket, sum } in &self.counts {
            let (split, text) = self.split_and_text(&self.values[*values as usize]);
            blocks.add(split, text, *bucket, *sum)?;
        }
        Ok(())
    }
}
