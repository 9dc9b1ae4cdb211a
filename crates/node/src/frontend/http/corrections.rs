//! Corrections: the past is put right by proposals that are previewed, applied and, if they were wrong, reverted.
//!
//! A proposal changes nothing. Applying it, reverting a correction and clearing a counter are one record of the log each,
//! which every reader sees at once and which makes a generation.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde::Serialize;
use tally_core::aggregate::Unfit;
use tally_core::ledger::{Cause, Correction, Delta, Proposal};

use super::Api;
use super::counters::read_together;
use super::parameters::{Paging, Parameters, limit};
use super::problem::{Kind, Problem};
use crate::engine::{CorrectionError, CorrectionRequest, Reverted};
use find::Found;
use preview::{Part, Preview};
use request::{ApplyBody, Number, ProposalBody, WhyBody};
use view::{CorrectionPage, CorrectionView};

mod clear;
mod find;
mod preview;
mod request;
mod view;

pub use clear::{Cleared, clear};
pub use find::decode;
pub use view::{CauseName, DeltaView, reverts};

/// Who did something without saying who.
const ANONYMOUS: &str = "anonymous";

/// A proposal that was taken back.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Withdrawn {
    number: u64,
    #[schema(example = "withdrawn")]
    state: &'static str,
}

/// Proposes a correction
///
/// Nothing changes until it is applied. Ids are those of counters, declared or ad hoc; a `bucket` is any moment of the hour
/// that a delta belongs to.
#[utoipa::path(post, path = "/v1/corrections", tag = "corrections", request_body = ProposalBody,
    responses((status = 201, description = "The proposal, with its number", body = CorrectionView), Problem))]
pub async fn propose(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<CorrectionView>), Problem> {
    let proposal = request::proposal(&api, &headers, body).await?;
    check_generation(&api, &proposal).await?;
    let number = api.engine.propose(proposal).await?;
    let proposed = find(&api, number).await?.view();
    Ok((StatusCode::CREATED, with_token(&api, proposed)))
}

/// Lists corrections and proposals, the newest first
#[utoipa::path(get, path = "/v1/corrections", tag = "corrections",
    params(("limit" = Option<u64>, Query, description = "How many, at most 1000; 100 if left out"),
        ("before" = Option<u64>, Query, description = "Only numbers below this one: the `next` of the page before")),
    responses((status = 200, description = "Corrections, without their deltas", body = CorrectionPage), Problem))]
pub async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<CorrectionPage>, Problem> {
    Ok(Json(find::page(&api.engine, Paging::read(&uri)?).await?))
}

/// Shows a correction or proposal with its deltas
#[utoipa::path(get, path = "/v1/corrections/{n}", tag = "corrections", params(("n" = u64, Path, description = "Its number")),
    responses((status = 200, description = "The correction", body = CorrectionView), Problem))]
pub async fn get(State(api): State<Api>, Number(number): Number) -> Result<Json<CorrectionView>, Problem> {
    Ok(Json(find(&api, number).await?.view()))
}

/// Shows what a proposal would do now, or what a correction did
///
/// Before and after for each counter: of an open proposal as of this moment, of a correction as of when it was made.
#[utoipa::path(method(get, post), path = "/v1/corrections/{n}/preview", tag = "corrections",
    params(("n" = u64, Path, description = "Its number"),
        ("limit" = Option<u64>, Query, description = "How many counters, at most 1000; 100 if left out"),
        ("after" = Option<String>, Query, description = "Only ids behind this one: the `next` of the page before")),
    responses((status = 200, description = "Before and after", body = Preview), Problem))]
pub async fn preview(State(api): State<Api>, Number(number): Number, uri: Uri) -> Result<Json<Preview>, Problem> {
    let parameters = Parameters::read(&uri, &["limit", "after"])?;
    let part = Part { after: parameters.text("after").map(str::to_owned), limit: limit(&parameters)? };
    let found = find(&api, number).await?;
    Ok(Json(preview::preview(&api.engine, found, &part).await?))
}

