//! Before and after: what a proposal would do now, or what a correction did when it was made.

use super::super::question::Question;
use super::super::{Engine, Refusal};
use super::find::{FoundCorrection, decode_row};
use std::collections::BTreeMap;
use tally_core::id::CellKey;
use tally_core::ledger::{Correction, Delta, LedgerKey, Step};
use tally_core::machine::Machine;

/// What a correction does to one counter. The values are true sums: a counter with a floor shows less. A proposal may ask for
/// more than fits into 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterEffect {
    pub id: Vec<u8>,
    pub before: i64,
    pub delta: i128,
}

/// Up to `limit` of the counters that a correction touches, behind `after`, in the order of their ids.
#[derive(Clone, Debug)]
pub struct PreviewPart {
    pub after: Option<Vec<u8>>,
    pub limit: usize,
}

/// What a correction does to a part of its counters, and the last of them if there are more.
pub type CorrectionEffects = (Vec<CounterEffect>, Option<Vec<u8>>);

impl Engine {
    /// What a proposal would do now, all values as of one moment; or what a correction did.
    pub async fn preview(&self, found: &FoundCorrection, part: &PreviewPart) -> Result<CorrectionEffects, Refusal> {
        let (sums, next) = part.of(found.deltas());
        let effects = match found {
            FoundCorrection::Proposed(_) => self.would(&sums).await?,
            FoundCorrection::Applied { correction, .. } => self.did(correction, sums.into_keys().collect()).await?,
        };
        Ok((effects, next))
    }

    async fn would(&self, sums: &BTreeMap<&[u8], i128>) -> Result<Vec<CounterEffect>, Refusal> {
        let hasher = self.hasher();
        let cells: Vec<_> = sums.keys().map(|id| hasher.key(id)).collect();
        let readings = self.readings(&cells).await?;
        let before = readings.into_iter().map(|reading| reading.map_or(0, |reading| reading.value));
        let effect =
            |((id, delta), before): ((&&[u8], &i128), _)| CounterEffect { id: id.to_vec(), before, delta: *delta };
        Ok(sums.iter().zip(before).map(effect).collect())
    }

    /// The values that were kept when it was made. A late entry that had been settled before did nothing.
    async fn did(&self, correction: &Correction, ids: Vec<&[u8]>) -> Result<Vec<CounterEffect>, Refusal> {
        let (hasher, generation) = (self.hasher(), correction.generation);
        let cells: Vec<_> = ids.iter().map(|id| hasher.key(id)).collect();
        let (in_memory, view) = self.view(StepsOf { cells: cells.clone(), generation }).await?;
        let missing = cells.iter().zip(&in_memory).filter(|(_, step)| step.is_none());
        let keys = missing.map(|(cell, _)| LedgerKey::Step(*cell, generation).encode()).collect();
        let mut stored = view.many(keys).await?.into_iter();
        let steps = in_memory.into_iter().map(|step| match step {
            Some(step) => Ok(Some(step)),
            None => stored.next().flatten().map(|row| decode_row(&row)).transpose(),
        });
        let steps: Vec<_> = steps.collect::<Result<_, Refusal>>()?;
        let effect = |(id, step): (&&[u8], Option<Step>)| {
            let Step { before, delta, .. } = step?;
            Some(CounterEffect { id: id.to_vec(), before, delta: delta.into() })
        };
        Ok(ids.iter().zip(steps).filter_map(effect).collect())
    }
}

struct StepsOf {
    cells: Vec<CellKey>,
    generation: u64,
}

impl Question for StepsOf {
    type Answer = Vec<Option<Step>>;

    fn answer(self, state: &Machine) -> Self::Answer {
        self.cells.iter().map(|cell| state.values.facts.steps.get((*cell, self.generation))).collect()
    }
}

impl PreviewPart {
    /// The sums of this part's ids; a counter may be corrected in several buckets.
    fn of<'a>(&self, deltas: &'a [Delta]) -> (BTreeMap<&'a [u8], i128>, Option<Vec<u8>>) {
        let mut sums = BTreeMap::new();
        for delta in deltas.iter().filter(|delta| self.after.as_ref().is_none_or(|after| delta.id > *after)) {
            *sums.entry(delta.id.as_slice()).or_insert(0) += i128::from(delta.delta);
        }
        let is_last = sums.len() <= self.limit;
        let sums: BTreeMap<_, _> = sums.into_iter().take(self.limit).collect();
        let next = if is_last { None } else { sums.last_key_value().map(|(id, _)| id.to_vec()) };
        (sums, next)
    }
}
