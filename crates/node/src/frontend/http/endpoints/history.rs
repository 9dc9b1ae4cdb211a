//! What corrections have done to one counter: its generations with their reasons, and what each of them last said.
//!
//! Each correction leaves a step on every cell that it touches.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use tally_core::counter::Target;
use tally_core::ledger::Step;

use super::corrections::{CauseName, CorrectionKind, reverts};
use crate::counters::{Said, Seen, Why};
use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::{Envelope, rfc3339};
use crate::frontend::http::words::id::{self, ID, IdPath};
use crate::frontend::http::words::parameters::Paging;
use crate::frontend::http::words::problem::{Problem, ProblemKind};

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
    let target = id::target(&api.counters.declarations(), &api.counters.hasher(), &id)?;
    let page = api.counters.history(&target, paging.before, paging.limit).await?;
    let generations = page.steps.into_iter().map(|(generation, step, why)| Generation::new(generation, &step, why));
    Ok(Json(History { id: target.text().into_owned(), generations: generations.collect(), next: page.next }))
}

/// What generation `asked` last said about a counter.
pub async fn read_generation(api: &Api, target: &Target<'_>, asked: u64) -> Result<Envelope, Problem> {
    let (newest, said) = api.counters.said(target.cell, asked).await?;
    if asked > newest {
        let detail = format!("generation is {asked}, but the newest one is {newest}; ask for 0 to {newest}");
        return Err(Problem::new(ProblemKind::UnknownGeneration, detail)
            .with("generation", asked)
            .with("newest", newest));
    }
    let (now_ms, node) = (api.host.clock.now_ms(), api.counters.durability());
    match said {
        Said::Now(seen) => Ok(Envelope::new(target, seen, now_ms, node)),
        Said::Until(at_ms, reading) => {
            let seen = Seen { reading: Some(reading), pending: 0 };
            let envelope = Envelope::new(target, seen, at_ms, node);
            Ok(Envelope { staleness_ms: now_ms.saturating_sub(at_ms), ..envelope })
        }
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
