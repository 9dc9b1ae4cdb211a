//! `GET /v1/probes`: how far the events have got that the node sends itself.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::time::Duration;
use tally_core::counter::Probes;

use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::probe::{Sent, Stage, StageShown, Trace};

/// How far probes get, at one stage: `sent = complete + missing + underWay`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeStage {
    /// `acknowledged` (durable), `applied` (a read shows it), `told` (its commit can be followed), or `archived` (its row can be read)
    #[schema(example = "applied")]
    stage: &'static str,
    /// Those that got here in time
    complete: u64,
    /// Those that did not
    missing: u64,
    /// Those that still may
    under_way: u64,
    /// After how long one is missing
    #[schema(example = 10000)]
    within_ms: u64,
    /// The median of the last hour, from when they were sent; `null` if none came
    p50_ms: Option<f64>,
    /// So long took 99 of 100 at most
    p99_ms: Option<f64>,
    /// The longest of the last hour
    max_ms: Option<f64>,
}

/// The oldest probe that is under way.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OldestProbe {
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    sent_at: String,
    /// Where it is awaited
    #[schema(example = "[\"archived\"]")]
    awaited: Vec<&'static str>,
}

/// What went wrong last.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ProbeProblem {
    text: String,
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    at: String,
}

/// Probes since the start of the server.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbesState {
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    as_of: String,
    #[schema(example = 10000)]
    every_ms: u64,
    sent: u64,
    /// Known ones that were sent again, and must be duplicates
    repeated: u64,
    /// Answers, values and rows that were not what they had to be; each is a bug, or a loss
    wrong: u64,
    stages: Vec<ProbeStage>,
    /// `null` if none is under way
    oldest: Option<OldestProbe>,
    /// `null` if nothing has gone wrong
    last_problem: Option<ProbeProblem>,
}

/// How far probes get
///
/// The server sends itself events of known outcome, as a client would, and follows each to where it should get. They are in no number
/// of anybody's counters.
#[utoipa::path(get, path = "/v1/probes", tag = "node",
    responses((status = 200, description = "Probes since the start", body = ProbesState), Problem))]
pub async fn probes(State(api): State<Api>) -> Result<Json<ProbesState>, Problem> {
    let (handle, settings) = (api.host.probes.as_ref(), api.counters.declarations().probes());
    let (Some(handle), Some(settings)) = (handle, settings) else {
        let detail = "this server sends no probes: write probes: {every: 10s} beside counters in its configuration";
        return Err(Problem::new(ProblemKind::NoProbes, detail));
    };
    let (now, now_ms) = (api.host.clock.passed(), api.host.clock.now_ms());
    Ok(Json(ProbesState::new(&handle.trace(), settings, now, now_ms)))
}

impl ProbesState {
    fn new(trace: &Trace, settings: Probes, now: Duration, now_ms: u64) -> ProbesState {
        ProbesState {
            as_of: rfc3339(now_ms),
            every_ms: settings.every_ms,
            sent: trace.sent,
            repeated: trace.repeated,
            wrong: trace.wrong,
            stages: trace.shown(now).iter().map(|shown| ProbeStage::new(shown, settings)).collect(),
            oldest: trace.under_way().front().map(OldestProbe::new),
            last_problem: trace
                .problem
                .as_ref()
                .map(|(at_ms, text)| ProbeProblem { text: text.clone(), at: rfc3339(*at_ms) }),
        }
    }
}

impl ProbeStage {
    fn new(shown: &StageShown, settings: Probes) -> ProbeStage {
        let [p50_ms, p99_ms, max_ms] = [0, 1, 2].map(|at| shown.took.map(|took| ms(took[at])));
        let StageShown { stage, complete, missing, under_way, .. } = *shown;
        let within_ms = stage.deadline(settings).as_millis() as u64;
        ProbeStage { stage: stage.name(), complete, missing, under_way, within_ms, p50_ms, p99_ms, max_ms }
    }
}

impl OldestProbe {
    fn new(sent: &Sent) -> OldestProbe {
        let awaited = Stage::ALL.into_iter().filter(|stage| sent.is_open(*stage)).map(Stage::name).collect();
        OldestProbe { sent_at: rfc3339(sent.at_ms), awaited }
    }
}

/// Milliseconds, to the microsecond.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
