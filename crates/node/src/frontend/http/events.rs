//! `POST /v1/events`: the hot path over HTTP.
//!
//! Each piece of the body is taken apart as it arrives, straight into the one submission of the request; nothing is
//! allocated per event. A request is one commit: all of its good events are in it, or, if the request is refused or
//! breaks off, none. A request beyond the limits is refused whole (413), never split.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use tally_core::event::body::{BodyError, BodyReader, Form};
use tally_core::limits::{BODY_BYTES_MAX, ENTRIES_PER_REQUEST_MAX, EVENTS_PER_REQUEST_MAX};

use super::Api;
use super::body::{Pieces, content_length};
use super::guard::is_lines;
use super::problem::{Kind, Problem};
use crate::metrics::Metrics;
use batch::{Batch, Outcome};

mod batch;

/// Counts events
///
/// The body is one event, an array of events or one event per line (NDJSON), plain or with a `Content-Encoding` of
/// `gzip` or `zstd`. The answer comes when what was counted is durable. It is given in entries, one for each counter that
/// an event feeds: `received = counted + duplicate + conflict + rejectedCount + ignored + late`. A bad event is reported
/// and does not stop the good ones; it makes no entries and is counted in `invalid`.
#[utoipa::path(post, path = "/v1/events", tag = "events",
    request_body(content = String, content_type = "application/x-ndjson",
        example = r#"{"type":"video.viewed","dimensions":{"video":"v42"}}"#),
    responses((status = 200, description = "What became of each entry", body = Outcome), Problem))]
pub async fn events(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Json<Outcome>, Problem> {
    let mut pieces = Pieces::new(&api, &headers, body, BODY_BYTES_MAX)?;
    let mut batch = Batch::new(api.engine.declarations(), api.engine.hasher());
    batch.expect(content_length(&headers).unwrap_or(0));
    let reader = BodyReader::new(form(&headers), api.engine.clock().arrival());
    if let Err(problem) = read(&mut pieces, reader, &mut batch).await {
        return Err(pieces.refuse(problem).await);
    }
    let outcome = commit(&api, batch).await?;
    observe(&api.metrics, &outcome);
    respond(outcome)
}

async fn read(pieces: &mut Pieces, mut reader: BodyReader, batch: &mut Batch) -> Result<(), Problem> {
    let mut body_bytes = 0;
    while let Some(piece) = pieces.next().await? {
        reader.feed(&piece, batch)?;
        body_bytes += piece.len();
        check(batch)?;
        pieces.lease.hold(body_bytes + batch.bytes())?;
    }
    reader.finish(batch)?;
    check(batch)?;
    Ok(pieces.lease.hold(body_bytes + batch.bytes())?)
}

async fn commit(api: &Api, mut batch: Batch) -> Result<Outcome, Problem> {
    let submission = batch.take_submission();
    if submission.is_empty() {
        return Ok(batch.outcome(&[], None));
    }
    let committed = api.engine.submit(submission).await?;
    Ok(batch.outcome(&committed.answers, Some(committed.position)))
}

/// NDJSON if the sender says so; otherwise the body itself tells.
fn form(headers: &HeaderMap) -> Option<Form> {
    is_lines(headers).then_some(Form::Lines)
}

fn check(batch: &Batch) -> Result<(), Problem> {
    if batch.entries() <= ENTRIES_PER_REQUEST_MAX {
        return Ok(());
    }
    let fix = "send the events in several requests";
    Err(Problem::too_large("the events feed too many counters", ENTRIES_PER_REQUEST_MAX, fix))
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Problem {
        let limit = match error {
            BodyError::TooLarge => BODY_BYTES_MAX,
            BodyError::TooManyEvents => EVENTS_PER_REQUEST_MAX,
        };
        Problem::new(Kind::TooLarge, error.to_string()).with("limit", limit)
    }
}

fn respond(outcome: Outcome) -> Result<Json<Outcome>, Problem> {
    if outcome.events == 0 {
        let detail = "the body has no events; send one such as {\"type\":\"video.viewed\"}";
        return Err(Problem::new(Kind::InvalidBody, detail));
    }
    if outcome.invalid < outcome.events {
        return Ok(Json(outcome));
    }
    let first = outcome.rejected.first().map_or("", |rejected| rejected.reason.as_str());
    let rejected = serde_json::to_value(&outcome.rejected).expect("strings and numbers are JSON");
    Err(Problem::new(Kind::NoValidEvent, format!("none of {} events can be read; the first: {first}", outcome.events))
        .with("events", outcome.events)
        .with("invalid", outcome.invalid)
        .with("rejected", rejected))
}

fn observe(metrics: &Metrics, outcome: &Outcome) {
    metrics.events.inc_by(outcome.events);
    metrics.events_invalid.inc_by(outcome.invalid);
    metrics.events_unmatched.inc_by(outcome.unmatched);
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header::CONTENT_TYPE;

    #[test]
    fn ndjson_is_known_by_its_type() {
        let form_of = |content_type: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
            form(&headers)
        };
        assert_eq!(form_of("application/x-ndjson"), Some(Form::Lines));
        assert_eq!(form_of("Application/NDJSON; charset=utf-8"), Some(Form::Lines));
        assert_eq!(form_of("application/json"), None);
        assert_eq!(form(&HeaderMap::new()), None);
    }
}
