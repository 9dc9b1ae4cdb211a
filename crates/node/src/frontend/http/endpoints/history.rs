//! What corrections have done to one counter: its generations with their reasons, and what each of them last said.
//!
//! Each correction leaves a step on every cell that it touches. Steps that are new since the last checkpoint are in memory,
//! all others in the store; memory is asked first, so none is missed while a checkpoint ends.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use tally_core::aggregate::State as CoreState;
use tally_core::id::CellKey;
use tally_core::ledger::{FORGOTTEN_AT, LedgerKey, Step};

use super::corrections::{CauseName, CorrectionKind, reverts};
use crate::engine::{Engine, Reading, Refusal, Seen, Why, decode_row};
use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::{Envelope, rfc3339};
use crate::frontend::http::words::id::{ID, IdPath, Named};
use crate::frontend::http::words::parameters::Paging;
use crate::frontend::http::words::problem::{Kind, Problem};

/// The generations of a counter, the newest first.
#[derive(Serialize, utoipa::ToSchema)]
pub struct History {
    #[schema(example = "views:v42")]
    id: String,
    generations: Vec<Generation>,
    /// The `before` of the next page; left out on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// What one generation did to a counter. The values are true sums: a counter with a floor shows less.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    generation: u64,
    /// The number of the correction.
    number: u64,
    cause: CauseName,
    kind: CorrectionKind,
    /// The correction that this one undoes.
    #[serde(skip_serializing_if = "Option::is_none")]
    reverts: Option<u64>,
    reason: String,
    /// Who proposed it, or made it without a proposal.
    author: String,
    /// Who made it visible.
    applied_by: String,
    /// Left out if nobody proposed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    proposed_at: Option<String>,
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    at: String,
    /// What the generation before it last said.
    before: i64,
    delta: i64,
    after: i64,
}

/// Lists the generations of a counter, the newest first
#[utoipa::path(get, path = "/v1/counters/{id}/history", tag = "counters",
    params(("id" = String, Path, description = ID, example = "views:v42"),
        ("limit" = Option<u64>, Query, description = "How many, at most 1000; 100 if left out"),
        ("before" = Option<u64>, Query, description = "Only generations below this one: the `next` of the page before")),
    responses((status = 200, description = "What corrections have done to it", body = History), Problem))]
pub async fn history(State(api): State<Api>, IdPath(id): IdPath, uri: Uri) -> Result<Json<History>, Problem> {
    let paging = Paging::read(&uri)?;
    let named = Named::resolve(&api.engine.declarations(), &api.engine.hasher(), &id)?;
    // There is another page only if there is one more step than this one has room for.
    let mut steps = steps(&api.engine, named.cell, Paging { limit: paging.limit + 1, ..paging }).await?;
    let is_last = steps.len() <= paging.limit;
    steps.truncate(paging.limit);
    let next = if is_last { None } else { steps.last().map(|(generation, _)| *generation) };
    let numbers: Vec<_> = steps.iter().map(|(_, step)| step.number).collect();
    let whys = api.engine.whys(&numbers, &named.id).await?;
    let generations = steps.iter().zip(whys).map(|((generation, step), why)| Generation::new(*generation, step, why));
    let generations = generations.collect();
    Ok(Json(History { id: named.id, generations, next }))
}

/// What generation `asked` last said about a counter.
pub async fn read_generation(api: &Api, named: Named, asked: u64) -> Result<Envelope, Problem> {
    let engine = &api.engine;
    // Steps and value must belong together: a correction in between would be in the value, and not in the steps.
    let (newest, said) = engine.consistently(|| said(engine, named.cell, asked)).await?;
    if asked > newest {
        let detail = format!("generation is {asked}, but the newest one is {newest}; ask for 0 to {newest}");
        return Err(Problem::new(Kind::UnknownGeneration, detail).with("generation", asked).with("newest", newest));
    }
    let (now_ms, node) = (engine.clock().now_ms(), engine.durability());
    match said {
        Said::Now(seen) => Ok(Envelope::new(named, seen, now_ms, node)),
        Said::Until(at_ms, reading) => {
            let seen = Seen { reading: Some(reading), pending: 0 };
            let envelope = Envelope::new(named, seen, at_ms, node);
            Ok(Envelope { staleness_ms: now_ms.saturating_sub(at_ms), ..envelope })
        }
    }
}

enum Said {
    /// No later generation has touched the counter.
    Now(Seen),
    /// A later generation has, at this moment.
    Until(u64, Reading),
}

