//! `GET /v1/reconciliation` and `POST /v1/reconciliation`: what recounts found, and having one made.

use std::ops::Range;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use serde::{Deserialize, Serialize};
use tally_core::limits::{CORRECTION_DELTAS_MAX, SMALL_BODY_BYTES_MAX};
use tally_core::nearest::nearest;

use super::corrections::check_author;
use crate::frontend::http::Api;
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::words::document::{given, parse};
use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::moment;
use crate::frontend::http::words::parameters::{Parameters, limit};
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::reconcile::{
    Compared, CounterReport, Difference, Hour, KeysLeftOut, ReconcileError, ReconcileHandle, Report, Wanted,
};

const EXAMPLE: &str = r#"{"counter":"impressions","apply":true,"author":"ops"}"#;
const ANONYMOUS: &str = "anonymous";

/// A recount that is asked for.
#[derive(Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReconciliationRequest)]
pub struct WantedBody {
    /// Only this declared counter
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "impressions")]
    counter: Option<String>,
    /// Only from this time on, in whole hours: RFC 3339, or a duration before now such as `-24h`. Counters without a roll-up by time are
    /// compared as a whole
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "-24h")]
    from: Option<String>,
    /// Only before this time; now if only `from` is given
    #[serde(default, deserialize_with = "given")]
    to: Option<String>,
    /// Apply the correction that brings the counters to what was counted again
    #[serde(default)]
    apply: bool,
    /// Who applies it
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "ops@example.com")]
    author: Option<String>,
}

/// What the last recounts found, the newest first.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Reconciliations {
    /// Counters that differ by more than 0.1 % in three hours, or as a whole in three recounts in a row
    alerts: Vec<String>,
    reports: Vec<ReportView>,
}

/// What a recount found.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportView {
    /// Where counters and events were seen
    #[schema(example = "1-0-4711")]
    position: String,
    #[schema(example = "2026-11-15T18:01:00.000Z")]
    at: String,
    /// The time that was asked for; `null` if all of it was
    from: Option<String>,
    to: Option<String>,
    counters: Vec<CounterReportView>,
    /// The number of the proposal that would put right what differs
    proposal: Option<u64>,
    /// It was applied with this run
    applied: bool,
    /// Why nothing is proposed though something differs, or why it was not applied, or what is proposed is not all; `null` otherwise
    not_corrected: Option<String>,
}

/// A counter and its recount.
#[derive(Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CounterReportView {
    #[schema(example = "impressions")]
    counter: String,
    /// Why it was not counted again; `null` if it was
    not_compared: Option<String>,
    /// That was tried, and failed
    failed: bool,
    /// In which buckets of time it was compared beside all of it: `hour` or longer; `null` if it has no roll-up by time
    #[schema(example = "hour")]
    buckets: Option<&'static str>,
    /// From where on it was compared in buckets
    #[schema(example = "2026-11-14T00:00:00.000Z")]
    buckets_from: Option<String>,
    keys: u64,
    /// Keys that were not compared, and why; `null` if all were
    left_out: Option<LeftOutView>,
    /// What all keys come to, with late entries that wait for their run
    live: i128,
    /// What they come to by the archive
    recount: i128,
    /// How many keys differ
    differing: u64,
    /// By how much, each key for itself
    difference: u128,
    /// That as a share of the recount
    drift: f64,
    /// The worst first
    differences: Vec<DifferenceView>,
    /// There are more than these
    truncated: bool,
    /// What all keys came to in the last buckets of time, and in those that differ, the last one first
    hours: Vec<HourView>,
}

