//! `GET /v1/duplicates`: the audit of event ids that came again, the newest first.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use tally_core::event::Event;
use tally_core::ledger::{Duplicate, DuplicatePlace, read_first};

use crate::counters::{AuditQuestion, AuditedRepeat, Refusal};
use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::{content_hash, rfc3339, rfc3339_signed};
use crate::frontend::http::words::parameters::{self, Parameters, refused};
use crate::frontend::http::words::problem::Problem;

/// A page of the audit.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Duplicates)]
pub struct DuplicatePage {
    /// How many rows the audit ever got, whatever was asked for.
    total: u64,
    /// The newest first.
    duplicates: Vec<DuplicateView>,
    /// The `before` of the next page; left out on the last one. A page that looks for something rare may have fewer rows than
    /// asked for, or none, and still a next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "4711-3")]
    next: Option<String>,
}

/// An event whose id was seen before. It was not counted.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DuplicateView {
    event_id: String,
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    first_seen: String,
    #[schema(example = "2026-11-15T18:00:07.000Z")]
    seen_again: String,
    r#type: String,
    dimensions: BTreeMap<String, String>,
    delta: i64,
    /// The counters it would have fed.
    counters: Vec<String>,
    /// Whether its content is another than that of the first event with this id.
    conflict: bool,
    /// The hash of type, dimensions and delta, in 16 hexadecimal digits.
    #[schema(example = "27b1c0de5a3f4e90")]
    content_hash: String,
    first: First,
    position: Place,
}

/// The first event with this id, which counted. Of an id that was first seen by a version that did not keep contents there is
/// only the time.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct First {
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    seen_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<i64>,
    /// When it happened, if its sender said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T17:59:58.000Z")]
    occurred_at: Option<String>,
    /// The hash of type, dimensions and delta, in 16 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "9a275e3f454930d1")]
    content_hash: Option<String>,
}

/// Where in the log it stands.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Place {
    /// Of the batch it came with.
    offset: u64,
    /// Its place within the batch.
    index: u32,
}

/// Lists events whose id was seen before, the newest first
///
/// Persistent counters count each event id once. Whatever comes again is not counted, and kept here for ever, beside what came
/// first.
#[utoipa::path(get, path = "/v1/duplicates", tag = "events",
    params(("eventId" = Option<String>, Query, description = "Only repeats of this event id"),
        ("counter" = Option<String>, Query, description = "Only events that feed this counter", example = "impressions"),
        ("conflict" = Option<bool>, Query, description = "Only events with another content than the first, or only those with the same"),
        ("limit" = Option<u64>, Query, description = "How many, at most 1000; 100 if left out"),
        ("before" = Option<String>, Query, description = "The `next` of the page before")),
    responses((status = 200, description = "A page of the audit", body = DuplicatePage), Problem))]
pub async fn duplicates(State(api): State<Api>, uri: Uri) -> Result<Json<DuplicatePage>, Problem> {
    let page = api.counters.duplicates(&question(&uri)?).await?;
    let duplicates = page.rows.into_iter().map(view).collect::<Result<_, _>>()?;
    let next = page.next.map(|(offset, index)| format!("{offset}-{index}"));
    Ok(Json(DuplicatePage { total: page.total, duplicates, next }))
}

/// A row beside what came first.
fn view(AuditedRepeat { repeat, first }: AuditedRepeat) -> Result<DuplicateView, Refusal> {
    let first = first.as_ref().map(|content| read_first(content)).transpose();
    Ok(DuplicateView::new(repeat, first.map_err(|error| damaged(&error.to_string()))?.as_ref()))
}

const PARAMETERS: [&str; 5] = ["eventId", "counter", "conflict", "limit", "before"];

fn question(uri: &Uri) -> Result<AuditQuestion, Problem> {
    let parameters = Parameters::read(uri, &PARAMETERS)?;
    Ok(AuditQuestion {
        event_id: parameters.text("eventId").map(str::to_owned),
        counter: parameters.text("counter").map(str::to_owned),
        conflict: parameters.text("conflict").map(conflict).transpose()?,
        limit: parameters::limit(&parameters)?,
        before: parameters.text("before").map_or(Ok((u64::MAX, u32::MAX)), cursor)?,
    })
}

fn conflict(value: &str) -> Result<bool, Problem> {
    value.parse().map_err(|_| refused("conflict", value, "send true or false"))
}

fn cursor(value: &str) -> Result<DuplicatePlace, Problem> {
    let place = value.split_once('-').and_then(|(offset, index)| Some((offset.parse().ok()?, index.parse().ok()?)));
    place.ok_or_else(|| refused("before", value, "send the next of another page, such as 4711-3"))
}

fn damaged(what: &str) -> Refusal {
    Refusal::StoreFailed(format!("a row of the audit is damaged: {what}").into())
}

impl DuplicateView {
    fn new(row: Duplicate, first: Option<&Event<'_>>) -> DuplicateView {
        DuplicateView {
            position: Place { offset: row.offset, index: row.index },
            first: First::new(row.first_seen_ms, first),
            content_hash: content_hash(event(&row).content_hash()),
            event_id: row.event_id,
            first_seen: rfc3339(row.first_seen_ms),
            seen_again: rfc3339(row.seen_ms),
            r#type: row.event_type,
            dimensions: row.dimensions.into_iter().collect(),
            delta: row.delta,
            counters: row.counters,
            conflict: row.conflict,
        }
    }
}

impl First {
    fn new(seen_ms: u64, content: Option<&Event<'_>>) -> First {
        let seen_at = rfc3339(seen_ms);
        let Some(first) = content else { return First { seen_at, ..First::default() } };
        let text = |text: &str| text.to_owned();
        First {
            seen_at,
            r#type: Some(text(&first.event_type)),
            dimensions: Some(first.dimensions.iter().map(|(name, value)| (text(name), text(value))).collect()),
            delta: Some(first.delta),
            occurred_at: first.occurred_at_ms.map(rfc3339_signed),
            content_hash: Some(content_hash(first.content_hash())),
        }
    }
}

/// What a row knows of its event.
fn event(row: &Duplicate) -> Event<'_> {
    let dimensions = row.dimensions.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into()));
    Event { delta: row.delta, dimensions: dimensions.collect(), ..Event::new(row.event_type.as_str(), 0) }
}
