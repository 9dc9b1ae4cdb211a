//! What was added to the parts of one key since the store has it, for whoever reads.

use super::blocks::Blocks;
use super::split::{Split, texts};
use crate::counter::rollup::Minutes;
use crate::record::DecodeError;
use std::sync::Arc;

/// What was added to the parts of a key that only memory knows of.
#[derive(Default)]
pub struct PartsSince {
    splits: Vec<Arc<Split>>,
    texts: Vec<u8>,
    counts: Vec<CountSince>,
    /// What the store has is void.
    pub cleared: bool,
}

struct CountSince {
    split: usize,
    start: usize,
    end: usize,
    bucket: Minutes,
    sum: i64,
}

impl PartsSince {
    /// Of a key that began anew.
    pub(super) fn cleared() -> PartsSince {
        PartsSince { cleared: true, ..PartsSince::default() }
    }

    /// Adds one more.
    pub(super) fn push(&mut self, split: &Arc<Split>, values: &[u8], bucket: Minutes, sum: i64) {
        let start = self.texts.len();
        self.texts.extend_from_slice(values);
        let (split, end) = (self.split(split), self.texts.len());
        self.counts.push(CountSince { split, start, end, bucket, sum });
    }

    fn split(&mut self, split: &Arc<Split>) -> usize {
        self.splits.iter().position(|known| Arc::ptr_eq(known, split)).unwrap_or_else(|| {
            self.splits.push(split.clone());
            self.splits.len() - 1
        })
    }

    /// How many parts it may bring to a row, at most.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Tells what was added to a roll-up whose key admits everything: bucket, values and sum of each.
    pub fn of_rollup(&self, number: u16, mut tell: impl FnMut(Minutes, &[u8], i64)) -> Result<(), DecodeError> {
        let mut projected = Vec::new();
        for CountSince { split, start, end, bucket, sum } in &self.counts {
            let split = &*self.splits[*split];
            let Some(rollup) = split.rollup(number) else { continue };
            rollup.project(&texts(split, &self.texts[*start..*end])?, &mut projected);
            tell(rollup.bucket(split, *bucket), &projected, *sum);
        }
        Ok(())
    }

    /// Lays it over rows of a key: those of the roll-up that matters and of what decides about its values.
    pub fn lay_over(&self, blocks: &mut Blocks<'_>) -> Result<(), DecodeError> {
        for CountSince { split, start, end, bucket, sum } in &self.counts {
            blocks.add(&self.splits[*split], &self.texts[*start..*end], *bucket, *sum)?;
        }
        Ok(())
    }
}