/// The node's newest generation, and what the one asked for last said about a cell.
async fn said(engine: &Engine, cell: CellKey, asked: u64) -> Result<(u64, Said), Refusal> {
    let look = move |state: &mut CoreState| {
        let steps = &state.values.steps;
        let later = steps.of(cell).find(|(generation, _)| *generation > asked);
        let last = steps.of(cell).rev().find(|(generation, _)| *generation <= asked);
        let forgotten = steps.forgotten(cell);
        (
            state.values.generations.current,
            later,
            last.map(|(generation, _)| generation),
            forgotten,
            state.values.store_is_void,
        )
    };
    let (newest, mut later, mut last, forgotten, store_is_void) = engine.visit(look).await?;
    if !store_is_void {
        let first = first_known(engine, cell, forgotten).await?;
        let at_most = steps_between(cell, first, asked.saturating_add(1));
        let behind = steps_between(cell, first.max(asked.saturating_add(1)), FORGOTTEN_AT);
        let first_behind = engine.ledger_rows(behind, 1, false).await?.pop();
        let stored = first_behind.map(|row| step(&row)).transpose()?;
        later = [later, stored].into_iter().flatten().min_by_key(|(generation, _)| *generation);
        let last_row = engine.ledger_rows(at_most, 1, true).await?.pop();
        last = last.max(last_row.map(|row| step(&row)).transpose()?.map(|(generation, _)| generation));
    }
    let said = match later {
        None => Said::Now(engine.see(cell).await?),
        Some((_, step)) => Said::Until(step.at_ms, Reading { value: step.before, generation: last.unwrap_or(0) }),
    };
    Ok((newest, said))
}

/// A page of a cell's steps with their generations, the newest first.
async fn steps(engine: &Engine, cell: CellKey, paging: Paging) -> Result<Vec<(u64, Step)>, Refusal> {
    let Paging { before, limit } = paging;
    let look = move |state: &mut CoreState| {
        let steps = &state.values.steps;
        let newest = steps.of(cell).rev().filter(|(generation, _)| *generation < before).take(limit);
        (newest.collect::<BTreeMap<_, _>>(), steps.forgotten(cell), state.values.store_is_void)
    };
    let (mut steps, forgotten, store_is_void) = engine.visit(look).await?;
    if !store_is_void {
        let first = first_known(engine, cell, forgotten).await?;
        for row in engine.ledger_rows(steps_between(cell, first, before), limit, true).await? {
            steps.extend([step(&row)?]);
        }
    }
    Ok(steps.into_iter().rev().take(limit).collect())
}

/// The first generation of a counter that is not forgotten, given what memory says.
async fn first_known(engine: &Engine, cell: CellKey, in_memory: Option<u64>) -> Result<u64, Refusal> {
    let forgotten = match in_memory {
        Some(forgotten) => Some(forgotten),
        None => {
            let row = engine.ledger_row(LedgerKey::Step(cell, FORGOTTEN_AT).encode()).await?;
            row.map(|row| decode_row::<Step>(&row)).transpose()?.map(|row| row.number)
        }
    };
    Ok(forgotten.map_or(0, |generation| generation.saturating_add(1)))
}

/// Where the store has the steps of generations from one on and below another.
fn steps_between(cell: CellKey, from: u64, to: u64) -> std::ops::Range<Vec<u8>> {
    LedgerKey::Step(cell, from).encode()..LedgerKey::Step(cell, to).encode()
}

fn step((key, row): &(Vec<u8>, Vec<u8>)) -> Result<(u64, Step), Refusal> {
    match LedgerKey::decode(key) {
        Ok(LedgerKey::Step(_, generation)) => Ok((generation, decode_row(row)?)),
        other => Err(Refusal::StoreFailed(format!("a key of the ledger is damaged: {other:?}").into())),
    }
}

impl Generation {
    fn new(generation: u64, step: &Step, why: Why) -> Generation {
        Generation {
            generation,
            number: step.number,
            cause: CauseName::of(why.cause),
            kind: CorrectionKind::of(why.purpose),
            reverts: reverts(why.cause),
            reason: why.reason,
            author: why.author,
            applied_by: why.applied_by,
            proposed_at: why.proposed_ms.map(rfc3339),
            at: rfc3339(step.at_ms),
            before: step.before,
            delta: step.delta,
            after: step.before.wrapping_add(step.delta),
        }
    }
}
