//! `GET /v1/workers`: what goes on in the background, and how it goes.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::rfc3339;
use crate::worker::{LastError, Status};

/// Why a unit of work was not done, the last time that one was not.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct WorkerError {
    text: String,
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    at: String,
}

/// Something that is done in the background, a unit of work at a time.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    #[schema(example = "house")]
    name: String,
    #[schema(example = "keeps empty segments ahead of the log and frees those that no start would read")]
    does: &'static str,
    /// `busy`, `idle` (until something comes), `waiting` (until a time), `throttled` (the last unit failed and is tried again), `done`, or
    /// `failed` (it broke, and is not tried again)
    #[schema(example = "waiting")]
    state: &'static str,
    /// What its next unit of work waits for.
    #[schema(example = "the next round")]
    waits_for: &'static str,
    /// When a wait for a time ends.
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    next_at: Option<String>,
    /// Units of work that were done since the start.
    units: u64,
    /// Units of work that failed since the start.
    errors: u64,
    /// How many of them since the last that was done.
    errors_in_a_row: u64,
    last_error: Option<WorkerError>,
    /// How much waits to be done, where there is a queue.
    queue: Option<u64>,
    /// How far the work under way is.
    progress: Option<String>,
}

/// Everything that goes on in the background.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Workers)]
pub struct WorkerList {
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    as_of: String,
    workers: Vec<Worker>,
}

/// What goes on in the background
///
/// Every worker of the node with its state, how much it has done, its last error and when it tries again.
#[utoipa::path(get, path = "/v1/workers", tag = "node",
    responses((status = 200, description = "All workers", body = WorkerList)))]
pub async fn workers(State(api): State<Api>) -> Json<WorkerList> {
    let statuses = api.host.metrics.workers.statuses();
    let as_of = rfc3339(api.host.clock.now_ms());
    Json(WorkerList { as_of, workers: statuses.iter().map(|status| Worker::new(status)).collect() })
}

impl Worker {
    fn new(status: &Status) -> Worker {
        let (spec, shown) = (&status.spec, status.shown());
        Worker {
            name: spec.name.clone(),
            does: spec.does,
            state: shown.state.name(),
            waits_for: spec.waits_for,
            next_at: shown.next_at_ms.map(rfc3339),
            units: shown.units,
            errors: shown.errors,
            errors_in_a_row: shown.errors_in_a_row,
            last_error: shown.last_error.as_ref().map(WorkerError::new),
            queue: shown.queue,
            progress: shown.progress,
        }
    }
}

impl WorkerError {
    fn new(error: &LastError) -> WorkerError {
        WorkerError { text: error.text.to_string(), at: rfc3339(error.at_ms) }
    }
}
