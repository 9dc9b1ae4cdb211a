//! `POST /v1/events`: the hot path over HTTP.
//!
//! Each piece of the body is taken apart as it arrives, straight into the one submission of the request; nothing is
//! allocated per event. A request is one commit: all of its good events are in it, or, if the request is refused or
//! breaks off, none. A request beyond the limits is refused whole (413), never split.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use tally_core::counter::Plan;
use tally_core::event::body::{BodyError, BodyReader, Form};
use tally_core::limits::{BODY_BYTES_MAX, ENTRIES_PER_REQUEST_MAX, EVENT_BYTES_MAX, EVENTS_PER_REQUEST_MAX};

use crate::counters::{RETRY_AFTER, Refusal};
use crate::frontend::http::Api;
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::transport::guard::BodyType;
use crate::frontend::http::words::parameters::Parameters;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::metrics::Metrics;
use crate::seldom::Seldom;
use batch::{EventsBatch, Outcome};

mod batch;
mod compact;
mod known;
mod protobuf;
pub mod stream;

/// How often a line in the log says that events feed no counter.
const UNMATCHED_TOLD_EVERY: Duration = Duration::from_secs(10);

/// Counts events
///
/// The body is one event, an array of events, one event per line (NDJSON), a compact batch (`application/vnd.tally.batch`) or protobuf (`application/x-protobuf`), plain
/// or with a `Content-Encoding` of `gzip` or `zstd`. The answer comes when what was counted is durable. It is given in entries, one for each counter that
/// an event feeds: `received = counted + duplicate + conflict + rejectedCount + ignored + late`. A bad event is reported
/// and does not stop the good ones; it makes no entries and is counted in `invalid`.
#[utoipa::path(post, path = "/v1/events", tag = "events",
    params(("strict" = Option<bool>, Query, description = "All or nothing: if an event cannot be read or feeds no counter, or an entry would be rejected or be a conflict, nothing is counted, and the answer is a 422 that names them. Repeats are no fault, so the request can be sent again")),
    responses((status = 200, description = "What became of each entry", body = Outcome), Problem))]
pub async fn events(State(api): State<Api>, uri: Uri, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    take(&api, &uri, &headers, body, false).await
}