/// Keys that were not compared.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = KeysLeftOut)]
pub struct LeftOutView {
    keys: u64,
    why: String,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct DifferenceView {
    #[schema(example = "impressions:a1")]
    id: String,
    /// In which bucket of time; left out if that is not known
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    bucket: Option<String>,
    live: i64,
    recount: i64,
}

/// What all keys came to in a bucket of time.
#[derive(Serialize, utoipa::ToSchema)]
pub struct HourView {
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    at: String,
    live: i128,
    recount: i128,
    /// By how much keys differ, each for itself
    difference: u128,
    /// That as a share of the recount
    drift: f64,
}

impl ReportView {
    fn new(report: &Report) -> ReportView {
        ReportView {
            position: report.position.to_string(),
            at: rfc3339(report.at_ms),
            from: report.range_ms.as_ref().map(|range| rfc3339(range.start)),
            to: report.range_ms.as_ref().map(|range| rfc3339(range.end)),
            counters: report.counters.iter().map(CounterReportView::new).collect(),
            proposal: report.proposal,
            applied: report.applied,
            not_corrected: report.not_corrected.clone(),
        }
    }
}

impl CounterReportView {
    fn new(report: &CounterReport) -> CounterReportView {
        let mut view = CounterReportView {
            counter: report.counter.clone(),
            drift: report.drift(),
            buckets: report.by_time.as_ref().map(|by| by.unit.name()),
            buckets_from: report.by_time.as_ref().map(|by| rfc3339(by.from_ms)),
            left_out: report.left_out.clone().map(|KeysLeftOut { keys, why }| LeftOutView { keys, why }),
            hours: report.by_time.iter().flat_map(|by| &by.hours).map(HourView::new).collect(),
            ..CounterReportView::default()
        };
        match &report.compared {
            Compared::Not(why) => view.not_compared = Some(why.clone()),
            Compared::Failed(why) => (view.not_compared, view.failed) = (Some(why.clone()), true),
            Compared::With { keys, live, recount, differing, difference, differences, has_more } => {
                (view.keys, view.live, view.recount) = (*keys, *live, *recount);
                (view.differing, view.difference) = (*differing, *difference);
                view.differences = differences.iter().map(DifferenceView::new).collect();
                view.truncated = *has_more;
            }
        }
        view
    }
}

impl DifferenceView {
    fn new(difference: &Difference) -> DifferenceView {
        let Difference { id, bucket_ms, live, recount } = difference.clone();
        DifferenceView { id, bucket: bucket_ms.map(rfc3339), live, recount }
    }
}

impl HourView {
    fn new(hour: &Hour) -> HourView {
        let Hour { at_ms, live, recount, difference } = *hour;
        HourView { at: rfc3339(at_ms), live, recount, difference, drift: hour.drift() }
    }
}

impl From<ReconcileError> for Problem {
    fn from(error: ReconcileError) -> Problem {
        match error {
            ReconcileError::Refused(refusal) => refusal.into(),
            ReconcileError::Correction(error) => error.into(),
            error @ ReconcileError::Sql(_) => Problem::new(ProblemKind::StoreFailed, error.to_string()),
            ReconcileError::Wrong(what) => Problem::new(ProblemKind::InvalidField, &*what),
            error @ ReconcileError::TooMany { .. } => {
                Problem::new(ProblemKind::TooManyCounters, error.to_string()).with("limit", CORRECTION_DELTAS_MAX)
            }
        }
    }
}

pub fn reconciler(api: &Api) -> Result<&ReconcileHandle, Problem> {
    api.host.reconcile.as_ref().ok_or_else(|| {
        Problem::new(ProblemKind::NoArchive, "counters are counted again from the archive, and this server keeps none")
    })
}

/// What recounts found
///
/// Every hour all declared counters are counted again from the archive, in SQL, and held against what they say. The newest report first.
#[utoipa::path(get, path = "/v1/reconciliation", tag = "archive",
    params(("limit" = Option<u64>, Query, description = "How many reports at most; all there are if left out")),
    responses((status = 200, description = "Reports", body = Reconciliations), Problem))]
pub async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<Reconciliations>, Problem> {
    let parameters = Parameters::read(&uri, &["limit"])?;
    let listed = parameters.text("limit").map_or(Ok(usize::MAX), |_| limit(&parameters))?;
    let (reports, alerts) = (reconciler(&api)?.reports(), reconciler(&api)?.alerts());
    let view = |report: &Arc<Report>| ReportView::new(report);
    Ok(Json(Reconciliations { alerts, reports: reports.iter().take(listed).map(view).collect() }))
}

/// Count again now
///
/// Answers when it is done. What differs is proposed as a correction; with `apply` it is applied as well.
#[utoipa::path(post, path = "/v1/reconciliation", tag = "archive", request_body(content = Option<WantedBody>),
    responses((status = 200, description = "What was found", body = ReportView), Problem))]
pub async fn run(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Json<ReportView>, Problem> {
    let wanted = wanted(&api, &headers, body).await?;
    let report = reconciler(&api)?.run(wanted).await?;
    Ok(Json(ReportView::new(&report)))
}

async fn wanted(api: &Api, headers: &HeaderMap, body: Body) -> Result<Wanted, Problem> {
    let body = Pieces::new(api, headers, body, SMALL_BODY_BYTES_MAX)?.collect().await?;
    let WantedBody { counter, from, to, apply, author } = match body.is_empty() {
        true => WantedBody::default(),
        false => parse(&body, EXAMPLE)?,
    };
    let author = author.unwrap_or_else(|| ANONYMOUS.to_owned());
    check_author(&author)?;
    if let Some(name) = &counter {
        check_declared(api, name)?;
    }
    let range_ms = range(from.as_deref(), to.as_deref(), api.host.clock.now_ms())?;
    Ok(Wanted { counter, range_ms, apply: apply.then_some(author) })
}

/// A stretch of time; `None` if neither end is given.
pub fn range(from: Option<&str>, to: Option<&str>, now_ms: u64) -> Result<Option<Range<u64>>, Problem> {
    let read = |name: &str, text: &str| {
        let moment = moment::parse(text, now_ms).and_then(|ms| u64::try_from(ms).ok());
        moment.ok_or_else(|| Problem::field(name, text, moment::FIX))
    };
    if from.is_none() && to.is_none() {
        return Ok(None);
    }
    let start = from.map_or(Ok(0), |from| read("from", from))?;
    let end = to.map_or(Ok(now_ms), |to| read("to", to))?;
    if start >= end {
        return Err(Problem::field("to", to.unwrap_or("now"), "it must be later than from"));
    }
    Ok(Some(start..end))
}

pub fn check_declared(api: &Api, name: &str) -> Result<(), Problem> {
    let declarations = api.counters.declarations();
    let known = || declarations.counters().iter().map(|counter| &*counter.name);
    if known().any(|known| known == name) {
        return Ok(());
    }
    let fix = match nearest(name, known()) {
        Some(near) => format!("no counter is declared by this name; did you mean {near}?"),
        None => "no counter is declared by this name".to_owned(),
    };
    Err(Problem::field("counter", name, &fix))
}
