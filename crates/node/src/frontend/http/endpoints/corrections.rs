//! Corrections: the past is put right by proposals that are previewed, applied and, if they were wrong, reverted.
//!
//! A proposal changes nothing. Applying it, reverting a correction and clearing a counter are one record of the log each,
//! which every reader sees at once and which makes a generation.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde::Serialize;
use tally_core::fact::Request;
use tally_core::ledger::{Correction, Grounds, Proposal, Remedy, Row};
use tally_core::limits::{CORRECTION_BYTES_MAX, CORRECTION_DELTAS_MAX};
use tally_core::machine::Unfit;

use super::counters::idempotency_key;
use crate::counters::{Corrected, CorrectionError, CorrectionRequest, FoundCorrection, PreviewPart, Proposed};
use crate::frontend::http::Api;
use crate::frontend::http::words::parameters::{Paging, Parameters, limit};
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use preview::Preview;
use request::{ApplyBody, Number, ProposalBody, WhyBody};
use view::{CorrectionPage, CorrectionView};

mod clear;
mod preview;
mod request;
mod view;

pub use clear::{ClearedView, clear};
pub use request::{check_author, check_text};
pub use view::{CauseName, CorrectionKind, DeltaView, reverts};

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
    let key = idempotency_key(&headers)?;
    let request =
        key.map(|key| Request::new(&api.counters.hasher(), key.as_bytes(), &[b"propose", &proposal.to_bytes()]));
    let Proposed { proposal, repeated } = api.counters.propose(proposal, request).await?;
    let view = CorrectionView::proposed(&proposal).with_deltas(&proposal.deltas);
    Ok((StatusCode::CREATED, with_token(&api, CorrectionView { repeated, ..view })))
}

/// Lists corrections and proposals, the newest first
#[utoipa::path(get, path = "/v1/corrections", tag = "corrections",
    params(("limit" = Option<u64>, Query, description = "How many, at most 1000; 100 if left out"),
        ("before" = Option<u64>, Query, description = "Only numbers below this one: the `next` of the page before")),
    responses((status = 200, description = "Corrections, without their deltas", body = CorrectionPage), Problem))]
pub async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<CorrectionPage>, Problem> {
    let Paging { before, limit } = Paging::read(&uri)?;
    Ok(Json(CorrectionPage::of(api.counters.corrections(before, limit).await?)))
}

/// Shows a correction or proposal with its deltas
#[utoipa::path(get, path = "/v1/corrections/{n}", tag = "corrections", params(("n" = u64, Path, description = "Its number")),
    responses((status = 200, description = "The correction", body = CorrectionView), Problem))]
pub async fn get(State(api): State<Api>, Number(number): Number) -> Result<Json<CorrectionView>, Problem> {
    Ok(Json(CorrectionView::of(&find(&api, number).await?)))
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
    let after = parameters.text("after").map(|after| after.as_bytes().to_vec());
    let part = PreviewPart { after, limit: limit(&parameters)? };
    let found = find(&api, number).await?;
    let effects = api.counters.preview(&found, &part).await?;
    Ok(Json(Preview::new(&found, effects)?))
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
    let key = idempotency_key(&headers)?;
    let once = once(&api, key, &["apply", &number.to_string(), &author, &format!("{if_generation:?}")]);
    let remedy = Remedy::Apply { number, author, if_generation };
    let made = api.counters.correct(CorrectionRequest { remedy, once }).await;
    if let Err(CorrectionError::Unfit(Unfit::NotOpen(_))) = made {
        // It is in another state, which is the answer.
        open(&api, number).await?;
    }
    answer(&api, made)
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
    let key = idempotency_key(&headers)?;
    let once = once(&api, key, &["revert", &number.to_string(), &reason, &author, &format!("{if_generation:?}")]);
    let remedy = Remedy::Revert { number, grounds: Grounds { reason, author }, if_generation };
    answer(&api, api.counters.correct(CorrectionRequest { remedy, once }).await)
}