/// Takes events of a client, or a probe of the node's own.
pub async fn take(api: &Api, uri: &Uri, headers: &HeaderMap, body: Body, is_probe: bool) -> Result<Response, Problem> {
    let is_strict = Parameters::read(uri, &["strict"])?.flag("strict")?;
    let mut pieces = Pieces::new(api, headers, body, BODY_BYTES_MAX)?;
    let mut batch = EventsBatch::new(api.counters.declarations(), api.counters.hasher());
    batch.takes_probes = is_probe;
    let arrival = api.host.clock.arrival();
    let read = match BodyType::of(headers) {
        BodyType::Batch => compact::read(&mut pieces, arrival, &mut batch).await,
        BodyType::Protobuf => protobuf::read(&mut pieces, arrival, &mut batch).await,
        body_type => {
            let mut reader = BodyReader::knowing(known::take(batch.declarations()), form(body_type), arrival);
            let read = read(&mut pieces, &mut reader, &mut batch).await;
            known::keep(batch.declarations(), reader.into_layouts());
            read
        }
    };
    if let Err(problem) = read {
        return Err(pieces.refuse(problem).await);
    }
    if is_strict && let Some(faults) = batch.faults() {
        observe(&api.host.metrics, faults);
        return Err(not_all(faults));
    }
    let outcome = commit(api, batch, is_strict).await?;
    if !is_probe {
        observe(&api.host.metrics, &outcome);
    }
    let body = judge(outcome)?.to_json();
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn read(pieces: &mut Pieces, reader: &mut BodyReader<Plan>, batch: &mut EventsBatch) -> Result<(), Problem> {
    let mut body_bytes = 0;
    while let Some(piece) = pieces.next().await? {
        if body_bytes == 0 {
            batch.expect(pieces.promised_bytes().unwrap_or(0), piece.len());
        }
        body_bytes += piece.len();
        reader.feed(&piece, batch)?;
        check(batch)?;
        // Beside the batch there is at most the beginning of one event.
        pieces.charge.grow_to(body_bytes.min(EVENT_BYTES_MAX) + batch.bytes())?;
    }
    reader.finish(batch)?;
    check(batch)?;
    Ok(pieces.charge.grow_to(batch.bytes())?)
}

async fn commit(api: &Api, mut batch: EventsBatch, is_strict: bool) -> Result<Outcome, Problem> {
    let mut submission = batch.take_submission();
    if submission.is_empty() {
        return Ok(batch.outcome(&[], None));
    }
    submission.needs.strict = is_strict;
    match api.counters.submit(submission).await {
        Ok(committed) => Ok(batch.outcome(&committed.answers, Some(committed.position))),
        Err(Refusal::NotAll(answers)) => {
            let faults = batch.refused(&answers);
            observe(&api.host.metrics, &faults);
            Err(not_all(&faults))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// NDJSON if the sender says so; otherwise the body itself tells.
fn form(body_type: BodyType) -> Option<Form> {
    (body_type == BodyType::Lines).then_some(Form::Lines)
}

fn check(batch: &EventsBatch) -> Result<(), Problem> {
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
        Problem::new(ProblemKind::TooLarge, error.to_string()).with("limit", limit)
    }
}

fn no_events() -> Problem {
    Problem::new(ProblemKind::InvalidBody, "the body has no events; send one such as {\"type\":\"video.viewed\"}")
}

/// What is answered: that nothing came of it may be a problem.
fn judge(outcome: Outcome) -> Result<Outcome, Problem> {
    if outcome.events == 0 {
        return Err(no_events());
    }
    if outcome.without_room > 0 && outcome.without_room == outcome.received {
        // Nothing else has come of it: whoever sends it again does no harm.
        let first = outcome.rejected.first().map_or("", |rejected| rejected.reason.as_str());
        return Err(Problem::new(ProblemKind::RepeatsFull, first).retry_after(RETRY_AFTER.as_secs()));
    }
    if outcome.invalid < outcome.events {
        return Ok(outcome);
    }
    let first = outcome.rejected.first().map_or("", |rejected| rejected.reason.as_str());
    Err(Problem::new(
        ProblemKind::NoValidEvent,
        format!("none of {} events can be read; the first: {first}", outcome.events),
    )
    .with("events", outcome.events)
    .with("invalid", outcome.invalid)
    .with("rejected", json(&outcome.rejected)))
}

/// Why a request that wants all or nothing gets nothing.
fn not_all(faults: &Outcome) -> Problem {
    let Outcome { events, invalid, unmatched, rejected_count, conflict, .. } = *faults;
    if events == 0 {
        return no_events();
    }
    let unmatched_type = faults.unmatched_types.first().map(|unmatched| unmatched.says());
    let first = faults.rejected.first().map(|rejected| rejected.reason.clone()).or(unmatched_type).unwrap_or_default();
    let detail = format!(
        "of {events} events {invalid} cannot be read and {unmatched} feed no counter, {rejected_count} entries would be rejected and \
         {conflict} would be conflicts, so nothing was counted; the first: {first}"
    );
    Problem::new(ProblemKind::NotAllCountable, detail)
        .with("events", events)
        .with("invalid", invalid)
        .with("unmatched", unmatched)
        .with("rejectedCount", rejected_count)
        .with("conflict", conflict)
        .with("rejected", json(&faults.rejected))
        .with("unmatchedTypes", json(&faults.unmatched_types))
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("strings and numbers are JSON")
}

fn observe(metrics: &Metrics, outcome: &Outcome) {
    metrics.events.inc_by(outcome.events);
    metrics.events_invalid.inc_by(outcome.invalid);
    metrics.events_unmatched.inc_by(outcome.unmatched);
    if outcome.unmatched > 0 {
        observe_unmatched(metrics, outcome);
    }
}

#[cold]
fn observe_unmatched(metrics: &Metrics, outcome: &Outcome) {
    static TOLD: Seldom = Seldom::new(UNMATCHED_TOLD_EVERY);
    let mut named = 0;
    for unmatched in &outcome.unmatched_types {
        metrics.unmatched.count(&unmatched.r#type, unmatched.events);
        named += unmatched.events;
    }
    metrics.unmatched.count_others(outcome.unmatched - named);
    if let Some(first) = outcome.unmatched_types.first().filter(|_| TOLD.is_due()) {
        tracing::warn!(events = outcome.unmatched, "{}; /metrics counts such events by their type", first.says());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ndjson_is_known_by_its_type() {
        let form_of = |content_type: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
            form(BodyType::of(&headers))
        };
        assert_eq!(form_of("application/x-ndjson"), Some(Form::Lines));
        assert_eq!(form_of("Application/NDJSON; charset=utf-8"), Some(Form::Lines));
        assert_eq!(form_of("application/json"), None);
        assert_eq!(form(BodyType::of(&HeaderMap::new())), None);
    }
}