/// Applies a proposal
///
/// It becomes visible for all readers at once and makes a generation.
#[utoipa::path(post, path = "/v1/corrections/{n}/apply", tag = "corrections", params(("n" = u64, Path, description = "Its number")),
    request_body(content = Option<ApplyBody>),
    responses((status = 200, description = "The correction", body = CorrectionView), Problem))]
pub async fn apply(
    State(api): State<Api>,
    Number(number): Number,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<CorrectionView>, Problem> {
    let ApplyBody { author, if_generation } = request::application(&api, &headers, body).await?;
    let author = author.unwrap_or_else(|| ANONYMOUS.to_owned());
    request::check_author(&author)?;
    let Proposal { reason, .. } = open(&api, number).await?;
    let request = CorrectionRequest::new(Cause::Proposal(number), reason, author, Vec::new());
    let request = CorrectionRequest { if_generation, ..request };
    let made = api.engine.correct(request).await;
    if let Err(CorrectionError::Unfit(Unfit::NotOpen(_))) = made {
        // Somebody was faster; what they did is the answer.
        open(&api, number).await?;
    }
    Ok(applied(&api, &made?))
}

/// Reverts a correction by another one
///
/// What the correction added is taken away again; what was counted since stays. A revert can be reverted.
#[utoipa::path(post, path = "/v1/corrections/{n}/revert", tag = "corrections", params(("n" = u64, Path, description = "Its number")),
    request_body(content = Option<WhyBody>),
    responses((status = 200, description = "The correction that reverts it", body = CorrectionView), Problem))]
pub async fn revert(
    State(api): State<Api>,
    Number(number): Number,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<CorrectionView>, Problem> {
    let WhyBody { reason, author, if_generation } = request::why(&api, &headers, body).await?;
    let reason = reason.unwrap_or_else(|| format!("revert of correction {number}"));
    let author = author.unwrap_or_else(|| ANONYMOUS.to_owned());
    request::check_why(&reason, &author)?;
    let (reverted, deltas) = match find(&api, number).await? {
        Found::Applied { correction, .. } => {
            (Reverted { generation: correction.generation, cause: correction.cause }, inverse(correction)?)
        }
        Found::Proposed(_) => {
            let detail =
                format!("correction {number} is proposed, so there is nothing to revert; DELETE it to withdraw it");
            return Err(Problem::new(Kind::CorrectionState, detail).with("number", number).with("state", "proposed"));
        }
    };
    let request = CorrectionRequest::new(Cause::Revert(number), reason, author, deltas);
    let request = CorrectionRequest { reverted: Some(reverted), if_generation, ..request };
    let made = api.engine.correct(request).await?;
    Ok(applied(&api, &made))
}

/// Withdraws an open proposal
#[utoipa::path(delete, path = "/v1/corrections/{n}", tag = "corrections", params(("n" = u64, Path, description = "Its number")),
    responses((status = 200, description = "It is gone", body = Withdrawn), Problem))]
pub async fn withdraw(State(api): State<Api>, Number(number): Number) -> Result<Json<Withdrawn>, Problem> {
    open(&api, number).await?;
    if !api.engine.withdraw(number).await? {
        // Somebody was faster; what they did is the answer.
        open(&api, number).await?;
    }
    Ok(Json(Withdrawn { number, state: "withdrawn" }))
}

/// Whether a proposal is still about the counters that its author has seen.
async fn check_generation(api: &Api, proposal: &Proposal) -> Result<(), Problem> {
    let Some(asked) = proposal.if_generation else { return Ok(()) };
    let hasher = api.engine.hasher();
    let cells: Vec<_> = proposal.deltas.iter().map(|delta| hasher.key(&delta.id)).collect();
    for (delta, seen) in proposal.deltas.iter().zip(read_together(&api.engine, &cells).await?) {
        let is = seen.reading.map_or(0, |reading| reading.generation);
        if is > asked {
            let id = String::from_utf8_lossy(&delta.id).into_owned();
            return Err(CorrectionError::Unfit(Unfit::Moved { id, asked, is }).into());
        }
    }
    Ok(())
}

