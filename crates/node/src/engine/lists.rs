//! Lists of keys that memory keeps up to date: those of a counter that are worth most and those that changed last, with its total.

use super::question::Question;
use super::tend::Tending;
use super::{Engine, Refusal};
use tally_core::machine::Machine;
use tally_core::values::{ChangedKey, Greatest};

/// What all keys of a counter come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterTotal {
    /// The sum of their true sums; `None` if the counter counted under a version that did not add up.
    pub value: Option<i128>,
    /// Late entries that will count with their runs.
    pub pending: u64,
    /// The newest generation of the node: all corrections up to it are in the value.
    pub generation: u64,
}

/// The keys of a counter that are worth most, and what all of them come to at the same moment.
#[derive(Clone, Debug)]
pub struct Ranking {
    pub greatest: Greatest,
    pub total: CounterTotal,
}

impl Engine {
    /// What all keys of a counter come to; `None` if there never was such a counter.
    pub async fn total(&self, counter: &str) -> Result<Option<CounterTotal>, Refusal> {
        self.ask(TotalOf(counter.into())).await
    }

    /// Up to `limit` keys of a counter that are worth most, behind one with its value.
    pub async fn greatest(
        &self,
        counter: &str,
        behind: Option<(i64, Vec<u8>)>,
        limit: usize,
    ) -> Result<Option<Ranking>, Refusal> {
        let ranking = self.ask(GreatestOf { counter: counter.into(), behind, limit }).await?;
        if ranking.as_ref().is_some_and(|ranking| ranking.greatest.needs_walk) {
            self.tend(Tending::Walk(counter.into())).await?;
        }
        Ok(ranking)
    }

    /// Up to `limit` keys of a counter that changed last, behind one that changed with the record at an offset.
    pub async fn changed_last(
        &self,
        counter: &str,
        behind: Option<(u64, Vec<u8>)>,
        limit: usize,
    ) -> Result<Option<Vec<ChangedKey>>, Refusal> {
        self.ask(ChangedLast { counter: counter.into(), behind, limit }).await
    }

    /// The log time at which each of some counters changed last, where that is remembered.
    pub async fn changed_at_ms(&self, ids: Vec<Vec<u8>>) -> Result<Vec<Option<u64>>, Refusal> {
        self.ask(ChangedAt(ids)).await
    }
}

struct TotalOf(Box<str>);

impl Question for TotalOf {
    type Answer = Option<CounterTotal>;

    fn answer(self, state: &Machine) -> Self::Answer {
        let balance = state.balance(&self.0)?;
        let value = balance.sums.map(|sums| sums.counted + sums.corrected());
        let pending = u64::try_from(balance.boxes.late).unwrap_or(0);
        Some(CounterTotal { value, pending, generation: state.values.generations.current })
    }
}

struct GreatestOf {
    counter: Box<str>,
    behind: Option<(i64, Vec<u8>)>,
    limit: usize,
}

impl Question for GreatestOf {
    type Answer = Option<Ranking>;

    fn answer(self, state: &Machine) -> Self::Answer {
        let behind = self.behind.as_ref().map(|(value, id)| (*value, id.as_slice()));
        let greatest = state.values.greatest(&self.counter, behind, self.limit)?;
        Some(Ranking { greatest, total: TotalOf(self.counter).answer(state)? })
    }
}

struct ChangedLast {
    counter: Box<str>,
    behind: Option<(u64, Vec<u8>)>,
    limit: usize,
}

impl Question for ChangedLast {
    type Answer = Option<Vec<ChangedKey>>;

    fn answer(self, state: &Machine) -> Self::Answer {
        let behind = self.behind.as_ref().map(|(offset, id)| (*offset, id.as_slice()));
        state.values.changed_last(&self.counter, behind, self.limit)
    }
}

struct ChangedAt(Vec<Vec<u8>>);

impl Question for ChangedAt {
    type Answer = Vec<Option<u64>>;

    fn answer(self, state: &Machine) -> Self::Answer {
        self.0.iter().map(|id| state.values.changed_at_ms(id)).collect()
    }
}