/// Withdraws an open proposal
#[utoipa::path(delete, path = "/v1/corrections/{n}", tag = "corrections", params(("n" = u64, Path, description = "Its number")),
    responses((status = 200, description = "It is gone", body = Withdrawn), Problem))]
pub async fn withdraw(State(api): State<Api>, Number(number): Number) -> Result<Json<Withdrawn>, Problem> {
    open(&api, number).await?;
    if !api.counters.withdraw(number).await? {
        // Somebody was faster; what they did is the answer.
        open(&api, number).await?;
    }
    Ok(Json(Withdrawn { number, state: "withdrawn" }))
}

async fn find(api: &Api, number: u64) -> Result<FoundCorrection, Problem> {
    let found = api.counters.correction(number).await?;
    found.ok_or_else(|| CorrectionError::Unfit(Unfit::NotThere(number)).into())
}

/// An open proposal.
async fn open(api: &Api, number: u64) -> Result<Proposal, Problem> {
    match find(api, number).await? {
        FoundCorrection::Proposed(proposal) => Ok(proposal),
        FoundCorrection::Applied { correction, reverted_by } => Err(not_open(&correction, reverted_by)),
    }
}

fn answer(api: &Api, made: Result<Corrected, CorrectionError>) -> Result<Json<CorrectionView>, Problem> {
    let Corrected { correction, repeated } = made?;
    let view = CorrectionView::applied(&correction).with_deltas(&correction.deltas);
    Ok(with_token(api, CorrectionView { repeated, ..view }))
}

/// What is asked for under an id, if it has one.
fn once(api: &Api, key: Option<&str>, content: &[&str]) -> Option<Request> {
    let content: Vec<_> = content.iter().map(|text| text.as_bytes()).collect();
    key.map(|key| Request::new(&api.counters.hasher(), key.as_bytes(), &content))
}

/// Adds a position behind what was just done.
fn with_token(api: &Api, view: CorrectionView) -> Json<CorrectionView> {
    Json(CorrectionView { token: Some(api.counters.applied().to_string()), ..view })
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
    Problem::new(ProblemKind::CorrectionState, detail)
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
            Unfit::NotOpen(number) | Unfit::NotThere(number) => {
                Problem::new(ProblemKind::NotFound, detail).with("number", number)
            }
            Unfit::OnlyProposed(number) => {
                Problem::new(ProblemKind::CorrectionState, detail).with("number", number).with("state", "proposed")
            }
            Unfit::Reverted { number, by } => {
                let detail = format!("{detail}; to bring its effect back, revert correction {by}");
                Problem::new(ProblemKind::CorrectionState, detail)
                    .with("number", number)
                    .with("state", "reverted")
                    .with("revertedBy", by)
            }
            Unfit::Moved { id, asked, is } => Problem::new(ProblemKind::GenerationMoved, detail)
                .with("id", id)
                .with("ifGeneration", asked)
                .with("generation", is),
            Unfit::TooLongAgo { id, number } => {
                Problem::new(ProblemKind::CorrectionState, detail).with("id", id).with("number", number)
            }
            Unfit::Overflow { id } => Problem::new(ProblemKind::Overflow, detail).with("id", id),
            Unfit::Repeated(number) => Problem::new(ProblemKind::CorrectionState, detail).with("number", number),
            Unfit::OtherRequest => Problem::new(ProblemKind::IdempotencyConflict, detail),
            Unfit::KeysFull(keys_max) => Problem::new(ProblemKind::IdempotencyFull, detail).with("limit", keys_max),
            Unfit::Nothing => Problem::new(ProblemKind::CorrectionState, detail),
            Unfit::TooManyKeys { name } => {
                Problem::new(ProblemKind::TooManyCounters, detail).with("id", name).with("limit", CORRECTION_DELTAS_MAX)
            }
            Unfit::TooMany => Problem::new(ProblemKind::TooManyCounters, detail),
            Unfit::TooManyOpen | Unfit::OpenTooLarge { .. } => Problem::new(ProblemKind::TooManyProposals, detail),
            Unfit::TooLarge { .. } => Problem::new(ProblemKind::TooLarge, detail).with("limit", CORRECTION_BYTES_MAX),
        }
    }
}