async fn find(api: &Api, number: u64) -> Result<Found, Problem> {
    find::find(&api.engine, number).await?.ok_or_else(|| {
        let detail = format!(
            "there is no correction {number}: it was never proposed, or it was withdrawn; GET /v1/corrections lists those there are"
        );
        Problem::new(Kind::NotFound, detail).with("number", number)
    })
}

/// An open proposal.
async fn open(api: &Api, number: u64) -> Result<Proposal, Problem> {
    match find(api, number).await? {
        Found::Proposed(proposal) => Ok(proposal),
        Found::Applied { correction, reverted_by } => Err(not_open(&correction, reverted_by)),
    }
}

fn applied(api: &Api, made: &Correction) -> Json<CorrectionView> {
    with_token(api, CorrectionView::applied(made).with_deltas(&made.deltas))
}

/// Adds a position behind what was just done.
fn with_token(api: &Api, view: CorrectionView) -> Json<CorrectionView> {
    Json(CorrectionView { token: Some(api.engine.applied().to_string()), ..view })
}

fn inverse(correction: Correction) -> Result<Vec<Delta>, Problem> {
    let number = correction.number;
    let inverse = |delta: Delta| {
        let negated = delta.delta.checked_neg().ok_or_else(|| {
            let detail = format!("correction {number} cannot be reverted: the opposite of {} does not fit into 64 bits; propose its parts", delta.delta);
            Problem::new(Kind::Overflow, detail).with("number", number)
        })?;
        Ok(Delta { delta: negated, ..delta })
    };
    correction.deltas.into_iter().map(inverse).collect()
}

fn not_open(correction: &Correction, reverted_by: Option<u64>) -> Problem {
    let Correction { number, generation, .. } = correction;
    let (state, detail) = match reverted_by {
        None => (
            "applied",
            format!("correction {number} is applied already, as generation {generation}; revert it to undo it"),
        ),
        Some(by) => (
            "reverted",
            format!(
                "correction {number} was applied as generation {generation} and reverted by correction {by}; propose it anew"
            ),
        ),
    };
    Problem::new(Kind::CorrectionState, detail)
        .with("number", *number)
        .with("state", state)
        .with("generation", *generation)
}

impl From<CorrectionError> for Problem {
    fn from(error: CorrectionError) -> Problem {
        let unfit = match error {
            CorrectionError::Refused(refusal) => return refusal.into(),
            CorrectionError::Unfit(unfit) => unfit,
        };
        let detail = unfit.to_string();
        match unfit {
            Unfit::NotOpen(number) => Problem::new(Kind::NotFound, detail).with("number", number),
            Unfit::Reverted { number, by } => {
                let detail = format!("{detail}; to bring its effect back, revert correction {by}");
                Problem::new(Kind::CorrectionState, detail)
                    .with("number", number)
                    .with("state", "reverted")
                    .with("revertedBy", by)
            }
            Unfit::Moved { id, asked, is } => Problem::new(Kind::GenerationMoved, detail)
                .with("id", id)
                .with("ifGeneration", asked)
                .with("generation", is),
            Unfit::TooLongAgo { id, number } => {
                Problem::new(Kind::CorrectionState, detail).with("id", id).with("number", number)
            }
            Unfit::Overflow { id } => Problem::new(Kind::Overflow, detail).with("id", id),
            Unfit::Nothing => Problem::new(Kind::CorrectionState, detail),
            Unfit::TooMany => Problem::new(Kind::TooManyCounters, detail),
            Unfit::TooManyOpen => Problem::new(Kind::TooManyProposals, detail),
        }
    }
}
