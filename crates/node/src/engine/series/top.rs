//! The keys that came to most in a stretch of time, or for values of a dimension: who may be among them, what each of those came to, and
//! how much everybody else did at most, all at one moment.

use super::super::question::Question;
use super::super::shared::Shared;
use super::super::{Engine, Refusal};
use super::many::{StoreAt, TRIES_MAX, TRY_AGAIN_AFTER, goes_on_from};
use super::{PartRows, PartsOf};
use std::sync::Arc;
use tally_core::counter::rollup::Minutes;
use tally_core::id::name_of;
use tally_core::ledger::{BoardLine, PartsSince};
use tally_core::machine::Machine;
use tally_core::series::Series;
use tally_core::values::{Candidate, Candidates, RestBound, Sample};
use tally_storage::store;

/// Whose keys are ranked, and by what.
#[derive(Clone, Debug)]
pub struct TopWanted {
    /// The counter as a whole, and the roll-up that keys are ranked by.
    pub of: PartsOf,
    pub name: Box<str>,
    /// Its boards; `None` if the counter has no keys, and is its only one.
    pub line: Option<BoardLine>,
    /// The hours that are ranked together, or the one that stands for all time.
    pub hours: Vec<Minutes>,
    /// What a key came to is added up in: one point for all of it.
    pub empty: Series,
    pub sample: Sample,
}

/// Keys that may have come to most.
#[derive(Debug)]
pub struct TopFound {
    /// What each came to.
    pub keys: Vec<(Arc<[u8]>, Series)>,
    /// The counter as a whole.
    pub whole: Series,
    /// What any other key came to at most; `None` if nobody knows.
    pub rest: Option<RestBound>,
    /// Late entries that wait, and may change it.
    pub parked: u64,
    pub generation: u64,
}

impl Engine {
    /// Looks for the keys of a counter that came to most.
    pub async fn top(&self, wanted: TopWanted) -> Result<TopFound, Refusal> {
        let wanted = Arc::new(wanted);
        for _ in 0..TRIES_MAX {
            let question = Ranked { shared: self.shared.clone(), wanted: wanted.clone() };
            let (shared, wanted) = (self.shared.clone(), wanted.clone());
            let add_up = move |added: RankedKeys| added.added_up(&shared, &wanted);
            let found = self.ask_and(question, |_| true, add_up).await?;
            if let Some(found) = found.map_err(|error| Refusal::store(&error))? {
                return Ok(found);
            }
            self.shared.clock.sleep(TRY_AGAIN_AFTER).await;
        }
        Err(Refusal::busy())
    }
}

/// Who may have come to most, and what memory has added to their parts beside a checkpoint.
struct Ranked {
    shared: Arc<Shared>,
    wanted: Arc<TopWanted>,
}

struct RankedKeys {
    keys: Vec<(Candidate, PartsSince)>,
    whole: PartsSince,
    rest: Option<RestBound>,
    goes_on_from: Option<u64>,
    parked: u64,
    generation: u64,
}

impl Question for Ranked {
    type Answer = RankedKeys;

    fn answer(self, state: &Machine) -> RankedKeys {
        let TopWanted { of, name, line, hours, sample, .. } = &*self.wanted;
        let only = || Candidate { cell: of.cell, id: name.as_bytes().into() };
        let Candidates { keys, rest } = match line {
            Some(line) => state.values.top_candidates(*line, hours, *sample),
            None => Candidates { keys: vec![only()], rest: Some(RestBound::default()) },
        };
        let parts = &state.values.facts.parts;
        let parked = state.fates.contracts.parked.iter().filter(|(_, _, entry)| name_of(&entry.id) == name.as_bytes());
        RankedKeys {
            keys: keys.into_iter().map(|key| (key.clone(), parts.of(key.cell))).collect(),
            whole: parts.of(of.cell),
            rest,
            goes_on_from: goes_on_from(state, &self.shared),
            parked: parked.map(|(_, _, entry)| entry.entries).sum(),
            generation: state.values.generations.current,
        }
    }
}

impl RankedKeys {
    /// `None` if the store does not stand where memory goes on from. Blocks on the store if it is needed.
    fn added_up(self, shared: &Shared, wanted: &TopWanted) -> Result<Option<TopFound>, store::Error> {
        let Ok(at) = StoreAt::continued(shared, None, self.goes_on_from)? else { return Ok(None) };
        let reads = at.as_ref().map(|at| &*at.store);
        let minutes = wanted.empty.minutes();
        let sum = |of: &PartsOf, since: &PartsSince| {
            let rows = PartRows::read(reads, of, since, &minutes)?;
            rows.added_up(of, since, wanted.empty.clone())
        };
        let key = |(Candidate { cell, id }, since): &(Candidate, PartsSince)| {
            Ok((id.clone(), sum(&PartsOf { cell: *cell, ..wanted.of.clone() }, since)?))
        };
        Ok(Some(TopFound {
            keys: self.keys.iter().map(key).collect::<Result<_, store::Error>>()?,
            whole: sum(&wanted.of, &self.whole)?,
            rest: self.rest,
            parked: self.parked,
            generation: self.generation,
        }))
    }
}
