//! Before and after: what a proposal would do now, or what a correction did when it was made.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use tally_core::aggregate::State;
use tally_core::id::CellKey;
use tally_core::ledger::{Correction, Delta, LedgerKey, Proposal, Step};

use super::super::counters::read_together;
use super::find::{Found, decode};
use super::view::CorrectionState;
use crate::engine::{Engine, Refusal};
use crate::frontend::http::endpoints::READS_AT_ONCE;
use crate::frontend::http::words::problem::{Kind, Problem};

/// What a correction does to each counter that it touches. The values are true sums: a counter with a floor shows less.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    number: u64,
    state: CorrectionState,
    generation: Option<u64>,
    /// In the order of their ids.
    counters: Vec<Effect>,
    /// The `after` of the next page; left out on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What it does to one counter.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Effect {
    #[schema(example = "views:v42")]
    id: String,
    before: i64,
    delta: i64,
    after: i64,
}

/// Which part of a preview: ids behind `after`, in their order.
pub struct Part {
    pub after: Option<String>,
    pub limit: usize,
}

pub async fn preview(engine: &Engine, found: Found, part: &Part) -> Result<Preview, Problem> {
    let view = found.view();
    let (counters, next) = match &found {
        Found::Proposed(Proposal { deltas, .. }) => {
            let (sums, next) = part.of(deltas);
            (would(engine, &sums).await?, next)
        }
        Found::Applied { correction, .. } => {
            let (sums, next) = part.of(&correction.deltas);
            (did(engine, correction, sums.into_keys().collect()).await?, next)
        }
    };
    Ok(Preview { number: view.number, state: view.state, generation: view.generation, counters, next })
}

impl Part {
    /// The sums of this part's ids; a counter may be corrected in several buckets. They may not fit into 64 bits.
    fn of<'a>(&self, deltas: &'a [Delta]) -> (BTreeMap<&'a [u8], i128>, Option<String>) {
        let mut sums = BTreeMap::new();
        for delta in
            deltas.iter().filter(|delta| self.after.as_deref().is_none_or(|after| *delta.id > *after.as_bytes()))
        {
            *sums.entry(delta.id.as_slice()).or_insert(0) += i128::from(delta.delta);
        }
        let is_last = sums.len() <= self.limit;
        let sums: BTreeMap<_, _> = sums.into_iter().take(self.limit).collect();
        let next = if is_last { None } else { sums.last_key_value().map(|(id, _)| text(id)) };
        (sums, next)
    }
}

/// What a proposal would do now: all values as of one moment.
async fn would(engine: &Engine, sums: &BTreeMap<&[u8], i128>) -> Result<Vec<Effect>, Problem> {
    let hasher = engine.hasher();
    let cells: Vec<_> = sums.keys().map(|id| hasher.key(id)).collect();
    let readings = read_together(engine, &cells).await?;
    let before = readings.into_iter().map(|seen| seen.reading.map_or(0, |reading| reading.value));
    sums.iter().zip(before).map(|((id, sum), before)| Effect::new(id, before, *sum)).collect()
}

impl Effect {
    fn new(id: &[u8], before: i64, sum: i128) -> Result<Effect, Problem> {
        let id = text(id);
        let fits = (i64::try_from(sum), i64::try_from(i128::from(before) + sum));
        if let (Ok(delta), Ok(after)) = fits {
            return Ok(Effect { id, before, delta, after });
        }
        let detail = format!(
            "{id} is {before} and cannot be corrected by {sum}: it does not fit into 64 bits; correct it by less"
        );
        Err(Problem::new(Kind::Overflow, detail).with("id", id))
    }
}

/// What a correction did: the values that were kept when it was made. A late entry that had been settled before did nothing.
async fn did(engine: &Engine, correction: &Correction, ids: Vec<&[u8]>) -> Result<Vec<Effect>, Refusal> {
    let (hasher, generation) = (engine.hasher(), correction.generation);
    let cells: Vec<_> = ids.iter().map(|id| hasher.key(id)).collect();
    let look = {
        let cells = cells.clone();
        move |state: &mut State| cells.iter().map(|cell| state.values.steps.get((*cell, generation))).collect()
    };
    let in_memory: Vec<Option<Step>> = engine.visit(look).await?;
    let steps = cells.into_iter().zip(in_memory).map(|(cell, step)| or_stored(engine, step, cell, generation));
    let steps: Vec<_> = stream::iter(steps).buffered(READS_AT_ONCE).try_collect().await?;
    let effect = |(id, step): (&&[u8], Option<Step>)| {
        let Step { before, delta, .. } = step?;
        Some(Effect { id: text(id), before, delta, after: before.wrapping_add(delta) })
    };
    Ok(ids.iter().zip(steps).filter_map(effect).collect())
}

async fn or_stored(
    engine: &Engine,
    step: Option<Step>,
    cell: CellKey,
    generation: u64,
) -> Result<Option<Step>, Refusal> {
    if step.is_some() {
        return Ok(step);
    }
    let row = engine.ledger_row(LedgerKey::Step(cell, generation).encode()).await?;
    row.map(|row| decode(&row)).transpose()
}

fn text(id: &[u8]) -> String {
    String::from_utf8_lossy(id).into_owned()
}
